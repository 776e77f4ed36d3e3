"""Avro resolved into another schema, case by case: which branch, which default, which promotion."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from serde_chain import DeserializerChain, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.errors import ConfigError, DecodeError
from serde_chain.stages.avro.container import encode_long
from tests.stages.avro.test_schemas_of_others import in_a_file

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}


def varint(number: int) -> bytes:
    """A small number that is not negative, in zigzag encoding."""
    return bytes([number << 1])


def sized(data: bytes) -> bytes:
    return varint(len(data)) + data


def read(writer: Any, target: Any, data: bytes) -> Any:
    schemas = {"avro.schema": json.dumps(writer), "avro.reader.schema": json.dumps(target)}
    chain = DeserializerChain.from_config({"value.deserializer": "avro", **schemas})
    [found] = chain.to_arrow([data], topic="t").to_pylist()
    return found


CASES: list[tuple[str, Any, Any, bytes, Any]] = [
    (
        "promotion beats order",
        "int",
        ["string", "long", "double"],
        varint(3),
        {"member0": None, "member1": 3, "member2": None},
    ),
    (
        "exact beats promotion",
        "int",
        ["long", "int", "string"],
        varint(3),
        {"member0": None, "member1": 3, "member2": None},
    ),
    ("union into one", ["null", "int"], "int", varint(1) + varint(7), 7),
    ("int and long into long", ["int", "long"], ["null", "long"], varint(0) + varint(7), 7),
    (
        "two branches into one",
        ["int", "float"],
        ["double", "string"],
        varint(0) + varint(7),
        {"member0": 7.0, "member1": None},
    ),
    (
        "long that fits in an int",
        ["int", "long", "string"],
        ["string", "int", "long"],
        varint(1) + varint(7),
        {"member0": None, "member1": None, "member2": 7},
    ),
    ("bytes into string", "bytes", "string", sized(b"abc"), "abc"),
    (
        "enum with a default",
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        varint(1),
        "A",
    ),
    ("decimal out of plain bytes", "bytes", {**DECIMAL, "scale": 2}, sized(b"\x01\x00"), Decimal("2.56")),
    ("plain bytes out of a decimal", DECIMAL, "bytes", sized(b"\x01\x00"), b"\x01\x00"),
    (
        "array of unions",
        {"type": "array", "items": "int"},
        {"type": "array", "items": ["null", "long", "string"]},
        varint(1) + varint(5) + b"\0",
        [{"member0": 5, "member1": None}],
    ),
]


@pytest.mark.parametrize(
    ("writer", "target", "data", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_resolution(writer: Any, target: Any, data: bytes, expected: Any) -> None:
    assert read(writer, target, data) == expected


def test_defaults_of_all_kinds() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "bytes", "default": "\u00ff"}]}
    fields = [
        {"name": "d", "type": DECIMAL, "default": "\u0001\u0000"},
        {"name": "r", "type": inner, "default": {}},
        {"name": "a", "type": {"type": "array", "items": "Inner"}, "default": [{"b": "x"}]},
        {"name": "m", "type": {"type": "map", "values": "double"}, "default": {"k": 1}},
        {"name": "n", "type": ["null", "Inner"], "default": None},
    ]
    target = {"type": "record", "name": "R", "fields": fields}
    found = read({**target, "fields": []}, target, b"")
    assert found == {
        "d": Decimal("0.256"),
        "r": {"b": b"\xff"},
        "a": [{"b": b"x"}],
        "m": [("k", 1.0)],
        "n": None,
    }


@pytest.mark.parametrize(
    ("writer", "target"),
    [
        ("string", "int"),
        (["null", "string"], "string"),
        ({"type": "record", "name": "A", "fields": []}, {"type": "record", "name": "B", "fields": []}),
        (
            {"type": "record", "name": "A", "fields": []},
            {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]},
        ),
    ],
)
def test_schemas_that_do_not_resolve(writer: Any, target: Any) -> None:
    with pytest.raises(DecodeError):
        read(writer, target, b"\0")


# Objects


def objects(writer: Any, target: Any, data: bytes) -> Any:
    schemas = {"avro.schema": json.dumps(writer), "avro.reader.schema": json.dumps(target)}
    return DeserializerChain.from_config({"value.deserializer": "avro", **schemas})(data)


EMPTY: dict[str, Any] = {"type": "record", "name": "R", "fields": []}


@pytest.mark.parametrize(
    ("schema", "default", "expected"),
    [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
        ({"type": "record", "name": "I", "fields": [{"name": "a", "type": "int", "default": 7}]}, {}, {"a": 7}),
        ("float", 0.1, 0.10000000149011612),
        ("double", 1, 1.0),
        (DECIMAL, "\u0001\u0000", Decimal("0.256")),
        ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
        (["null", "bytes"], None, None),
        (["bytes", "null"], "b", b"b"),
    ],
)
def test_defaults_are_values(schema: Any, default: Any, expected: Any) -> None:
    target = {**EMPTY, "fields": [{"name": "new", "type": schema, "default": default}]}
    found = objects(EMPTY, target, b"")["new"]
    assert found == expected
    assert type(found) is type(expected)


def test_a_default_belongs_to_its_record_alone() -> None:
    items = {"type": "array", "items": {"type": "map", "values": "int"}}
    target = {**EMPTY, "fields": [{"name": "list", "type": items, "default": [{"a": 1}]}]}
    schemas = {"avro.schema": json.dumps(EMPTY), "avro.reader.schema": json.dumps(target)}
    chain = DeserializerChain.from_config({"value.deserializer": "avro", **schemas})
    first = chain(b"")
    first["list"][0]["b"] = first["list"].append({})
    assert chain(b"") == {"list": [{"a": 1}]}


def test_what_is_promoted_has_the_readers_type() -> None:
    for writer, target, data, expected in (
        ("long", "float", varint(60), 60.0),
        ("int", {"type": "long", "logicalType": "timestamp-millis"}, varint(0), datetime(1970, 1, 1, tzinfo=UTC)),
        ("string", DECIMAL, sized(b"a"), Decimal("0.097")),
        (["long", "int"], ["float", "int"], varint(1) + varint(7), 7),
        (["long", "int"], ["float", "int"], varint(0) + varint(7), 7.0),
    ):
        found = objects(writer, target, data)
        assert (found, type(found)) == (expected, type(expected))
    written = encode_long(2**24 + 1)
    assert objects("long", "float", written) == 2.0**24


@pytest.mark.parametrize(
    ("new", "advice"),
    [
        ("int", 'write "type": ["null", "int"], "default": null'),
        (["null", "int"], 'add "default": null'),
        (["int", "null"], 'put "null" first in its type, and add "default": null'),
        (["int", "string"], 'write "type": ["null", "int", "string"], "default": null'),
        ({"type": "fixed", "name": "F", "size": 3}, 'write "type": ["null", "F"], "default": null'),
        ({"type": "array", "items": "int"}, 'write "type": ["null", "array"], "default": null'),
    ],
)
def test_the_error_for_a_field_without_a_default_says_what_to_write(new: object, advice: str) -> None:
    target = {**EMPTY, "fields": [{"name": "roid", "type": new}]}
    config = {"value.deserializer": "avro", "avro.schema": json.dumps(EMPTY), "avro.reader.schema": json.dumps(target)}
    with pytest.raises(DecodeError, match="roid: the writer's schema lacks it, and it has no default: ") as caught:
        DeserializerChain.from_config(config)(b"")
    assert advice in caught.value.message


def test_the_error_for_an_alias_that_is_the_name_of_another_field() -> None:
    """Avro's specification: an alias counts where the reader has no field of the name."""
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "aliases": ["a"]}]
    schemas = {"avro.schema": {**EMPTY, "fields": fields[:1]}, "avro.reader.schema": {**EMPTY, "fields": fields}}
    with pytest.raises(
        DecodeError, match="b: the writer's schema has only its alias a, which belongs to another field"
    ):
        DeserializerChain.from_config({"value.deserializer": "avro", **schemas})(b"\2")


