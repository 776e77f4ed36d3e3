"""Column functions: convert a Kafka value, with its other columns, into a typed column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql.types import DataType

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import as_topics, check_engine, check_mode
from serde_chain.spark.chains.opened import OpenedChain, open_chain
from serde_chain.spark.chains.plan import FieldPlan, ReadPlan
from serde_chain.spark.chains.portable import load
from serde_chain.spark.columns.kafka import CONTEXT, ColumnOrName, as_column, called, typed_columns
from serde_chain.spark.columns.types import arrow_of
from serde_chain.spark.prerequisites import check_packages
from serde_chain.spark.reading.engine import choose
from serde_chain.spark.reading.functions import DECODE, read_field, result_type
from serde_chain.spark.udfs.make import make_udf


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
        headers: The column with the headers, as returned by Spark's Kafka source with ``includeHeaders``; None if
            no stage needs any.
        config: The configuration: a mapping, or the path of a TOML or Java ``.properties`` file.
        topic: Column with the topic. This and the next two identify the record in errors.
        partition: Column with the partition.
        offset: Column with the offset.
        key: Column with the keys as received, for stages that need them.
        schema: Spark type, or its DDL string, which overrides the chain's. Values are matched to it by field
            names. JSON without it stays text.
        mode: ``FAILFAST`` ends the query with an error; ``PERMISSIVE`` and ``DROPMALFORMED`` return null for an
            undecodable record (:func:`serde_chain.spark.decode` can also drop rows, and reports the error).
        engine: As in :func:`serde_chain.spark.decode`.
        topics: As in :func:`serde_chain.spark.decode`.

    Returns:
        A column of the schema's type in ``from_avro``. If it calls Python, it counts as nondeterministic, so that Spark
        evaluates it once.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.

    Example:
        >>> value = deserialize("value", "headers", config, topic="topic", offset="offset")  # doctest: +SKIP
        >>> records.select(value.alias("alert")).select("alert.id")  # doctest: +SKIP
    """
    check_packages()
    check_engine(engine)
    mode, loaded = check_mode(mode), load(config, () if schema is not None else as_topics(topics))
    chain = open_values(loaded, schema)
    field = chain.whole
    _check_headers(field, given=headers is not None)
    choice = choose(chain, field, engine=engine, mode=mode, topics=as_topics(topics))
    beside = typed_columns(headers=headers, topic=topic, partition=partition, offset=offset, key=key)
    columns = {VALUE: as_column(value), **beside}
    return called("deserialize", value, read_field("deserialize", loaded, columns, field, choice, mode=mode))


def deserialize_udf(
    config: Config | str | Path,
    *,
    schema: DataType | str | None = None,
    mode: str = "FAILFAST",
    kind: str | None = None,
) -> Callable[..., Column]:
    """Make :func:`deserialize` as a function of columns: an Arrow UDF or a pandas UDF.

    Args:
        config: As in :func:`deserialize`.
        schema: As in :func:`deserialize`.
        mode: As in :func:`deserialize`.
        kind: ``arrow`` (pyspark 4.1 or newer) or ``pandas`` (any pyspark); None for ``arrow`` if pyspark has it, and
            ``pandas`` otherwise. Both return the same column.

    Returns:
        A user-defined function of these columns, all but the first optional: value, headers, topic, partition,
        offset, key. It raises ConfigError if the chain needs the headers and does not get them.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing, or ``kind`` is ``arrow`` and pyspark older than 4.1.

    Example:
        >>> to_alert = deserialize_udf(config)  # doctest: +SKIP
        >>> records.select(to_alert("value", "headers").alias("alert"))  # doctest: +SKIP
    """
    check_packages()
    mode, loaded = check_mode(mode), load(config)
    field, names = open_values(loaded, schema).whole, (VALUE, "headers", *CONTEXT, KEY)
    plan = ReadPlan(loaded, names, field, None, (), mode)
    function = make_udf("deserialize", DECODE, plan, result_type(plan), kind=kind)

    def call(*columns: ColumnOrName) -> Column:
        _check_headers(field, given=len(columns) > names.index("headers"))
        column: Column = function(*columns)
        return column

    return call


def _check_headers(field: FieldPlan, *, given: bool) -> None:
    """Refuse missing headers: references would be taken for values."""
    if field.needs_headers and not given:
        raise ConfigError(
            "the chain requires the record's headers",
            hint="Pass the column headers, read with includeHeaders",
            key="headers",
        )


def open_values(config: dict[str, object], schema: DataType | str | None) -> OpenedChain:
    """The chain of values, by the configuration and the user's type."""
    chain = open_chain(config, is_key=False, given=None if schema is None else arrow_of(schema))
    if chain is None:
        raise ConfigError("the configuration names no value.deserializers", key="value.deserializers")
    return chain
