"""Avro schemas with which a few bytes could exhaust a reader."""

import json
import os
import subprocess
import sys
import tracemalloc
from typing import Any

import pytest

from serde_chain import ConfigError, DecodeError, DeserializerChain, EncodeError, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.schemas.nesting import MAX_DEPTH
from serde_chain.schemas.part_budget import FREE_PARTS
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.schema import AvroSchema

NODE: dict[str, Any] = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}
TREE: dict[str, Any] = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "named", "type": {"type": "map", "values": "Tree"}},
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "value", "type": ["null", "boolean", "float", "double", "bytes", "string"]},
    ],
}
NULLS: dict[str, Any] = {"type": "array", "items": "null"}
EMPTY: dict[str, Any] = {"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}


def varint(number: int) -> bytes:
    encoded = (number << 1) ^ (number >> 63)
    out = bytearray()
    while encoded > 0x7F:
        out.append(encoded & 0x7F | 0x80)
        encoded >>= 7
    return bytes([*out, encoded])


def chains(schema: Any) -> tuple[SerializerChain, DeserializerChain]:
    config = {"avro.schema": json.dumps(schema), "value.serializer": "avro", "value.deserializer": "avro"}
    return SerializerChain.from_config(config), DeserializerChain.from_config(config)


def nested(depth: int) -> Any:
    value: Any = {"next": None}
    for _ in range(depth - 1):
        value = {"next": value}
    return value


@pytest.mark.parametrize(
    ("schema", "unbounded"),
    [
        ("long", False),
        (["null", "string"], False),
        ({"type": "array", "items": "long"}, False),
        ({"type": "map", "values": "null"}, False),  # each entry has a key
        ({"type": "array", "items": ["null", "string"]}, False),  # each item has a branch
        (NODE, True),
        (TREE, True),
        (NULLS, True),
        (EMPTY, True),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, True),
        ({"type": "map", "values": NULLS}, True),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", NULLS]}]}, True),
    ],
)
def test_only_such_schemas_are_looked_over(schema: Any, unbounded: bool) -> None:
    assert AvroSchema.parse(schema).unbounded is unbounded


def test_a_type_that_is_used_twice_is_not_recursive() -> None:
    point = {"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": point}, {"name": "b", "type": "P"}, {"name": "c", "type": ["null", "P"]}]
    assert AvroSchema.parse({"type": "record", "name": "R", "fields": fields}).unbounded is False


def test_records_of_such_schemas_come_back() -> None:
    leaf = {"id": 1, "named": {}, "children": [], "kind": "a", "hash": b"ab", "value": None}
    values = [True, 0.5, b"bytes", "text"]
    tree = {**leaf, "named": {"n": leaf}, "children": [{**leaf, "value": value} for value in values]}
    for schema, value in ((TREE, tree), (NODE, nested(150)), (NULLS, [None] * 500), (EMPTY, [{}] * 500)):
        write, read = chains(schema)
        assert read(write(value)) == value


def test_deep_nesting_is_an_error_and_not_a_crash() -> None:
    # In a process of its own, since native readers end it when their stack does.
    program = (
        "import sys, json\nfrom serde_chain import ConfigError, DecodeError, DeserializerChain\n"
        "read = DeserializerChain.from_config({'value.deserializer': 'avro', 'avro.schema': sys.argv[1]})\n"
        "for depth in (1_000, 100_000, 5_000_000):\n"
        "    try:\n        read(bytes([2]) * depth + bytes([0]))\n"
        "    except DecodeError as error:\n        print(error.message)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(NODE)],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"nests deeper than {MAX_DEPTH} levels") == 3


def test_deep_values_are_an_error_when_written() -> None:
    write, read = chains(NODE)
    assert read(write(nested(MAX_DEPTH + 1))) == nested(MAX_DEPTH + 1)
    circle: dict[str, Any] = {}
    circle["next"] = circle
    for value in (nested(MAX_DEPTH + 2), nested(100_000), circle):
        with pytest.raises(EncodeError, match=f"nests deeper than {MAX_DEPTH} levels"):
            write(value)


def test_a_schema_of_many_levels_is_judged_at_once() -> None:
    # Each level names the one below twice: a walk along all paths would not end.
    schema: Any = {"type": "record", "name": "L0", "fields": [{"name": "x", "type": "int"}]}
    for level in range(1, 60):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"L{level - 1}"}]
        schema = {"type": "record", "name": f"L{level}", "fields": fields}
    assert AvroSchema.parse(schema).unbounded is False
    empty = json.loads(json.dumps(schema).replace('[{"name": "x", "type": "int"}]', "[]"))
    assert AvroSchema.parse({"type": "array", "items": empty}).unbounded is True