@pytest.mark.parametrize("framing", ["none", "container"])
def test_errors_of_resolution_name_the_field(framing: str) -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "string"}]}
    writer = {**EMPTY, "fields": [{"name": "i", "type": inner}]}
    fields = [{"name": "a", "type": "int"}, {"name": "b", "type": "int"}]
    target = {**EMPTY, "fields": [{"name": "i", "type": {**inner, "fields": fields}}]}
    schemas = {"avro.schema": json.dumps(writer), "avro.reader.schema": json.dumps(target)}
    config = {"value.serializer": "avro", "value.deserializer": "avro", "avro.framing": framing, **schemas}
    data = SerializerChain.from_config(config)({"i": {"a": "x"}})
    with pytest.raises(DecodeError) as caught:
        DeserializerChain.from_config(config)(data)
    assert caught.value.message == (
        "the writer's schema does not resolve into the reader's: i.a: string cannot be read as int; "
        "i.b: the writer's schema lacks it, and it has no default: "
        'write "type": ["null", "int"], "default": null'
    )
    assert "__" not in str(caught.value)


@pytest.mark.parametrize(
    ("outside", "data", "expected"),
    [
        ({"type": "array", "items": "R"}, b"\2\2\0", [{"b": 1, "a": 5}]),
        ({"type": "map", "values": "R"}, b"\2\2k\2\0", {"k": {"b": 1, "a": 5}}),
        (["null", {"type": "array", "items": "R"}], b"\2\2\2\0", [{"b": 1, "a": 5}]),
    ],
)
def test_records_in_arrays_and_maps_get_defaults(outside: Any, data: bytes, expected: Any) -> None:
    def schema(*fields: Any) -> Any:
        record = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "long"}, *fields]}
        return json.loads(json.dumps(outside).replace('"R"', json.dumps(record)))

    target = schema({"name": "a", "type": "long", "default": 5})
    config = {"avro.schema": json.dumps(schema()), "avro.reader.schema": json.dumps(target)}
    assert DeserializerChain.from_config({"value.deserializer": "avro", **config})(data) == expected
    found = read(schema(), target, data)
    assert (dict(found) if isinstance(expected, dict) else found) == expected


