"""Keys, values and headers as columns of their own, so that a query reads those it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import Column, functions

from serde_chain.base import RemovedHeaders
from serde_chain.record import KEY, VALUE
from serde_chain.spark.jvm.decode import any_of, crossing, read_natively
from serde_chain.spark.plan.kafka import CONTEXT
from serde_chain.spark.plan.reading import FieldPlan
from serde_chain.spark.plan.reading_engine import Choice
from serde_chain.spark.references import last_header
from serde_chain.spark.udfs import run_in_workers

__all__ = ["read_field", "without_removed"]


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
        once: As for :func:`~serde_chain.spark.udfs.make_udf`.

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


def without_removed(headers: Column, removed: Sequence[tuple[Column, RemovedHeaders]]) -> Column:
    """Headers without those that stages remove; null if none are left, as in Spark's source.

    Args:
        headers: The records' headers.
        removed: What stages remove, each with the column that the stage reads: tombstones keep their headers.
    """

    def is_left(header: Column) -> Column:
        uses = (_is_one(header, each) & _applies(headers, data, each) for data, each in removed)
        some = any_of(uses)
        return functions.lit(True) if some is None else ~some

    left = functions.filter(headers, is_left)
    return functions.when(functions.size(left) > 0, left)


def _is_one(header: Column, removed: RemovedHeaders) -> Column:
    names: Any = sorted(removed.names)
    return header["key"].isin(*names)


def _applies(headers: Column, data: Column, removed: RemovedHeaders) -> Column:
    """Whether a stage removes headers from a record."""
    applies = data.isNotNull()
    if removed.mark is not None:
        applies &= last_header(headers, removed.mark).isNotNull()
    for other in sorted(removed.unless):
        applies &= last_header(headers, other).isNull()
    return applies
