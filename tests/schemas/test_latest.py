"""What is registered: the latest version, the latest with metadata, and the schema of an id; writers and readers."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2

from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    EncodeError,
    RecordContext,
    SchemaRegistryError,
    SerializerChain,
)
from serde_chain.arrow import Batch
from serde_chain.stages.protobuf import proto_text
from serde_chain.testing.services import SchemaRegistry
from tests.schemas.contexts import ContextRegistry, context_registry
from tests.stages.protobuf.protobuf_messages import make

Make = Callable[..., Any]


@pytest.fixture
def contexts() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running


@pytest.fixture
def make_chain(contexts: ContextRegistry) -> Iterator[Make]:
    """Makes a chain of one stage, which is closed when the test ends."""
    with ExitStack() as stack:

        def made(kind: Any, stage: str, **settings: object) -> Any:
            config = {
                "value.serializer": stage,
                "value.deserializer": stage,
                "json.framing": "confluent",
                "schema.registry.url": contexts.url,
                **settings,
            }
            return stack.enter_context(kind.from_config(config))

        yield made


def ctx(topic: str = "orders") -> RecordContext:
    return RecordContext(topic, "value", [])


LATEST = {"use.latest.version": True}


def avro(*names: str) -> str:
    fields = [{"name": name, "type": "string", "default": "-"} for name in names]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


def document(*names: str, title: str = "Order") -> str:
    properties = {name: {"type": "string"} for name in names}
    more = {"required": list(names), "additionalProperties": False}
    return json.dumps({"title": title, "type": "object", "properties": properties, **more})


# Protobuf: the message's place in the registered file


def proto_class(text: str, full_name: str) -> Any:
    file: descriptor_pb2.FileDescriptorProto = proto_text.parse("own.proto", text)
    return make(full_name, [file])


USER = "message User { string name = 1; message Address { string city = 1; } }"
AUDIT = "message Audit { string by = 1; }"
FILES = {
    "another message first": (USER, f"{AUDIT} {USER}", "User", b"\x02\x02"),
    "nested in another place": (
        USER,
        f"{AUDIT} message User {{ message Phone {{}} message Address {{ string city = 1; }} string name = 1; }}",
        "User.Address",
        b"\x04\x02\x02",
    ),
    "two messages exchanged": (f"{AUDIT} {USER}", f"{USER} {AUDIT}", "User", b"\x00"),
    "an enum between": (USER, f"enum Kind {{ A = 0; }} {AUDIT} {USER}", "User", b"\x02\x02"),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("more", [LATEST, {"use.schema.id": 1}], ids=["latest", "id"])
def test_a_message_is_named_by_its_place_in_the_registered_file(
    contexts: ContextRegistry, make_chain: Make, name: str, more: dict[str, Any]
) -> None:
    own, registered, message, written = FILES[name]
    head = 'syntax = "proto3"; package shop; '
    contexts.register("orders-value", head + registered, "PROTOBUF")
    cls = proto_class(head + own, f"shop.{message}")
    write = make_chain(SerializerChain, "protobuf", **{"protobuf.message.class": cls}, **more)
    value = cls(**{cls.DESCRIPTOR.fields[0].name: "x"})
    data = write(value, ctx())
    assert data[5:] == written + value.SerializeToString()
    read = make_chain(DeserializerChain, "protobuf")
    assert read(data, ctx()).DESCRIPTOR.full_name == f"shop.{message}"
    assert make_chain(DeserializerChain, "protobuf", **{"protobuf.message.class": cls})(data, ctx()) == value


@pytest.mark.parametrize("registered", [AUDIT, "message user { string name = 1; }", "message Audit { " + USER + " }"])
def test_a_message_that_is_not_registered_is_an_error(
    contexts: ContextRegistry, make_chain: Make, registered: str
) -> None:
    head = 'syntax = "proto3"; package shop; '
    contexts.register("orders-value", head + registered, "PROTOBUF")
    cls = proto_class(head + USER, "shop.User")
    write = make_chain(SerializerChain, "protobuf", **{"protobuf.message.class": cls}, **LATEST)
    with pytest.raises(SchemaRegistryError, match=r"orders-value does not describe shop\.User: there is no") as caught:
        write(cls(name="x"), ctx())
    assert not caught.value.about_record


def test_readers_without_a_class_use_the_latest_file(contexts: ContextRegistry, make_chain: Make) -> None:
    head = 'syntax = "proto3"; '
    contexts.register("orders-value", head + "message User { string name = 1; }", "PROTOBUF")
    contexts.register("orders-value", head + AUDIT + "message User { string label = 1; int32 age = 2; }", "PROTOBUF")
    first = b"\0\0\0\0\1\0\x0a\1a"
    values = {"protobuf.values": "dict"}
    assert make_chain(DeserializerChain, "protobuf", **values)(first, ctx()) == {"name": "a"}
    latest = make_chain(DeserializerChain, "protobuf", **values, **LATEST)
    assert latest(first, ctx()) == {"label": "a", "age": 0}
    assert latest.to_arrow([first], topic="orders").to_pylist() == [{"label": "a", "age": 0}]
    contexts.register("others-value", head + "message User { string name = 1; }", "PROTOBUF")
    contexts.register("others-value", head + AUDIT, "PROTOBUF")
    with pytest.raises(DecodeError, match="does not describe User"):
        latest(first, ctx("others"))


# JSON: no schema of one's own, and validation by the registered one


def test_json_needs_no_schema_and_is_validated_by_the_latest(contexts: ContextRegistry, make_chain: Make) -> None:
    contexts.register("orders-value", document("a"), "JSON")
    number = contexts.register("orders-value", document("a", "b"), "JSON")
    for own in ({}, {"json.schema": document("a")}):
        write = make_chain(SerializerChain, "json", **own, **LATEST)
        assert write({"a": "1", "b": "2"}, ctx()) == b"\0\0\0\0" + bytes([number]) + b'{"a":"1","b":"2"}'
        with pytest.raises(EncodeError, match="does not match schema 2 of the registry"):
            write({"a": "1"}, ctx())
        assert make_chain(SerializerChain, "json", **own, **LATEST, **{"json.validate": False})({"a": "1"}, ctx())


def test_json_is_read_by_the_registered_schema_where_it_is_validated(
    contexts: ContextRegistry, make_chain: Make
) -> None:
    contexts.register("orders-value", document("a"), "JSON")
    contexts.register("orders-value", document("b"), "JSON")
    first, bad = b'\0\0\0\0\1{"a":"1"}', b'\0\0\0\0\1{"c":"1"}'
    assert make_chain(DeserializerChain, "json")(bad, ctx()) == {"c": "1"}
    validates = {"json.validate": True}
    assert make_chain(DeserializerChain, "json", **validates)(first, ctx()) == {"a": "1"}
    with pytest.raises(DecodeError, match="does not match schema 1 of the registry") as caught:
        make_chain(DeserializerChain, "json", **validates)(bad, ctx())
    assert caught.value.about_record
    own = {"json.schema": document("c")}
    assert make_chain(DeserializerChain, "json", **validates, **own)(bad, ctx()) == {"c": "1"}
    for more in ({}, own):
        latest = make_chain(DeserializerChain, "json", **validates, **LATEST, **more)
        assert latest(b'\0\0\0\0\1{"b":"1"}', ctx()) == {"b": "1"}
        with pytest.raises(DecodeError, match="does not match schema 2 of the registry"):
            latest(first, ctx())
    # Batches: the same records.
    batch = make_chain(DeserializerChain, "json", **validates).read_batch
    result = batch(Batch([first, bad], topic="orders"))
    assert (result.values.to_pylist(), list(result.errors)) == (['{"a":"1"}', None], [1])


def test_a_registered_schema_that_is_none_costs_one_record(contexts: ContextRegistry, make_chain: Make) -> None:
    contexts.register("orders-value", '{"type": "nothing"}', "JSON")
    read = make_chain(DeserializerChain, "json", **{"json.validate": True})
    with pytest.raises(SchemaRegistryError, match="schema 1 of the registry is not a JSON Schema") as caught:
        read(b"\0\0\0\0\1{}", ctx())
    assert caught.value.about_record


# Avro


def test_avro_is_read_into_the_latest(contexts: ContextRegistry, make_chain: Make) -> None:
    contexts.register("orders-value", avro("a"))
    contexts.register("orders-value", avro("b", "a"))
    first, second = b"\0\0\0\0\1\x02x", b"\0\0\0\0\2\x02y\x02x"
    assert make_chain(DeserializerChain, "avro")(first, ctx()) == {"a": "x"}
    for own in ({}, {"avro.schema": avro("a")}):
        read = make_chain(DeserializerChain, "avro", **own, **LATEST)
        assert [read(data, ctx()) for data in (first, second)] == [{"b": "-", "a": "x"}, {"b": "y", "a": "x"}]
        rows = [{"b": "-", "a": "x"}, {"b": "y", "a": "x"}, {"b": "-", "a": "x"}]
        assert read.to_arrow([first, second, first], topic="orders").to_pylist() == rows
        assert read.to_arrow([first] * 3, topic="orders").to_pylist() == rows[:1] * 3
        mixed = read.read_batch(Batch([first, first], topic=["orders", "orders"]))
        assert mixed.checked().to_pylist() == rows[:1] * 2
    own = {"avro.reader.schema": avro("c")}
    assert make_chain(DeserializerChain, "avro", **own, **LATEST)(first, ctx()) == {"c": "-"}


@pytest.mark.parametrize("strategy", ["RecordNameStrategy", "TopicRecordNameStrategy"])
def test_the_latest_of_a_records_name(contexts: ContextRegistry, make_chain: Make, strategy: str) -> None:
    subject = "Order" if strategy == "RecordNameStrategy" else "orders-Order"
    contexts.register(subject, avro("a"))
    contexts.register(subject, avro("b", "a"))
    read = make_chain(DeserializerChain, "avro", **LATEST, **{"subject.name.strategy": strategy})
    assert read(b"\0\0\0\0\1\x02x", ctx()) == {"b": "-", "a": "x"}


# Metadata, and ids


def properties(**found: str) -> dict[str, Any]:
    return {"metadata": {"properties": found}}


@pytest.mark.parametrize("wanted", ["major=1", {"major": 1}, '{"major": "1"}', "major = 1, team=a"])
def test_the_latest_with_metadata(contexts: ContextRegistry, make_chain: Make, wanted: object) -> None:
    team = {"team": "a"}
    contexts.register("orders-value", avro("a"), **properties(major="1", **team))
    contexts.register("orders-value", avro("a", "b"), **properties(major="1", **team))
    contexts.register("orders-value", avro("a", "b", "c"), **properties(major="2", **team))
    named = {"use.latest.with.metadata": wanted}
    data = make_chain(SerializerChain, "avro", **named)({"a": "x", "b": "y"}, ctx())
    assert data[:5] == b"\0\0\0\0\2"
    third = b"\0\0\0\0\3\x02x\x02y\x02z"
    assert make_chain(DeserializerChain, "avro", **named)(third, ctx()) == {"a": "x", "b": "y"}


@pytest.mark.parametrize("stage", ["json", "protobuf"])
def test_the_latest_with_metadata_of_other_formats(contexts: ContextRegistry, make_chain: Make, stage: str) -> None:
    text = {"json": document("name"), "protobuf": f'syntax = "proto3"; {AUDIT} {USER}'}[stage]
    other = {"json": document("a"), "protobuf": f'syntax = "proto3"; {AUDIT}'}[stage]
    contexts.register("orders-value", text, stage.upper(), **properties(major="1"))
    contexts.register("orders-value", other, stage.upper(), **properties(major="2"))
    cls = proto_class(f'syntax = "proto3"; {USER}', "User")
    named = {"use.latest.with.metadata": "major=1", "protobuf.message.class": cls}
    data = make_chain(SerializerChain, stage, **named)({"name": "x"}, ctx())
    assert data[:5] == b"\0\0\0\0\1"
    with pytest.raises(SchemaRegistryError, match="latest schema of orders-value with major = 3"):
        make_chain(SerializerChain, stage, **{**named, "use.latest.with.metadata": "major=3"})({"name": "x"}, ctx())


@pytest.mark.parametrize("stage", ["avro", "json"])
def test_the_schema_of_an_id(contexts: ContextRegistry, make_chain: Make, stage: str) -> None:
    for names in (("a",), ("a", "b"), ("a", "b", "c")):
        contexts.register("orders-value", (avro if stage == "avro" else document)(*names), stage.upper())
    value = {"a": "x", "b": "y"}
    assert make_chain(SerializerChain, stage, **{"use.schema.id": "2"})(value, ctx())[:5] == b"\0\0\0\0\2"
    data = make_chain(SerializerChain, stage, **{"use.schema.id": 2})(value, ctx())
    assert data[:5] == b"\0\0\0\0\2"
    # As for Confluent's deserializers, it says nothing of how records are read.
    read = make_chain(DeserializerChain, stage, **{"use.schema.id": 1, "json.validate": True})
    assert read(data, ctx()) == {"a": "x", "b": "y"}
    assert [query for _, path, query in contexts.asked if path == "/schemas/ids/2"][:1] == [
        {"subject": ["orders-value"]}
    ]
    with pytest.raises(SchemaRegistryError, match="schema 9"):
        make_chain(SerializerChain, stage, **{"use.schema.id": 9})({"a": "x"}, ctx())


def test_an_id_takes_precedence(contexts: ContextRegistry, make_chain: Make) -> None:
    """As in Confluent's client."""
    for names in (("a",), ("a", "b")):
        contexts.register("orders-value", avro(*names))
    write = make_chain(SerializerChain, "avro", **{"use.schema.id": 1, **LATEST})
    assert write({"a": "x", "b": "y"}, ctx())[:5] == b"\0\0\0\0\1"


