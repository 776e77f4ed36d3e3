"""JSON, on orjson."""
