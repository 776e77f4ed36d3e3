"""The columns of a DataFrame: found as Spark finds names, and computed in a step of their own.

They are found also where Spark refuses to analyse the DataFrame.

In the query functions of declarative pipelines, which run on Spark Connect, a DataFrame's columns are unknown: Spark
analyses a query only as part of the whole pipeline, and refuses to do so earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import DataType

from serde_chain.errors import ConfigError

_REFUSAL: Final = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"
_UNUSED: Final = ("__serde_chain_unpivoted", "__serde_chain_unpivoted_value")


def is_refusal(error: Exception) -> bool:
    """Whether an error is Spark's refusal to analyse a DataFrame in a query function of a pipeline."""
    return str(error).startswith(f"[{_REFUSAL}]")


def types_of(frame: DataFrame, names: Collection[str]) -> dict[str, DataType] | None:
    """The types of some columns, if they exist.

    Args:
        frame: The DataFrame. In a session that ignores case, as is Spark's default, its column ``Value`` is ``value``.
        names: The columns' names, in lower case.

    Returns:
        The types by name; None if Spark refuses to tell them.

    Raises:
        ConfigError: Two columns have the same name.
    """
    try:
        fields = list(frame.schema)
    except PySparkException as error:
        if is_refusal(error):
            return None
        raise
    named = [field for field in fields if field.name.lower() in names]
    # The session is asked only where case matters: with Spark Connect, that is a request.
    if any(field.name not in names for field in named) and _is_case_sensitive(frame):
        named = [field for field in named if field.name in names]
    types: dict[str, DataType] = {}
    for field in named:
        name = field.name.lower()
        if name in types:
            raise ConfigError(
                f"the DataFrame has several columns {name}",
                hint="Rename or drop the others; Spark ignores case unless spark.sql.caseSensitive is true",
                key=name,
            )
        types[name] = field.dataType
    return types


def _is_case_sensitive(frame: DataFrame) -> bool:
    return str(frame.sparkSession.conf.get("spark.sql.caseSensitive")).lower() == "true"


def optional_column(frame: DataFrame, name: str, kind: DataType | None = None) -> Column:
    """A column, or null if it does not exist: found out by Spark, when it analyses the query.

    Args:
        frame: The DataFrame; the column works in its own methods and in those of DataFrames derived from it, but not in
            ``observe``.
        name: The column's name, without special characters.
        kind: The type to cast it to; None for its own.
    """
    # An expression matches no column without an error, and ignores case where names do.
    found = functions.get(functions.array(frame.colRegex(f"`{name}`")), functions.lit(0))
    return found if kind is None else found.cast(kind)


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
