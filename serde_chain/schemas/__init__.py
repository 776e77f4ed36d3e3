"""Schema registries, and how a record names its schema."""
