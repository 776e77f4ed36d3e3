"""``protobuf`` with a real schema registry, next to Confluent's own serializers."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2

from serde_chain import DecodeError, DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.record import get_header
from serde_chain.testing.services import SchemaRegistry
from tests.stages.protobuf.protobuf_messages import ALERT, FILES, FIRST, VISIT, make

MESSAGES = [
    FIRST(id=7),  # [0], written as one 00
    ALERT(id=7, name="M 51", position={"ra": 202.5}, scores={"real": 0.5}, time={"seconds": 5}),
    VISIT(flux=[1.5, 2.5]),
    timestamp_pb2.Timestamp(seconds=1, nanos=2),
]

PEER = SchemaRegistry.serializer_conf()


class Make(Protocol):
    """Makes a chain of one Protobuf stage; keys are written with underscores."""

    def __call__(self, message: object = None, **config: object) -> Any: ...


@pytest.fixture
def chains(registry: SchemaRegistry) -> Iterator[tuple[Make, Make]]:
    with ExitStack() as stack:

        def make_one(kind: Any, message: object, config: dict[str, object]) -> Any:
            settings = {key.replace("_", "."): value for key, value in config.items()}
            return stack.enter_context(
                kind.from_config(
                    {
                        "value.serializer": "protobuf",
                        "value.deserializer": "protobuf",
                        "schema.registry.url": registry.url,
                        "protobuf.message.class": message,
                        **settings,
                    }
                )
            )

        yield (
            lambda message=None, **config: make_one(SerializerChain, message, config),
            lambda message=None, **config: make_one(DeserializerChain, message, config),
        )


def value_of(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.DESCRIPTOR.full_name)
def test_bytes_are_those_of_confluents_serializer(
    client: SchemaRegistryClient, chains: tuple[Make, Make], topic: str, message: Any
) -> None:
    write, read = chains
    theirs = ProtobufSerializer(type(message), client, PEER)(message, value_of(topic))
    ours = write(type(message))(message, value_of(topic))
    assert ours == theirs
    assert read(type(message))(theirs, value_of(topic)) == message
    # Without the registry: this one does not give descriptors in the way in which Confluent's class asks for them.
    assert ProtobufDeserializer(type(message))(ours, value_of(topic)) == message


def test_indexes_are_as_documented(chains: tuple[Make, Make], topic: str) -> None:
    write, _ = chains
    for message, indexes in ((MESSAGES[0], "00"), (MESSAGES[1], "0202"), (MESSAGES[2], "040202")):
        data = write(type(message))(message, RecordContext(topic + indexes, "value"))
        assert data[0] == 0
        assert data[5:] == bytes.fromhex(indexes) + message.SerializeToString(deterministic=True)


def test_a_reader_needs_no_class(chains: tuple[Make, Make], topic: str) -> None:
    write, read = chains
    ctx = RecordContext(topic, "value")
    any_message = read()
    for message in MESSAGES[:3]:
        got = any_message(write(type(message))(message, RecordContext(topic, "value")), ctx)
        assert got.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
        assert got.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
    as_dict = read(protobuf_values="dict")(write(ALERT)({"id": 7, "position": {"ra": 1.0}}, ctx), ctx)
    assert as_dict["id"] == 7
    assert as_dict["position"] == {"ra": 1.0, "dec": 0.0}


def test_references_are_registered(client: SchemaRegistryClient, chains: tuple[Make, Make], topic: str) -> None:
    write, _ = chains
    data = write(ALERT)(MESSAGES[1], RecordContext(topic, "value"))
    schema = client.get_schema(int.from_bytes(data[1:5], "big"))
    assert [(found.name, found.subject) for found in schema.references or ()] == [("sky/position.proto",) * 2]


def test_a_schema_that_is_not_registered_is_refused(chains: tuple[Make, Make], topic: str) -> None:
    write, _ = chains
    file = type(FILES[0])()
    file.CopyFrom(FILES[0])
    file.package = f"p{uuid.uuid4().hex}"
    fresh = make(f"{file.package}.Position", [file])
    with pytest.raises(SchemaRegistryError):
        write(fresh, auto_register_schemas=False)(fresh(ra=1.0), RecordContext(topic, "value"))
    ctx = RecordContext(topic, "value")
    first = write(fresh)(fresh(ra=1.0), ctx)
    assert write(fresh, auto_register_schemas=False)(fresh(ra=1.0), ctx) == first
    assert write(fresh, use_latest_version=True)(fresh(ra=1.0), ctx) == first


def test_header_framing(chains: tuple[Make, Make], topic: str) -> None:
    write, read = chains
    ctx = RecordContext(topic, "value", [])
    data = write(ALERT, protobuf_framing="header")(MESSAGES[1], ctx)
    assert data == MESSAGES[1].SerializeToString(deterministic=True)
    named = get_header(ctx, "__value_schema_id")
    assert named is not None
    assert named[-2:] == b"\x02\x02"
    assert ProtobufDeserializer(ALERT)(data, value_of(topic, ctx.headers)) == MESSAGES[1]
    for message in (ALERT, None):
        assert read(message)(data, ctx).id == 7


def test_another_message_of_the_topic_is_refused(chains: tuple[Make, Make], topic: str) -> None:
    write, read = chains
    ctx = RecordContext(topic, "value")
    data = write(VISIT)(MESSAGES[2], ctx)
    with pytest.raises(DecodeError, match=r"is a survey\.Alert\.Visit, expected survey\.Alert"):
        read(ALERT)(data, ctx)


@pytest.mark.parametrize("prefix", ["00ffffff00", "0000000000"])
def test_an_unknown_id_is_an_error(chains: tuple[Make, Make], topic: str, prefix: str) -> None:
    _, read = chains
    with pytest.raises(SchemaRegistryError):
        read()(bytes.fromhex(prefix) + b"\x00", RecordContext(topic, "value"))


def test_indexes_that_lead_nowhere_are_an_error(chains: tuple[Make, Make], topic: str) -> None:
    write, read = chains
    ctx = RecordContext(topic, "value")
    data = write(FIRST)(MESSAGES[0], ctx)
    with pytest.raises(SchemaRegistryError, match="no message 9") as caught:
        read()(data[:5] + b"\x02\x12", ctx)
    assert caught.value.about_record


def test_a_schema_of_another_kind_is_the_records_fault(
    client: SchemaRegistryClient, chains: tuple[Make, Make], topic: str
) -> None:
    number = client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    _, read = chains
    with pytest.raises(SchemaRegistryError, match="has the type AVRO, not PROTOBUF") as caught:
        read()(b"\x00" + number.to_bytes(4, "big") + b"\x00", RecordContext(topic, "value"))
    assert caught.value.about_record


def test_a_schema_as_text_needs_no_class(client: SchemaRegistryClient, chains: tuple[Make, Make], topic: str) -> None:
    text = f'syntax = "proto3"; package p{uuid.uuid4().hex}; message Plain {{ int64 id = 1; }}'
    key = client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    data = b"\x00" + key.to_bytes(4, "big") + b"\x00" + FIRST(id=7).SerializeToString()
    _, read = chains
    assert read()(data, RecordContext(topic, "value")).id == 7
    assert read(FIRST)(data, RecordContext(topic, "value")).id == 7


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_fields_may_have_one_name_in_json(
    client: SchemaRegistryClient, chains: tuple[Make, Make], topic: str, syntax: str
) -> None:
    """protoc takes such files, the pool of the library does not."""
    label = "optional " if syntax == "proto2" else ""
    text = f"""
        syntax = "{syntax}";
        package p{uuid.uuid4().hex};
        message Camera {{
            message Trigger {{ {label}int32 a_b = 1; {label}int32 aB = 2; }}
            {label}fixed32 eventType = 1;
            {label}fixed32 event_type = 2;
            {label}Trigger trigger = 3;
            {label}int32 other = 4 [json_name = "eventType"];
        }}"""
    key = client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    data = (
        b"\x00" + key.to_bytes(4, "big") + b"\x00" + b"\x0d\x01\x00\x00\x00\x15\x02\x00\x00\x00\x1a\x04\x08\x05\x10\x06"
    )
    _, read = chains
    found = read(protobuf_values="dict")(data, RecordContext(topic, "value"))
    assert (found["eventType"], found["event_type"]) == (1, 2)
    assert found["trigger"] == {"a_b": 5, "aB": 6}


OPTIONS_ONLY = """
    syntax = "proto3";
    package p%s;
    import public "google/api/field_behavior.proto";
    import "google/protobuf/timestamp.proto";
    import "validate/validate.proto";
    message Alert {
        int64 id = 1 [(google.api.field_behavior) = REQUIRED, (validate.rules).int64.gt = 0];
        %s
    }"""


def test_imports_of_options_may_be_missing(client: SchemaRegistryClient, chains: tuple[Make, Make], topic: str) -> None:
    """Options do not change bytes, and this registry accepts such files, as Karapace does."""
    _, read = chains
    text = OPTIONS_ONLY % (uuid.uuid4().hex, "google.protobuf.Timestamp time = 2;")
    key = client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    data = b"\x00" + key.to_bytes(4, "big") + b"\x00" + b"\x08\x07\x12\x02\x08\x05"
    found = read(protobuf_values="dict")(data, RecordContext(topic, "value"))
    assert found == {"id": 7, "time": {"seconds": 5, "nanos": 0}}


def test_imports_of_types_may_not(client: SchemaRegistryClient, chains: tuple[Make, Make], topic: str) -> None:
    _, read = chains
    text = OPTIONS_ONLY % (uuid.uuid4().hex, "validate.Rules rules = 2;")
    key = client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
    with pytest.raises(SchemaRegistryError, match="is imported but"):
        read()(b"\x00" + key.to_bytes(4, "big") + b"\x00", RecordContext(topic, "value"))
