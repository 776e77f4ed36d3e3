"""Avro schemas of models, and the conversions between their objects and what fastavro reads and writes.

fastavro checks values against the schema, so what is left are classes: records, enums, sets, durations, and the
branches of unions. Each is a function made once per type; most fields need none.
"""

from __future__ import annotations

import collections.abc
import datetime as dt
import math
import re
import struct
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from payload_stores.options import Option
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.errors import ConfigError, DecodeError, EncodeError
from serde_chain.models import MISSING, AvroType, Duration, Model, ModelField, model_of, parse_model, refusal, written

TYPE: Final[Option[Any]] = Option(
    "avro.type", parse_model, None, doc="class of the values, or its dotted path; its schema is derived"
)

Convert: TypeAlias = Callable[[Any], Any]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_OF_NAMES: Final = re.compile(r"\W+")
_DAY_MS: Final = 86_400_000
_DURATION: Final = {"type": "fixed", "name": "Duration", "size": 12, "logicalType": "duration"}
_SCALARS: Final[Mapping[Any, Any]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    types.NoneType: "null",
    dt.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    dt.date: {"type": "int", "logicalType": "date"},
    dt.time: {"type": "long", "logicalType": "time-micros"},
    UUID: {"type": "string", "logicalType": "uuid"},
}
_UNIONS: Final = (typing.Union, types.UnionType)
_ARRAYS: Final = (list, set, frozenset, tuple)
_ABSTRACT: Final[Mapping[Any, type]] = {
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: frozenset,
    collections.abc.MutableSet: set,
    collections.abc.Mapping: dict,
    collections.abc.MutableMapping: dict,
}


class _Type(NamedTuple):
    """A Python type in Avro.

    Attributes:
        schema: Its schema.
        cls: The class of its values.
        write: Converts a value for fastavro; None if nothing needs a conversion.
        read: Converts a value from fastavro; None likewise.
    """

    schema: Any
    cls: type
    write: Convert | None = None
    read: Convert | None = None


