"""Columns for the engine ``native`` when it writes: Spark's own functions make the bytes, in the JVM."""

from __future__ import annotations

from pyspark.sql import Column, functions

from serde_chain.spark.plan.native_writing import NativeWriter

__all__ = ["write_natively"]


def write_natively(writer: NativeWriter, value: Column) -> Column:
    """Write a column, with what stands in front of each record.

    Args:
        writer: What Spark is to do.
        value: The column.

    Returns:
        A binary column; null where the value is.
    """
    if writer.kind == "bytes":
        return value
    if writer.kind == "string":
        return value.cast("binary")
    from pyspark.sql.avro import functions as avro

    data = avro.to_avro(value, writer.schema)
    # SQL's concatenation costs nothing that could be measured, and is null where the record is.
    return functions.concat(functions.lit(writer.prefix), data) if writer.prefix else data
