"""Arrow types and Spark types, from one to the other."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from serde_chain.errors import ConfigError

__all__ = ["arrow_of", "as_nullable", "spark_of"]


def arrow_of(schema: DataType | str) -> Any:
    """The Arrow type for a Spark type that the user gave.

    Args:
        schema: A Spark type, or its DDL string.

    Returns:
        A ``pyarrow.DataType``.

    Raises:
        ConfigError: It is not a type, or one that does not pass between Spark and Python.
    """
    try:
        return to_arrow_type(parse(schema))
    except PySparkException as error:
        raise ConfigError(f"schema = {schema!r} is not a type for columns: {error}", key="schema") from error


def parse(schema: DataType | str) -> DataType:
    """A Spark type from its DDL string.

    Raises:
        ConfigError: It is not a type.
    """
    if isinstance(schema, DataType):
        return schema
    try:
        return DataType.fromDDL(schema)
    except (PySparkException, ValueError, TypeError) as error:
        raise ConfigError(f"schema = {schema!r} is not a Spark type: {error}", key="schema") from error


def spark_of(kind: Any) -> DataType:
    """The Spark type of an Arrow type."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def as_nullable(schema: DataType) -> DataType:
    """A type with all that is in it nullable, as ``from_avro`` gives it in the mode PERMISSIVE."""
    if isinstance(schema, StructType):
        return StructType(
            [StructField(field.name, as_nullable(field.dataType), True, field.metadata) for field in schema]
        )
    if isinstance(schema, ArrayType):
        return ArrayType(as_nullable(schema.elementType), containsNull=True)
    if isinstance(schema, MapType):
        return MapType(as_nullable(schema.keyType), as_nullable(schema.valueType), valueContainsNull=True)
    return schema
