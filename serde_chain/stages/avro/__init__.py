"""Avro, on fastavro or compiled; `arrow` is its batch form."""
