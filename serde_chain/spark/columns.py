"""Column functions: one Kafka value, by its columns, into a typed column."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, functions
from pyspark.sql.types import DataType

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.record import VALUE
from serde_chain.spark.jvm.columns import bind, read_natively
from serde_chain.spark.plan.engine import as_topics, check_engine, choose
from serde_chain.spark.plan.plan import PERMISSIVE, FieldPlan, Plan, check_mode, load, plan_field
from serde_chain.spark.plan.prerequisites import check_packages
from serde_chain.spark.plan.schemas import HEADERS, ColumnOrName, arrow_of, as_column, as_nullable, spark_of
from serde_chain.spark.references import plan_references, read_bytes
from serde_chain.spark.udfs import make_function

__all__ = ["ColumnOrName", "deserialize", "deserialize_udf"]

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
    engine: str = "auto",
    topics: str | Sequence[str] = (),
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
        engine: As in :func:`serde_chain.spark.decode`.
        topics: As in :func:`serde_chain.spark.decode`.

    Returns:
        A column of the type that the schema has in ``from_avro``. Where it calls Python it counts as not deterministic,
        so that Spark evaluates it once.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.
    """
    check_packages()
    check_engine(engine)
    mode, loaded = check_mode(mode), load(config)
    field = _field(loaded, schema)
    if headers is None and field.needs_headers:
        raise ConfigError(
            "the chain needs the record's headers",
            hint="Pass the column headers, read with includeHeaders",
            key="headers",
        )
    choice = choose(loaded, field, engine=engine, mode=mode, topics=as_topics(topics))
    if choice.native:
        places = {"topic": topic, "partition": partition, "offset": offset}
        context = {name: as_column(found) for name, found in places.items() if found is not None}
        kind = spark_of(field.arrow_type)

        def read(data: Column) -> Column:
            """Have Spark read what came, or what a reference stood for."""
            return read_natively(choice, data, kind, mode=mode, context=context, field=VALUE)

        plan, names = plan_references(loaded, is_key=False, stages=choice.before) if choice.before else (None, None)
        if plan is None:
            return read(as_column(value))
        head = functions.lit(None) if headers is None else headers
        return bind(read_bytes(value, head, loaded, plan, names=names, context=places, mode=mode), read)
    function = _function(loaded, field, mode)
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
        config: As in :func:`deserialize`.
        schema: As in :func:`deserialize`.
        mode: As in :func:`deserialize`.

    Returns:
        A user-defined function that takes columns in this order, all but the first optional: value, headers, topic,
        partition, offset, key.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.
    """
    check_packages()
    mode, loaded = check_mode(mode), load(config)
    return _function(loaded, _field(loaded, schema), mode)


def _field(config: dict[str, object], schema: DataType | str | None) -> FieldPlan:
    field = plan_field(config, is_key=False, given=None if schema is None else arrow_of(schema))
    if field is None:
        raise ConfigError("the configuration names no value.deserializers", key="value.deserializers")
    return field


def _function(config: dict[str, object], field: FieldPlan, mode: str) -> Callable[..., Column]:
    plan = Plan(config, _ARGUMENTS, field, None, gives=(), mode=mode, python=sys.executable)
    returns = spark_of(field.arrow_type)
    if mode == PERMISSIVE:
        returns = as_nullable(returns)
    return make_function("deserialize", plan, returns)
