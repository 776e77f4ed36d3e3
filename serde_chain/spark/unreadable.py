"""Records that could not be read, as dead letters for Spark's Kafka sink."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StructType

from serde_chain.clients.dead_letters import header_name
from serde_chain.errors import ConfigError
from serde_chain.spark.plan.kafka import HEADERS

__all__ = ["ERROR", "RAW", "dead_letters", "raw_records"]

ERROR: Final = "serde_error"
RAW: Final = "serde_raw"
_FIELDS: Final = ("value", "headers", "key", "timestamp")


def raw_records(frame: DataFrame) -> DataFrame:
    """A DataFrame of Spark's Kafka source with each record once more, as it came, in the column ``serde_raw``."""
    return frame.withColumn(RAW, functions.struct(*[name for name in _FIELDS if name in frame.columns]))


def dead_letters(frame: DataFrame, topic: str) -> DataFrame:
    """The records that could not be read, for Spark's Kafka sink.

    They are as the dead letters of :class:`serde_chain.Consumer`: key, value and headers as they came, and headers that
    say where the record was and why it could not be read. ``serde-chain replay`` puts them back.

    Args:
        frame: What ``decode(config, mode="PERMISSIVE", raw=True)`` has made of Spark's Kafka source.
        topic: The dead-letter topic.

    Returns:
        A DataFrame of ``topic``, ``key``, ``value`` and ``headers``.

    Raises:
        ConfigError: The DataFrame is another one.

    Example:
        >>> read = records.transform(decode(config, mode="PERMISSIVE", raw=True))  # doctest: +SKIP
        >>> dead_letters(read, "alerts-dead").write.format("kafka").options(**kafka).save()  # doctest: +SKIP
    """
    missing = next((name for name in (ERROR, RAW, "topic", "partition", "offset") if name not in frame.columns), None)
    if missing is not None:
        raise ConfigError(
            f"the DataFrame has no column {missing}",
            hint='dead_letters() takes what decode(config, mode="PERMISSIVE", raw=True) returns, with all its columns',
            key=missing,
        )
    kind = frame.schema[RAW].dataType
    fields = kind.names if isinstance(kind, StructType) else []
    raw = functions.col(RAW)
    own = raw["headers"] if "headers" in fields else functions.lit(None).cast(HEADERS)
    said = {
        "kind": functions.lit("SerializationError"),
        "message": functions.substring(functions.col(ERROR), 1, 1_000),
        "topic": functions.col("topic"),
        "partition": functions.col("partition").cast("string"),
        "offset": functions.col("offset").cast("string"),
    }
    if "timestamp" in fields:
        said["timestamp"] = functions.unix_millis(raw["timestamp"]).cast("string")
    more = functions.filter(functions.array(*[_header(name, value) for name, value in said.items()]), _is_there)
    return frame.where(functions.col(ERROR).isNotNull()).select(
        functions.lit(topic).alias("topic"),
        (raw["key"] if "key" in fields else functions.lit(None).cast("binary")).alias("key"),
        raw["value"].alias("value"),
        functions.concat(functions.coalesce(own, functions.array().cast(HEADERS)), more).alias("headers"),
    )


def _header(name: str, value: Column) -> Column:
    return functions.struct(functions.lit(header_name(name)).alias("key"), value.cast("binary").alias("value"))


def _is_there(header: Column) -> Column:
    return header["value"].isNotNull()
