"""Avro resolved into another schema, case by case: which branch, which default, which promotion."""

import json
from decimal import Decimal
from typing import Any

import pytest

from serde_chain import DeserializerChain
from serde_chain.errors import DecodeError

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