def test_the_readers_fields_may_have_any_name() -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": name, "type": "long"} for name in "ab"]}
    fields = [{"name": f"skipped_{number}", "type": "long", "default": 7} for number in range(8)]
    assert read(writer, {"type": "record", "name": "R", "fields": fields}, b"\2\4") == {
        f"skipped_{n}": 7 for n in range(8)
    }


IN_FIXED = {**DECIMAL, "type": "fixed", "name": "F", "size": 4}
OTHER_SCALES: list[tuple[Any, Any, bytes]] = [
    (DECIMAL, {**DECIMAL, "scale": 2}, sized(b"\x64")),
    (DECIMAL, {**DECIMAL, "scale": 2, "precision": 12}, sized(b"\x64")),
    ({name: DECIMAL[name] for name in DECIMAL if name != "scale"}, DECIMAL, sized(b"\x64")),
    (IN_FIXED, {**IN_FIXED, "scale": 2}, b"\x00\x00\x00\x64"),
    (["null", DECIMAL], ["null", {**DECIMAL, "scale": 2}], b"\x02" + sized(b"\x64")),
    ({"type": "array", "items": DECIMAL}, {"type": "array", "items": {**DECIMAL, "scale": 2}}, b"\x02\x02\x64\x00"),
    ({"type": "map", "values": ["string", DECIMAL]}, {"type": "map", "values": {**DECIMAL, "scale": 2}},
     b"\x02\x02a\x02\x02\x64\x00"),
]  # fmt: skip


def field(schema: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "price", "type": schema}]})


@pytest.mark.parametrize(("writer", "target", "data"), OTHER_SCALES)
@pytest.mark.parametrize("native", ["auto", "off"])
def test_a_decimal_of_another_scale_does_not_match(writer: Any, target: Any, data: bytes, native: str) -> None:
    config = {"value.deserializer": "avro", "avro.native": native, "avro.reader.schema": field(target)}
    with pytest.raises(ConfigError, match=r"price: .*of the scale \d cannot be read as .*the scale \d") as raised:
        DeserializerChain.from_config({**config, "avro.schema": field(writer)})
    assert raised.value.key == "avro.reader.schema"
    # Where records bring their schemas, no other record is affected.
    files = DeserializerChain.from_config({**config, "avro.framing": "container"})
    with pytest.raises(DecodeError, match=r"does not resolve into the reader's: price: .*Use the writer's scale"):
        files(in_a_file(json.loads(field(writer)), data))
    good = in_a_file(json.loads(field(target)), data if "logicalType" in target else b"\0")
    batch = files.read_batch(Batch([in_a_file(json.loads(field(writer)), data), good] * 20, topic="t"))
    assert sorted(batch.errors) == list(range(0, 40, 2))
    assert {error.hint for error in batch.errors.values()} == {raised.value.hint}
    assert batch.values.null_count == 20


def test_a_decimal_of_another_precision_matches() -> None:
    wide = {**DECIMAL, "precision": 40}
    assert read(wide, DECIMAL, sized(b"\x64")) == Decimal("0.100")
    assert read(DECIMAL, {**DECIMAL, "precision": 12}, sized(b"\x64")) == Decimal("0.100")
