"""Expressions for Spark's own functions, which read records without Python."""
