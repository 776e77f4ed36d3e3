"""Avro for Arrow: the Arrow type of a schema, and records read into it.

The types are those of Spark's ``from_avro`` (Apache Spark, "Apache Avro Data Source Guide", "Supported types for Avro
-> Spark SQL conversion"): records are structs, enums strings, ``[null, X]`` a nullable X, ``[int, long]`` a long,
``[float, double]`` a double, other unions structs of nullable ``member0``, ``member1``, ….
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.errors import ConfigError
from serde_chain.schemas.part_budget import MOST_FIELDS
from serde_chain.stages.avro.arrow.moments import Moments
from serde_chain.stages.avro.resolution import branches
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import bare, decimal_of, kind

_MAX_PRECISION: Final = 38
_SIMPLE: Final = {
    "null": "null",
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "enum": "string",
}


def arrow_type(schema: AvroSchema) -> Any:
    """The Arrow type of a schema's values.

    Args:
        schema: The schema to read into.

    Returns:
        A ``pyarrow.DataType``. Timestamps are in µs, with the time zone UTC; local ones without a zone.

    Raises:
        ConfigError: The schema is recursive, or contains a decimal of more than 38 digits.
        MissingDependencyError: pyarrow is not installed.
    """
    return _Types(schema.named, as_read=False).of(schema.parsed)[0]


class ArrowColumn:
    """Records of one schema in Arrow.

    Args:
        schema: The schema to read into.

    Attributes:
        schema: The schema to read into.
        type: Their ``pyarrow.DataType``.
        type_as_read: The same with timestamps in the schema's unit: they are read in it, and converted to µs a
            whole array at a time.
        moments: Finds the rows with dates, times and UUIDs that are not read.

    Raises:
        ConfigError: Arrow has no type for it.
    """

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.type = arrow_type(schema)
        self.type_as_read = _Types(schema.named, as_read=True).of(schema.parsed)[0]
        # Compared once: the types of arrays are compared field by field.
        self._is_final = self.type_as_read == self.type
        self.moments = Moments(schema.parsed, schema.named)

    def as_read(self, values: Sequence[Any]) -> Any:
        """Convert values read with :func:`rewritten`, or None, into a ``pyarrow.Array``, in the schema's units.

        Raises:
            pyarrow.ArrowException: A value does not fit.
        """
        return require("pyarrow", "arrow").array(values, type=self.type_as_read)

    def in_microseconds(self, array: Any) -> Any:
        """Convert an array in the schema's units, all of whose times :attr:`moments` takes."""
        return array if self._is_final else _in_microseconds(array, self.type, require("pyarrow", "arrow"))


def _in_microseconds(array: Any, kind: Any, arrow: Any) -> Any:
    """An array cast part by part: otherwise pyarrow 26 gives columns of nulls in lists and maps a wrong length."""
    if array.type == kind:
        return array
    if arrow.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        parts = [_in_microseconds(array.field(at), field.type, arrow) for at, field in enumerate(fields)]
        mask = array.is_null() if array.null_count else None
        return arrow.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if arrow.types.is_map(kind):
        items = _in_microseconds(array.items, kind.item_type, arrow)
        children = arrow.StructArray.from_arrays([array.keys, items], fields=[kind.key_field, kind.item_field])
    elif arrow.types.is_list(kind):
        children = _in_microseconds(array.values, kind.value_type, arrow)
    else:
        return array.cast(kind)
    return arrow.Array.from_buffers(kind, len(array), array.buffers()[:2], offset=array.offset, children=[children])


class TooManyFieldsError(ConfigError):
    """A schema has more fields than a column may have."""


class _Types:
    def __init__(self, named: Mapping[str, Any], *, as_read: bool) -> None:
        self._arrow = require("pyarrow", "spark")
        self._named = named
        self._as_read = as_read
        self._above: list[str] = []
        self._path: list[str] = []
        self._left = MOST_FIELDS

    def of(self, schema: Any) -> tuple[Any, bool]:
        """The type of a schema, and whether its values may be null."""
        self._left -= 1
        if self._left < 0:
            raise TooManyFieldsError(
                f"a column of the Avro schema would have more than {MOST_FIELDS} fields",
                hint="Read into an avro.reader.schema with the required fields only",
                key="avro.reader.schema",
            )
        schema = bare(schema, self._named)
        if isinstance(schema, list):
            return self._union(schema)
        which = kind(schema)
        if which in {"record", "error"}:
            return self._record(schema), False
        if which == "array":
            return self._arrow.list_(self._field("element", schema["items"])), False
        if which == "map":
            return self._arrow.map_(self._arrow.string(), self._field("value", schema["values"])), False
        return self._leaf(schema, which), which == "null"

    def _field(self, name: str, schema: Any, *, nullable: bool = False) -> Any:
        type_, may_be_null = self.of(schema)
        return self._arrow.field(name, type_, nullable=nullable or may_be_null)

    def _record(self, schema: Any) -> Any:
        name = schema["name"]
        if name in self._above:
            raise ConfigError(
                f"the Avro schema is recursive: {' → '.join([*self._above, name])}; columns cannot nest without limit",
                hint="Read into an avro.reader.schema without the recursive field, or pass schema=",
                key="avro.reader.schema",
            )
        self._above.append(name)
        fields = []
        for field in schema["fields"]:
            self._path.append(field["name"])
            fields.append(self._field(field["name"], field["type"]))
            self._path.pop()
        self._above.pop()
        return self._arrow.struct(fields)

    def _union(self, union: list[Any]) -> tuple[Any, bool]:
        nullable = any(kind(bare(branch, self._named)) == "null" for branch in union)
        members = branches(union, self._named)
        if members is not None:
            return self._arrow.struct(
                [self._field(f"member{at}", branch, nullable=True) for at, branch in enumerate(members)]
            ), nullable
        others = [branch for branch in union if kind(bare(branch, self._named)) != "null"]
        # Of two, the wider: "long" after "int", "double" after "float".
        wide = next((branch for branch in others if kind(bare(branch, self._named)) in {"long", "double"}), others[0])
        if len(others) > 1:
            wide = kind(bare(wide, self._named))
        inner, inner_nullable = self.of(wide)
        return inner, nullable or inner_nullable

    def _leaf(self, schema: Any, which: str) -> Any:
        shape = decimal_of(schema)
        if shape is not None:
            if shape[0] > _MAX_PRECISION:
                where = f"the field {'.'.join(self._path)}" if self._path else "the value"
                raise ConfigError(
                    f"{where} is a decimal of {shape[0]} digits, and columns have {_MAX_PRECISION} at most",
                    hint=f"Read into an avro.reader.schema in which it has {_MAX_PRECISION} digits",
                    key="avro.reader.schema",
                )
            return self._arrow.decimal128(*shape)
        logical = schema.get("logicalType") if isinstance(schema, dict) else None
        if which == "int" and logical == "date":
            return self._arrow.date32()
        if which == "long" and logical in _TIMESTAMPS:
            unit, zone = _TIMESTAMPS[logical]
            return self._arrow.timestamp(unit if self._as_read else "us", zone)
        return getattr(self._arrow, _SIMPLE[which])()


_TIMESTAMPS: Final = {
    "timestamp-millis": ("ms", "UTC"),
    "timestamp-micros": ("us", "UTC"),
    "local-timestamp-millis": ("ms", None),
    "local-timestamp-micros": ("us", None),
}
