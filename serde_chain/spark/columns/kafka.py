"""The columns of Spark's Kafka source, and one more."""

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

ColumnOrName: TypeAlias = Column | str

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
"""The type of headers, as returned by the source with ``includeHeaders``."""

KAFKA: Final[Mapping[str, DataType]] = {
    "value": BinaryType(),
    "headers": HEADERS,
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "key": BinaryType(),
    "timestamp": TimestampType(),
}
"""The columns used here, with their types, in the order in which the workers get them."""

CONTEXT: Final = ("topic", "partition", "offset")
"""The columns that identify a record in errors."""


def as_column(given: ColumnOrName) -> Column:
    """A column by its name, or the column itself."""
    return functions.col(given) if isinstance(given, str) else given


def called(function: str, given: ColumnOrName, column: Column) -> Column:
    """A column named after the function that made it, which Spark would name by its whole expression.

    Args:
        function: The function.
        given: The function's argument.
        column: The function's result.

    Returns:
        The column, named ``resolve(value)``; ``resolve`` if the argument's name is unknown.
    """
    return column.alias(f"{function}({given})" if isinstance(given, str) else function)


def typed_columns(**given: ColumnOrName | None) -> dict[str, Column]:
    """The user's columns by their names in the source, cast to the types there.

    Args:
        **given: Columns by their names in :data:`KAFKA`; None for those not given.
    """
    return {
        name: as_column(given[name]).cast(kind)  # type: ignore[arg-type]
        for name, kind in KAFKA.items()
        if given.get(name) is not None
    }
