"""Columns whose references are fetched only by queries that use them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import Column, functions

from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.spark.plan.arguments import check_mode
from serde_chain.spark.plan.field_columns import FetchPlan, FieldColumn, FieldsPlan, plan_fields
from serde_chain.spark.plan.kafka import ColumnOrName, as_column, called, typed_columns
from serde_chain.spark.plan.portable import load
from serde_chain.spark.plan.prerequisites import check_packages
from serde_chain.spark.plan.types import spark_of
from serde_chain.spark.references import marked
from serde_chain.spark.udfs import make_udf
from serde_chain.stages.large_fields.options import PATHS
from serde_chain.wire.large_fields import HEADER

__all__ = ["resolve_fields", "with_fields"]

_FETCH: Final = "serde_chain.spark.worker.field_columns:fetch_batches"
_ENTRIES: Final = "array<struct<path: string>>"


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
    plan = plan_fields(loaded)
    if plan is None:
        raise ConfigError(
            "the last stage of the configuration fetches no fields",
            hint="Name large-fields last in value.deserializers",
            key="value.deserializers",
        )
    if isinstance(plan, str):
        raise ConfigError(f"fields cannot be fetched by column: {plan}", key="value.deserializers")
    beside = typed_columns(headers=headers, topic=topic, partition=partition, offset=offset)
    return called("resolve_fields", value, with_fields(as_column(value), beside, loaded, plan, mode=mode))


def with_fields(
    value: Column, beside: Mapping[str, Column], config: Mapping[str, object], plan: FieldsPlan, *, mode: str
) -> Column:
    """Values with payloads in place of references.

    Args:
        value: The struct column, used several times.
        beside: The columns ``headers`` and, if known, others of Spark's Kafka source.
        config: Flat configuration.
        plan: The columns.
        mode: The mode.
    """
    crossing = marked(beside["headers"], plan.markers) & value.isNotNull()
    whole = value
    if plan.left_out:
        # Otherwise their readers would take references for contents.
        whole = functions.when(crossing & _names_any(beside["headers"], plan.left_out), _refusal()).otherwise(value)
    for column in plan.columns:
        found = value
        for step in column.path:
            found = found.getField(step)
        arguments = {"value": found, **beside}
        work = FetchPlan(config, tuple(arguments), column, mode)
        fetch = make_udf("fetch_field", _FETCH, work, spark_of(column.arrow_type), once=False)
        fetched = fetch(*[functions.when(crossing, argument) for argument in arguments.values()])
        whole = whole.withField(_quoted(column), functions.when(crossing, fetched).otherwise(found))
    return whole


def _names_any(headers: Column, fields: tuple[str, ...]) -> Column:
    """Whether the header names one of some fields."""

    def is_one(entry: Column) -> Column:
        return functions.regexp_replace(entry["path"], r"\[\d+\]", "[]").isin(*fields)

    def names_one(header: Column) -> Column:
        entries = functions.from_json(header["value"].cast("string"), _ENTRIES)
        return (header["key"] == HEADER) & functions.exists(entries, is_one)

    return functions.exists(headers, names_one)


def _refusal() -> Column:
    return functions.raise_error(
        functions.lit(
            f"ConfigError: {PATHS.name} lacks a field that holds a reference. Name all fields that writers move, or "
            f"remove {PATHS.name} from the reader's configuration"
        )
    )


def _quoted(column: FieldColumn) -> str:
    return ".".join(f"`{step}`" for step in column.path)
