"""Chains in kafka-python's clients, on the real broker."""

import uuid
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from serde_chain import (
    Consumer,
    DecodeError,
    EncodeError,
    MissingDependencyError,
    PayloadNotFoundError,
    Producer,
    SerializationError,
)
from serde_chain.clients.kafka_python import Deserializer, Serializer
from serde_chain.testing.services import KafkaBroker, SchemaRegistry

SMALL, LARGE = {"name": "M 51"}, {"name": "x" * 5000}


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {
        "key.serializers": "string, large-message",
        "key.deserializers": "large-message, string",
        "value.serializers": "json, zstd, large-message",
        "value.deserializers": "large-message, zstd, json",
        "large.message.payload.store.class": "local",
        "large.message.threshold.bytes": 20,
        "local.path": str(tmp_path / "payloads"),
    }


def producer(broker: KafkaBroker, config: Any, **more: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        key_serializer=Serializer(config, is_key=True),
        value_serializer=Serializer(config),
        **more,
    )


def consumer(broker: KafkaBroker, config: Any, topic: str, *, returns_errors: bool = False) -> KafkaConsumer:
    reader = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        key_deserializer=Deserializer(config, is_key=True),
        value_deserializer=Deserializer(config, returns_errors=returns_errors),
        enable_auto_commit=False,
    )
    reader.assign([TopicPartition(topic, 0)])
    reader.seek_to_beginning()
    return reader


def test_there_and_back(broker: KafkaBroker, topic: str, config: dict[str, Any]) -> None:
    sender = producer(broker, config)
    headers = [("band", b"g")]
    for key, value in (("k", SMALL), ("k" * 100, LARGE), ("gone", None)):
        sender.send(topic, value, key, headers=[*headers], partition=0).get(30)
    sender.close(30)
    reader = consumer(broker, config, topic)
    found = [next(reader) for _ in range(3)]
    reader.close()
    assert [(each.key, each.value) for each in found] == [("k", SMALL), ("k" * 100, LARGE), ("gone", None)]
    assert [each.headers for each in found] == [headers] * 3


@pytest.mark.parametrize("headers", [None, ()])
def test_headers_that_would_be_lost_are_refused(config: dict[str, Any], headers: Any) -> None:
    writer = Serializer({**config, "large.message.threshold.bytes": 1000})
    assert writer.serialize("t", headers, SMALL)
    with pytest.raises(EncodeError, match="passed without a list of headers"):
        writer.serialize("t", headers, {"name": Random(1).randbytes(5000).hex()})
    writer.close()


def test_with_the_clients_of_confluent(broker: KafkaBroker, topic: str, config: dict[str, Any]) -> None:
    sender = producer(broker, config)
    sender.send(topic, LARGE, "one", partition=0).get(30)
    sender.close(30)
    with Producer({**broker.client_config(), **config}) as other:
        other.produce(topic, LARGE, "two", 0)
    reader = consumer(broker, config, topic)
    assert [(each.key, each.value) for each in (next(reader), next(reader))] == [("one", LARGE), ("two", LARGE)]
    reader.close()
    both = {**broker.client_config(), **config, "group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest"}
    with Consumer(both) as mine:
        mine.subscribe([topic])
        messages: Any = [mine.poll(30), mine.poll(30)]
        assert [(message.key(), message.value()) for message in messages] == [("one", LARGE), ("two", LARGE)]


def test_payloads_follow_the_clients_limit(broker: KafkaBroker, topic: str, config: dict[str, Any]) -> None:
    del config["large.message.threshold.bytes"]
    sender = producer(broker, {**config, "max.request.size": 10_000}, max_request_size=10_000)
    value = {"name": Random(7).randbytes(15_000).hex()}
    sent = sender.send(topic, value, "k", partition=0).get(30)
    sender.close(30)
    assert sent.serialized_value_size < 1000
    reader = consumer(broker, config, topic)
    assert next(reader).value == value
    reader.close()


