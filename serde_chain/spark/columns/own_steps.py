"""Columns that Spark computes in a step of their own: once for each row that a query needs, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, functions

__all__ = ["in_own_step"]

_UNUSED: Final = ("__serde_chain_unpivoted", "__serde_chain_unpivoted_value")


def in_own_step(frame: DataFrame, columns: Mapping[str, Column], *, beside: str) -> DataFrame:
    """Add columns that a query pays for only if it uses them, and only for the rows that it keeps.

    In a projection, Spark 4.1 copies an expression into the filters above it, so that a payload is fetched for the
    filter and again for the result; where the expression counts as nondeterministic, it moves no filter at all below
    it, and fetches the payloads of all rows. ``unpivot`` of one column leaves the rows as they are, and becomes the
    operator ``Expand``: Spark drops its unused columns, moves filters on other columns below it, and never merges it
    with other steps.

    Args:
        frame: The DataFrame.
        columns: The columns by name, each made of deterministic functions. They are computed together: a filter on one
            of them runs after all.
        beside: Any column of the DataFrame.

    Returns:
        The DataFrame with the new columns last.
    """
    made = [column.alias(name) for name, column in columns.items()]
    return frame.unpivot([functions.col("*"), *made], [beside], *_UNUSED).drop(*_UNUSED)
