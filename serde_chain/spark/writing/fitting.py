"""Checks by a column's type whether it can become records of an Avro schema, before a task runs.

Only types that never match are refused. A possible match, such as a map for a record, is left to the stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
)

from serde_chain.stages.avro.resolution import members
from serde_chain.stages.avro.schema import AvroSchema

_TEXT: Final = "text"
_BYTES: Final = "bytes"
_NUMBER: Final = "number"
# Booleans would become numbers; logical types have their own rules.
_LEAVES: Final = {
    "string": _TEXT,
    "enum": _TEXT,
    "bytes": _BYTES,
    "fixed": _BYTES,
    "int": _NUMBER,
    "long": _NUMBER,
    "float": _NUMBER,
    "double": _NUMBER,
}
_INSTANTS: Final = frozenset({"timestamp-millis", "timestamp-micros"})


def misfit(schema: AvroSchema, column: DataType, name: str) -> str | None:
    """Explain why a column's values can never be records of a schema.

    Args:
        schema: The schema.
        column: The column's type.
        name: The column's name.

    Returns:
        The field, its type, and the schema's type; None if values may match.
    """
    return _misfit(schema.parsed, column, name, schema.named)


def _misfit(kind: Any, column: DataType, path: str, named: Mapping[str, Any]) -> str | None:
    if isinstance(kind, list):
        several = members(kind, named, column.names) if isinstance(column, StructType) else None
        if several is not None:
            pairs = zip(several, cast("StructType", column), strict=True)
            problems = [_misfit(branch, field.dataType, f"{path}.{field.name}", named) for branch, field in pairs]
            return next((problem for problem in problems if problem is not None), None)
        problems = [_misfit(branch, column, path, named) for branch in kind if branch != "null"]
        return None if not problems or None in problems else problems[0]
    kind = named.get(kind, {"type": kind}) if isinstance(kind, str) else kind
    wanted = kind["type"]
    if not isinstance(wanted, str) or wanted in named:
        return _misfit(wanted, column, path, named)
    logical = kind.get("logicalType")
    if not _may_fit(wanted, column, logical):
        return f"{path} is {column.simpleString()}, but the schema requires {kind.get('name', logical or wanted)}"
    return next((problem for problem in _inside(kind, column, path, named) if problem is not None), None)


def _inside(kind: Any, column: DataType, path: str, named: Mapping[str, Any]) -> Iterator[str | None]:
    if isinstance(column, ArrayType):
        yield _misfit(kind["items"], column.elementType, f"{path}[]", named)
    elif isinstance(column, MapType) and kind["type"] == "map":
        yield _misfit(kind["values"], column.valueType, f"{path}[]", named)
    elif isinstance(column, StructType) and kind["type"] == "record":
        given = {field.name: field.dataType for field in column}
        for field in kind["fields"]:
            name, type_ = field["name"], field["type"]
            if name in given:
                yield _misfit(type_, given[name], f"{path}.{name}", named)
            elif "default" not in field and type_ != "null" and not (isinstance(type_, list) and "null" in type_):
                yield f"{path} has no field {name}, which has no default in the schema"


def _may_fit(wanted: str, column: DataType, logical: str | None) -> bool:
    if isinstance(column, NullType):
        return True
    if wanted in {"record", "map"}:
        return isinstance(column, (StructType, MapType))  # both are dictionaries in Python
    if wanted == "array" or isinstance(column, (StructType, MapType, ArrayType)):
        return wanted == "array" and isinstance(column, ArrayType)
    if isinstance(column, TimestampNTZType) and logical in _INSTANTS:
        return False  # the conversion would depend on the time zone of the worker's machine
    if wanted == "boolean":
        return isinstance(column, BooleanType)
    family = _TEXT if isinstance(column, StringType) else _BYTES if isinstance(column, BinaryType) else _NUMBER
    return logical is not None or _LEAVES.get(wanted, family) == family
