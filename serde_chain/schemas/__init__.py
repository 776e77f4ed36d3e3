"""Schema registries, and the framings by which records name their schemas."""
