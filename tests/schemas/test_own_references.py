"""References from a schema of one's own to registered ones; subjects of imports that are not their file names."""

import json
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from serde_chain import (
    ConfigError,
    DeserializerChain,
    EncodeError,
    RecordContext,
    SchemaRegistryError,
    SerializerChain,
)
from serde_chain.spark.chains.portable import load
from serde_chain.stages.protobuf.schema import descriptor_text
from serde_chain.testing.services import SchemaRegistry
from tests.schemas.contexts import ContextRegistry, context_registry
from tests.stages.protobuf.protobuf_messages import ALERT

PEER = SchemaRegistry.serializer_conf()


@pytest.fixture
def contexts() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running


def of_registry(registry: SchemaRegistry, interface: str, stage: str, **more: object) -> dict[str, object]:
    url = registry.url if interface == "confluent" else registry.url.replace("/ccompat/v7", "/registry/v3")
    sides = {"value.serializer": stage, "value.deserializer": stage, "json.framing": interface}
    return {**sides, "schema.registry.type": interface, "schema.registry.url": url, **more}


INTERFACES = pytest.mark.parametrize("interface", ["confluent", "apicurio"])


@INTERFACES
@pytest.mark.parametrize("version", [None, 1])
@pytest.mark.parametrize("place", ["text", "file"])
def test_avro(
    registry: SchemaRegistry, client: SchemaRegistryClient, topic: str, tmp_path: Any, *, interface: str, version: Any,
    place: str,
) -> None:  # fmt: skip
    namespace = f"p{topic[6:]}"
    customer = {"type": "record", "name": f"{namespace}.Customer", "fields": [{"name": "id", "type": "long"}]}
    order = {
        "type": "record",
        "name": f"{namespace}.Order",
        "fields": [{"name": "by", "type": f"{namespace}.Customer"}],
    }
    client.register_schema(f"{topic}-customers", Schema(json.dumps(customer), "AVRO"))
    (tmp_path / "order.avsc").write_text(json.dumps(order))
    schema = {"avro.schema": order} if place == "text" else {"avro.schema.file": str(tmp_path / "order.avsc")}
    named = [{"name": f"{namespace}.Customer", "subject": f"{topic}-customers", "version": version}]
    config = of_registry(registry, interface, "avro", **schema, **{"schema.references": json.dumps(named)})
    value, ctx = {"by": {"id": 7}}, RecordContext(topic, "value", [])
    with (
        SerializerChain.from_config(config) as write,
        DeserializerChain.from_config(of_registry(registry, interface, "avro")) as read,
    ):
        data = write(value, ctx)
        assert read(data, ctx) == value
        with pytest.raises(EncodeError):
            write({"by": 7}, ctx)
    theirs = AvroDeserializer(client, conf=PEER)(data, SerializationContext(topic, MessageField.VALUE, []))
    assert theirs == value
    with DeserializerChain.from_config(config) as both:  # one configuration serves writers and readers
        assert both(data, ctx) == value
        assert both.to_arrow([data], topic=topic).to_pylist() == [value]
    registered = client.get_latest_version(f"{topic}-value").schema
    assert [(item.name, item.subject, item.version) for item in registered.references or ()] == [
        (f"{namespace}.Customer", f"{topic}-customers", 1)
    ]


@INTERFACES
def test_json(registry: SchemaRegistry, client: SchemaRegistryClient, topic: str, interface: str) -> None:
    customer = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    order = {"title": "Order", "type": "object", "properties": {"by": {"$ref": "customer.json"}}}
    client.register_schema(f"{topic}-customers", Schema(json.dumps(customer), "JSON"))
    named = [{"name": "customer.json", "subject": f"{topic}-customers", "version": 1}]
    config = of_registry(registry, interface, "json", **{"json.schema": order, "schema.references": named})
    value, ctx = {"by": {"id": 7}}, RecordContext(topic, "value", [])
    reading = of_registry(registry, interface, "json", **{"json.validate": True})
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(reading) as read:
        data = write(value, ctx)
        assert read(data, ctx) == value
        with pytest.raises(EncodeError, match=r"does not match schema .* of the registry"):
            write({"by": {"id": "7"}}, ctx)
    theirs = JSONDeserializer(None, schema_registry_client=client, conf=PEER)
    assert theirs(data, SerializationContext(topic, MessageField.VALUE, [])) == value


