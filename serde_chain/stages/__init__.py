"""Stages: a file or folder per kind, with both directions; `serde_chain.catalogue` contains their names."""