def test_bad_records(broker: KafkaBroker, topic: str, config: dict[str, Any], tmp_path: Path) -> None:
    """Their errors stand in their place, so that they can be passed, or tried again."""
    sender = producer(broker, config)
    raw = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for value in (b"no zstd", None):
        raw.send(topic, value, b"k", partition=0).get(30)
    raw.close(30)
    sender.send(topic, LARGE, "k", partition=0).get(30)
    sender.close(30)
    (tmp_path / "payloads").rename(tmp_path / "away")
    reader = consumer(broker, config, topic, returns_errors=True)
    bad, gone, large = (next(reader) for _ in range(3))
    assert isinstance(bad.value, DecodeError)
    assert (bad.value.topic, bad.value.field, bad.value.about_record, bad.offset) == (topic, "value", True, 0)
    assert bad.value.__traceback__ is None
    assert gone.value is None
    assert isinstance(large.value, SerializationError)
    (tmp_path / "away").rename(tmp_path / "payloads")
    reader.seek(TopicPartition(topic, 0), large.offset)
    assert next(reader).value == LARGE
    reader.close()
    raising = consumer(broker, config, topic)
    with pytest.raises(DecodeError):
        next(raising)
    raising.close()


def test_errors_of_writers(broker: KafkaBroker, topic: str, config: dict[str, Any]) -> None:
    sender = producer(broker, config)
    with pytest.raises(EncodeError, match="json"):
        sender.send(topic, {"name": {1, 2}}, "k")
    sender.send(topic, SMALL, "k", partition=0).get(30)
    sender.close(30)


def test_a_payload_that_is_gone(broker: KafkaBroker, topic: str, config: dict[str, Any], tmp_path: Path) -> None:
    sender = producer(broker, config)
    sender.send(topic, LARGE, "k", partition=0).get(30)
    sender.close(30)
    reader = consumer(broker, config, topic)
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        path.unlink()
    with pytest.raises(PayloadNotFoundError):
        next(reader)
    reader.close()


class Confused:
    """A user's own callable as a stage."""

    def __call__(self, data: Any, ctx: Any) -> bytes:
        raise TypeError("of the stage")


def test_a_type_error_does_not_make_the_client_call_again() -> None:
    for chain, call in (
        (Serializer({"value.serializers": [Confused()]}), "serialize"),
        (Deserializer({"value.deserializers": [Confused()]}), "deserialize"),
    ):
        with pytest.raises(SerializationError, match="of the stage"):
            getattr(chain, call)("t", [], b"x")
    with pytest.raises(EncodeError):
        Serializer({"value.serializers": "json"}).serialize(5, [], {1, 2})  # type: ignore[arg-type]


class Absent:
    """A stage that needs a package."""

    def __call__(self, data: Any, ctx: Any) -> Any:
        raise MissingDependencyError("lz4 is not installed")


def test_a_missing_package_is_an_error_in_place() -> None:
    """Raised, it would end the consumer."""
    read = Deserializer({"value.deserializers": [Absent()]}, returns_errors=True)
    found = read.deserialize("t", [], b"x")
    assert isinstance(found, MissingDependencyError)
    assert not found.about_record
    with pytest.raises(MissingDependencyError):
        Deserializer({"value.deserializers": [Absent()]}).deserialize("t", [], b"x")


def test_schemas_of_a_registry(broker: KafkaBroker, registry: SchemaRegistry, topic: str) -> None:
    schema = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
    config = {
        "key.serializer": "string",
        "key.deserializer": "string",
        "value.serializer": "avro",
        "value.deserializer": "avro",
        "avro.schema": schema,
        "schema.registry.url": registry.url,
    }
    sender = producer(broker, config)
    sender.send(topic, {"n": 7}, "k", partition=0).get(30)
    sender.close(30)
    reader = consumer(broker, config, topic)
    assert next(reader).value == {"n": 7}
    reader.close()


def test_auto_says_that_nobody_asks(
    broker: KafkaBroker, topic: str, config: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    config |= {"value.serializers": "bytes, large-message", "value.deserializers": "large-message, bytes"}
    config |= {"large.message.threshold.bytes": "auto"}
    del config["key.serializers"], config["key.deserializers"]
    with_value = Serializer(config)
    (record,) = [record for record in caplog.records if "the broker is not asked" in record.getMessage()]
    assert "Records that max.request.size (1048576) allows are sent" in record.getMessage()
    # The client's own limit applies, to which a key of up to 4 KiB belongs; its estimate is Java's.
    client = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, value_serializer=with_value)
    for size in (1_044_000, 1_044_400, 1_044_480, 1_048_576):
        client.send(topic, bytes(size), key=b"k" * 4_090).get(30)
    client.close()
    assert len(list((Path(config["local.path"]) / topic).iterdir())) >= 2
