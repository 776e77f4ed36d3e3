"""Large payloads in a payload store, and references in their place (KIP-1159)."""
