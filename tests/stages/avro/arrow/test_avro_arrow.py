"""Avro into Arrow, against an encoder and expectations of our own, down to the branch of a union."""

import json
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_chain import DeserializerChain
from serde_chain.arrow import Batch
from serde_chain.errors import ConfigError, DecodeError
from serde_chain.stages.avro.arrow.types import arrow_type
from serde_chain.stages.avro.schema import AvroSchema
from tests.hypothesis_profiles import examples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sample(NamedTuple):
    """A schema, the bytes of one value, and what Arrow is to give for it."""

    schema: Any
    encoded: bytes
    expected: Any


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def moment(per_second: int) -> Callable[[int], datetime]:
    return lambda number: EPOCH + timedelta(seconds=number) / per_second


def naive(per_second: int) -> Callable[[int], datetime]:
    return lambda number: moment(per_second)(number).replace(tzinfo=None)


def numbers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def same(value: Any) -> Any:
    return value


def leaf(
    schema: Any, values: st.SearchStrategy[Any], encode: Callable[[Any], bytes], expect: Callable[[Any], Any] = same
) -> st.SearchStrategy[Sample]:
    return values.map(lambda value: Sample(schema, encode(value), expect(value)))


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}
MILLIS = st.integers(-(10**13), 10**13)
LEAVES: list[st.SearchStrategy[Sample]] = [
    leaf("null", st.none(), lambda _: b""),
    leaf("boolean", st.booleans(), lambda value: bytes([value])),
    leaf("int", numbers(32), varint),
    leaf("long", numbers(64), varint),
    leaf("float", st.floats(width=32, allow_nan=False), lambda value: struct.pack("<f", value)),
    leaf("double", st.floats(allow_nan=False), lambda value: struct.pack("<d", value)),
    leaf("bytes", st.binary(max_size=20), sized),
    leaf("string", st.text(max_size=20), lambda value: sized(value.encode())),
    leaf(logical("string", "uuid"), st.uuids().map(str), lambda value: sized(value.encode())),
    leaf(logical("int", "date"), st.integers(-700_000, 2_000_000), varint, lambda n: date(1970, 1, 1) + timedelta(n)),
    leaf(logical("int", "time-millis"), st.integers(0, 86_399_999), varint),
    leaf(logical("long", "time-micros"), st.integers(0, 86_399_999_999), varint),
    leaf(logical("long", "timestamp-millis"), MILLIS, varint, moment(1000)),
    leaf(logical("long", "timestamp-micros"), MILLIS, varint, moment(1_000_000)),
    leaf(logical("long", "local-timestamp-millis"), MILLIS, varint, naive(1000)),
    leaf(logical("long", "local-timestamp-micros"), MILLIS, varint, naive(1_000_000)),
    leaf(
        DECIMAL,
        st.integers(-(10**9) + 1, 10**9 - 1),
        lambda n: sized(n.to_bytes(5, "big", signed=True)),
        lambda n: Decimal(n).scaleb(-3),
    ),
]

SIMPLE = dict(zip(["int", "long", "float", "double", "bytes", "string"], LEAVES[2:8], strict=True))


