"""Avro schemas, values and bytes made at random, most of them valid, to compare the compiled part with fastavro."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import io
import json
import math
import re
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.read import LOGICAL_READERS
from fastavro.write import LOGICAL_WRITERS
from pyarrow import compute

from serde_chain import DeserializerChain, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.arrow.nested import objects
from serde_chain.errors import ConfigError, SerializationError
from serde_chain.schemas.part_budget import FREE_PARTS, PARTS_PER_BYTE
from serde_chain.stages.avro.arrow.native_writer import NativeWriter
from serde_chain.stages.avro.arrow.rows import branch_namer
from serde_chain.stages.avro.decimal import readable
from serde_chain.stages.avro.native import Native, library
from serde_chain.stages.avro.reader import AvroReader
from serde_chain.stages.avro.resolution import resolved
from serde_chain.stages.avro.schema import AvroSchema
from tests.stages.avro.test_schemas_of_others import in_a_file
from tests.stages.avro.test_ugly_schemas import joined
from tests.stages.avro.ugly import Ugly

__all__ = ["UglyWays", "Ways", "mutant", "schema_of", "value_of"]

compiled_part: Any = library()

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_LOGICAL: Final[tuple[dict[str, Any], ...]] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-nanos"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "fixed", "logicalType": "decimal", "precision": 4, "scale": 1, "name": "D", "size": 3},
    {"type": "string", "logicalType": "unknown"},
)
_SYMBOLS: Final = ("A", "B", "C", "D")
_NUMBERS: Final = (0, 1, -1, 63, 64, -64, -65, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63), 2**63)
_FLOATS: Final = (0.0, -0.0, 1.5, 0.1, 1e39, -1e300, 5e-324, math.inf, -math.inf, math.nan)
_TEXTS: Final = ("", "a", "text of some length", "é", "\U0001f52d", "\0", "nul\0inside", "x" * 200)
# Values of no type, of subclasses, and of Python's other types.
_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    3,
    2.5,
    "x",
    b"x",
    bytearray(b"ab"),
    memoryview(b"ab"),
    [],
    (),
    ("int", 3),
    {},
    {"-type": "other"},
    {1: 2},
    "\ud800",
    decimal.Decimal("1.5"),
    dt.date(2026, 1, 2),
    object,
    enum.IntEnum("Subclass", {"ONE": 1}).ONE,  # type: ignore[attr-defined]  # made by a call
    type("Text", (str,), {})("A"),
    type("Record", (dict,), {})(),
)


def schema_of(random: Random) -> dict[str, Any]:
    """A schema, as JSON has it."""
    while True:
        schema = _Schemas(random).record(3)
        try:
            AvroSchema.parse(json.dumps(schema))
        except ValueError:  # a union has left out the branch that defines a type used later
            continue
        return schema


class _Schemas:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._names: list[str] = []
        self._count = 0

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def record(self, depth: int) -> dict[str, Any]:
        name = self._name("R")
        fields = []
        for _ in range(self._random.randrange(5)):
            field = {"name": self._name("f"), "type": self._type(depth - 1)}
            if self._random.random() < 0.2:
                default = _plain(field["type"])
                if default is not ...:
                    field["default"] = default
            fields.append(field)
        self._names.append(f"n.{name}")
        return {"type": "record", "name": name, "namespace": "n", "fields": fields}

    def _type(self, depth: int) -> Any:
        random = self._random
        kinds = [*_PRIMITIVES, "enum", "fixed", "logical", "logical", "again"]
        kinds += ["record", "array", "map", "union", "union"] * 2 if depth else []
        make: dict[str, Callable[[], Any]] = {
            "record": lambda: self.record(depth),
            "enum": lambda: self._named({"type": "enum", "symbols": random.sample(_SYMBOLS, random.randrange(1, 5))}),
            "fixed": lambda: self._named({"type": "fixed", "size": random.randrange(4)}),
            "logical": self._logical,
            "array": lambda: {"type": "array", "items": self._type(depth - 1)},
            "map": lambda: {"type": "map", "values": self._type(depth - 1)},
            "union": lambda: self._union(depth),
            "again": lambda: random.choice(self._names) if self._names else "long",
        }
        kind = random.choice(kinds)
        return make[kind]() if kind in make else random.choice([kind, {"type": kind}])

    def _named(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = self._name("N")
        self._names.append(f"n.{name}")
        return {**schema, "name": name, "namespace": "n"}

    def _logical(self) -> dict[str, Any]:
        schema = dict(self._random.choice(_LOGICAL))
        return self._named(schema) if "name" in schema else schema

    def _union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {}
        for _ in range(self._random.randrange(1, 4)):
            branch = self._type(depth - 1)
            if not isinstance(branch, list):
                branches[_key(branch)] = branch
        if self._random.random() < 0.7:
            branches["null"] = "null"
        union = list(branches.values()) or ["null", "string"]
        self._random.shuffle(union)
        return union


def _key(branch: Any) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)


def _plain(schema: Any) -> Any:
    """A default, or ... for a type that gets none."""
    if isinstance(schema, list):
        schema = schema[0]
    kind = schema["type"] if isinstance(schema, dict) else schema
    defaults: dict[str, Any] = {"null": None, "boolean": True, "int": 7, "long": 8, "double": 0.5, "string": "d"}
    defaults |= {"array": [], "map": {}, "float": 1.5}
    return ... if isinstance(schema, dict) and "logicalType" in schema else defaults.get(kind, ...)


def value_of(random: Random, parsed: Any, named: dict[str, Any], odd: float) -> Any:
    """A value of a parsed schema.

    Args:
        random: The source.
        parsed: The schema.
        named: Its named types.
        odd: The share of values, at any depth, that need not match.
    """
    if random.random() < odd:
        return random.choice(_ODD)
    if isinstance(parsed, list):
        return value_of(random, random.choice(parsed), named, odd)
    if isinstance(parsed, str) and parsed in named:
        return value_of(random, named[parsed], named, odd)
    schema = parsed if isinstance(parsed, dict) else {"type": parsed}
    if "logicalType" in schema and random.random() < 0.7:
        return _logical_value(random, schema)
    return _value(random, schema, named, odd)


def _value(random: Random, schema: dict[str, Any], named: dict[str, Any], odd: float) -> Any:
    make: dict[str, Callable[[], Any]] = {
        "null": lambda: None,
        "boolean": lambda: random.random() < 0.5,
        "int": lambda: random.choice(_NUMBERS[:-3]) if random.random() < 0.5 else random.randrange(-(2**31), 2**31),
        "long": lambda: random.choice(_NUMBERS) if random.random() < 0.5 else random.getrandbits(63),
        "float": lambda: _float(random),
        "double": lambda: _float(random),
        "bytes": lambda: random.randbytes(random.randrange(10)),
        "string": lambda: random.choice(_TEXTS),
        "enum": lambda: random.choice(schema["symbols"]),
        "fixed": lambda: random.randbytes(schema["size"]),
        "array": lambda: [value_of(random, schema["items"], named, odd) for _ in range(random.randrange(4))],
        "map": lambda: {
            random.choice(_TEXTS): value_of(random, schema["values"], named, odd) for _ in range(random.randrange(4))
        },
        "record": lambda: _record_value(random, schema, named, odd),
    }
    return make[schema["type"]]()


def _float(random: Random) -> Any:
    return random.choice(_FLOATS) if random.random() < 0.8 else random.choice(_NUMBERS)


def _record_value(random: Random, schema: dict[str, Any], named: dict[str, Any], odd: float) -> dict[str, Any]:
    record = {field["name"]: value_of(random, field["type"], named, odd) for field in schema["fields"]}
    if record and random.random() < 0.1:
        record.pop(random.choice(list(record)))
    if random.random() < 0.1:
        record[random.choice(["-type", "more"])] = random.choice([1, schema["name"]])
    return record


def _logical_value(random: Random, schema: dict[str, Any]) -> Any:
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, random.randrange(10**6), dt.UTC)
    zone = random.choice([dt.UTC, dt.timezone(dt.timedelta(hours=-3)), None])
    return {
        "date": moment.date(),
        "time-millis": moment.time(),
        "time-micros": moment.time(),
        "uuid": uuid.UUID(int=random.getrandbits(128)),
        "decimal": decimal.Decimal(random.randrange(-(10**5), 10**5)).scaleb(-random.randrange(3)),
        "unknown": "u",
    }.get(schema["logicalType"], moment.replace(tzinfo=zone))


def mutant(random: Random, data: bytes) -> bytes:
    """Bytes with a few changes."""
    mutated = bytearray(data)
    for _ in range(random.randrange(1, 3)):
        at = random.randrange(len(mutated) + 1)
        match random.randrange(5):
            case 0:
                mutated[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                mutated[at:at] = bytes([random.choice((0, 1, 2, 0x7F, 0x80, 0xFF))])
            case 2:
                del mutated[at : at + random.randrange(1, 4)]
            case 3:
                mutated[at:] = b""
            case _:
                mutated[at : at + 1] = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    return bytes(mutated)


class _LeftError(Exception):
    """The compiled part leaves it to fastavro."""


class Ways:
    """A schema, read and written by the stage with the compiled part and without, and by each alone.

    Args:
        schema: The schema, as JSON has it.
        target: The schema to read into, likewise; None for the same.
    """

    def __init__(self, schema: Any, target: Any = None) -> None:
        self.source = schema
        text = json.dumps(schema)
        self.schema = AvroSchema.parse(text)
        self.parsed: Any = self.schema.parsed
        self.named = dict(self.schema.named)
        into = {} if target is None else {"avro.reader.schema": json.dumps(target)}
        self._chains = [
            (
                SerializerChain.from_config({"value.serializers": "avro", **config}),
                DeserializerChain.from_config({"value.deserializers": "avro", **config, **into}),
            )
            for config in ({"avro.schema": text, "avro.native": native} for native in ("on", "off"))
        ]
        self._encode = self._decode = _leave
        with suppress(ValueError):
            self._encode = compiled_part.Encoder(self.parsed, LOGICAL_WRITERS, _leave, b"", False).encode
        with suppress(ValueError):
            writer, reader = self.schema.readable, None
            if target is not None:
                resolution = resolved(self.schema, AvroSchema.parse(json.dumps(target)))
                writer, reader = readable(resolution.writer), resolution.target
            parts = (FREE_PARTS, PARTS_PER_BYTE) if self.schema.unbounded else None
            self._decode = compiled_part.Decoder(writer, reader, LOGICAL_READERS, _leave, None, parts).decode

    def compare_written(self, value: Any) -> bytes | None:
        """Write a value in all ways.

        Returns:
            The bytes; None if fastavro does not write the value.
        """
        ours, theirs = (_outcome(chain, value) for chain, _ in self._chains)
        assert ours == theirs, (self.parsed, value, ours, theirs)
        if not self.schema.unbounded:
            try:
                alone = self._encode(value)
            except _LeftError:
                pass
            else:
                buffer = io.BytesIO()
                fastavro.schemaless_writer(buffer, self.parsed, value)
                assert alone == buffer.getvalue(), (self.parsed, value)
                # The stage's own checks are left out for what the compiled part takes.
                assert fastavro.validation.validate(value, self.parsed, raise_errors=False), (self.parsed, value)
        return theirs if isinstance(theirs, bytes) else None

    def compare_read(self, data: bytes) -> bool:
        """Read bytes in all ways.

        Returns:
            Whether the compiled part takes them.
        """
        ours, theirs = (_outcome(chain, data) for _, chain in self._chains)
        assert _exact(ours) == _exact(theirs), (self.parsed, data, ours, theirs)
        return self.compare_taken(data)

    def compare_taken(self, data: bytes) -> bool:
        """Read bytes by the compiled part, and by fastavro if it takes them.

        Returns:
            Whether it takes them; the others are fastavro's anyway.
        """
        try:
            alone = self._decode(data)
        except _LeftError:
            return False
        theirs = _outcome(self._chains[1][1], data)
        assert _exact(alone) == _exact(theirs), (self.parsed, data, alone, theirs)
        return True

    def compare_columns(self, records: list[bytes | None], target: Any = None, columns: list[str] | None = None) -> Any:
        """Read a batch in both ways.

        Args:
            records: The records, good and bad.
            target: The schema to read into, as JSON has it; None for the writer's.
            columns: The columns to read; None for all.

        Returns:
            The array; None if the schema has no Arrow type.
        """
        text = json.dumps(self.source)
        results: list[tuple[str, Any, Any]] = []
        for config in ({"avro.native": "on"}, {"avro.native": "off"}):
            if target is not None:
                config["avro.reader.schema"] = json.dumps(target)
            chain = DeserializerChain.from_config({"value.deserializers": "avro", "avro.schema": text, **config})
            try:
                result = chain.read_batch(Batch(records, topic="t", columns=columns))
            except ConfigError as error:
                results.append((str(error), None, {}))
                continue
            result.values.validate(full=True)
            errors = {row: (type(error), _without_addresses(str(error))) for row, error in result.errors.items()}
            results.append((str(result.values.type), result.values, errors))
        (kind, ours, our_errors), (their_kind, theirs, their_errors) = results
        assert (kind, our_errors) == (their_kind, their_errors), (self.parsed, target, columns, records)
        assert ours is None or _equal(ours, theirs), (self.parsed, target, columns, records)
        return ours

    def compare_array_written(self, array: Any) -> int:
        """Write an array by the compiled part, and its rows as is done without it.

        Returns:
            The number of rows that the compiled part takes.
        """
        if self.schema.unbounded:
            return 0
        taken = 0
        try:
            records, left = NativeWriter(Native(compiled_part), self.schema, b"!").write(array)
        except ValueError:
            return taken
        records.validate(full=True)
        values, named = objects(array), branch_namer(self.schema, array.type)
        for row, data in enumerate(records.to_pylist()):
            if row in left:
                assert data is None
                continue
            value = values[row] if values[row] is None or named is None else named(values[row])
            theirs = _outcome(self._chains[1][0], value)
            assert data == (None if value is None else b"!" + theirs), (self.parsed, array.type, value, data, theirs)
            taken += 1
        return taken


class UglyWays:
    """An ugly schema, whose records are read with the compiled part and without.

    Args:
        ugly: The schema.
    """

    def __init__(self, ugly: Ugly) -> None:
        self._schema = joined(ugly)
        self._whole = json.loads(self._schema.text)
        self._ways = [
            _without_context(AvroReader(self._schema, self._schema.readable, None, native=native).decode)
            for native in (Native(compiled_part), None)
        ]
        self._files = [
            DeserializerChain.from_config(
                {"value.deserializers": "avro", "avro.framing": "container", "avro.native": native}
            )
            for native in ("on", "off")
        ]

    def compare_read(self, data: bytes) -> None:
        """Read a record by both."""
        ours, theirs = (_outcome(way, data) for way in self._ways)
        assert _exact(ours) == _exact(theirs), (self._schema.text, data, ours, theirs)

    def compare_columns(self, records: list[bytes]) -> None:
        """Read records into columns by both; they bring their schema."""
        values = [in_a_file(self._whole, data) for data in records]
        ours, theirs = (chain.read_batch(Batch(values, topic="t")) for chain in self._files)
        ours.values.validate(full=True)
        told = [
            [(row, _without_addresses(str(error))) for row, error in sorted(each.errors.items())]
            for each in (ours, theirs)
        ]
        assert told[0] == told[1], (self._schema.text, records)
        assert ours.values.type == theirs.values.type, self._schema.text
        assert _equal(ours.values, theirs.values), (self._schema.text, records)


def _without_context(decode: Callable[[bytes], Any]) -> Callable[[Any, None], Any]:
    return lambda data, _: decode(data)


def _leave(*_: Any) -> Any:
    raise _LeftError


def _outcome(call: Callable[[Any, None], Any], data: Any) -> Any:
    try:
        return call(data, None)
    except SerializationError as error:
        return type(error), _without_addresses(str(error))


def _without_addresses(text: str) -> str:
    """A text of fastavro's, which names objects by their addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _equal(one: Any, other: Any) -> bool:
    """Whether two arrays of one type have the same values, bit by bit: NaN is not equal to itself for Arrow."""
    if one.equals(other):
        return True
    if len(one) != len(other) or not one.is_null().equals(other.is_null()):
        return False
    types = pa.types
    if types.is_struct(one.type):
        return all(map(_equal, one.flatten(), other.flatten()))
    if types.is_map(one.type):
        return one.offsets.equals(other.offsets) and one.keys.equals(other.keys) and _equal(one.items, other.items)
    if types.is_list(one.type):
        lengths = [compute.list_value_length(array) for array in (one, other)]
        return lengths[0].equals(lengths[1]) and _equal(one.flatten(), other.flatten())
    bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}.get(one.type)
    return bits is not None and bool(one.view(bits).equals(other.view(bits)))


def _exact(value: Any) -> Any:
    """A value that equals others of the same types, order and bits only."""
    if isinstance(value, dict):
        return [(key, _exact(item)) for key, item in value.items()]
    if isinstance(value, list):
        return ["list", *map(_exact, value)]
    if isinstance(value, float):
        return struct.pack("<d", value)
    return type(value), repr(value)
