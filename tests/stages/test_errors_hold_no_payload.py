"""Errors of values that do not fit, and their causes: none quotes the value."""

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from serde_chain import DeserializerChain, RecordContext, SerializationError, SerializerChain
from serde_chain.errors import shape_of, without_data
from serde_chain.spark.reading.python_values import converter

pa = pytest.importorskip("pyarrow")

SECRET, NUMBER = "xyzzy plugh", 77_347_734_773_477_347_734
PARTS = ("xyzzy", "plugh", "773477")
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "long", "type": "long", "default": 0},
        {"name": "band", "type": {"type": "enum", "name": "Band", "symbols": ["g"]}, "default": "g"},
        {"name": "union", "type": ["null", "int"], "default": None},
        {"name": "map", "type": {"type": "map", "values": "int"}, "default": {}},
        {"name": "decimal", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4}, "default": ""},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "ab"},
    ],
}
JSON = {
    "type": "object",
    "properties": {"long": {"type": "integer"}, "band": {"enum": ["g"]}, "text": {"pattern": "^a$", "maxLength": 3}},
    "patternProperties": {"^xyz": {"type": "object", "additionalProperties": False}},
    "additionalProperties": False,
    "required": ["long"],
}
VALUES: list[Any] = [
    *(SECRET, SECRET.encode(), NUMBER, [SECRET], {SECRET: SECRET}, {SECRET: {SECRET: 1}}, Decimal(NUMBER)),
    {"long": {SECRET, 1}},
    *({(SECRET,): 1}, {"long": SECRET, SECRET: 1}, {SECRET + "\ud800": 1}, {"text": SECRET + "\ud800", "long": 1}),
    *(
        {name: value}
        for name in ("long", "band", "union", "map", "decimal", "day", "fixed")
        for value in (SECRET, SECRET.encode(), [SECRET], {SECRET: SECRET}, {SECRET: NUMBER}, NUMBER, math.inf)
    ),
]
TABLES = [
    pa.table({"long": [SECRET]}),
    pa.table({"long": [7734773477.5]}),
    pa.table({"band": [SECRET]}),
    pa.table({"union": [7_734_773_477]}),
    pa.table({"map": pa.array([[(SECRET, 7_734_773_477)]], pa.map_(pa.string(), pa.int64()))}),
]


def message() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", syntax="proto3")
    file.enum_type.add(name="Band").value.add(name="G", number=0)
    record = file.message_type.add(name="R")
    record.field.add(name="long", number=1, type=5, label=1)
    record.field.add(name="band", number=2, type=14, label=1, type_name=".Band")
    record.field.add(name="union", number=3, type=11, label=1, type_name=".R")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("R"))


def texts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield from (str(error), *getattr(error, "__notes__", ()))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def assert_silent(error: BaseException) -> None:
    for text in texts(error):
        assert not any(part in text for part in PARTS), text


@pytest.mark.parametrize(
    "config",
    [
        {"value.serializers": "avro", "avro.schema": json.dumps(AVRO)},
        {"value.serializers": "avro", "avro.schema": json.dumps(AVRO), "avro.validate": "true"},
        {"value.serializers": "json", "json.schema": json.dumps(JSON)},
        {"value.serializers": "protobuf", "protobuf.type": message()},
        *({"value.serializers": name} for name in ("json", "msgpack", "bson", "long", "integer", "double", "uuid")),
    ],
    ids=lambda config: "-".join(str(each) for key, each in config.items() if key != "avro.schema")[:30],
)
def test_what_is_written(config: dict[str, Any]) -> None:
    chain = SerializerChain.from_config(config)
    failures = 0
    for value in VALUES:
        try:
            chain(value, RecordContext("alerts", "value", []))
        except SerializationError as error:
            failures += 1
            assert_silent(error)
    for table in TABLES:
        try:
            chain.from_arrow(table, topic="alerts")
        except SerializationError as error:
            assert_silent(error)
    assert failures > 3


def test_what_is_read() -> None:
    objects = ({"long": SECRET}, {"band": SECRET}, {SECRET: 1}, {"text": SECRET}, {SECRET: {SECRET: 1}}, SECRET)
    reads = DeserializerChain.from_config({"value.deserializers": "json", "json.schema": json.dumps(JSON)})
    for value in objects:
        with pytest.raises(SerializationError, match=r"\$") as caught:
            reads(json.dumps(value).encode(), RecordContext("alerts", "value", []))
        assert_silent(caught.value)
    reads = DeserializerChain.from_config({"value.deserializers": "uuid"})
    with pytest.raises(SerializationError, match="not a UUID") as caught:
        reads(SECRET.encode(), RecordContext("alerts", "value", []))
    assert_silent(caught.value)


def test_the_place_of_a_violation_has_names_of_the_schema_alone() -> None:
    reads = DeserializerChain.from_config({"value.deserializers": "json", "json.schema": json.dumps(JSON)})
    for value, told in (
        ({"long": "one"}, r'\$\.long is str of length 3, against type: "integer"'),
        ({}, r"\$: 'long' is a required property"),
        ({"long": 1, "xyzzy": 2}, r'\$\[\.\.\.\] is int of 2 bits, against type: "object"'),
    ):
        with pytest.raises(SerializationError, match=told):
            reads(json.dumps(value).encode())


@pytest.mark.parametrize(
    "kind",
    [pa.int32(), pa.date32(), pa.timestamp("us"), pa.decimal128(5, 2), pa.binary(), pa.list_(pa.int32()),
     pa.struct([("long", pa.int32())]), pa.map_(pa.string(), pa.int32())],
    ids=str,
)  # fmt: skip
def test_spark_schema(kind: Any) -> None:
    convert, failures = converter(kind), 0
    for value in (SECRET, NUMBER, [SECRET], {SECRET: SECRET}, {"long": SECRET}, "2026-13-01 " + SECRET):
        try:
            convert(value)
        except ValueError as error:
            failures += 1
            assert_silent(error)
    assert failures > 2


def test_shapes_and_texts() -> None:
    assert list(map(shape_of, (True, b"ab", [1], 1.5))) == ["bool", "bytes of length 2", "list of length 1", "float"]
    assert without_data(ValueError("'it's' and 5 or b\"x\"")) == "ValueError: …"
    assert without_data(OverflowError("int64 has no -5.0e3")) == "OverflowError: int64 has no …"
