"""Batches of Avro: both readers give the same, whatever the schema and the bytes."""

import io
import json
import re
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde_chain import DeserializerChain
from serde_chain.arrow import Batch
from serde_chain.errors import ConfigError
from serde_chain.stages.avro.arrow import batch as avro_batch
from serde_chain.stages.avro.native import library
from tests.hypothesis_profiles import examples

LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
FLOAT = st.floats(width=32, allow_nan=False)
TEXT = st.text(max_size=8)


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


# Encoded without logical types: the numbers themselves, also those that no date has.
LEAVES: list[tuple[Any, Any, st.SearchStrategy[Any]]] = [
    ("boolean", "boolean", st.booleans()),
    ("int", "int", INT),
    ("long", "long", LONG),
    ("float", "float", FLOAT),
    ("double", "double", st.floats(allow_nan=False)),
    ("bytes", "bytes", st.binary(max_size=8)),
    ("string", "string", TEXT),
    (logical("string", "uuid"), "string", st.uuids().map(str)),
    (logical("int", "date"), "int", st.integers(-100_000, 100_000)),
    (logical("int", "time-millis"), "int", INT),
    (logical("long", "time-micros"), "long", LONG),
    (logical("long", "timestamp-millis"), "long", st.integers(-(10**13), 10**13)),
    (logical("long", "timestamp-micros"), "long", LONG),
    (logical("long", "timestamp-nanos"), "long", LONG),
    (logical("long", "local-timestamp-millis"), "long", st.integers(-(10**13), 10**13)),
    (logical("long", "local-timestamp-micros"), "long", LONG),
]


Made: TypeAlias = tuple[Any, Any, st.SearchStrategy[Any]]


class Maker:
    """Draws schemas, the bare forms with which values are encoded, and strategies of their values."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.names = 0
        self.defined: list[Made] = []

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def any(self, depth: int) -> Made:
        kinds = ["leaf", "leaf", "leaf", "optional", "enum", "fixed", "decimal", "again", "null"]
        kinds += ["record", "array", "map", "optional", "union"] * (depth > 0)
        made: Made = getattr(self, self.draw(st.sampled_from(kinds)))(depth - 1)
        return made

    def leaf(self, _depth: int) -> Made:
        made: Made = self.draw(st.sampled_from(LEAVES))
        return made

    def null(self, _depth: int) -> Made:
        return "null", "null", st.none()

    def again(self, depth: int) -> Made:
        return self.draw(st.sampled_from(self.defined)) if self.defined else self.leaf(depth)

    def define(self, schema: Any, bare: Any, values: st.SearchStrategy[Any]) -> Made:
        self.defined.append((schema["name"], bare["name"], values))
        return schema, bare, values

    def enum(self, _depth: int) -> Made:
        symbols = ["A", "B", "C"][: self.draw(st.integers(1, 3))]
        schema = {"type": "enum", "name": self.fresh("E"), "symbols": symbols}
        return self.define(schema, schema, st.sampled_from(symbols))

    def fixed(self, _depth: int) -> Made:
        size = self.draw(st.sampled_from([0, 1, 5, 16]))
        schema = {"type": "fixed", "name": self.fresh("F"), "size": size}
        return self.define(schema, schema, st.binary(min_size=size, max_size=size))

    def decimal(self, _depth: int) -> Made:
        precision = self.draw(st.integers(1, 38))
        scale = self.draw(st.integers(0, precision))
        most = 10**precision - 1
        values = st.integers(-most, most).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))
        attributes = {"logicalType": "decimal", "precision": precision, "scale": scale}
        if self.draw(st.booleans()):
            schema = {"type": "bytes", **attributes}
            return schema, schema, values
        schema = {"type": "fixed", "name": self.fresh("D"), "size": 16, **attributes}
        return self.define(schema, schema, values)

    def record(self, depth: int) -> Made:
        fields = {self.fresh("f"): self.any(depth) for _ in range(self.draw(st.integers(0, 4)))}
        name = self.fresh("R")
        schema, bare = (
            {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in kinds.items()]}
            for kinds in ({key: made[at] for key, made in fields.items()} for at in (0, 1))
        )
        return self.define(schema, bare, st.fixed_dictionaries({key: made[2] for key, made in fields.items()}))

    def array(self, depth: int) -> Made:
        schema, bare, values = self.any(depth)
        return {"type": "array", "items": schema}, {"type": "array", "items": bare}, st.lists(values, max_size=3)

    def map(self, depth: int) -> Made:
        schema, bare, values = self.any(depth)
        entries = st.dictionaries(TEXT, values, max_size=3)
        return {"type": "map", "values": schema}, {"type": "map", "values": bare}, entries

    def optional(self, depth: int) -> Made:
        schema, bare, values = self.branch(depth)
        order = self.draw(st.permutations([("null", "null"), (schema, bare)]))
        return [part[0] for part in order], [part[1] for part in order], st.none() | values

    def branch(self, depth: int) -> Made:
        kinds = ["leaf", "enum", "fixed", "decimal"] + ["record", "array", "map"] * (depth > 0)
        made: Made = getattr(self, self.draw(st.sampled_from(kinds)))(depth - 1)
        return made

    def union(self, depth: int) -> Made:
        """Of several branches, whose values say which they belong to."""
        kinds = self.draw(st.lists(st.sampled_from(["boolean", "int", "long", "bytes", "string"]), unique=True))
        kinds += ["record"] * self.draw(st.integers(0, 2)) + ["array"] * self.draw(st.integers(0, 1))
        kinds += ["null"] * (self.draw(st.booleans()) or not kinds)
        order = []
        # In the order in which they stand, as a type must be defined before it is named.
        for kind in self.draw(st.permutations(kinds)):
            leaf = next((leaf for leaf in LEAVES if leaf[0] == kind), None)
            order.append(leaf or getattr(self, kind)(depth))
        tagged = [made[2].map(partial(tag, made[1])) for made in order]
        return [made[0] for made in order], [made[1] for made in order], st.one_of(tagged)


def tag(bare: Any, value: Any) -> Any:
    name = bare if isinstance(bare, str) else bare.get("name")
    return value if name in {None, "null"} or not isinstance(value, dict) else (name, value)


@st.composite
def samples(draw: st.DrawFn) -> tuple[Any, list[bytes]]:
    schema, bare, values = Maker(draw).record(3)
    parsed = fastavro.parse_schema(bare)
    return schema, [encode(parsed, draw(values)) for _ in range(draw(st.integers(1, 5)))]


def encode(parsed: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, value)
    return out.getvalue()


COMPILED = pytest.mark.skipif(library() is None, reason="without the compiled part, fastavro reads all")


def chain(schema: Any, **config: Any) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "avro", "avro.schema": json.dumps(schema), **config})


def check(schema: Any, records: list[bytes], **config: Any) -> None:
    """Compare the readers, and the rows of a batch with the records read alone."""
    made = chain(schema, **config)
    try:
        expected, _, bad = chain(schema, **config, **{"avro.native": "off"}).read_batch(Batch(records, topic="t"))
    except ConfigError:
        return
    result = made.read_batch(Batch(records, topic="t"))
    assert [(row, said(error)) for row, error in sorted(result.errors.items())] == [
        (row, said(error)) for row, error in sorted(bad.items())
    ]
    assert result.values.type == expected.type
    result.values.validate(full=True)
    assert result.values.equals(expected), (result.values.to_pylist(), expected.to_pylist())
    if not bad:
        assert made.to_arrow(records, topic="t") == made.to_arrow(pa.array(records), topic="t") == expected


def said(error: Exception) -> str:
    """An error's text; fastavro names objects by their addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(error))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records each call of the compiled reader has read, all of them good."""
    counts: list[int] = []
    read = avro_batch._Decoder.compiled

    def counted(self: Any, values: Any, start: int, prefix: bytes) -> Any:
        array = read(self, values, start, prefix)
        if array is not None:
            counts.append(len(array))
        return array

    monkeypatch.setattr(avro_batch._Decoder, "compiled", counted)
    return counts


