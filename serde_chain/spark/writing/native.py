"""Columns for writing with the engine ``native``: Spark's own functions make the bytes, in the JVM."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Final

from pyspark.sql import Column, functions

from serde_chain.spark.writing.engine import SparkWriter

# Length fields of a header's name and value.
_HEADER_OVERHEAD: Final = 10


def write_natively(writer: SparkWriter, value: Column) -> Column:
    """Write a column, including each record's prefix.

    Args:
        writer: Spark's instructions.
        value: The column.

    Returns:
        A binary column; null for null values.
    """
    if writer.kind == "bytes":
        return value
    if writer.kind == "string":
        return value.cast("binary")
    from pyspark.sql.avro import functions as avro

    data = avro.to_avro(value, writer.schema)
    # SQL's concatenation has no measurable cost, and is null for null records.
    return functions.concat(functions.lit(writer.prefix), data) if writer.prefix else data


def size_beside_value(key: Column | None, headers: Column | None) -> Column:
    """The bytes of a record's key and headers.

    Args:
        key: The encoded key; None if there is no such column.
        headers: The headers; None if there is no such column.
    """
    sizes = [functions.lit(0)]
    if key is not None:
        sizes.append(_octets(key))
    if headers is not None:

        def add(total: Column, header: Column) -> Column:
            return total + _octets(header["key"]) + _octets(header["value"]) + _HEADER_OVERHEAD

        sizes.append(functions.coalesce(functions.aggregate(headers, functions.lit(0), add), functions.lit(0)))
    return reduce(operator.add, sizes)


def _octets(data: Column) -> Column:
    return functions.coalesce(functions.octet_length(data), functions.lit(0))
