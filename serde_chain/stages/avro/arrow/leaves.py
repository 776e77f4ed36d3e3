"""A schema's parts as the fast reader reads them, and the construction of parts without children."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.stages.avro.arrow import fast_reader
from serde_chain.stages.avro.types import decimal_of

__all__ = [
    "MAX_PRECISION",
    "PRIMITIVES",
    "PROMOTIONS",
    "Convert",
    "Part",
    "UnreadableSchemaError",
    "enum",
    "final",
    "fixed",
    "named",
    "primitive",
]

PRIMITIVES: Final = {
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
}
PROMOTIONS: Final = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip

Convert = Callable[[Any], Any]

MAX_PRECISION: Final = 38
"""Digits of the fast reader's decimals."""


class UnreadableSchemaError(Exception):
    """The fast reader cannot read records of this schema."""


class Part:
    """One type of the schema.

    Attributes:
        schema: The reader's schema for it; None if the type takes no bytes.
        type: The ``pyarrow.DataType`` that the reader returns for it.
        metadata: Metadata that the reader adds to the field's type; it must be passed back unchanged.
        nullable: Whether the reader declares its fields nullable.
        convert: From the reader's array to the avro stage's; without an array, from an integer (the length).
    """

    def __init__(
        self,
        schema: Any,
        type_: Any,
        convert: Convert,
        *,
        metadata: dict[str, str] | None = None,
        nullable: bool = False,
    ) -> None:
        self.schema = schema
        self.type = type_
        self.metadata = metadata
        self.nullable = nullable
        self.convert = convert

    def field(self, name: str) -> Any:
        """The ``pyarrow.Field`` that the reader creates for a field of this type."""
        return require("pyarrow", "arrow").field(name, self.type, nullable=self.nullable, metadata=self.metadata)


def final(type_: Any) -> Any:
    """The final type: with timestamps in µs."""
    arrow: Any = require("pyarrow", "arrow")
    types = arrow.types
    if types.is_timestamp(type_):
        return arrow.timestamp("us", type_.tz)
    if types.is_struct(type_):
        fields = [type_.field(at) for at in range(type_.num_fields)]
        return arrow.struct([field.with_type(final(field.type)) for field in fields])
    if types.is_list(type_):
        return arrow.list_(type_.value_field.with_type(final(type_.value_type)))
    if types.is_map(type_):
        return arrow.map_(type_.key_type, type_.item_field.with_type(final(type_.item_type)))
    return type_


def primitive(schema: Any, which: str, other: str, type_: Any) -> Part:
    """A type without a name.

    Args:
        schema: The writer's type.
        which: The writer's kind.
        other: The reader's kind.
        type_: The ``pyarrow.DataType`` to read into.
    """
    arrow: Any = require("pyarrow", "arrow")
    shape = decimal_of(schema)
    if shape is not None:
        return _decimal({"type": "bytes"}, shape, type_)
    own = getattr(arrow, PRIMITIVES[which])()
    # A union of float and double is a column of doubles; a value resolved into float is rounded to float first.
    steps: list[Any] = [] if other == which else [getattr(arrow, PRIMITIVES[other])()]
    if not arrow.types.is_temporal(type_):
        # Integers are rounded to floating-point numbers, which Arrow calls unsafe; all other casts are lossless.
        rounds = which in {"int", "long"} and other in {"float", "double"}
        return Part(which, own, lambda array: _cast(array, [*steps, type_], safe=not rounds))
    result = final(type_)
    return Part(which, own, lambda array: _cast(_cast(array, steps).view(type_), [result]))


def fixed(name: str, schema: Any, type_: Any) -> Part:
    """A fixed type, which may be a decimal, under a unique name."""
    arrow: Any = require("pyarrow", "arrow")
    size, shape = schema["size"], decimal_of(schema)
    if size == 0:
        return Part(None, None, lambda count: arrow.array([b""] * count, type_))
    base = {"type": "fixed", "name": name, "size": size}
    if shape is not None:
        if size > 16:
            raise UnreadableSchemaError(f"a decimal of {size} bytes")
        return _decimal(base, shape, type_, name)
    return Part(base, arrow.binary(size), lambda array: array.cast(type_), metadata=named(name))


def enum(writer: Any, reader: Any) -> Part:
    """An enum, read as its number."""
    arrow: Any = require("pyarrow", "arrow")
    known = set(reader["symbols"])
    default = reader.get("default")
    symbols = arrow.array([symbol if symbol in known else default for symbol in writer["symbols"]], arrow.string())

    def convert(array: Any) -> Any:
        texts = symbols.take(array)
        if texts.null_count:
            raise fast_reader.NotReadError("a symbol is not in the reader's schema")
        return texts

    return Part("int", arrow.int32(), convert)


def _decimal(base: dict[str, Any], shape: tuple[int, int], type_: Any, name: str | None = None) -> Part:
    arrow, compute = require("pyarrow", "arrow"), require("pyarrow.compute", "arrow")
    precision, scale = shape
    if not 0 <= scale <= precision <= MAX_PRECISION:
        raise UnreadableSchemaError(f"a decimal of precision {precision} and scale {scale}")
    # Built from digits, not computed: the default decimal context has 28 digits.
    most = arrow.scalar(Decimal((0, (9,) * precision, -scale)), type_)
    schema = {**base, "logicalType": "decimal", "precision": precision, "scale": scale}

    def convert(array: Any) -> Any:
        if compute.any(compute.greater(compute.abs(array), most)).as_py():
            raise fast_reader.NotReadError("a decimal has more digits than its type")
        return array

    metadata = {"precision": str(precision), "scale": str(scale), **({"avro.name": name} if name else {})}
    return Part(schema, type_, convert, metadata=metadata)


def named(name: str) -> dict[str, str]:
    """The metadata that the reader adds to a field of a named type."""
    return {"avro.name": name}


def _cast(array: Any, steps: list[Any], *, safe: bool = True) -> Any:
    for step in steps:
        array = array if array.type == step else array.cast(step, safe=safe)
    return array