@INTERFACES
@pytest.mark.parametrize("by", ["latest", "key"])
def test_a_protobuf_import_of_another_subject(
    registry: SchemaRegistry, client: SchemaRegistryClient, topic: str, interface: str, by: str
) -> None:
    """Nothing is registered: the import is found by the reference of the registered file, or by the key."""
    as_proto = interface == "apicurio"
    own, imported = (file for file in (ALERT.DESCRIPTOR.file, *ALERT.DESCRIPTOR.file.dependencies[:1]))
    position = Schema(descriptor_text(imported, as_proto=as_proto), "PROTOBUF")
    client.register_schema(f"{topic}-position", position)
    reference = SchemaReference(imported.name, f"{topic}-position", 1)
    schema = Schema(descriptor_text(own, as_proto=as_proto), "PROTOBUF", [reference])
    number = client.register_schema(f"{topic}-value", schema)
    named = [{"name": imported.name, "subject": f"{topic}-position", "version": 1}]
    config = of_registry(
        registry,
        interface,
        "protobuf",
        **{"protobuf.message.class": ALERT, "auto.register.schemas": False},
        **({"schema.references": named} if by == "key" else {}),
    )
    ctx = RecordContext(topic, "value", [])
    with (
        SerializerChain.from_config(config) as write,
        SerializerChain.from_config({**config, "use.latest.version": True}) as latest,
        DeserializerChain.from_config(of_registry(registry, interface, "protobuf")) as read,
    ):
        data = write({"id": 7}, ctx)
        assert interface == "apicurio" or int.from_bytes(data[1:5], "big") == number
        assert read(data, ctx).id == 7
        assert latest({"id": 7}, ctx) == data


def importing(file: str) -> Any:
    """A message whose file imports another one."""
    pool = descriptor_pool.DescriptorPool()
    imported = descriptor_pb2.FileDescriptorProto(name=file, package=f"p{uuid.uuid4().hex}", syntax="proto3")
    imported.message_type.add(name="Position").field.add(name="ra", number=1, type=1, label=1)
    pool.Add(imported)
    own = descriptor_pb2.FileDescriptorProto(name=f"own/{file}", package="own", syntax="proto3", dependency=[file])
    fields = own.message_type.add(name="Alert").field
    fields.add(name="id", number=1, type=3, label=1)
    fields.add(name="at", number=2, type=11, label=1, type_name=f".{imported.package}.Position")
    pool.Add(own)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("own.Alert"))


def test_an_import_that_is_not_registered_says_so(registry: SchemaRegistry, topic: str) -> None:
    # A file of this test alone: other tests register those of their messages in the same registry.
    file = f"{topic}/position.proto"
    config = of_registry(registry, "confluent", "protobuf", **{"protobuf.message.class": importing(file)})
    with (
        SerializerChain.from_config(
            {**config, "auto.register.schemas": False, "schema.references": [{"name": "x", "subject": "x"}]}
        ) as write,
        pytest.raises(SchemaRegistryError, match=rf"imports {re.escape(file)}.*schema\.references"),
    ):
        write({"id": 7}, RecordContext(topic, "value", []))


def test_an_import_is_looked_up_as_it_is_registered(contexts: ContextRegistry) -> None:
    """The same without the key, on a registry without anything else."""
    config = {
        "value.serializer": "protobuf",
        "protobuf.message.class": ALERT,
        "schema.registry.url": contexts.url,
        "auto.register.schemas": False,
    }
    with SerializerChain.from_config(config) as write:
        with pytest.raises(
            SchemaRegistryError, match=r"under the subject sky/position\.proto.*schema\.references"
        ) as no:
            write({"id": 7}, RecordContext("orders", "value", []))
        assert not no.value.transient


