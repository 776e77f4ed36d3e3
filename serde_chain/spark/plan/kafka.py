"""The columns of Spark's Kafka source, and one beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from pyspark.sql import Column, functions
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["CONTEXT", "HEADERS", "KAFKA", "ColumnOrName", "as_column", "called", "typed_columns"]

ColumnOrName: TypeAlias = Column | str

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
"""The type of headers, as the source gives them with ``includeHeaders``."""

KAFKA: Final[Mapping[str, DataType]] = {
    "value": BinaryType(),
    "headers": HEADERS,
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "key": BinaryType(),
    "timestamp": TimestampType(),
}
"""The columns that are of use here, with their types, in the order in which the workers get them."""

CONTEXT: Final = ("topic", "partition", "offset")
"""The columns that say in errors which record it was."""


def as_column(given: ColumnOrName) -> Column:
    """A column by its name, or as it is."""
    return functions.col(given) if isinstance(given, str) else given


def called(function: str, given: ColumnOrName, column: Column) -> Column:
    """A column under the name of the function that made it, where Spark would name it by its whole expression.

    Args:
        function: The function.
        given: What it was called with.
        column: What it made of it.

    Returns:
        The column, called ``resolve(value)``; ``resolve`` where what was given has no name that could be seen.
    """
    return column.alias(f"{function}({given})" if isinstance(given, str) else function)


def typed_columns(**given: ColumnOrName | None) -> dict[str, Column]:
    """The columns that a user passed, by what they are in the source, cast to the types that they have there.

    Args:
        **given: Columns by their names in :data:`KAFKA`; None for those that were not given.
    """
    return {
        name: as_column(given[name]).cast(kind)  # type: ignore[arg-type]
        for name, kind in KAFKA.items()
        if given.get(name) is not None
    }
