"""Conversions between Arrow types and Spark types."""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    _parse_datatype_string,  # before pyspark 4.0, the only way
)

from payload_stores.plugins import require
from serde_chain.errors import ConfigError


def arrow_of(schema: DataType | str) -> Any:
    """The Arrow type for a user's Spark type.

    Args:
        schema: A Spark type, or its DDL string.

    Returns:
        A ``pyarrow.DataType``.

    Raises:
        ConfigError: It is not a type, or one that Spark and Python cannot exchange, such as variants.
    """
    kind = parse(schema)
    if _has_variant(kind):
        raise ConfigError(
            f"schema = {schema!r} contains a variant, which no chain produces",
            hint="Read JSON without a schema, as text, and pass it to Spark's parse_json",
            key="schema",
        )
    try:
        return to_arrow_type(kind)
    except PySparkException as error:
        raise ConfigError(f"schema = {schema!r} is not a type for columns: {error}", key="schema") from error


def _has_variant(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_variant(field.dataType) for field in kind)
    if isinstance(kind, MapType):
        return _has_variant(kind.valueType)
    if isinstance(kind, ArrayType):
        return _has_variant(kind.elementType)
    return kind.typeName() == "variant"  # a class since pyspark 4.0


def parse(schema: DataType | str) -> DataType:
    """A Spark type from its DDL string.

    Raises:
        ConfigError: The text is not a type.
    """
    if isinstance(schema, DataType):
        return schema
    try:
        return DataType.fromDDL(schema) if hasattr(DataType, "fromDDL") else _parse_datatype_string(schema)
    except (PySparkException, ValueError, TypeError) as error:
        raise ConfigError(f"schema = {schema!r} is not a Spark type: {error}", key="schema") from error


def spark_of(kind: Any) -> DataType:
    """The Spark type of an Arrow type."""
    return _as_strict(from_arrow_type(kind, prefer_timestamp_ntz=True), kind)


def _as_strict(schema: DataType, kind: Any) -> DataType:
    """A type whose lists and maps accept null only if the Arrow type's do; in pyspark 4.0, all of them accept it."""
    if isinstance(schema, StructType):
        fields = zip(schema, kind, strict=True)
        return StructType(
            [
                StructField(field.name, _as_strict(field.dataType, arrow_field.type), field.nullable, field.metadata)
                for field, arrow_field in fields
            ]
        )
    if isinstance(schema, ArrayType):
        return ArrayType(_as_strict(schema.elementType, kind.value_type), kind.value_field.nullable)
    if isinstance(schema, MapType):
        key, value = _as_strict(schema.keyType, kind.key_type), _as_strict(schema.valueType, kind.item_type)
        return MapType(key, value, kind.item_field.nullable)
    return schema


def as_nullable(schema: DataType) -> DataType:
    """A type with everything nullable and without comments, as ``from_avro`` returns it in the mode PERMISSIVE."""
    if isinstance(schema, StructType):
        return StructType([StructField(field.name, as_nullable(field.dataType)) for field in schema])
    if isinstance(schema, ArrayType):
        return ArrayType(as_nullable(schema.elementType), containsNull=True)
    if isinstance(schema, MapType):
        return MapType(as_nullable(schema.keyType), as_nullable(schema.valueType), valueContainsNull=True)
    return schema


def signed(kind: Any) -> Any:
    """An Arrow type with larger signed numbers instead of unsigned ones, which Spark lacks."""
    arrow = require("pyarrow", "spark")
    types = arrow.types
    if types.is_unsigned_integer(kind):
        return arrow.decimal128(20, 0) if kind.bit_width == 64 else arrow.int64()
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return arrow.struct([field.with_type(signed(field.type)) for field in fields])
    if types.is_map(kind):
        key, item = (field.with_type(signed(field.type)) for field in (kind.key_field, kind.item_field))
        return arrow.map_(key, item)
    if types.is_list(kind):
        return arrow.list_(kind.value_field.with_type(signed(kind.value_type)))
    return kind
