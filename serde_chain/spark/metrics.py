"""Counts of records and payloads, reported by Spark with each batch of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from typing import Final

from pyspark.sql import Column, DataFrame, Observation, functions
from pyspark.sql.types import BinaryType, DataType

from serde_chain.errors import ConfigError
from serde_chain.record import VALUE
from serde_chain.spark.plan.kafka import HEADERS
from serde_chain.spark.plan.reading import RETRIES
from serde_chain.spark.plan.types import as_nullable
from serde_chain.spark.unreadable import ERROR
from serde_chain.wire import hop, kip1159

__all__ = ["observe"]

# By format, the header and content that mark an offloaded value; formats with their mark in the value are not counted.
_MARKS: Final[Mapping[str, bytes]] = {
    kip1159.MARKER: b"true",
    hop.FORMAT_HEADER: hop.EXTERNAL.encode(),
    "__large.message.backed.value": b"\1",
}
_SIZE: Final = f"{kip1159.MARKER}-size"


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
        types = {field.name: field.dataType for field in frame.schema}
        if VALUE not in types:
            raise ConfigError(
                "the DataFrame has no column value",
                hint="observe() requires the columns of Spark's Kafka source, or of encode() or decode()",
                key=VALUE,
            )
        return frame.observe(name, *[column.alias(count) for count, column in _counts(types).items()])

    return transform


def _counts(types: Mapping[str, DataType]) -> dict[str, Column]:
    value = functions.col(VALUE)
    # An unreadable record is null too, but not a tombstone.
    is_tombstone = value.isNull() & functions.col(ERROR).isNull() if ERROR in types else value.isNull()
    counts = {"records": functions.count(functions.lit(1)), "tombstones": functions.count_if(is_tombstone)}
    if isinstance(types[VALUE], BinaryType):
        counts["bytes"] = _sum(functions.length(value))
    if "headers" in types and as_nullable(types["headers"]) == HEADERS:
        headers = functions.col("headers")
        offloaded = functions.exists(headers, _is_mark)
        sizes = functions.filter(headers, lambda header: header["key"] == _SIZE)
        size = functions.get(sizes, functions.lit(0))["value"].cast("string").try_cast("bigint")
        counts["offloaded"] = functions.count_if(offloaded)
        counts["offloaded_bytes"] = _sum(functions.when(offloaded, size))
    if RETRIES in types:
        counts["retries"] = _sum(functions.col(RETRIES))
    if ERROR in types:
        counts["errors"] = functions.count_if(functions.col(ERROR).isNotNull())
    return counts


def _is_mark(header: Column) -> Column:
    def says(name: str, content: bytes) -> Column:
        return (header["key"] == name) & (functions.lower(header["value"].cast("string")) == content.decode())

    return reduce(or_, [says(name, content) for name, content in _MARKS.items()])


def _sum(column: Column) -> Column:
    """A sum; 0 beyond 64 bits, which sizes written by others may reach."""
    return functions.coalesce(functions.try_sum(column), functions.lit(0))
