"""Columns of keys and values, read in the workers, or by Spark itself but for the rows that pass through Python."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from pyspark.sql import Column, functions
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from serde_chain.record import KEY, VALUE
from serde_chain.spark.arguments import PERMISSIVE
from serde_chain.spark.chains.plan import FieldPlan, ReadPlan
from serde_chain.spark.columns.kafka import CONTEXT, KAFKA
from serde_chain.spark.columns.types import as_nullable, spark_of
from serde_chain.spark.reading.engine import Choice
from serde_chain.spark.reading.native import crossing, read_natively
from serde_chain.spark.udfs.make import make_udf
from serde_chain.spark.udfs.retries import RETRIES

DECODE: Final = "serde_chain.spark.reading.worker:decode_batches"


def read_field(
    name: str,
    config: Mapping[str, object],
    columns: Mapping[str, Column],
    field: FieldPlan,
    choice: Choice,
    *,
    mode: str,
    once: bool = True,
) -> Column:
    """Read keys or values.

    Args:
        name: The name of the Python function in a query's plan.
        config: Flat configuration.
        columns: The columns as received, by their names in Spark's Kafka source.
        field: The plan.
        choice: The engine.
        mode: The mode.
        once: As for :func:`~serde_chain.spark.udfs.make.make_udf`.

    Returns:
        The column of the plan's type. If it calls Python, it is evaluated once per use.

    Raises:
        ConfigError: A part of the configuration cannot be pickled.
    """
    own = KEY if field.is_key else VALUE
    # Keys do not depend on values, which are larger.
    given = {column: columns[column] for column in columns if column != VALUE or not field.is_key}
    in_workers = partial(
        run_in_workers,
        name,
        config,
        given,
        value=None if field.is_key else field,
        key=field if field.is_key else None,
        mode=mode,
        once=once,
    )
    if not choice.native:
        return in_workers()
    context = {column: columns[column] for column in CONTEXT if column in columns}
    natively = read_natively(choice, columns[own], field, mode=mode, context=context)
    others = crossing(choice, columns[own], columns.get("headers"))
    return natively if others is None else functions.when(others, in_workers(where=others)).otherwise(natively)


def run_in_workers(
    name: str,
    config: Mapping[str, object],
    columns: Mapping[str, Column],
    *,
    value: FieldPlan | None,
    key: FieldPlan | None = None,
    gives: tuple[str, ...] = (),
    mode: str,
    where: Column | None = None,
    leaves_empty: bool = False,
    once: bool = True,
) -> Column:
    """Read columns of Spark's Kafka source in the workers.

    Args:
        name: The name in a query's plan.
        config: Flat configuration.
        columns: The columns by their names in the source.
        value: As in :class:`~serde_chain.spark.chains.plan.ReadPlan`, like the other arguments.
        key: The plan for keys.
        gives: The fields of the column's struct; empty for the value alone, or for the key if only keys are read.
        mode: The mode.
        where: The rows that cross into Python; None for all.
        leaves_empty: Return null if neither value nor key is present.
        once: As for :func:`~serde_chain.spark.udfs.make.make_udf`.

    Returns:
        The column. Used several times in a query, it is evaluated several times.

    Raises:
        ConfigError: A part of the configuration cannot be pickled.
    """
    skips = where is not None
    plan = ReadPlan(config, tuple(columns), value, key, gives, mode, leaves_empty=leaves_empty, skips=skips)
    arguments = [functions.unix_millis(at) if name == "timestamp" else at for name, at in columns.items()]
    if where is not None:
        arguments = [functions.when(where, argument) for argument in arguments]
    column: Column = make_udf(name, DECODE, plan, result_type(plan), once=once)(*arguments)
    return column


def result_type(plan: ReadPlan) -> DataType:
    """The type of a plan's column."""
    types = {**KAFKA, "error": StringType(), RETRIES: LongType()}
    for name, field in ((KEY, plan.key), (VALUE, plan.value)):
        if field is not None:
            kind = spark_of(field.arrow_type)
            types[name] = as_nullable(kind) if plan.mode == PERMISSIVE else kind
    return StructType([StructField(name, types[name]) for name in plan.gives]) if plan.gives else types[plan.alone]
