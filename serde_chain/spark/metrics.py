"""Counts of records and payloads, which Spark reports with each batch of a query."""

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

# The header of a value in a store, and what it says, by format; formats whose mark is in the value show nothing here.
_MARKS: Final[Mapping[str, bytes]] = {
    kip1159.MARKER: b"true",
    hop.FORMAT_HEADER: hop.EXTERNAL.encode(),
    "__large.message.backed.value": b"\1",
}
_SIZE: Final = f"{kip1159.MARKER}-size"


def observe(name: str | Observation) -> Callable[[DataFrame], DataFrame]:
    """Make a transformation that counts records, for Spark's own listeners: nothing passes through Python.

    It stands before ``decode``, after it, or after ``encode``. Spark reports the counts in the progress of a streaming
    query (``observedMetrics``), to a ``QueryExecutionListener`` and in a ``pyspark.sql.Observation``.

    Args:
        name: What Spark calls the counts, or an ``Observation``, for a batch.

    Returns:
        A function from DataFrame to DataFrame, which changes nothing. It counts what the columns tell:

        * ``records``, and of these ``tombstones``, whose value is null; one that could not be read is none;
        * ``bytes`` of the values as they stand in the topic, where ``value`` is binary;
        * ``offloaded``, the records whose value is in a store, and ``offloaded_bytes`` there, where the record says so,
          as those of KIP-1159's format do, where there are ``headers``;
        * ``retries``, the requests that stores have repeated, where there is ``serde_retries``: after ``decode`` or
          ``encode`` with ``retries=True``;
        * ``errors``, the records that could not be read, where there is ``serde_error``: after ``decode`` in the mode
          PERMISSIVE.

    Raises:
        ConfigError: From the function: there is no column ``value``.

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
                hint="observe() takes what Spark's Kafka source returns, or what encode() or decode() do",
                key=VALUE,
            )
        return frame.observe(name, *[column.alias(count) for count, column in _counts(types).items()])

    return transform


def _counts(types: Mapping[str, DataType]) -> dict[str, Column]:
    value = functions.col(VALUE)
    # A record that could not be read is null as well, and no tombstone.
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
    """A sum; 0 where it has more than 64 bits, as that of sizes may that others have written."""
    return functions.coalesce(functions.try_sum(column), functions.lit(0))