@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(samples())
def examples_of_every_schema(sample: tuple[Any, list[bytes]]) -> None:
    check(*sample)


@COMPILED
def test_every_schema_gives_the_same(compiled: list[int]) -> None:
    examples_of_every_schema()
    assert len(compiled) > examples(250), "the compiled part has read too few of the examples"


def damage(records: list[bytes], data: st.DataObject) -> None:
    """Damage one of the records, or two."""
    row = data.draw(st.integers(0, len(records) - 1))
    record = records[row]
    at = data.draw(st.integers(0, len(record)))
    kind = data.draw(st.sampled_from(["cut", "foreign", "flip", "longer", "shift"]))
    if kind == "cut":
        records[row] = record[:at]
    elif kind == "foreign":
        records[row] = data.draw(st.binary(max_size=20))
    elif kind == "flip" and at < len(record):
        records[row] = record[:at] + bytes([data.draw(st.integers(0, 255))]) + record[at + 1 :]
    elif kind == "shift" and row + 1 < len(records):
        # What one lacks the next has too much: together they are as long as they should be.
        records[row], records[row + 1] = record[:at], record[at:] + records[row + 1]
    else:
        records[row] = record + data.draw(st.binary(min_size=1, max_size=4))


@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(samples(), st.data())
def test_damaged_records_are_found(sample: tuple[Any, list[bytes]], data: st.DataObject) -> None:
    schema, records = sample
    damage(records, data)
    check(schema, records)


@COMPILED
def test_the_compiled_reader_can_be_switched_off(compiled: list[int]) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    records = [b"\2", b"\4"]
    for config in ({"avro.arrow.reader": "record"}, {"avro.native": "off"}, {"avro.arrow.reader": "auto"}):
        assert chain(schema, **config).to_arrow(records, topic="t").to_pylist() == [{"n": 1}, {"n": 2}]
    assert compiled == [2]  # of "auto"


@pytest.mark.parametrize("native", ["auto", "off"])
def test_what_does_not_fit_the_column_is_reported_by_its_row(native: str) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "t", "type": logical("long", "timestamp-millis")}]}
    good, beyond = (encode(fastavro.parse_schema(schema), {"t": number}) for number in (0, (1 << 63) - 1))
    result = chain(schema, **{"avro.native": native}).read_batch(Batch([None, good, None, beyond, good], topic="t"))
    assert {row: error.row for row, error in result.errors.items()} == {3: 3}
    assert [value is None for value in result.values.to_pylist()] == [True, False, True, True, False]
