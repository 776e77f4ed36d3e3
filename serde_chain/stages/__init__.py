"""Stages: a file or folder for each kind, with both directions in it; their names are in `serde_chain.catalogue`."""
