"""Avro, on fastavro; `arrow` is a fast reader for batches."""
