"""Avro into Arrow columns, without a Python object per record."""