class AvroModel:
    """The schema of a model, and its conversions.

    Args:
        cls: The class.

    Attributes:
        cls: The class.
        schema: The schema, as parsed JSON.
        numbered: Whether values of unions must be read with the numbers of their types (:func:`.resolution.resolved`),
            since the values alone do not tell these apart.

    Raises:
        ConfigError: A field's type has no Avro type.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Image:
        ...     name: str
        ...     width: int | None = None
        >>> model = AvroModel(Image)
        >>> model.schema["fields"][1]
        {'name': 'width', 'type': ['null', 'long'], 'default': None}
        >>> model.write(Image("M 51"))
        {'name': 'M 51', 'width': None}
        >>> model.read({"name": "M 51", "width": 100})
        Image(name='M 51', width=100)
    """

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.numbered = False
        self._named: dict[str, Any] = {}  # definitions by name: classes, or schemas of AvroType
        self._types: dict[type, _Type] = {}
        derived = self._of(cls, cls.__qualname__)
        self.schema = derived.schema
        self._write, self._read = derived.write or _same, derived.read or _same

    def write(self, value: Any) -> Any:
        """An object as fastavro writes it; a dictionary, as from a table, is one already.

        Raises:
            EncodeError: It is not an object of the model, or a part of it is of another type.
        """
        return written(value, self.cls, self._write, TYPE)

    def read(self, value: Any) -> Any:
        """An object of what fastavro has read.

        Raises:
            DecodeError: The class refuses it.
        """
        try:
            return self._read(value)
        except DecodeError:
            raise
        except Exception as error:  # noqa: BLE001  a class may raise any error
            let_through(error)
            reason = refusal(error, self.cls)
        # Outside, since errors of pydantic hold the record.
        raise DecodeError(
            f"{self.cls.__qualname__} refuses the record: {reason}",
            hint="The record matches the schema, but not what the class itself checks",
        )

    def _of(self, kind: Any, place: str) -> _Type:
        """A type; ``place`` is the field's, for errors."""
        kind = _unwrapped(kind)
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Annotated:
            return self._annotated(arguments[0], arguments[1:], place)
        if origin in _UNIONS:
            return self._union(sorted(arguments, key=lambda each: each is not types.NoneType), place)
        container = _ABSTRACT.get(origin or kind, origin or kind)
        if container in _ARRAYS:
            return self._array(container, arguments, place)
        return self._map(arguments, place) if container is dict else self._of_class(kind, place)

    def _of_class(self, kind: Any, place: str) -> _Type:
        if kind in _SCALARS:
            return _Type(_SCALARS[kind], kind)
        if kind in {Duration, dt.timedelta}:
            pair = (_duration_bytes, _duration) if kind is Duration else (_delta_bytes, _delta)
            return _Type(self._once(_DURATION, _DURATION, place), kind, *pair)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self._enum(kind, place)
        if (known := self._types.get(kind)) is not None:
            return known
        if (model := model_of(kind)) is not None:
            return self._record(model, place)
        raise _no_type(kind, place)

    def _annotated(self, kind: Any, notes: tuple[Any, ...], place: str) -> _Type:
        given = next((note.schema for note in notes if isinstance(note, AvroType)), None)
        if given is None:
            return self._of(kind, place)
        if kind is Decimal:
            return _Type(self._once(given, given, place), Decimal)
        return self._of(kind, place)._replace(schema=self._once(given, given, place))

    def _once(self, owner: Any, definition: Any, place: str) -> Any:
        """A definition; its name after the first time.

        Raises:
            ConfigError: Another one has its name.
        """
        name = definition.get("name") if isinstance(definition, dict) else None
        if not isinstance(name, str):
            return definition
        if name not in self._named:
            self._named[name] = owner
            return definition
        if self._named[name] != owner:
            raise ConfigError(
                f"{place} is of a type {name}, and so is another field of another type",
                hint="Names are unique in an Avro schema: rename a class, or the name in an AvroType",
            )
        return name

    def _array(self, container: type, arguments: tuple[Any, ...], place: str) -> _Type:
        if container is tuple and (len(arguments) != 2 or arguments[1] is not Ellipsis):
            raise _no_type(f"tuple[{', '.join(map(str, arguments))}]", place, "A tuple is an array as tuple[T, ...]")
        if not arguments:
            raise _no_type(container, place, "Name the type of its items, such as list[str]")
        item = self._of(arguments[0], f"{place}[]")
        write, read = item.write, item.read
        to_list: Convert | None = None if container is list else list
        return _Type(
            {"type": "array", "items": item.schema},
            container,
            to_list if write is None else lambda items: [write(each) for each in items],
            (None if container is list else container) if read is None else lambda items: container(map(read, items)),
        )

    def _map(self, arguments: tuple[Any, ...], place: str) -> _Type:
        if not arguments or arguments[0] is not str:
            raise _no_type(f"dict[{', '.join(map(str, arguments))}]", place, "Avro's maps are dict[str, T]")
        item = self._of(arguments[1], f"{place}[]")
        write, read = item.write, item.read
        return _Type(
            {"type": "map", "values": item.schema},
            dict,
            write and (lambda items: {key: write(each) for key, each in items.items()}),
            read and (lambda items: {key: read(each) for key, each in items.items()}),
        )

    def _enum(self, kind: type[Enum], place: str) -> _Type:
        symbols = {member.value: member for member in kind}
        if not symbols or not all(isinstance(symbol, str) and _NAME.fullmatch(symbol) for symbol in symbols):
            raise _no_type(
                kind, place, "The values of an enum are its symbols in Avro: text of letters, digits and underscores"
            )
        definition = {"type": "enum", "name": _name_of(kind), "symbols": list(symbols)}
        schema = self._once(kind, definition, place)
        return _Type(schema, kind, lambda member: kind(member).value, symbols.__getitem__)

    def _record(self, model: Model, place: str) -> _Type:
        name = _name_of(model.cls)
        self._once(model.cls, {"name": name}, place)
        # For fields of this type, after the first one and inside; the functions are known when they are called.
        late = _Late()
        self._types[model.cls] = _Type(name, model.cls, late.write, late.read)
        fields = [(field, self._field(field, f"{place}.{field.attribute}")) for field in model.fields]
        schema = {
            "type": "record",
            "name": name,
            "fields": [{"name": field.name, "type": kind.schema, **_default(field, kind)} for field, kind in fields],
        }
        late.of_write, late.of_read = _record_writer(model, fields), _record_reader(model, fields)
        return _Type(schema, model.cls, late.of_write, late.of_read)

    def _field(self, field: ModelField, place: str) -> _Type:
        if not _NAME.fullmatch(field.name):
            raise ConfigError(
                f"{place} is {field.name!r} in records, which is not a name in Avro",
                hint="Avro's names are letters, digits and underscores",
            )
        kinds = typing.get_args(field.type)
        if typing.get_origin(field.type) not in _UNIONS or field.default is MISSING:
            return self._of(field.type, place)
        # The default of a union is of its first branch.
        first = next((at for at, kind in enumerate(kinds) if _is_of(field.default, kind)), 0)
        return self._union((kinds[first], *kinds[:first], *kinds[first + 1 :]), place)

    def _union(self, kinds: Sequence[Any], place: str) -> _Type:
        branches = [self._of(kind, place) for kind in kinds]
        schema = [branch.schema for branch in branches]
        values = [branch for branch in branches if branch.schema != "null"]
        if len(values) == 1:
            write, read = values[0].write, values[0].read
            return _Type(
                schema,
                object,
                write and (lambda value: None if value is None else write(value)),
                read and (lambda value: None if value is None else read(value)),
            )
        names = [_branch(branch.schema) for branch in values]
        if len(set(names)) < len(names):
            raise ConfigError(
                f"{place} is a union of types that are the same in Avro: {', '.join(names)}",
                hint="A union has each of Avro's types once; wrap one of them in a class",
            )
        self.numbered = self.numbered or any(branch.read for branch in values)
        return _Type(schema, object, _brancher(values, names), _chooser(values))


