"""Chains in Confluent's own clients, and Confluent's serializers with their rules in chains."""

import time
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import Rule, RuleKind, RuleMode, RuleSet, Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import (
    AvroDeserializer,
    AvroDeserializerBuilder,
    AvroSerializer,
    AvroSerializerBuilder,
)
from confluent_kafka.schema_registry.rule_registry import RuleRegistry
from confluent_kafka.schema_registry.serde import RuleContext, RuleExecutor

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, DeserializerChain, Producer, RecordContext, SerializerChain
from serde_chain.builders import DeserializerChainBuilder, SerializerChainBuilder
from serde_chain.clients.limits import KEY_ROOM, largest_value
from serde_chain.testing.services import KafkaBroker
from tests.conftest import NewTopic

SETTINGS: dict[str, Any] = {
    "key.serializers": "string, zstd",
    "key.deserializers": "zstd, string",
    "value.serializers": "json, encrypt, large-message",
    "value.deserializers": "large-message, encrypt, json",
    "encryption.keys": {"k": bytes(range(32))},
    "large.message.payload.store.class": "memory",
    "large.message.threshold.bytes": 1000,
}


def test_confluents_clients_build_and_close_chains(broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic()
    both = {**SETTINGS, **broker.client_config()}
    producer = SerializingProducer(
        {
            **both,
            "key.serializer.builder": SerializerChainBuilder(),
            "value.serializer.builder": SerializerChainBuilder(),
        }
    )
    values: list[dict[str, Any]] = [{"id": 1}, {"id": 2, "text": "x" * 5000}]
    for value in values:
        producer.produce(topic, key=f"key {value['id']}", value=value, headers=[])
    assert producer.flush(30) == 0
    consumer = DeserializingConsumer(
        {
            **both,
            "key.deserializer.builder": DeserializerChainBuilder(),
            "value.deserializer.builder": DeserializerChainBuilder(),
            "group.id": topic,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        found: list[Any] = []
        until = time.monotonic() + 60
        while len(found) < 2 and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None:
                found.append((message.key(), message.value()))
        assert found == [(f"key {value['id']}", value) for value in values]
    finally:
        consumer.close()
        producer.close()
        MemoryStore.clear()


def test_what_is_wrong_is_said_when_the_client_is_made() -> None:
    with pytest.raises(ConfigError, match="Did you mean"):
        SerializerChainBuilder().build({"value.serializers": "jsn"}, False)
    chain, left = SerializerChainBuilder().build({**SETTINGS, "client.id": "c"}, False)
    assert left == {"client.id": "c"}
    chain.close()


class Upper(RuleExecutor):
    """A rule of the user's: names in capitals."""

    def configure(self, client_conf: dict[str, Any], rule_conf: dict[str, Any]) -> None:
        pass

    def type(self) -> str:
        return "UPPER"

    def transform(self, ctx: RuleContext, message: Any) -> Any:
        return {**message, "name": message["name"].upper()}

    def close(self) -> None:
        pass


def test_confluents_serializers_are_stages_with_their_rules() -> None:
    text = '{"type": "record", "name": "R", "fields": [{"name": "name", "type": "string"}]}'
    client = SchemaRegistryClient.new_client({"url": "mock://rules"})
    rule = Rule("upper", "", RuleKind.TRANSFORM, RuleMode.WRITE, "UPPER", [], None, "", None, None, False)
    client.register_schema("t-value", Schema(text, "AVRO", [], None, RuleSet(None, [rule])))
    rules = RuleRegistry()  # type: ignore[no-untyped-call]  # theirs
    rules.register_executor(Upper())
    settings = {"auto.register.schemas": False, "use.latest.version": True}
    theirs = AvroSerializer(client, text, conf=settings, rule_registry=rules)
    write = SerializerChain.from_config({"value.serializers": [theirs, "zstd", "encrypt"], **_keys()})
    read = DeserializerChain.from_config(
        {"value.deserializers": ["encrypt", "zstd", AvroDeserializer(client, rule_registry=rules)], **_keys()}
    )
    ctx = RecordContext("t", "value", [])
    assert read(write({"name": "quiet"}, ctx), ctx) == {"name": "QUIET"}


def _keys() -> dict[str, Any]:
    return {"encryption.keys": SETTINGS["encryption.keys"]}


@pytest.mark.parametrize("threshold", [{}, {"large.message.threshold.bytes": "auto"}])
def test_a_builder_knows_the_clients_limit(broker: KafkaBroker, topic: str, threshold: dict[str, Any]) -> None:
    """Values between the client's limit and the KIP's threshold were refused."""
    producer = SerializingProducer(
        {
            **broker.client_config(),
            "value.serializer.builder": SerializerChainBuilder(),
            "value.serializers": "bytes, large-message",
            "large.message.payload.store.class": "memory",
            **threshold,
        }
    )
    told: list[Any] = []
    sizes = [990_000, 995_000, 999_000, 999_965, 1_000_000, 1_048_000, 1_048_576, 1_048_577]
    for size in sizes:
        producer.produce(
            topic,
            value=bytes(size),
            key=b"k" * 1000,
            headers=[],
            on_delivery=lambda error, _message: told.append(error),
        )
    assert producer.flush(30) == 0
    producer.close()
    MemoryStore.clear()
    assert told == [None] * len(sizes)


@pytest.mark.parametrize("limit", [5_000, 5_000_000])
def test_a_builder_asks_for_the_topics_limit(broker: KafkaBroker, new_topic: NewTopic, limit: int) -> None:
    topic = new_topic(1, {"max.message.bytes": str(limit)})
    settings = {
        **broker.client_config(),
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": "auto",
        "message.max.bytes": 6_000_000,
        "batch.size": min(limit, 1_000_000),
    }
    producer = SerializingProducer({**settings, "value.serializer.builder": SerializerChainBuilder()})
    largest = largest_value(6_000_000, None, [], limit) - KEY_ROOM
    told: list[Any] = []
    # A key that fills the room kept for it: the record is as large as the topic allows, to a few bytes.
    sizes = {largest - 1: 1, largest: KEY_ROOM - 8, largest + 1: 1, limit - 30: 1}
    for size, key in sizes.items():
        producer.produce(
            topic,
            value=bytes(size),
            key=b"k" * key,
            headers=[],
            on_delivery=lambda error, _message: told.append(error),
        )
    assert producer.flush(30) == 0
    producer.close()
    assert told == [None] * 4
    assert sorted(info.size for info in MemoryStore().list(topic)) == [largest + 1, limit - 30]
    MemoryStore.clear()


def test_a_builder_without_servers_cannot_ask(caplog: pytest.LogCaptureFixture) -> None:
    settings = {"value.serializers": "bytes, large-message", "large.message.payload.store.class": "memory"}
    chain, _ = SerializerChainBuilder().build({**settings, "large.message.threshold.bytes": "auto"}, False)
    assert "the broker is not asked how large records" in caplog.text
    assert "message.max.bytes (1000000)" in caplog.text
    chain.close()
    caplog.clear()
    chain, _ = SerializerChainBuilder().build(settings, False)
    assert not caplog.text
    chain.close()


def test_a_threshold_above_the_clients_limit_is_refused() -> None:
    settings = {"value.serializers": "bytes, large-message", "large.message.payload.store.class": "memory"}
    with pytest.raises(ConfigError, match="exceeds the largest value that the client sends"):
        SerializerChainBuilder().build({**settings, "large.message.threshold.bytes": 2_000_000}, False)
    chain, _ = SerializerChainBuilder().build({**settings, "large.message.threshold.bytes": 999_000}, False)
    chain.close()


def test_builders_in_other_places_say_what_to_write() -> None:
    builder = AvroSerializerBuilder()
    with pytest.raises(ConfigError, match=r"builder\.build\(") as caught:
        SerializerChain.from_config({"value.serializers": [builder, "zstd"]})
    assert "AvroSerializerBuilder" in str(caught.value)
    with pytest.raises(ConfigError, match=r"value\.serializers"):
        Producer({"bootstrap.servers": "localhost:1", "value.serializer.builder": builder})


def test_confluents_builder_as_a_stage() -> None:
    registry = SchemaRegistryClient.new_client({"url": "mock://built"})
    schema = '{"type": "record", "name": "Star", "fields": [{"name": "name", "type": "string"}]}'
    write, _ = AvroSerializerBuilder(schema_registry_client=registry, schema=schema).build({}, False)
    read, _ = AvroDeserializerBuilder(schema_registry_client=registry).build({}, False)
    ctx = RecordContext("stars", "value", [])
    chain = SerializerChain.from_config({"value.serializers": [write, "zstd"]})
    back = DeserializerChain.from_config({"value.deserializers": ["zstd", read]})
    assert back(chain({"name": "Deneb"}, ctx), ctx) == {"name": "Deneb"}
