"""Arrow columns for the stage ``avro``: values that fastavro would silently change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from payload_stores.plugins import require
from serde_chain.errors import EncodeError, without_data
from serde_chain.stages.avro.resolution import members
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import NAMED, bare, kind

__all__ = ["branch_namer", "check_integers"]

Convert: TypeAlias = Callable[[Any], Any]

_INTEGERS: Final = {"int": "int32", "long": "int64"}


def check_integers(schema: AvroSchema, column: Any, field: str) -> None:
    """Check that numbers for Avro's ``int`` and ``long`` are whole and in range.

    fastavro writes 1.5 as the int 1, and a larger int as one that no reader accepts. In unions, it checks each value
    itself.

    Args:
        schema: The schema of the values.
        column: A ``pyarrow.Array`` of them.
        field: ``key`` or ``value``.

    Raises:
        EncodeError: A number does not match.
    """
    _check(schema.parsed, column, field, field, schema.named)


def _check(schema: Any, column: Any, path: str, field: str, named: Mapping[str, Any]) -> None:
    arrow: Any = require("pyarrow", "arrow")
    compute: Any = require("pyarrow.compute", "arrow")
    types, schema = arrow.types, bare(schema, named)
    which, type_ = kind(schema), column.type
    if which == "record" and types.is_struct(type_):
        for child in schema["fields"]:
            if (at := type_.get_field_index(child["name"])) >= 0:
                values = compute.struct_field(column, [at])
                _check(child["type"], values, f"{path}.{child['name']}", field, named)
    elif which == "array" and types.is_list(type_):
        _check(schema["items"], compute.list_flatten(column), f"{path}[]", field, named)
    elif which == "map" and types.is_map(type_):
        _check(schema["values"], column.items, f"{path}[]", field, named)
    elif which in _INTEGERS and (types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)):
        try:
            column.cast(_INTEGERS[which])
        except arrow.ArrowInvalid as error:
            why = f"{path} does not fit the schema's {which}: {without_data(error)}"
            raise EncodeError(why, field=field, stage="avro") from None


def branch_namer(schema: AvroSchema, type_: Any) -> Convert | None:
    """Make a function that names the branches of unions, which are structs of ``member0``, ``member1``, … in Spark.

    Args:
        schema: The schema of the values.
        type_: The ``pyarrow.DataType`` of the column.

    Returns:
        A function from a value, whose maps are dictionaries already, to one for fastavro; None if no union of the
        schema is such a struct.
    """
    return _namer(schema.parsed, type_, schema.named)


def _namer(schema: Any, type_: Any, named: Mapping[str, Any]) -> Convert | None:
    types: Any = require("pyarrow.types", "arrow")
    schema = bare(schema, named)
    which = kind(schema)
    if which == "union":
        return _union_namer(schema, type_, named)
    if which == "record" and types.is_struct(type_):
        children = {child["name"]: child["type"] for child in schema["fields"]}
        made = {
            field.name: _namer(children[field.name], field.type, named) for field in type_ if field.name in children
        }
        changed = [(name, convert) for name, convert in made.items() if convert is not None]
        if changed:
            return lambda record: record | {name: _applied(convert, record[name]) for name, convert in changed}
    if which == "array" and types.is_list(type_):
        item = _namer(schema["items"], type_.value_type, named)
        return item and (lambda items: [_applied(item, each) for each in items])
    if which == "map" and types.is_map(type_):
        value = _namer(schema["values"], type_.item_type, named)
        return value and (lambda items: {key: _applied(value, each) for key, each in items.items()})
    return None


def _union_namer(union: list[Any], type_: Any, named: Mapping[str, Any]) -> Convert | None:
    types: Any = require("pyarrow.types", "arrow")
    others = [branch for branch in union if kind(bare(branch, named)) != "null"]
    if len(others) == 1:
        return _namer(others[0], type_, named)
    fields = list(type_) if types.is_struct(type_) else []
    if members(union, named, [field.name for field in fields]) is None:
        return None
    ways = [
        (field.name, _name(branch, named), _namer(branch, field.type, named) or _same)
        for field, branch in zip(fields, others, strict=True)
    ]

    def choose(struct: Mapping[str, Any]) -> Any:
        return next(
            ((name, convert(struct[member])) for member, name, convert in ways if struct[member] is not None), None
        )

    return choose


def _same(value: Any) -> Any:
    return value


def _applied(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _name(branch: Any, named: Mapping[str, Any]) -> str:
    """The name of a branch in fastavro."""
    definition = bare(branch, named)
    return str(definition["name"]) if kind(definition) in NAMED else kind(definition)
