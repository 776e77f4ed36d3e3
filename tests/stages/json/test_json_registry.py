"""``json`` with a real schema registry, next to Confluent's own serializers."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain import ConfigError, DecodeError, DeserializerChain, EncodeError, RecordContext, SerializerChain
from serde_chain.record import get_header
from serde_chain.testing.services import SchemaRegistry

SCHEMA = json.dumps({"title": "Alert", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]})

PEER = SchemaRegistry.serializer_conf()


class Chains(Protocol):
    """Makes a serializer and a deserializer that are closed when the test ends."""

    def __call__(self, framing: str) -> tuple[SerializerChain, DeserializerChain]: ...


@pytest.fixture
def chains(registry: SchemaRegistry) -> Iterator[Chains]:
    with ExitStack() as stack:

        def make(framing: str) -> tuple[SerializerChain, DeserializerChain]:
            config = {
                "value.serializer": "json",
                "value.deserializer": "json",
                "json.schema": SCHEMA,
                "json.framing": framing,
                "schema.registry.url": registry.url,
            }
            return (
                stack.enter_context(SerializerChain.from_config(config)),
                stack.enter_context(DeserializerChain.from_config(config)),
            )

        yield make


def value_of(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_both_read_each_other(chains: Chains, client: SchemaRegistryClient, topic: str, framing: str) -> None:
    write, read = chains(framing)
    ctx = RecordContext(topic, "value", [])
    data = write({"id": 7}, ctx)
    assert data.endswith(b'{"id":7}')
    assert (get_header(ctx, "__value_schema_id") is not None) == (framing == "header")
    assert JSONDeserializer(SCHEMA, schema_registry_client=client, conf=PEER)(data, value_of(topic, ctx.headers)) == {
        "id": 7
    }
    assert read(data, ctx) == {"id": 7}
    theirs = JSONSerializer(SCHEMA, client, conf=PEER)({"id": 8}, value_of(topic))
    assert theirs is not None
    assert read(theirs, RecordContext(topic, "value", [])) == {"id": 8}
    if framing == "confluent":
        assert theirs[:5] == data[:5]


def test_misfits_and_foreign_bytes_are_refused(chains: Chains, topic: str) -> None:
    write, read = chains("confluent")
    with pytest.raises(EncodeError, match=r"does not match json\.schema"):
        write({}, RecordContext(topic, "value"))
    for data, message in (
        (b'{"id": 7}', "instead of a schema id"),
        (b"\x00\x00", "truncated"),
        (b"\x00\x00\x00\x00\x01{", "not JSON"),
        (b"\x00\x00\x00\x00\x01{}", "does not match"),
    ):
        with pytest.raises(DecodeError, match=message):
            read(data, RecordContext(topic, "value"))


@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_batches_are_text_whatever_the_framing(chains: Chains, topic: str, framing: str) -> None:
    write, read = chains(framing)
    contexts = [RecordContext(topic, "value", []) for _ in range(3)]
    data = [write({"id": number}, ctx) for number, ctx in enumerate(contexts)]
    texts = read.to_arrow(data, [ctx.headers for ctx in contexts], topic=topic)
    assert texts.to_pylist() == ['{"id":0}', '{"id":1}', '{"id":2}']


def test_a_registry_of_others_does_not_matter() -> None:
    config = {"value.serializer": "json", "schema.registry.url": "http://127.0.0.1:1"}
    assert SerializerChain.from_config(config)({"id": 7}) == b'{"id":7}'


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"json.framing": "confluent"}, "requires a schema registry"),
        ({"json.framing": "confluent", "schema.registry.url": "http://127.0.0.1:1"}, "no schema to register"),
        ({"json.framing": "single-object"}, "expected one of"),
    ],
)
def test_wrong_settings_are_said(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config({"value.serializer": "json", **config})