class _Late:
    """The conversions of a class, which its own fields may need before they are made."""

    of_write: Convert
    of_read: Convert

    def write(self, value: Any) -> Any:
        return self.of_write(value)

    def read(self, value: Any) -> Any:
        return self.of_read(value)


def _same(value: Any) -> Any:
    return value


def _unwrapped(kind: Any) -> Any:
    """A type without the names that it has: of aliases and NewType; the type of literals."""
    if sys.version_info >= (3, 12) and isinstance(kind, typing.TypeAliasType):
        return _unwrapped(kind.__value__)
    if isinstance(kind, typing.NewType):
        return _unwrapped(kind.__supertype__)
    if typing.get_origin(kind) is typing.Literal:
        return typing.Union[tuple(map(type, typing.get_args(kind)))]  # noqa: UP007, of a tuple
    return kind


def _is_of(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is typing.Annotated:
        return _is_of(value, typing.get_args(kind)[0])
    cls = typing.get_origin(kind) or kind
    return isinstance(cls, type) and isinstance(value, cls)


def _name_of(kind: type) -> str:
    # Of generic classes, such as Page[int].
    return _NOT_OF_NAMES.sub("_", kind.__name__).strip("_")


def _branch(schema: Any) -> str:
    """The name of a branch in fastavro."""
    if isinstance(schema, dict):
        return str(schema.get("name") or schema["type"])
    return str(schema)


def _brancher(values: list[_Type], names: list[str]) -> Convert:
    """Names the branch of a value by its class."""
    branches = {branch.cls: (name, branch.write or _same) for branch, name in zip(values, names, strict=True)}
    floats = branches.get(float)

    def write(value: Any) -> Any:
        if value is None:
            return None
        branch = branches.get(type(value)) or next(
            (branch for cls, branch in branches.items() if isinstance(value, cls)), None
        )
        if branch is None and floats is not None and isinstance(value, int):
            branch = floats
        if branch is None:
            raise EncodeError(f"a value is of type {type(value).__qualname__}, expected {' or '.join(names)}")
        return branch[0], branch[1](value)

    return write


def _chooser(values: list[_Type]) -> Convert:
    """Reads a value by the number of its type, if it has one."""
    reads = [branch.read or _same for branch in values]

    def read(value: Any) -> Any:
        if type(value) is tuple:
            at, value = value
            return reads[at](value)
        return value

    return read


def _record_writer(model: Model, fields: list[tuple[ModelField, _Type]]) -> Convert:
    names = [field.name for field, _ in fields]
    get = attrgetter(*[field.attribute for field, _ in fields]) if fields else None
    changed = [(field.name, kind.write) for field, kind in fields if kind.write is not None]

    if get is None:
        return lambda _value: {}
    if not changed and model.values is not None and names == [field.attribute for field, _ in fields]:
        return model.values
    if not changed and len(names) > 1:
        return lambda value: dict(zip(names, get(value), strict=True))

    def write(value: Any) -> dict[str, Any]:
        parts = get(value)
        record = dict(zip(names, parts, strict=True)) if len(names) > 1 else {names[0]: parts}
        for name, convert in changed:
            record[name] = convert(record[name])
        return record

    return write


def _record_reader(model: Model, fields: list[tuple[ModelField, _Type]]) -> Convert:
    build = model.build
    arguments = [(field.argument, field.name) for field, _ in fields]
    renamed = any(argument != name for argument, name in arguments)
    changed = [(field.argument, kind.read) for field, kind in fields if kind.read is not None]

    if not renamed and not changed:
        return build

    def read_record(record: dict[str, Any]) -> Any:
        values = {argument: record[name] for argument, name in arguments} if renamed else dict(record)
        for argument, convert in changed:
            values[argument] = convert(values[argument])
        return build(values)

    return read_record


def _default(field: ModelField, kind: _Type) -> dict[str, Any]:
    """The default of a field in its schema; nothing where it has none, or none that JSON can say."""
    if field.default is MISSING:
        return {}
    schema = kind.schema[0] if isinstance(kind.schema, list) else kind.schema
    try:
        return {"default": _as_json(schema, (kind.write or _same)(field.default))}
    except (EncodeError, TypeError, ValueError, AttributeError):
        return {}


def _as_json(schema: Any, value: Any) -> Any:
    """A written value as a default (specification, "Complex Types").

    Raises:
        ValueError: It is none.
    """
    if type(value) is tuple:
        return _as_json(schema, value[1])
    if isinstance(schema, dict) and "logicalType" in schema:
        prepare = require("fastavro.write", "avro").LOGICAL_WRITERS.get(f"{schema['type']}-{schema['logicalType']}")
        value = value if prepare is None else prepare(value, schema)
    if isinstance(value, list):
        return [_as_json(schema["items"], item) for item in value]
    if isinstance(value, dict):
        if schema["type"] == "map":
            return {key: _as_json(schema["values"], item) for key, item in value.items()}
        return {field["name"]: _as_json(field["type"], value[field["name"]]) for field in schema["fields"]}
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    raise ValueError("not a default")


def _duration_bytes(value: Duration) -> bytes:
    try:
        return struct.pack("<3I", *value)
    except struct.error as error:
        raise EncodeError(f"a Duration is not of three unsigned 32-bit numbers: {error}") from None


def _duration(data: bytes) -> Duration:
    return Duration(*struct.unpack("<3I", data))


def _delta_bytes(value: dt.timedelta) -> bytes:
    milliseconds, rest = divmod(value, dt.timedelta(milliseconds=1))
    if rest or milliseconds < 0:
        raise EncodeError(
            "a timedelta is negative, or not of whole milliseconds",
            hint="Avro's duration has neither: declare the field as an int of the unit that you need",
        )
    return _duration_bytes(Duration(0, *divmod(milliseconds, _DAY_MS)))


def _delta(data: bytes) -> dt.timedelta:
    months, days, milliseconds = _duration(data)
    if months:
        raise DecodeError(
            "a duration has months, which are no fixed time",
            hint="Declare the field as serde_chain.models.Duration",
        )
    return dt.timedelta(days=days, milliseconds=milliseconds)


def _no_type(kind: Any, place: str, hint: str | None = None) -> ConfigError:
    if kind is Decimal:
        hint = (
            'Name precision and scale: Annotated[Decimal, AvroType({"type": "bytes", "logicalType": "decimal", '
            '"precision": 12, "scale": 2})]'
        )
    shown = kind.__qualname__ if isinstance(kind, type) else str(kind)
    return ConfigError(
        f"{place} is of type {shown}, for which Avro has none",
        hint=hint or "docs/values.md lists the types; Annotated[…, AvroType(…)] names one",
        key=TYPE.name,
    )