def test_a_reference_that_is_unknown(contexts: ContextRegistry) -> None:
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.Customer"}]}
    config = {"value.serializer": "avro", "avro.schema": order, "schema.registry.url": contexts.url}
    for version, message in ((1, "version 1"), (None, "latest schema of customers")):
        named = [{"name": "shop.Customer", "subject": "customers", "version": version}]
        with (
            SerializerChain.from_config({**config, "schema.references": named}) as write,
            pytest.raises(SchemaRegistryError, match=message) as caught,
        ):
            write({}, RecordContext("orders", "value", []))
        assert "schema.references" in str(caught.value.hint)


CUSTOMERS: dict[str, Any] = {
    "avro": {"type": "record", "name": "shop.Customer", "fields": []},
    "json": {"type": "object", "properties": {"id": {"type": "integer"}}},
}
UNUSABLE: dict[str, tuple[str, Any, str]] = {
    "undefined": ("avro", [{"name": "x", "type": "shop.Other"}], r"avro\.schema: .*x: the type shop\.Other is not"),
    "default": (
        "avro",
        [{"name": "x", "type": "int", "default": "a"}],
        r"avro\.schema: .*x: its default has the wrong",
    ),
    "part": ("json", {"$ref": "shop.Customer#/definitions/x"}, r"json\.schema: .*the document has no such part"),
    "document": ("json", {"$ref": "other.json"}, r"json\.schema: .*'other\.json' is not known"),
}


@INTERFACES
@pytest.mark.parametrize("fault", UNUSABLE)
def test_what_cannot_be_written_with_is_not_registered(
    registry: SchemaRegistry, client: SchemaRegistryClient, topic: str, fault: str, interface: str
) -> None:
    stage, part, message = UNUSABLE[fault]
    client.register_schema(f"{topic}-customers", Schema(json.dumps(CUSTOMERS[stage]), stage.upper()))
    by = {"name": "by", "type": "shop.Customer"}
    schema: Any = {"type": "record", "name": "Order", "fields": [by, *(part if stage == "avro" else ())]}
    if stage == "json":
        schema = {"title": "Order", "properties": {"by": {"$ref": "shop.Customer"}, "x": part}}
    named = [{"name": "shop.Customer", "subject": f"{topic}-customers"}]
    config = of_registry(registry, interface, stage, **{f"{stage}.schema": schema, "schema.references": named})
    with SerializerChain.from_config(config) as write, pytest.raises(ConfigError, match=message):
        write({}, RecordContext(topic, "value", []))
    assert [name for name in client.get_subjects() if name.startswith(topic)] == [f"{topic}-customers"]


