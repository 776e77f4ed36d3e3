"""Undecodable records as dead letters for Spark's Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StructType

from serde_chain.clients.dead_letters import header_name
from serde_chain.errors import ConfigError
from serde_chain.spark.columns.frame import types_of
from serde_chain.spark.columns.kafka import HEADERS

ERROR: Final = "serde_error"
RAW: Final = "serde_raw"
_FIELDS: Final = ("value", "headers", "key", "timestamp")


def raw_records(frame: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """A DataFrame with a copy of each received record in the column ``serde_raw``.

    Args:
        frame: The DataFrame.
        columns: Its columns by their names in Spark's Kafka source.
    """
    return frame.withColumn(RAW, functions.struct(*[columns[name].alias(name) for name in _FIELDS if name in columns]))


def dead_letters(frame: DataFrame, topic: str) -> DataFrame:
    """The undecodable records, for Spark's Kafka sink.

    They have the form of :class:`serde_chain.Consumer`'s dead letters: key, value and headers as received, and headers
    with the record's position and error. ``serde-chain replay`` puts them back.

    Args:
        frame: The result of ``decode(config, mode="PERMISSIVE", raw=True)`` for Spark's Kafka source.
        topic: The dead-letter topic.

    Returns:
        A DataFrame of ``topic``, ``key``, ``value`` and ``headers``.

    Raises:
        ConfigError: The DataFrame has another origin.

    Example:
        >>> read = records.transform(decode(config, mode="PERMISSIVE", raw=True))  # doctest: +SKIP
        >>> dead_letters(read, "alerts-dead").write.format("kafka").options(**kafka).save()  # doctest: +SKIP
    """
    needed = (ERROR, RAW, "topic", "partition", "offset")
    types = types_of(frame, needed)
    missing = None if types is None else next((name for name in needed if name not in types), None)
    if missing is not None:
        raise ConfigError(
            f"the DataFrame has no column {missing}",
            hint='dead_letters() requires all columns of decode(config, mode="PERMISSIVE", raw=True)',
            key=missing,
        )
    kind = None if types is None else types[RAW]
    # Where decode() does not know the columns either, it adds all fields.
    fields = kind.names if isinstance(kind, StructType) else _FIELDS if kind is None else ()
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