class Builder:
    """Draws samples that share one schema: first a shape, then values of it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names = 0

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def shape(self, depth: int) -> Any:
        """(schema, function that draws the encoded value and what is expected)."""
        kinds = ["leaf", "leaf", "enum", "fixed", *(["record", "array", "map", "optional", "union"] if depth else [])]
        return getattr(self, f"_{self.draw(st.sampled_from(kinds))}")(depth)

    def _leaf(self, _depth: int) -> Any:
        strategy = self.draw(st.sampled_from(LEAVES))
        return self.draw(strategy).schema, lambda: self.draw(strategy)[1:]

    def _enum(self, _depth: int) -> Any:
        schema = {"type": "enum", "name": self.name("E"), "symbols": ["A", "B", "C"]}

        def value() -> tuple[bytes, Any]:
            at = self.draw(st.integers(0, 2))
            return varint(at), "ABC"[at]

        return schema, value

    def _fixed(self, _depth: int) -> Any:
        schema = {"type": "fixed", "name": self.name("F"), "size": 12, "logicalType": "duration"}

        def value() -> tuple[bytes, Any]:
            data = self.draw(st.binary(min_size=12, max_size=12))
            return data, data

        return schema, value

    def _record(self, depth: int) -> Any:
        fields = [(self.name("f"), *self.shape(depth - 1)) for _ in range(self.draw(st.integers(1, 4)))]
        schema = {
            "type": "record",
            "name": self.name("R"),
            "fields": [{"name": name, "type": kind} for name, kind, _ in fields],
        }

        def value() -> tuple[bytes, Any]:
            parts = {name: draw() for name, _, draw in fields}
            return b"".join(part[0] for part in parts.values()), {name: part[1] for name, part in parts.items()}

        return schema, value

    def _array(self, depth: int) -> Any:
        items, draw_item = self.shape(depth - 1)

        def value() -> tuple[bytes, Any]:
            parts = [draw_item() for _ in range(self.draw(st.integers(0, 3)))]
            blocks = varint(len(parts)) + b"".join(part[0] for part in parts) if parts else b""
            return blocks + b"\0", [part[1] for part in parts]

        return {"type": "array", "items": items}, value

    def _map(self, depth: int) -> Any:
        values, draw_value = self.shape(depth - 1)

        def value() -> tuple[bytes, Any]:
            parts = [(key, draw_value()) for key in self.draw(st.lists(st.text(max_size=5), max_size=3, unique=True))]
            entries = b"".join(sized(key.encode()) + part[0] for key, part in parts)
            return (varint(len(parts)) + entries if parts else b"") + b"\0", [(key, part[1]) for key, part in parts]

        return {"type": "map", "values": values}, value

    def _optional(self, depth: int) -> Any:
        inner, draw_inner = self._not_null(depth)
        null_at = self.draw(st.integers(0, 1))

        def value() -> tuple[bytes, Any]:
            if self.draw(st.booleans()):
                return varint(null_at), None
            encoded, expected = draw_inner()
            return varint(1 - null_at) + encoded, expected

        return ([*["null"] * (null_at == 0), inner, *["null"] * (null_at == 1)]), value

    def _union(self, depth: int) -> Any:
        chosen = self.draw(st.lists(st.sampled_from(list(SIMPLE)), min_size=1, max_size=5, unique=True))
        branches: list[Any] = [(kind, partial(self._simple, kind)) for kind in chosen]
        branches += [self._record(depth) for _ in range(self.draw(st.integers(0, 2)))] + [self._enum(depth)]
        with_null = self.draw(st.booleans())
        order = self.draw(st.permutations([*range(len(branches)), *([-1] if with_null else [])]))
        schema = ["null" if at < 0 else branches[at][0] for at in order]
        # null has no member, the others are numbered without it.
        members = [at for at in order if at >= 0]

        def value() -> tuple[bytes, Any]:
            at = self.draw(st.sampled_from(order))
            if at < 0:
                return varint(order.index(at)), None
            encoded, expected = branches[at][1]()
            if len(members) == 1:
                return varint(order.index(at)) + encoded, expected
            struct_ = {f"member{number}": expected if member == at else None for number, member in enumerate(members)}
            return varint(order.index(at)) + encoded, struct_

        return schema, value

    def _simple(self, kind: str) -> tuple[bytes, Any]:
        return self.draw(SIMPLE[kind])[1:]

    def _not_null(self, depth: int) -> Any:
        return (
            getattr(self, f"_{self.draw(st.sampled_from(['record', 'array', 'map', 'enum']))}")(max(depth - 1, 0))
            if depth
            else self._enum(0)
        )


@st.composite
def samples(draw: st.DrawFn) -> tuple[Any, list[tuple[bytes, Any]]]:
    builder = Builder(draw)
    schema, value = builder._record(2)
    return schema, [value() for _ in range(draw(st.integers(1, 3)))]


def second_member(take: Callable[[dict[str, Any]], Any], record: dict[str, Any]) -> dict[str, Any]:
    return {"member0": None, "member1": take(record)}


def reader(schema: Any, **config: Any) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": json.dumps(schema), **config})


def read(chain: DeserializerChain, *records: bytes) -> Any:
    target = json.loads(chain.stages[0].schema.text)
    array = chain.to_arrow(records, topic="t")
    assert array.type == arrow_type(AvroSchema.parse(target))
    return array.to_pylist()


@settings(max_examples=examples(300))
@given(samples())
def test_every_value_arrives(sample: tuple[Any, list[tuple[bytes, Any]]]) -> None:
    schema, values = sample
    assert read(reader(schema), *(encoded for encoded, _ in values)) == [expected for _, expected in values]


@pytest.mark.full
@settings(max_examples=examples(200))
@given(samples(), st.data())
def test_every_value_arrives_in_another_schema(
    sample: tuple[Any, list[tuple[bytes, Any]]], data: st.DataObject
) -> None:
    schema, values = sample
    fields: list[Any] = []
    expect: dict[str, Callable[[dict[str, Any]], Any]] = {}
    for field in data.draw(st.permutations(schema["fields"])):
        name, kind = field["name"], field["type"]
        change = data.draw(st.sampled_from(["keep", "drop", "rename", "optional", "branch"]))
        take = itemgetter(name)
        if change == "drop":
            continue
        if change == "rename":
            fields.append({"name": f"new_{name}", "aliases": [name], "type": kind})
            expect[f"new_{name}"] = take
        elif change == "optional" and not isinstance(kind, list) and kind != "null":
            fields.append({"name": name, "type": ["null", kind]})
            expect[name] = take
        elif change == "branch" and isinstance(kind, dict) and kind["type"] in {"record", "array", "map"}:
            fields.append({"name": name, "type": ["boolean", kind, "null"]})
            expect[name] = partial(second_member, take)
        else:
            fields.append({"name": name, "type": kind})
            expect[name] = take
    fields.append({"name": "added", "type": ["string", "int"], "default": "new"})
    expect["added"] = lambda _: {"member0": "new", "member1": None}
    evolved = {"type": "record", "name": schema["name"], "fields": fields}

    found = read(reader(schema, **{"avro.reader.schema": json.dumps(evolved)}), *(encoded for encoded, _ in values))
    assert found == [{name: take(record) for name, take in expect.items()} for _, record in values]


@settings(max_examples=examples(200))
@given(samples(), st.binary(max_size=40))
def test_foreign_bytes_are_typed_errors(sample: tuple[Any, list[tuple[bytes, Any]]], data: bytes) -> None:
    result = reader(sample[0]).read_batch(Batch([data], topic="t"))
    assert all(isinstance(error, DecodeError) for error in result.errors.values())
    assert len(result.values) == 1


def test_a_name_used_twice_is_defined_once() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": ["null", "int", "string"]}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": point}, {"name": "b", "type": ["null", "Point"]}],
    }
    data = varint(1) + varint(4) + varint(1) + varint(2) + sized(b"s")
    assert read(reader(schema), data) == [
        {"a": {"x": {"member0": 4, "member1": None}}, "b": {"x": {"member0": None, "member1": "s"}}}
    ]


def test_a_recursive_schema_is_refused() -> None:
    schema = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(ConfigError, match="recursive: Node → Node"):
        arrow_type(AvroSchema.parse(schema))


def test_a_decimal_of_too_many_digits_is_refused() -> None:
    with pytest.raises(ConfigError, match="40 digits"):
        arrow_type(AvroSchema.parse({**DECIMAL, "precision": 40}))