@pytest.mark.parametrize("fault", UNUSABLE)
def test_a_schema_that_cannot_be_used_is_looked_at_once(
    contexts: ContextRegistry, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each record; but again after a while, since those that it refers to may change."""
    stage, part, message = UNUSABLE[fault]
    contexts.register("customers", json.dumps(CUSTOMERS[stage]), stage.upper())
    by = {"name": "by", "type": "shop.Customer"}
    schema: Any = {"type": "record", "name": "Order", "fields": [by, *(part if stage == "avro" else ())]}
    if stage == "json":
        schema = {"title": "Order", "properties": {"by": {"$ref": "shop.Customer"}, "x": part}}
    config = {
        "value.serializer": stage,
        "json.framing": "confluent",
        f"{stage}.schema": schema,
        "schema.registry.url": contexts.url,
        "schema.references": [{"name": "shop.Customer", "subject": "customers"}],
    }
    ctx = RecordContext("orders", "value", [])
    with SerializerChain.from_config(config) as write:

        def refused() -> int:
            with pytest.raises(ConfigError, match=message):
                write({}, ctx)
            return len(contexts.asked)

        once = refused()
        assert [refused(), refused()] == [once, once]
        now = time.monotonic()
        monkeypatch.setattr("time.monotonic", lambda: now + 6)
        assert refused() > once


def test_imports_are_not_registered_before_a_file_that_cannot_be(registry: SchemaRegistry, topic: str) -> None:
    """Apicurio gets files as text, which has no extensions."""
    pool = descriptor_pool.DescriptorPool()
    imported = descriptor_pb2.FileDescriptorProto(name=f"{topic}/position.proto", package=f"p{topic[6:]}")
    imported.message_type.add(name="Position").extension_range.add(start=100, end=200)
    own = descriptor_pb2.FileDescriptorProto(name=f"{topic}/own.proto", package="own", dependency=[imported.name])
    own.message_type.add(name="Alert")
    own.extension.add(name="x", number=100, type=5, label=1, extendee=f".{imported.package}.Position")
    for file in (imported, own):
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("own.Alert"))
    config = of_registry(registry, "apicurio", "protobuf", **{"protobuf.message.class": message})
    with SerializerChain.from_config(config) as write, pytest.raises(ConfigError, match="cannot be registered"):
        write({}, RecordContext(topic, "value", []))
    with registry.client() as client:
        assert not [name for name in client.get_subjects() if name.startswith(topic)]


def test_a_registered_schema_with_a_fault_can_be_referred_to(contexts: ContextRegistry) -> None:
    """It is a fact; one's own schema is checked."""
    customer = {**CUSTOMERS["avro"], "fields": [{"name": "id", "type": "int", "default": "a"}]}
    contexts.register("customers", json.dumps(customer))
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.Customer"}]}
    named = [{"name": "shop.Customer", "subject": "customers"}]
    config = {"value.serializer": "avro", "avro.schema": order, "schema.registry.url": contexts.url}
    with SerializerChain.from_config({**config, "schema.references": named}) as write:
        assert write({"by": {"id": 1}}, RecordContext("orders", "value", []))[-1:] == b"\2"


def test_a_reference_that_the_registry_refuses(registry: SchemaRegistry, topic: str) -> None:
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.Customer"}]}
    config = of_registry(registry, "confluent", "avro", **{"avro.schema": order})
    with SerializerChain.from_config({**of_registry(registry, "confluent", "avro"), "avro.schema": '"long"'}) as write:
        write(1, RecordContext(f"{topic}-long", "value", []))
    named = [{"name": "shop.Customer", "subject": f"{topic}-long-value", "version": 9}]
    with (
        SerializerChain.from_config({**config, "schema.references": named}) as write,
        pytest.raises(SchemaRegistryError, match=r"Check names, subjects and versions in schema\.references"),
    ):
        write({}, RecordContext(topic, "value", []))


def test_a_schema_that_is_not_registered_says_how_it_could_be(contexts: ContextRegistry) -> None:
    config = {"value.serializer": "avro", "avro.schema": '"int"', "schema.registry.url": contexts.url}
    with (
        SerializerChain.from_config({**config, "auto.register.schemas": False}) as write,
        pytest.raises(SchemaRegistryError, match=r"Register it, or set auto\.register\.schemas = true"),
    ):
        write(1, RecordContext("orders", "value", []))


def test_a_registry_without_metadata(registry: SchemaRegistry, topic: str) -> None:
    """Apicurio has Confluent's interface, but not this part of it."""
    config = of_registry(registry, "confluent", "avro", **{"use.latest.with.metadata": "major=1"})
    with (
        SerializerChain.from_config(config) as write,
        pytest.raises(SchemaRegistryError, match=r"Has the registry use\.latest\.with\.metadata\?"),
    ):
        write(1, RecordContext(topic, "value", []))


def test_a_reader_in_spark_is_sent_the_file_as_it_is(tmp_path: Any) -> None:
    """The workers' readers have the same keys, and no file."""
    path = tmp_path / "order.avsc"
    path.write_text('["shop.Customer"]')
    named = [{"name": "shop.Customer", "subject": "customers"}]
    registry = {"schema.registry.url": "http://127.0.0.1:1", "schema.references": named}
    config = load({"value.deserializer": "avro", "avro.schema.file": str(path), **registry})
    assert config["avro.schema.file"] == b'["shop.Customer"]'
    DeserializerChain.from_config(config).close()


@pytest.mark.parametrize("kind", ["glue"])
def test_glue_has_no_references(kind: str) -> None:
    config = {
        "value.serializer": "avro",
        "avro.schema": '"int"',
        "schema.registry.type": kind,
        "glue.region": "eu-west-1",
    }
    with pytest.raises(ConfigError, match=r"schema\.references is set, and Glue's registry has no references"):
        SerializerChain.from_config({**config, "schema.references": [{"name": "a", "subject": "a"}]})
