"""Schemas, with values that fit them and values that do not: Confluent's serializers say which."""

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any, Final

from tests.stages.protobuf.protobuf_messages import ALERT, FIRST, POSITION, VISIT

__all__ = ["AVRO", "ENUM", "JSON", "PROTOBUF", "READERS", "Values", "record"]

Values = list[Any]


def record(*fields: tuple[str, Any] | dict[str, Any], name: str = "Order", **more: Any) -> dict[str, Any]:
    made = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


ENUM: Final = {"type": "enum", "name": "Band", "symbols": ["G", "R"]}
NESTED: Final = record(("other", record(("id", "long"), name="Inner")), ("more", {"type": "array", "items": "Inner"}))
DEFAULTS: Final = record(
    ("a", "string"),
    {"name": "b", "type": "int", "default": 7},
    {"name": "c", "type": ["null", "string"], "default": None},
    {"name": "d", "type": {"type": "array", "items": "int"}, "default": []},
    {"name": "e", "type": ["null", "string"]},
)
AVRO: Final[dict[str, tuple[Any, Values]]] = {
    "numbers": (
        record(("i", "int"), ("l", "long"), ("f", "float"), ("d", "double")),
        [
            {"i": 1, "l": -(2**63), "f": 0.5, "d": math.pi},
            {"i": 2**31, "l": 0, "f": 0.0, "d": 0.0},
            {"i": 0, "l": 2**63, "f": 0.0, "d": 0.0},
            {"i": 0, "l": 0, "f": 1, "d": 2},
            {"i": 0.5, "l": 0, "f": 0.0, "d": 0.0},
            {"i": "1", "l": 0, "f": 0.0, "d": 0.0},
            {"i": None, "l": 0, "f": 0.0, "d": 0.0},
            {"i": 0, "l": 0, "f": "x", "d": 0.0},
            {"i": 0, "l": 0, "f": math.inf, "d": math.nan},
        ],
    ),
    "texts": (
        record(("s", "string"), ("b", "bytes"), ("t", "boolean")),
        [
            {"s": "M 51 é🐎", "b": b"\0\xff", "t": True},
            {"s": "", "b": b"", "t": False},
            {"s": b"a", "b": b"", "t": True},
            {"s": "a", "b": "a", "t": True},
            {"s": 5, "b": b"", "t": True},
            {"s": "a", "b": b"", "t": "yes"},
            {"s": "\ud800", "b": b"", "t": True},
        ],
    ),
    "nested": (
        NESTED,
        [
            {"other": {"id": 1}, "more": []},
            {"other": {"id": 1}, "more": [{"id": 2}, {"id": 3}]},
            {"other": {"id": 1}, "more": ({"id": 2},)},
            {"other": {}, "more": []},
            {"other": None, "more": []},
            {"other": {"id": 1}, "more": None},
            {"other": {"id": 1}, "more": {"id": 1}},
        ],
    ),
    "defaults": (
        DEFAULTS,
        [
            {"a": "x"},
            {"a": "x", "b": 1, "c": "y", "d": [1], "e": None},
            {"a": "x", "f": 1},
            {"b": 1},
            {},
            {"a": "x", "b": None},
        ],
    ),
    "maps": (
        record(("m", {"type": "map", "values": ["null", "long"]})),
        [{"m": {}}, {"m": {"a": 1, "b": None}}, {"m": {"é": 2**40}}, {"m": {1: 1}}, {"m": []}, {"m": {"a": "x"}}],
    ),
    "enums": (record(("e", ENUM)), [{"e": "G"}, {"e": "R"}, {"e": "X"}, {"e": 0}, {"e": None}]),
    "fixed": (
        record(("x", {"type": "fixed", "name": "F", "size": 3})),
        [{"x": b"abc"}, {"x": b"ab"}, {"x": b"abcd"}, {"x": "abc"}],
    ),
    "moments": (
        record(
            ("date", logical("int", "date")),
            ("millis", logical("long", "timestamp-millis")),
            ("micros", logical("long", "timestamp-micros")),
            ("time", logical("long", "time-micros")),
        ),
        [
            {
                "date": dt.date(1969, 7, 20),
                "millis": dt.datetime(1969, 7, 20, 20, 17, 40, 123_000, tzinfo=dt.UTC),
                "micros": dt.datetime(2100, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5))),
                "time": dt.time(1, 2, 3, 4),
            },
            {"date": 5, "millis": 5, "micros": -5, "time": 5},
        ],
    ),
    "decimals and UUIDs": (
        record(("d", logical("bytes", "decimal", precision=6, scale=2)), ("u", logical("string", "uuid"))),
        [
            {"d": Decimal("-12.34"), "u": uuid.UUID(int=5)},
            {"d": Decimal(1), "u": uuid.UUID(int=2**128 - 1)},
            {"d": Decimal("1.234"), "u": uuid.UUID(int=5)},
            {"d": Decimal(12345678), "u": uuid.UUID(int=5)},
        ],
    ),
    "a union of records": (
        record(("u", ["null", record(("a", "int"), name="A"), record(("b", "string"), name="B")])),
        [
            {"u": None},
            {"u": {"a": 1}},
            {"u": {"b": "x"}},
            {"u": ("A", {"a": 1})},
            {"u": ("C", {"a": 1})},
            {"u": {"c": 1}},
            {"u": 5},
        ],
    ),
    "a union of primitives": (
        record(("u", ["null", "boolean", "int", "double", "string", "bytes"])),
        [{"u": None}, {"u": True}, {"u": 5}, {"u": 2.5}, {"u": "x"}, {"u": b"x"}, {"u": 2**40}, {"u": []}],
    ),
    "a union at the top": (
        [record(("a", "int"), name="A"), record(("b", "string"), name="B")],
        [{"a": 1}, {"b": "x"}, {"c": 1}, ("B", {"b": "x"})],
    ),
    "bytes": ("bytes", [b"", b"\0\1", "é", 5]),
    "bytes as an object": ({"type": "bytes"}, [b"", b"\0\1", 5]),
    "text": ("string", ["", "é🐎", 5, b"x"]),
    "a long": ({"type": "long"}, [0, -1, 2**63 - 1, 2**63, "x", 1.5]),
    "null": ("null", [5]),
    "an array": ({"type": "array", "items": "int"}, [[], [1, 2], (1,), ["x"], 5]),
    "names": (
        record(("a", "survey.Band"), name="Alert", namespace="survey")
        | {"fields": [{"name": "a", "type": {**ENUM, "namespace": "survey"}}, {"name": "b", "type": "survey.Band"}]},
        [{"a": "G", "b": "R"}],
    ),
    "a record that holds itself": (
        record(("id", "int"), ("next", ["null", "Order"])),
        [{"id": 1, "next": None}, {"id": 1, "next": {"id": 2, "next": None}}, {"id": 1}],
    ),
}
JSON: Final[dict[str, tuple[Any, Values]]] = {
    "an object": (
        {
            "title": "Order",
            "type": "object",
            "properties": {"id": {"type": "integer", "minimum": 0}, "name": {"type": "string", "maxLength": 3}},
            "required": ["id"],
        },
        [
            {"id": 1},
            {"id": 1, "name": "é"},
            {"id": 1, "more": [None]},
            {},
            {"id": -1},
            {"id": 1.0},
            {"id": "1"},
            {"id": 1, "name": "long"},
            [],
            5,
        ],
    ),
    "closed": (
        {"title": "Order", "type": "object", "properties": {"a": {}}, "additionalProperties": False},
        [{}, {"a": {"b": [1, 2.5, "x", None, True]}}, {"b": 1}],
    ),
    "definitions": (
        {
            "title": "Order",
            "type": "object",
            "properties": {"a": {"$ref": "#/definitions/positive"}, "b": {"$ref": "#/$defs/node"}},
            "definitions": {"positive": {"type": "number", "exclusiveMinimum": 0}},
            "$defs": {
                "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}}
            },
        },
        [{"a": 1}, {"a": 0}, {"b": {"next": {"next": {"v": 1}}}}, {"b": {"next": {"next": {"v": "x"}}}}],
    ),
    "choices": (
        {
            "title": "Order",
            "$schema": "http://json-schema.org/draft-07/schema#",  # which this registry knows a schema by
            "oneOf": [{"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}, {"type": "string"}],
            "not": {"const": "x"},
        },
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}, "y", "x", 5],
    ),
    "draft 4": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "title": "Order",
            "type": "object",
            "properties": {"n": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
        },
        [{"n": 1}, {"n": 0}, {"n": -1}],
    ),
    "formats": (
        {
            "title": "Order",
            "type": "object",
            "properties": {"e": {"type": "string", "format": "email"}, "p": {"pattern": "^a+$"}},
        },
        [{"e": "no mail"}, {"p": "aaa"}, {"p": "b"}, {"p": 5}],
    ),
}
# Maps of one entry: Confluent's serializer leaves their order to chance, ours sorts.
PROTOBUF: Final = [
    FIRST(id=7),
    ALERT(id=-1, name="é", tags=["a", ""], position={"ra": 1.5}, band="G", cutout=b"\0", scores={"b": 1.0}),
    ALERT(history=[{"flux": [1.0, math.inf]}], magnitude=0.0, parent={"parent": {"id": 1}}),
    VISIT(flux=[1.0]),
    POSITION(ra=1.5),
    ALERT(),
]

