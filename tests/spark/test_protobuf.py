"""Protobuf in Spark: what reading makes of a message, writing takes; and nothing is lost to a newer schema."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.struct_pb2 import ListValue
from pyspark.sql import DataFrame, SparkSession, functions

from serde_chain.spark import decode, deserialize, encode
from serde_chain.stages.protobuf.schema import message_class
from tests.spark.records import kafka, row

Config = dict[str, Any]
ALL_BITS = (1 << 64) - 1


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="events.proto", package="events", syntax="proto3")
    band = file.enum_type.add(name="Band")
    for number, name in enumerate("UG"):
        band.value.add(name=name, number=number)
    message = file.message_type.add(name="Event")
    for name, key, value in (("ByNumber", "UINT64", "MESSAGE"), ("Bands", "STRING", "ENUM")):
        entry = message.nested_type.add(name=f"{name}Entry")
        entry.options.map_entry = True
        _field(entry, 1, "key", key)
        _field(entry, 2, "value", value)
    _field(message, 1, "id", "UINT64")
    _field(message, 2, "ids", "UINT64", many=True)
    _field(message, 3, "band", "ENUM")
    _field(message, 4, "list", "ENUM", many=True)
    _field(message, 5, "by_number", "MESSAGE", ".events.Event.ByNumberEntry", many=True)
    _field(message, 6, "bands", "MESSAGE", ".events.Event.BandsEntry", many=True)
    _field(message, 7, "inner", "MESSAGE")
    _field(message, 8, "inners", "MESSAGE", many=True)
    inner = file.message_type.add(name="Inner")
    _field(inner, 1, "id", "UINT64")
    _field(inner, 2, "band", "ENUM")
    tree = file.message_type.add(name="Tree")
    _field(tree, 1, "id", "UINT64")
    _field(tree, 2, "branch", "MESSAGE", ".events.Tree")
    return file


def _field(
    message: Any, number: int, name: str, kind: str, type_name: str | None = None, *, many: bool = False
) -> None:
    named = {"MESSAGE": ".events.Inner", "ENUM": ".events.Band"}.get(kind)
    message.field.add(
        name=name,
        number=number,
        type=f"TYPE_{kind}",
        label="LABEL_REPEATED" if many else "LABEL_OPTIONAL",
        type_name=type_name or named,
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "events.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[_file()]).SerializeToString())
    return {
        "value.serializer": "protobuf",
        "value.deserializer": "protobuf",
        "protobuf.descriptor.set.file": str(path),
        "protobuf.message.name": "events.Event",
    }


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    return kafka(spark, [row(value, [], at) for at, value in enumerate(values)])


def test_what_was_read_is_written_as_it_was(spark: SparkSession, config: Config) -> None:
    event = message_class(config)
    assert event is not None
    values = [
        event(
            id=ALL_BITS,
            ids=[ALL_BITS, 0],
            band="G",
            list=["G", "U"],
            by_number={ALL_BITS: {"id": ALL_BITS}},
            bands={"a": "G"},
            inner={"id": ALL_BITS, "band": "G"},
            inners=[{"id": 1}, {}],
        ),
        event(),
        # As writers with a newer schema have them.
        event(band=7, list=[1, 7, -7], bands={"a": 7}, inner={"band": 7}),
    ]
    came = [*(value.SerializeToString(deterministic=True) for value in values), None]
    decoded = records(spark, *came).transform(decode(config))
    newer = decoded.collect()[2]["value"]
    assert (newer["band"], newer["list"], newer["bands"], newer["inner"]["band"]) == (
        "7",
        ["G", "7", "-7"],
        {"a": "7"},
        "7",
    )
    written = decoded.select("value").transform(encode(config, topic="copies")).collect()
    assert [row["value"] and bytes(row["value"]) for row in written] == came


@pytest.mark.parametrize(
    ("name", "text", "type_"), [("id", "1.5", "decimal(10,1)"), ("band", "9" * 5000, "string"), ("band", "Z", "string")]
)
def test_what_is_neither_whole_nor_a_name_does_not_fit(
    spark: SparkSession, config: Config, name: str, text: str, type_: str
) -> None:
    value = functions.struct(functions.lit(text).cast(type_).alias(name))
    with pytest.raises(Exception, match=r"does not match events\.Event"):
        spark.range(1).select(value.alias("value")).transform(encode(config, topic="copies")).collect()


@pytest.mark.parametrize("values", ["message", "dict"])
def test_a_message_that_can_contain_itself_is_read_as_far_as_the_schema_says(
    spark: SparkSession, config: Config, values: str
) -> None:
    config |= {"protobuf.message.name": "events.Tree", "protobuf.values": values}
    tree = message_class(config)
    assert tree is not None
    data = tree(id=1, branch={"id": 2, "branch": {"id": 3}}).SerializeToString()
    column = deserialize("value", None, config, schema="id bigint, branch struct<id bigint>")
    [found] = records(spark, data).select(column.alias("tree")).collect()
    assert found["tree"].asDict(recursive=True) == {"id": 1, "branch": {"id": 2}}


@pytest.mark.parametrize(
    ("type_", "expected"),
    [("map<string, double>", {"flux": 1.5, "none": None}), ("struct<flux: double>", {"flux": 1.5})],
)
def test_a_struct_is_what_it_stands_for(spark: SparkSession, type_: str, expected: dict[str, float | None]) -> None:
    config: Config = {
        "value.deserializer": "protobuf",
        "protobuf.message.class": "google.protobuf.struct_pb2.ListValue",
    }
    data = json_format.ParseDict([{"flux": 1.5, "none": None}], ListValue()).SerializeToString()
    column = deserialize("value", None, config, schema=f"array<{type_}>")
    [found] = records(spark, data).select(column.alias("structs")).collect()
    [struct] = found["structs"]
    assert (struct if type_.startswith("map") else struct.asDict()) == expected
