"""``serde-chain browse``: a topic's records as pages for a browser on this machine."""