# The writer's schema, the reader's, and a value.
READERS: Final[dict[str, tuple[Any, Any, Any]]] = {
    "a field is gone": (record(("a", "int"), ("b", "string")), record(("b", "string")), {"a": 1, "b": "x"}),
    "a field with a default": (
        record(("a", "int")),
        record(("a", "int"), {"name": "b", "type": "long", "default": 5}),
        {"a": 1},
    ),
    "a field without a default": (record(("a", "int")), record(("a", "int"), ("b", "long")), {"a": 1}),
    "another order": (record(("a", "int"), ("b", "string")), record(("b", "string"), ("a", "int")), {"a": 1, "b": "x"}),
    "a longer number": (record(("a", "int")), record(("a", "double")), {"a": 1}),
    "a shorter number": (record(("a", "long")), record(("a", "int")), {"a": 1}),
    "text as bytes": (record(("a", "string")), record(("a", "bytes")), {"a": "é"}),
    "into a union": (record(("a", "int")), record(("a", ["null", "long"])), {"a": 1}),
    "out of a union": (record(("a", ["null", "int"])), record(("a", "int")), {"a": 1}),
    "null out of a union": (record(("a", ["null", "int"])), record(("a", "int")), {"a": None}),
    "an alias": (record(("a", "int")), record({"name": "b", "type": "int", "aliases": ["a"]}), {"a": 1}),
    "an unknown symbol": (record(("a", ENUM)), record(("a", {**ENUM, "symbols": ["G"]})), {"a": "R"}),
    "a default symbol": (record(("a", ENUM)), record(("a", {**ENUM, "symbols": ["G"], "default": "G"})), {"a": "R"}),
    "another name": (record(("a", "int")), record(("a", "int"), name="Other"), {"a": 1}),
}
