"""Columns whose references are fetched only by queries that use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import StructType

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.spark.arguments import FAILFAST, check_mode
from serde_chain.spark.chains.opened import open_chain
from serde_chain.spark.chains.portable import load
from serde_chain.spark.columns.frame import in_own_step
from serde_chain.spark.columns.headers import last_header, marked
from serde_chain.spark.columns.kafka import ColumnOrName, as_column, called, typed_columns
from serde_chain.spark.columns.types import spark_of
from serde_chain.spark.fields.plan import FetchPlan
from serde_chain.spark.fields.planning import FieldsPlan, plan_fields
from serde_chain.spark.prerequisites import check_packages
from serde_chain.spark.udfs.make import make_udf
from serde_chain.stages.large_fields.options import PATHS
from serde_chain.wire.large_fields import HEADER

_FETCH: Final = "serde_chain.spark.fields.worker:fetch_batches"
_ENTRIES: Final = "array<struct<path: string>>"

_RECORD: Final = "__serde_chain_record"
_FIELD: Final = "__serde_chain_field_{}"


def resolve_fields(
    value: ColumnOrName,
    headers: ColumnOrName,
    config: Config | str | Path,
    *,
    topic: ColumnOrName | None = None,
    partition: ColumnOrName | None = None,
    offset: ColumnOrName | None = None,
    mode: str = "FAILFAST",
) -> Column:
    """Replace references in the fields of decoded values by their payloads.

    For values decoded by others, such as ``from_avro``. Each column that may hold references is an expression of its
    own: a query fetches only those it uses. Only records with the header ``large-fields`` cross into Python.

    Args:
        value: The struct column with the values. It is used several times: make it in a previous step, with
            ``withColumn``.
        headers: The column with the headers, as returned by Spark's Kafka source with ``includeHeaders``.
        config: The configuration of a consumer whose ``value.deserializers`` end with ``large-fields``, after the
            stage that knows the schema. Only ``large-fields`` is run. ``large.fields.paths``, if set, names the
            columns; otherwise they are all of bytes and strings in the schema.
        topic: Column with the topic. This and the next two identify the record in errors.
        partition: Column with the partition.
        offset: Column with the offset.
        mode: ``FAILFAST`` ends the query at a field that cannot be fetched; ``PERMISSIVE`` and ``DROPMALFORMED`` leave
            null there.

    Returns:
        The same struct; the fields that may be moved are nullable.

    Raises:
        ConfigError: The configuration or an argument is wrong.
        MissingDependencyError: A package is missing.

    Example:
        >>> decoded = records.withColumn("alert", from_avro("value", schema))  # doctest: +SKIP
        >>> decoded.select(resolve_fields("alert", "headers", config).alias("alert"))  # doctest: +SKIP
    """
    check_packages()
    mode, loaded = check_mode(mode), load(config)
    chain = open_chain(loaded, is_key=False)
    plan = None if chain is None else plan_fields(chain)
    if plan is None:
        raise ConfigError(
            "the last stage of the configuration fetches no fields",
            hint="Name large-fields last in value.deserializers",
            key="value.deserializers",
        )
    if isinstance(plan, str):
        raise ConfigError(f"fields cannot be fetched by column: {plan}", key="value.deserializers")
    beside = typed_columns(headers=headers, topic=topic, partition=partition, offset=offset)
    whole = as_column(value)
    crossing = marked(beside["headers"], plan.markers) & whole.isNotNull()
    record = _record(crossing, beside)
    made = _checked(whole, crossing, beside["headers"], plan)
    for column in plan.columns:
        work = FetchPlan(loaded, column, tuple(beside), mode)
        made = made.withField(_quoted(column.path), _fetched(whole, record, work))
    return called("resolve_fields", value, made)


def read_for_steps(
    name: str, value: Column, exists: Column, beside: Mapping[str, Column], plan: FieldsPlan
) -> dict[str, Column]:
    """The columns of a step that reads values, for the steps of :func:`in_steps` behind it.

    Args:
        name: The name of the column with the values.
        value: The values.
        exists: Whether there is a value.
        beside: The columns ``headers`` and, if known, others of Spark's Kafka source.
        plan: The columns to fetch.
    """
    crossing = marked(beside["headers"], plan.markers) & exists
    return {name: _checked(value, crossing, beside["headers"], plan), _RECORD: _record(crossing, beside)}


def in_steps(
    frame: DataFrame,
    value: str,
    config: Mapping[str, object],
    plan: FieldsPlan,
    *,
    context: tuple[str, ...],
    nullable: bool,
) -> tuple[DataFrame, Column, tuple[str, ...]]:
    """Fetch each column in a step of its own; Spark drops the steps whose columns a query does not use.

    The values are then structs of plain columns, which Spark takes apart wherever it meets a query of their fields.

    Args:
        frame: The DataFrame, with the columns of :func:`read_for_steps`.
        value: The name of the struct column with the values.
        config: Flat configuration.
        plan: The columns.
        context: The names of the columns that :func:`read_for_steps` was given.
        nullable: Whether values may be null. Spark then takes apart less: see docs/spark-execution.md.

    Returns:
        The DataFrame with the steps, the values as a column of it, and the names of the columns that they are made of.
    """
    whole, record = functions.col(value), functions.col(_RECORD)
    fetched: dict[tuple[str, ...], Column] = {}
    for number, column in enumerate(plan.columns):
        name = _FIELD.format(number)
        work = FetchPlan(config, column, context, FAILFAST)
        frame = in_own_step(frame, {name: _fetched(whole, record, work)}, beside=value)
        fetched[column.path] = functions.col(name)
    kind = cast(StructType, spark_of(plan.value.arrow_type))
    made = _with(whole, fetched) if nullable else _made_of(whole, kind, fetched)
    return frame, made, (_RECORD, *map(_FIELD.format, range(len(plan.columns))))


def _record(crossing: Column, beside: Mapping[str, Column]) -> Column:
    """What the workers need to know of a record with references, as JSON; null for all other records.

    A single text, since each column of a Python step costs for all rows, also where it is null.
    """
    context = {**beside, "headers": last_header(beside["headers"], HEADER)}
    whole = functions.to_json(functions.struct(*(column.alias(name) for name, column in context.items())))
    return functions.when(crossing, whole)


def _fetched(value: Column, record: Column, work: FetchPlan) -> Column:
    """A column within values, with payloads in place of references."""
    found, has_references = value, record.isNotNull()
    for step in work.column.path:
        found = found.getField(step)
    fetch = make_udf(f"fetch_field[{work.column.name}]", _FETCH, work, spark_of(work.column.arrow_type), once=False)
    fetched = fetch(functions.when(has_references, found), record)
    return functions.when(has_references, fetched).otherwise(found)


def _checked(value: Column, crossing: Column, headers: Column, plan: FieldsPlan) -> Column:
    """Values, or an error for those with references in fields that the paths leave out.

    Otherwise their readers would take references for contents.
    """
    if not plan.left_out:
        return value
    return functions.when(crossing & _names_any(headers, plan.left_out), _refusal(plan.unknown)).otherwise(value)


def _with(value: Column, fields: Mapping[tuple[str, ...], Column]) -> Column:
    """A struct with some fields replaced; null where it was."""
    for path, field in fields.items():
        value = value.withField(_quoted(path), field)
    return value


def _made_of(value: Column, kind: StructType, fields: Mapping[tuple[str, ...], Column]) -> Column:
    """A struct, never null, of some fields and of the others of a struct.

    Spark takes it apart wherever it meets a query of its fields, however many they are; a nullable one, with a
    condition around each replaced field, only for one of these.
    """
    if len({name.lower() for name in kind.names}) < len(kind.names):
        return _with(value, fields)  # Spark may not find the others by name
    made = []
    for field in kind:
        inside = {path[1:]: column for path, column in fields.items() if path[0] == field.name}
        own = value.getField(field.name)
        if () in inside:
            own = inside[()]
        elif inside:
            own = _with(own, inside) if field.nullable else _made_of(own, cast(StructType, field.dataType), inside)
        made.append(own.alias(field.name))
    return functions.struct(*made)


def _names_any(headers: Column, fields: tuple[str, ...]) -> Column:
    """Whether the header names one of some fields."""

    def is_one(entry: Column) -> Column:
        return functions.regexp_replace(entry["path"], r"\[\d+\]", "[]").isin(*fields)

    def names_one(header: Column) -> Column:
        entries = functions.from_json(header["value"].cast("string"), _ENTRIES)
        return (header["key"] == HEADER) & functions.exists(entries, is_one)

    return functions.exists(headers, names_one)


def _refusal(unknown: tuple[str, ...]) -> Column:
    reasons = "; ".join((f"{PATHS.name} lacks a field that holds a reference", *unknown))
    return functions.raise_error(
        functions.lit(
            f"ConfigError: {reasons}. Name all fields that writers move, or "
            f"remove {PATHS.name} from the reader's configuration"
        )
    )


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join(f"`{step}`" for step in path)