def test_the_types_of_fields_are_walked_in_one_order() -> None:
    """On it depends how many levels a recursive schema counts, and with that in which processes it is refused."""
    names = [f"type{number}" for number in range(20)]
    fields = [{"name": "a", "type": name} for name in (*names, "type3")]
    assert avro_bounds._children({"type": "record", "name": "R", "fields": fields}, {}) == names


@pytest.mark.parametrize("schema", [NULLS, EMPTY])
@pytest.mark.parametrize("count", [FREE_PARTS + 1, 10**12, 2**62])
def test_a_huge_count_of_empty_items_is_an_error(schema: Any, count: int) -> None:
    _, read = chains(schema)
    with pytest.raises(DecodeError, match="items that take no bytes"):
        read(varint(count) + b"\x00")
    with pytest.raises(DecodeError, match="items that take no bytes"):
        read(varint(-count) + varint(0) + b"\x00")


def test_many_blocks_of_empty_items_are_an_error() -> None:
    _, read = chains(NULLS)
    with pytest.raises(DecodeError, match="items that take no bytes"):
        read((varint(FREE_PARTS)) * 1000 + b"\x00")


@pytest.mark.parametrize("count", [10**9, 2**62])
def test_a_huge_count_of_real_items_is_an_error(count: int) -> None:
    for items in ("long", "string", "double", ["null", "int"]):
        _, read = chains({"type": "array", "items": items})
        with pytest.raises(DecodeError):
            read(varint(count) + b"\x02")


def test_a_huge_string_is_an_error() -> None:
    for kind in ("string", "bytes"):
        _, read = chains(kind)
        for size in (2**40, 2**62, -1, -(2**62)):
            with pytest.raises(DecodeError):
                read(varint(size) + b"abc")


def wide(levels: int) -> Any:
    """A record of no bytes that has two to the power of so many parts."""
    schema: Any = {"type": "record", "name": "W0", "fields": [{"name": "a", "type": "null"}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"W{level - 1}"}]
        schema = {"type": "record", "name": f"W{level}", "fields": fields}
    return schema


FLAG_AND_MORE = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "flag", "type": "boolean"}, {"name": "rest", "type": wide(10)}],
}


@pytest.mark.parametrize(
    ("items", "data"),
    [
        (wide(10), varint(5000) + b"\x00"),
        (FLAG_AND_MORE, varint(5000) + bytes(5000) + b"\x00"),
        pytest.param(
            *({"type": "map", "values": FLAG_AND_MORE}, varint(1) + (varint(5000) + b"\0\0" * 5000 + b"\0") + b"\0"),
            marks=pytest.mark.full,
        ),
    ],
    ids=["no bytes", "one byte", "map"],
)
def test_parts_of_an_item_count_for_every_item(items: Any, data: bytes) -> None:
    _, read = chains({"type": "array", "items": items})
    tracemalloc.start()
    with pytest.raises(DecodeError, match="parts"):
        read(data)
    assert tracemalloc.get_traced_memory()[1] < 5 << 20
    tracemalloc.stop()


