"""The metadata in front of a value (PIP-70) as a column; the payload stays in the JVM."""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import Column, functions

from payload_stores.plugins import require
from serde_chain.base import Buffer, Deserializer
from serde_chain.record import VALUE, Context
from serde_chain.spark.arguments import check_mode
from serde_chain.spark.chains.plan import FieldPlan
from serde_chain.spark.columns.kafka import ColumnOrName, as_column, called
from serde_chain.spark.prerequisites import check_packages
from serde_chain.spark.reading.functions import run_in_workers
from serde_chain.wire.entry_metadata import MAGIC, peek

_HEAD_BYTES: Final = 6
# Far more than both fields take; anything longer counts as truncated.
_MOST_BYTES: Final = 1 << 16


class _Peek(Deserializer[dict[str, Any]]):
    """Reads the metadata in front of a payload."""

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> dict[str, Any] | None:
        metadata = None if data is None else peek(data)
        return None if metadata is None else metadata._asdict()


def entry_metadata(value: ColumnOrName, *, mode: str = "FAILFAST") -> Column:
    """Read the frame of PIP-70 ("raw message metadata") in front of values.

    Args:
        value: The binary column with the values as stored in the topic. Their payloads are not touched.
        mode: ``FAILFAST`` ends the query at a malformed frame; ``PERMISSIVE`` and ``DROPMALFORMED`` return null.

    Returns:
        A column ``struct<broker_timestamp: bigint (ms since the epoch), index: bigint>``, as
        :func:`serde_chain.wire.entry_metadata.peek` returns it; null without a frame.

    Raises:
        ConfigError: The mode is unknown.
        MissingDependencyError: A package is missing.

    Example:
        >>> records.select(entry_metadata("value").alias("metadata")).select("metadata.index")  # doctest: +SKIP
    """
    check_packages()
    arrow: Any = require("pyarrow", "spark")
    kind = arrow.struct([("broker_timestamp", arrow.int64()), ("index", arrow.int64())])
    field = FieldPlan(is_key=False, arrow_type=kind, needs_headers=False, given=True)
    columns = {VALUE: _head(as_column(value))}
    config = {"value.deserializer": _Peek}
    made = run_in_workers("entry_metadata", config, columns, value=field, mode=check_mode(mode))
    return called("entry_metadata", value, made)


def _head(value: Column) -> Column:
    """A value up to its payload."""
    size = functions.conv(functions.hex(functions.substring(value, 3, 4)), 16, 10).cast("bigint")
    length = functions.least(size, functions.lit(_MOST_BYTES)) + _HEAD_BYTES
    framed = functions.startswith(value, functions.lit(MAGIC))
    return functions.when(framed, value.substr(functions.lit(1), length.cast("int")))