def test_an_id_of_another_type_of_schema(contexts: ContextRegistry, make_chain: Make) -> None:
    contexts.register("orders-value", document("a"), "JSON")
    for named in ({"use.schema.id": 1}, LATEST):
        with pytest.raises(SchemaRegistryError, match="has the type JSON, not AVRO"):
            make_chain(SerializerChain, "avro", **named)({}, ctx())
    of_glue = make_chain(SerializerChain, "avro", **{"use.schema.id": str(uuid.uuid4())})
    with pytest.raises(ConfigError, match=r"use\.schema\.id"):
        of_glue({}, ctx())


# The age of an answer


@pytest.mark.parametrize("stage", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("ttl", ["0", 0.0, None, -1])
def test_writers_notice_a_new_version(
    contexts: ContextRegistry, make_chain: Make, monkeypatch: pytest.MonkeyPatch, stage: str, ttl: Any
) -> None:
    text = {"avro": avro("a"), "json": document("a"), "protobuf": f'syntax = "proto3"; {USER}'}[stage]
    later = {"avro": avro("a", "b"), "json": document("a", "b"), "protobuf": f'syntax = "proto3"; {AUDIT}{USER}'}[stage]
    contexts.register("orders-value", text, stage.upper())
    cls = proto_class(f'syntax = "proto3"; {USER}', "User")
    age = {} if ttl is None else {"schema.registry.cache.latest.ttl.sec": ttl}
    write = make_chain(SerializerChain, stage, **LATEST, **age, **{"protobuf.message.class": cls})
    value = {"avro": {"a": "x"}, "json": {"a": "x"}, "protobuf": {"name": "x"}}[stage]
    assert write(value, ctx())[:5] == b"\0\0\0\0\1"
    contexts.register("orders-value", later, stage.upper())
    now = time.monotonic()
    monkeypatch.setattr("serde_chain.transfer.answers.time.monotonic", lambda: now + 301)
    value = value if stage == "protobuf" else {"a": "x", "b": "y"}
    if ttl == -1 and stage == "json":
        with pytest.raises(EncodeError, match="does not match schema 1"):
            write(value, ctx())
    else:
        assert write(value, ctx())[:5] == (b"\0\0\0\0\1" if ttl == -1 else b"\0\0\0\0\2")


def test_readers_notice_a_new_version(
    contexts: ContextRegistry, make_chain: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts.register("orders-value", avro("a"))
    read = make_chain(DeserializerChain, "avro", **LATEST, **{"schema.registry.cache.latest.ttl.sec": 60})
    data = b"\0\0\0\0\1\x02x"
    assert read(data, ctx()) == {"a": "x"}
    contexts.register("orders-value", avro("b", "a"))
    assert read(data, ctx()) == {"a": "x"}
    now = time.monotonic()
    monkeypatch.setattr("serde_chain.transfer.answers.time.monotonic", lambda: now + 61)
    assert read(data, ctx()) == {"b": "-", "a": "x"}
    assert read.to_arrow([data], topic="orders").to_pylist() == [{"b": "-", "a": "x"}]


# Confluent's own serializers, with the same settings


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, [])


SETTINGS = [
    {"use.latest.version": True},
    {"use.latest.with.metadata": {"major": "1"}},
    {"use.schema.id": 1},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: next(iter(settings)))
@pytest.mark.parametrize("stage", ["avro", "json"])
def test_as_confluents_serializers(
    contexts: ContextRegistry, make_chain: Make, stage: str, settings: dict[str, Any]
) -> None:
    text = avro if stage == "avro" else document
    contexts.register("orders-value", text("a"), stage.upper(), **properties(major="1"))
    contexts.register("orders-value", text("b", "a"), stage.upper(), **properties(major="2"))
    conf = {"auto.register.schemas": False, "subject.name.strategy": topic_subject_name_strategy}
    for_readers = {} if "use.schema.id" in settings else settings
    strategy = {"subject.name.strategy": topic_subject_name_strategy}
    with SchemaRegistryClient({"url": contexts.url, "timeout": 30}) as client:
        if stage == "avro":
            theirs: Any = AvroSerializer(client, None, conf={**conf, **settings})
            reader: Any = AvroDeserializer(client, None, conf={**strategy, **for_readers})
        else:
            theirs = JSONSerializer(None, client, conf={**conf, **settings})
            reader = JSONDeserializer(None, schema_registry_client=client, conf={**strategy, **for_readers})
        value = {"b": "y", "a": "x"} if "use.latest.version" in settings else {"a": "x"}
        data = make_chain(SerializerChain, stage, **settings)(value, ctx())
        assert data == theirs(value, value_of("orders"))
        read = make_chain(DeserializerChain, stage, **settings, **{"json.validate": True})
        for each in (data, make_chain(SerializerChain, stage, **{"use.schema.id": 2})({"b": "y", "a": "x"}, ctx())):
            if stage == "json" and each != data:
                continue  # a document of another version is invalid, for both
            assert read(each, ctx()) == reader(each, value_of("orders"))


# The real registry


@pytest.mark.parametrize("stage", ["avro", "json", "protobuf"])
@pytest.mark.parametrize("interface", ["confluent", "apicurio"])
def test_with_a_real_registry(registry: SchemaRegistry, topic: str, stage: str, interface: str) -> None:
    url = registry.url if interface == "confluent" else registry.url.replace("/ccompat/v7", "/registry/v3")
    cls = proto_class(
        f'syntax = "proto3"; package p{topic.replace("-", "")}; {USER}', f"p{topic.replace('-', '')}.User"
    )
    config = {
        "value.serializer": stage,
        "value.deserializer": stage,
        "schema.registry.url": url,
        "schema.registry.type": interface,
        "json.framing": interface,
        "avro.schema": avro("name"),
        "json.schema": document("name"),
    }
    value = {"name": "x"}
    with (
        SerializerChain.from_config({**config, "protobuf.message.class": cls}) as first,
        SerializerChain.from_config(
            {**config, "protobuf.message.class": cls, **LATEST, "json.schema": None, "avro.schema": None}
        ) as latest,
        DeserializerChain.from_config(
            {
                **config,
                **LATEST,
                "json.validate": True,
                "json.schema": None,
                "avro.schema": None,
                "protobuf.values": "dict",
            }
        ) as read,
    ):
        data = first(value, ctx(topic))
        assert latest(value, ctx(topic)) == data
        assert read(data, ctx(topic)) == value
