"""Arrow columns for the stage ``avro``: values that fastavro would silently change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from payload_stores.plugins import require
from serde_chain.errors import EncodeError, without_data
from serde_chain.stages.avro.resolution import members
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import NAMED, bare, kind

Convert: TypeAlias = Callable[[Any], Any]

_INTEGERS: Final = {"int": "int32", "long": "int64"}
_BOOLEANS: Final = frozenset({"bool", "extension<arrow.bool8>"})
_NUMBERS: Final = frozenset({*_INTEGERS, "float", "double"})


def check_numbers(schema: AvroSchema, column: Any, field: str) -> None:
    """Check that numbers for Avro's ``int`` and ``long`` are whole and in range, those for ``float`` not infinite.

    fastavro writes 1.5 as the int 1, a larger int as one that no reader accepts, 1e300 as an infinite float, and takes
    booleans for numbers, and anything for booleans: the text "false" is true. Where it chooses the branch of a union,
    it checks the value itself.

    Args:
        schema: The schema of the values.
        column: A ``pyarrow.Array`` of them.
        field: ``key`` or ``value``.

    Raises:
        EncodeError: A number does not match.
    """
    for leaf in _leaves(schema.parsed, _present(column), field, schema.named, is_optional=False):
        if (problem := _problem(leaf)) is not None:
            raise EncodeError(
                f"{leaf.path} does not fit the schema's {leaf.kind}: {problem}", field=field, stage="avro"
            )


class _Leaf(NamedTuple):
    """Numbers or booleans of a schema.

    Attributes:
        kind: The schema's type.
        column: The values.
        path: Their path.
        is_optional: Whether they may be null.
    """

    kind: str
    column: Any
    path: str
    is_optional: bool


def _leaves(schema: Any, column: Any, path: str, named: Mapping[str, Any], *, is_optional: bool) -> Iterator[_Leaf]:
    compute: Any = require("pyarrow.compute", "arrow")
    types: Any = require("pyarrow.types", "arrow")
    schema, type_ = bare(schema, named), column.type
    which = kind(schema)
    parts: Iterable[tuple[Any, Any, str]] = ()
    if which == "record" and types.is_struct(type_):
        column = _present(column)
        known = [(child, type_.get_field_index(child["name"])) for child in schema["fields"]]
        parts = [
            (child["type"], compute.struct_field(column, [at]), f"{path}.{child['name']}")
            for child, at in known
            if at >= 0
        ]
    elif which == "union":
        parts, is_optional = _branches(schema, column, path, named), True
    elif which == "array" and types.is_list(type_):
        parts = [(schema["items"], compute.list_flatten(column), f"{path}[]")]
    elif which == "map" and types.is_map(type_):
        column = _present(column)
        # Not all items of a slice are its own.
        first, last = (column.offsets[at].as_py() for at in (0, len(column)))
        parts = [(schema["values"], column.items.slice(first, last - first), f"{path}[]")]
    elif which == "boolean" or which in _NUMBERS:
        yield _Leaf(which, column, path, is_optional)
    for part, values, where in parts:
        yield from _leaves(part, values, where, named, is_optional=is_optional and which == "union")


def _present(column: Any) -> Any:
    return column.drop_null() if column.null_count else column


def _branches(union: list[Any], column: Any, path: str, named: Mapping[str, Any]) -> Iterator[tuple[Any, Any, str]]:
    """The branches of a union whose values are known by the column's type."""
    compute: Any = require("pyarrow.compute", "arrow")
    types: Any = require("pyarrow.types", "arrow")
    others = [branch for branch in union if kind(bare(branch, named)) != "null"]
    names = [each.name for each in column.type] if types.is_struct(column.type) else []
    if len(others) == 1:
        yield others[0], column, path
    elif members(union, named, names) is not None:
        for at, (name, branch) in enumerate(zip(names, others, strict=True)):
            yield branch, compute.struct_field(column, [at]), f"{path}.{name}"


def _problem(leaf: _Leaf) -> str | None:
    """Why fastavro would write another value than one of a column; None if it would not."""
    arrow: Any = require("pyarrow", "arrow")
    compute: Any = require("pyarrow.compute", "arrow")
    kind_, values, _, is_optional = leaf
    types, type_ = arrow.types, values.type
    if kind_ == "boolean" and values.null_count and not is_optional:
        return "it is null"
    if values.null_count == len(values):
        return None
    is_number = types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_)
    if (kind_ == "boolean") != (str(type_) in _BOOLEANS):
        return f"it is {type_}"
    if kind_ in _INTEGERS and is_number:
        try:
            values.cast(_INTEGERS[kind_])
        except arrow.ArrowInvalid as error:
            return without_data(error)
    elif kind_ == "float" and types.is_float64(type_):
        narrow = compute.is_finite(values.cast("float32", safe=False))
        if not compute.all(compute.or_(narrow, compute.invert(compute.is_finite(values)))).as_py():
            return "a number is beyond the range of 32 bits"
    return None


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
    branches = [
        (field.name, _name(branch, named), _namer(branch, field.type, named) or _same)
        for field, branch in zip(fields, others, strict=True)
    ]

    def choose(struct: Mapping[str, Any]) -> Any:
        return next(
            ((name, convert(struct[member])) for member, name, convert in branches if struct[member] is not None), None
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
