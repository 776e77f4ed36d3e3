"""One budget of parts for all decoders: a few bytes do not become gigabytes, whatever a schema says.

What would take a machine's memory runs in a process of its own, with a limit to its address space.
"""

import json
import subprocess
import sys
from typing import Any, Final

import pytest
from google.protobuf import descriptor_pb2

from serde_chain import DecodeError, DeserializerChain, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.schemas.confluent import ConfluentRegistry
from serde_chain.schemas.part_budget import MAX_PARTS, parts_of_json
from serde_chain.schemas.registry import RegisteredSchema
from serde_chain.stages.avro.container import encode_long
from serde_chain.stages.avro.resolution import resolved
from serde_chain.stages.avro.schema import AvroSchema

LIMIT: Final = 3 << 30

PROGRAM: Final = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
from serde_chain import ConfigError, DecodeError, DeserializerChain
config, data, form = json.load(sys.stdin)
config = {{key: bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for key, value in config.items()}}
read = DeserializerChain.from_config(config)
try:
    if form == "arrow":
        read.to_arrow([bytes.fromhex(data)] * 200, topic="t")
    else:
        read(bytes.fromhex(data))
except (ConfigError, DecodeError) as error:
    print(error)
"""


def read_in_a_child(config: dict[str, Any], data: bytes, form: str) -> str:
    shipped = {key: {"hex": value.hex()} if isinstance(value, bytes) else value for key, value in config.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(limit=LIMIT)],
        input=json.dumps([shipped, data.hex(), form]),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def doubling(levels: int, leaf: str) -> Any:
    """A type of two to the power of so many leaves, in a text that grows by a line for each level."""
    named = [{"type": "record", "name": "L0", "fields": [{"name": "a", "type": leaf}]}]
    for level in range(1, levels):
        fields = [{"name": name, "type": f"L{level - 1}"} for name in "ab"]
        named.append({"type": "record", "name": f"L{level}", "fields": fields})
    return named


AVRO: Final = {"value.deserializer": "avro", "avro.schema": json.dumps(doubling(26, "null"))}


@pytest.mark.full
def test_avro_types_that_double() -> None:
    """Of less than 3 kB, with which one byte became more than 4 GB."""
    assert len(AVRO["avro.schema"]) < 3000
    assert "parts" in read_in_a_child(AVRO, encode_long(25), "object")
    assert "more than 10000 fields" in read_in_a_child(AVRO, encode_long(25), "arrow")


@pytest.mark.full
def test_avro_types_that_double_and_that_the_reader_leaves_out() -> None:
    for leaf in ("null", "int"):
        inner = doubling(26, leaf)
        writer = {
            "type": "record",
            "name": "R",
            "fields": [{"name": "x", "type": inner}, {"name": "id", "type": "int"}],
        }
        reader = {**writer, "fields": [{"name": "id", "type": "int"}]}
        config = {**AVRO, "avro.schema": json.dumps(writer), "avro.reader.schema": json.dumps(reader)}
        data = encode_long(0) + (b"\2" if leaf == "int" else b"") + b"\2"
        assert read_in_a_child(config, data, "arrow") == ""
        assert "is followed by" in read_in_a_child(config, data + bytes(300_000), "arrow")


def test_a_union_that_is_not_large_is_read_whatever_else_is_in_it() -> None:
    assert DeserializerChain.from_config(AVRO)(encode_long(3)) is not None


def protobuf(levels: int, width: int) -> dict[str, Any]:
    """Messages of which each has the one before twice, and the last many fields."""
    file = descriptor_pb2.FileDescriptorProto(name="parts.proto", package="parts", syntax="proto3")
    last = file.message_type.add(name="M0")
    for number in range(1, width + 1):
        last.field.add(name=f"f{number}", number=number, type="TYPE_INT32", label="LABEL_OPTIONAL")
    for level in range(1, levels):
        message = file.message_type.add(name=f"M{level}")
        for number, name in enumerate("ab", 1):
            label = "LABEL_REPEATED" if levels == 2 else "LABEL_OPTIONAL"
            message.field.add(
                name=name, number=number, type="TYPE_MESSAGE", label=label, type_name=f".parts.M{level - 1}"
            )
    return {
        "value.deserializer": "protobuf",
        "protobuf.values": "dict",
        "protobuf.descriptor.set.file": descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString(),
        "protobuf.message.name": f"parts.M{levels - 1}",
    }


@pytest.mark.full
def test_messages_of_many_fields_that_are_not_set() -> None:
    told = read_in_a_child(protobuf(2, 3000), b"\n\0" * 500, "object")
    assert "parts" in told
    assert "serde.max.parts" in told
    assert "parts" in read_in_a_child(protobuf(2, 3000), b"\n\0" * 500, "arrow")


@pytest.mark.full
def test_messages_that_take_a_thousand_times_their_bytes_are_not_parsed() -> None:
    """1 MB, which compress stages make of 60 bytes."""
    config = {**protobuf(2, 3000), "protobuf.values": "message"}
    for form in ("object", "arrow"):
        assert "parts" in read_in_a_child(config, b"\n\0" * 500_000, form)


def test_groups_and_unknown_fields_are_looked_through() -> None:
    read = DeserializerChain.from_config({**protobuf(2, 3000), "protobuf.values": "message"})
    unknown = b"\x1b" + b"\x08\1" * 20_000 + b"\x1c" + b"\x29" + bytes(8) + b"\x2d" + bytes(4)
    message = read(unknown + b"\n\2\x08\x07")
    assert [inner.f1 for inner in message.a] == [7]


def test_message_types_that_double() -> None:
    assert "more than 10000 fields" in read_in_a_child(protobuf(28, 1), b"", "arrow")
    assert read_in_a_child(protobuf(28, 1), b"\n\0", "object") == ""


def test_a_budget_of_ones_own() -> None:
    config = {MAX_PARTS.name: 1000, "avro.schema": json.dumps({"type": "array", "items": "int"})}
    for stage, few, many in (
        ("avro", encode_long(900) + bytes(900) + b"\0", encode_long(1100) + bytes(1100) + b"\0"),
        ("json", b"[" + b"0," * 900 + b"0]", b"[" + b"0," * 1100 + b"0]"),
        ("json", b'"' + b"," * 2000 + b'"', b"[" * 600 + b"]" * 600 + b"," * 401),
    ):
        read = DeserializerChain.from_config({**config, "value.deserializer": stage})
        assert read(few) is not None
        with pytest.raises(DecodeError, match=r"more than 1000 parts.*raise serde\.max\.parts"):
            read(many)


def test_a_budget_of_ones_own_holds_in_batches() -> None:
    config = {MAX_PARTS.name: 1000, "avro.schema": json.dumps({"type": "array", "items": "int"})}
    read = DeserializerChain.from_config({**config, "value.deserializer": "avro"})
    few, many = (encode_long(count) + bytes(count) + b"\0" for count in (900, 1100))
    result = read.read_batch(Batch([few, many, few], topic="t"))
    assert list(result.errors) == [1]
    assert [None if row is None else len(row) for row in result.values.to_pylist()] == [900, None, 900]


def test_defaults_of_a_reader_count_as_often_as_they_are_filled_in() -> None:
    """Four bytes became five million numbers: items that are empty for their writer, and not for the reader."""
    added = [{"name": f"f{at}", "type": "long", "default": at} for at in range(49)]
    added.append({"name": "list", "type": {"type": "array", "items": "long"}, "default": [1, 2]})

    def schema(fields: list[Any]) -> str:
        items = {"type": "record", "name": "Item", "fields": fields}
        return json.dumps({"type": "array", "items": items})

    config = {"value.deserializer": "avro", "avro.schema": schema([]), "avro.reader.schema": schema(added)}
    read = DeserializerChain.from_config(config)
    assert len(read(encode_long(1_000) + b"\0")) == 1_000
    data = encode_long(90_000) + b"\0"
    with pytest.raises(DecodeError, match="4770000 parts"):
        read(data)
    with pytest.raises(DecodeError, match="4770000 parts"):
        read.to_arrow([data], topic="t")
    exact = {**config, MAX_PARTS.name: 1 + 10 * (1 + 49 + 3)}
    assert len(DeserializerChain.from_config(exact)(encode_long(10) + b"\0")) == 10
    with pytest.raises(DecodeError, match="parts"):
        DeserializerChain.from_config(exact)(encode_long(11) + b"\0")


def test_usual_defaults_cost_no_look_at_the_record() -> None:
    def schema(*fields: Any) -> AvroSchema:
        return AvroSchema.parse({"type": "array", "items": {"type": "record", "name": "Item", "fields": [*fields]}})

    written = [{"name": name, "type": "long"} for name in "abcd"]
    source = schema(*written)
    filled = resolved(source, schema(*written, {"name": "more", "type": "string", "default": "x"})).filled
    assert filled == {"Item": 1}
    assert not source.with_filled(filled).unbounded
    assert source.with_filled({"Item": 100}).unbounded


def test_files_have_the_same_budget() -> None:
    config = {"value.serializer": "avro", "value.deserializer": "avro", "avro.framing": "container"}
    schema = json.dumps({"type": "array", "items": "int"})
    data = SerializerChain.from_config({**config, "avro.schema": schema})([0] * 1100)
    assert len(DeserializerChain.from_config(config)(data)) == 1100
    with pytest.raises(DecodeError, match="parts"):
        DeserializerChain.from_config({**config, MAX_PARTS.name: 1000})(data)


def nested(levels: int) -> str:
    """A schema of records within each other, each in a field of the next."""
    schema: Any = "int"
    for level in range(levels):
        schema = {"type": "record", "name": f"N{level}", "fields": [{"name": "a", "type": schema}]}
    return json.dumps(schema)


def by_name(levels: int) -> str:
    """The same by their names, so that the text is not nested."""
    named: list[Any] = [{"type": "record", "name": "N0", "fields": [{"name": "a", "type": "int"}]}]
    for level in range(1, levels):
        fields = [{"name": "a", "type": f"N{level - 1}"}]
        named.append({"type": "record", "name": f"N{level}", "fields": fields})
    return json.dumps(named)


@pytest.mark.parametrize("deep", [nested(300), by_name(400), json.dumps(doubling(26, "int")), "[" * 5000])
def test_a_schema_that_cannot_be_read_is_an_error_of_its_row(deep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(_registry: ConfluentRegistry, key: Any, *_args: Any) -> RegisteredSchema:
        return RegisteredSchema(key, '"int"' if key == 1 else deep)

    monkeypatch.setattr(ConfluentRegistry, "get", get)
    read = DeserializerChain.from_config({"value.deserializer": "avro", "schema.registry.url": "mock://parts"})
    good, bad = (b"\0" + key.to_bytes(4) + b"\x0e" for key in (1, 2))
    result = read.read_batch(Batch([good, bad, good], topic="t"))
    assert result.values.to_pylist() == [7, None, 7]
    assert [(row, error.about_record) for row, error in result.errors.items()] == [(1, True)]


def test_parts_of_json_are_never_too_few() -> None:
    def parts(value: Any) -> int:
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(map(parts, items))

    values: tuple[Any, ...] = ([], {}, [[]], {"a": {}}, [1, [2, {"b": ',"['}]], 'a"\\', [{"x": "\\\\"}, "]"])
    for value in values:
        assert parts_of_json(json.dumps(value).encode()) >= parts(value)
    assert parts_of_json(json.dumps("," * 500).encode()) == 1


def test_a_text_that_does_not_end_takes_no_longer_than_others() -> None:
    """A megabyte of quotes behind one that opens took an hour: at each of them, the search began once more."""
    config = {"value.deserializer": "json", "serde.max.parts": "1000"}
    said = read_in_a_child(config, b'["' + b'\\"' * 500_000, "record")
    assert "are not JSON" in said
    assert parts_of_json(b'"\\",[{' + b"\\") == 1


@pytest.mark.parametrize("nullable", [False, True])
def test_the_deepest_schema_is_read_in_every_way(nullable: bool) -> None:
    """As deep as is allowed, and resolved into another."""

    def schema(innermost: str) -> Any:
        inner: Any = innermost
        for level in range(59 if nullable else 118):
            type_ = ["null", inner] if nullable else inner
            inner = {"type": "record", "name": f"N{level}", "fields": [{"name": "a", "type": type_}]}
        return inner

    data = b"\2" * 59 + b"\x0e" if nullable else b"\x0e"
    config = {"value.deserializer": "avro", "avro.schema": json.dumps(schema("int"))}
    for more in ({}, {"avro.reader.schema": json.dumps(schema("long"))}):
        read = DeserializerChain.from_config({**config, **more})
        for found in (read(data), read.to_arrow([data], topic="t")[0].as_py()):
            value = found
            while isinstance(value, dict):
                value = value["a"]
            assert value == 7