def test_wrappers_of_few_bytes_pay_for_themselves() -> None:
    text: Any = {"type": "record", "name": "Text", "fields": [{"name": "value", "type": ["null", "string"]}]}
    wrapper = {"type": "record", "name": "Wrapper", "fields": [{"name": "text", "type": text}]}
    schema = {"type": "array", "items": wrapper}
    assert AvroSchema.parse(schema).unbounded is False
    write, read = chains(schema)
    values = [{"text": {"value": None}}] * 100_000
    assert read(write(values)) == values


def test_items_of_many_parts_that_are_worth_their_bytes() -> None:
    schema = {"type": "array", "items": {"type": "record", "name": "R", "fields": [
        {"name": "text", "type": "string"}, *({"name": f"n{at}", "type": "null"} for at in range(10))
    ]}}  # fmt: skip
    assert AvroSchema.parse(schema).unbounded is True
    write, read = chains(schema)
    values = [{"text": "a" * 20, **{f"n{at}": None for at in range(10)}}] * 20_000
    assert read(write(values)) == values


@pytest.mark.parametrize("name", ["null", "int", "string", "boolean"])
def test_types_that_are_called_like_primitives_are_refused(name: str) -> None:
    # fastavro reads such a name as the primitive: items of no bytes would look like those of the record.
    taken = {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": taken}, {"name": "b", "type": {"type": "array", "items": name}}]
    with pytest.raises(ConfigError, match=f"a type is named {name}"):
        chains({"type": "record", "name": "R", "fields": fields})


@pytest.mark.parametrize("size", [None, "5", 2.5, -1, True, [1]])
def test_sizes_that_are_none_are_refused(size: Any) -> None:
    with pytest.raises(ConfigError, match="the size of F is not a number of bytes"):
        chains({"type": "array", "items": {"type": "fixed", "name": "F", "size": size}})


@pytest.mark.parametrize("framing", ["none", "container"])
@pytest.mark.parametrize(
    "items",
    [
        "float",
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "record", "name": "P", "fields": [{"name": "x", "type": "double"}, {"name": "y", "type": "boolean"}]},
    ],
)
def test_a_huge_count_of_items_that_the_reader_leaves_out_is_an_error(items: Any, framing: str) -> None:
    """fastavro skips items of fixed size without looking for the end of the data."""
    left_out = {"name": "a", "type": ["null", {"type": "array", "items": items}]}
    kept = {"name": "b", "type": "int"}
    schema = json.dumps({"type": "record", "name": "R", "fields": [left_out, kept]})
    config = {"avro.schema": schema, "avro.framing": framing}
    target = json.dumps({"type": "record", "name": "R", "fields": [kept]})
    chain = DeserializerChain.from_config({"value.deserializers": "avro", "avro.reader.schema": target, **config})
    good = SerializerChain.from_config({"value.serializers": "avro", **config})({"a": [], "b": 5}, None)
    assert isinstance(good, bytes)
    huge = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
    bad = good.replace(b"\2\0\x0a", b"\2" + huge + b"\0\x0a")
    if framing == "container":
        bad = bad.replace(b"\2\6\2", b"\2\x18\2")  # the block's size
    assert len(bad) == len(good) + len(huge)
    assert chain(good, None) == {"b": 5}
    with pytest.raises(DecodeError):
        chain(bad, None)
    batch = chain.read_batch(Batch([good, bad], topic="t"))
    assert (batch.values.to_pylist(), list(batch.errors)) == ([{"b": 5}, None], [1])


def test_a_huge_count_of_records_of_which_the_reader_keeps_nothing_is_an_error() -> None:
    def schema(*fields: tuple[str, str]) -> str:
        item = {"type": "record", "name": "I", "fields": [{"name": name, "type": type_} for name, type_ in fields]}
        return json.dumps({"type": "array", "items": item})

    config = {
        "avro.schema": schema(("nothing", "null"), ("x", "float")),
        "avro.reader.schema": schema(("nothing", "null")),
    }
    chain = DeserializerChain.from_config({"value.deserializers": "avro", **config})
    assert chain(b"\2\0\0\0\0\0", None) == [{"nothing": None}]
    with pytest.raises(DecodeError):
        chain(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0\0\0\0\0", None)
