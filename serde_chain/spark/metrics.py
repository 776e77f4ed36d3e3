"""Counts of records and payloads, reported by Spark with each batch of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, functions
from pyspark.sql.types import BinaryType, DataType, LongType, StringType

from serde_chain.errors import ConfigError
from serde_chain.record import VALUE
from serde_chain.spark.columns.frame import optional_column, types_of
from serde_chain.spark.columns.kafka import HEADERS
from serde_chain.spark.columns.types import as_nullable
from serde_chain.spark.reading.unreadable import ERROR
from serde_chain.spark.udfs.retries import RETRIES
from serde_chain.wire import hop, kip1159

# By format, the header and content that mark an offloaded value; formats with their mark in the value are not counted.
_MARKS: Final[Mapping[str, bytes]] = {
    kip1159.MARKER: b"true",
    hop.FORMAT_HEADER: hop.EXTERNAL.encode(),
    "__large.message.backed.value": b"\1",
}
_SIZE: Final = f"{kip1159.MARKER}-size"
_IS_SIZE: Final = "^[0-9]{1,18}$"
# The columns that may exist besides the value.
_OTHERS: Final[Mapping[str, DataType]] = {"headers": HEADERS, RETRIES: LongType(), ERROR: StringType()}


def observe(name: str | Observation) -> Callable[[DataFrame], DataFrame]:
    """Make a transformation that counts records for Spark's own listeners; nothing passes through Python.

    Use it before or after ``decode``, or after ``encode``. Spark reports the counts in the progress of a streaming
    query (``observedMetrics``), to a ``QueryExecutionListener`` and in a ``pyspark.sql.Observation``.

    Args:
        name: Spark's name for the counts, or an ``Observation``, for a batch.

    Returns:
        A function from DataFrame to DataFrame that changes nothing. It counts, depending on the columns:

        * ``records``, and among them ``tombstones``, whose value is null; an unreadable record is not a tombstone;
        * ``bytes`` of the values as stored in the topic, if ``value`` is binary;
        * ``offloaded``, the records whose value is in a store, and ``offloaded_bytes``, their size there if the record
          states it, as KIP-1159's format does; both require ``headers``;
        * ``retries``, the requests repeated by stores, if ``serde_retries`` exists: after ``decode`` or
          ``encode`` with ``retries=True``;
        * ``errors``, the unreadable records, if ``serde_error`` exists: after ``decode`` in the mode
          PERMISSIVE.

    Raises:
        ConfigError: From the function: the column ``value`` is missing.

    Example:
        >>> alerts = records.transform(observe("alerts")).transform(decode(config))  # doctest: +SKIP
        >>> query.lastProgress.observedMetrics["alerts"].offloaded  # doctest: +SKIP
    """

    def transform(frame: DataFrame) -> DataFrame:
        """Count the records of a DataFrame."""
        types = types_of(frame, (VALUE, *_OTHERS))
        if types is None:
            # Spark looks for columns that may not exist in a selection only.
            found = {f"__serde_chain_{name}": optional_column(frame, name, kind) for name, kind in _OTHERS.items()}
            others = {name: functions.col(f"__serde_chain_{name}") for name in _OTHERS}
            counts = _counts(_size_if_binary(functions.col(VALUE)), others)
            return frame.withColumns(found).observe(name, *counts).drop(*found)
        if VALUE not in types:
            raise ConfigError(
                "the DataFrame has no column value",
                hint="observe() requires the columns of Spark's Kafka source, or of encode() or decode()",
                key=VALUE,
            )
        size = functions.length(VALUE) if isinstance(types[VALUE], BinaryType) else None
        others = {name: functions.col(name) for name in _OTHERS if name in types}
        if "headers" in types and as_nullable(types["headers"]) != HEADERS:
            del others["headers"]
        return frame.observe(name, *_counts(size, others))

    return transform


def _size_if_binary(value: Column) -> Column:
    """The bytes of a binary value; null for another type, which Spark finds out."""
    # Text of binary has the same bytes. Every type has a text, so Spark accepts the condition for all.
    return functions.when(functions.typeof(value) == "binary", functions.octet_length(value.cast("string")))


def _counts(size: Column | None, others: Mapping[str, Column]) -> list[Column]:
    """The counts, by the columns that exist.

    Args:
        size: The bytes of a value; None if it is not binary.
        others: The other columns.
    """
    value = functions.col(VALUE)
    # An unreadable record is null too, but not a tombstone.
    is_tombstone = value.isNull() & others[ERROR].isNull() if ERROR in others else value.isNull()
    counts = {"records": functions.count(functions.lit(1)), "tombstones": functions.count_if(is_tombstone)}
    if size is not None:
        counts["bytes"] = _sum(size)
    if "headers" in others:
        offloaded = functions.exists(others["headers"], _is_mark)
        sizes = functions.filter(others["headers"], lambda header: header["key"] == _SIZE)
        text = functions.get(sizes, functions.lit(0))["value"].cast("string")
        stated = functions.when(text.rlike(_IS_SIZE), text.cast("bigint"))
        counts["offloaded"] = functions.count_if(offloaded)
        counts["offloaded_bytes"] = _sum(functions.when(offloaded, stated))
    if RETRIES in others:
        counts["retries"] = _sum(others[RETRIES])
    if ERROR in others:
        counts["errors"] = functions.count_if(others[ERROR].isNotNull())
    return [column.alias(count) for count, column in counts.items()]


def _is_mark(header: Column) -> Column:
    def says(name: str, content: bytes) -> Column:
        return (header["key"] == name) & (functions.lower(header["value"].cast("string")) == content.decode())

    return reduce(or_, [says(name, content) for name, content in _MARKS.items()])


def _sum(column: Column) -> Column:
    """A sum; 0 beyond 64 bits, which sizes written by others may reach."""
    return functions.coalesce(functions.try_sum(column), functions.lit(0))
