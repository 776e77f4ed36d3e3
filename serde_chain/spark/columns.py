"""Column functions: one Kafka value, by its columns, into a typed column."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, functions
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructField, StructType

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.spark.functions import make_function
from serde_chain.spark.plan import PERMISSIVE, Plan, check_mode, load, plan_field
from serde_chain.spark.prerequisites import check_packages
from serde_chain.spark.schemas import arrow_of, as_nullable, spark_of

__all__ = ["HEADERS", "ColumnOrName", "as_column", "deserialize", "deserialize_udf"]

ColumnOrName: TypeAlias = Column | str

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
"""The type of headers in Spark's Kafka source."""
_ARGUMENTS: Final = ("value", "headers", "topic", "partition", "offset", "key")


def deserialize(
    value: ColumnOrName,
    headers: ColumnOrName | None,
    config: Config | str | Path,
    *,
    topic: ColumnOrName | None = None,
    partition: ColumnOrName | None = None,
    offset: ColumnOrName | None = None,
    key: ColumnOrName | None = None,
    schema: DataType | str | None = None,
    mode: str = "FAILFAST",
) -> Column:
    """Deserialize the values of Kafka records with ``value.deserializers``.

    Args:
        value: The binary column with the values.
        headers: The column with the headers, as Spark's Kafka source gives it with ``includeHeaders``; None if no stage
            needs any.
        config: The configuration: a mapping, or the path of a TOML or Java ``.properties`` file.
        topic: Column with the topic. This and the next two say in errors which record it was.
        partition: Column with the partition.
        offset: Column with the offset.
        key: Column with the keys as they came, for stages that need them.
        schema: Spark type, or its DDL string, in place of the one that the chain has. Values are fitted to it by the
            names of fields. JSON without it stays text.
        mode: ``FAILFAST`` ends the query with an error; ``PERMISSIVE`` and ``DROPMALFORMED`` give null for a record
            that cannot be read (:func:`serde_chain.spark.decode` also drops rows, and says what was wrong).

    Returns:
        A column of the type that the schema has in ``from_avro``. It counts as not deterministic, so that Spark
        evaluates it once.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.
    """
    function, needs_headers = _function(config, schema, mode)
    if headers is None and needs_headers:
        raise ConfigError(
            "the chain needs the record's headers",
            hint="Pass the column headers, read with includeHeaders",
            key="headers",
        )
    if headers is None and any(argument is not None for argument in (topic, partition, offset, key)):
        headers = functions.lit(None)
    given: list[Any] = [value, headers, topic, partition, offset, key]
    while given[-1] is None:
        given.pop()
    columns = [functions.lit(None) if found is None else as_column(found) for found in given]
    if len(columns) > 1:
        # Other types than that of headers are refused here when the query is analyzed.
        columns[1] = columns[1].cast(HEADERS)
    typed = zip(columns, (None, None, "string", "int", "long", "binary"), strict=False)
    result: Column = function(*(column if kind is None else column.cast(kind) for column, kind in typed))
    return result


def deserialize_udf(
    config: Config | str | Path, *, schema: DataType | str | None = None, mode: str = "FAILFAST"
) -> Callable[..., Column]:
    """Make :func:`deserialize` as a function of columns: an Arrow UDF, or a pandas UDF before pyspark 4.1.

    Args:
        config: As of :func:`deserialize`.
        schema: As of :func:`deserialize`.
        mode: As of :func:`deserialize`.

    Returns:
        A user-defined function that takes columns in this order, all but the first optional: value, headers, topic,
        partition, offset, key.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.
    """
    return _function(config, schema, mode)[0]


def _function(
    config: Config | str | Path, schema: DataType | str | None, mode: str
) -> tuple[Callable[..., Column], bool]:
    """The function, and whether it needs headers."""
    check_packages()
    mode = check_mode(mode)
    loaded = load(config)
    field = plan_field(loaded, is_key=False, given=None if schema is None else arrow_of(schema))
    if field is None:
        raise ConfigError("the configuration names no value.deserializers", key="value.deserializers")
    plan = Plan(loaded, _ARGUMENTS, field, None, whole=False, mode=mode, python=sys.executable)
    returns = spark_of(field.arrow_type)
    if mode == PERMISSIVE:
        returns = as_nullable(returns)
    return make_function("deserialize", plan, returns), field.needs_headers


def as_column(given: ColumnOrName) -> Column:
    """A column by its name, or as it is."""
    return functions.col(given) if isinstance(given, str) else given
