"""Chains of keys: equal keys are equal bytes, so that partitions and compaction are those of plain producers."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, DeserializerChain, RecordContext, Serializer, SerializerChain
from serde_chain.clients.limits import largest_key
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.clients.conftest import QUICK

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer
    from tests.conftest import NewTopic

SECONDS = 90.0
STORE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 300}
CONFIG: dict[str, Any] = {
    "key.serializers": "string, large-message",
    "key.deserializers": "large-message, string",
    "value.serializers": "string, large-message",
    "value.deserializers": "large-message, string",
    **STORE,
}
ENCRYPTION = {"encryption.keys": {"k": bytes(range(32))}}
MAP_KEY = """{"type": "record", "name": "K", "fields": [{"name": "tags", "type": {"type": "map", "values": "int"}},
    {"name": "list", "type": {"type": "array", "items": {"type": "map", "values": "int"}}}]}"""
FORMATS = ("kip1159", "bakdata-flag", "bakdata-headers")


@pytest.fixture(autouse=True)
def payloads() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


def raw(broker: KafkaBroker, topic: str) -> list[Any]:
    """All records of a topic as they lie there, partition after partition."""
    reading = {"group.id": topic, "enable.partition.eof": True, "enable.auto.commit": False, **QUICK}
    consumer = confluent_kafka.Consumer({**broker.client_config(), **reading})
    found: list[Any] = []
    until = time.monotonic() + SECONDS
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ended = 0
        while ended < len(partitions):
            assert time.monotonic() < until, "the topic could not be read to its end"
            for message in consumer.consume(500, 0.05):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF
                    ended += 1
    finally:
        consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


# Equal keys are equal bytes


@pytest.mark.parametrize(
    ("stages", "settings", "keys"),
    [
        ("string, zstd", {}, ("key", "key")),
        ("string, gzip", {}, ("key", "key")),
        ("string, encrypt", {**ENCRYPTION, "encryption.mode": "siv"}, ("key", "key")),
        (
            "string, entry-metadata",
            {"entry.metadata.timestamp": False, "entry.metadata.index": False},
            ("key", "key"),
        ),
        ("json", {}, ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})),
        (
            "avro",
            {"avro.schema": MAP_KEY},
            (
                {"tags": {"a": 1, "b": 2}, "list": [{"c": 3, "d": 4}]},
                {"list": [{"d": 4, "c": 3}], "tags": {"b": 2, "a": 1}},
            ),
        ),
        (
            "protobuf",
            {"protobuf.message.class": "tests.stages.protobuf.protobuf_messages:ALERT", "protobuf.values": "dict"},
            ({"scores": {"a": 1.0, "b": 2.0}}, {"scores": {"b": 2.0, "a": 1.0}}),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("offloaded", [False, True], ids=["inline", "offloaded"])
def test_equal_keys_are_equal_bytes(
    stages: str, settings: dict[str, Any], keys: tuple[Any, Any], offloaded: bool
) -> None:
    settings = {**STORE, **settings, "large.message.threshold.bytes": 0 if offloaded else 300}
    config = {**settings, "key.serializers": f"{stages}, large-message"}
    backwards = ", ".join(["large-message", *stages.split(", ")[::-1]])
    written = []
    for key in keys:
        with SerializerChain.from_config(config, is_key=True) as write:
            written.append(write(key, ctx := RecordContext("t", "key", [])))
        assert bool(ctx.headers) == offloaded
        with DeserializerChain.from_config({**settings, "key.deserializers": backwards}, is_key=True) as read:
            found = read(written[-1], ctx)
            assert all(found[name] == keys[0][name] for name in key) if isinstance(key, dict) else found == key
    assert written[0] == written[1]


@pytest.mark.parametrize("strategy", [None, "random", "content", "keyed", "murmur3"])
@pytest.mark.parametrize("name", FORMATS)
def test_ids_of_keys_are_those_of_their_content(name: str, strategy: str | None) -> None:
    config = {**CONFIG, "large.message.format": name}
    if strategy is not None:
        config["large.message.id"] = strategy
    compressions = ("none",) if name == "kip1159" else ("none", "gzip", "snappy", "lz4", "zstd")
    for compression in compressions:
        written = set()
        for number in range(2):
            with SerializerChain.from_config(
                {**config, "large.message.compression": compression}, is_key=True
            ) as write:
                written.add(write("key" * 200, RecordContext("t", "key", [("n", str(number))])))
        assert len(written) == 1


class Varying(Serializer[Any]):
    varies = "Leave it to values"
    closed = 0

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return data

    def close(self) -> None:
        Varying.closed += 1


@pytest.mark.parametrize(
    ("stages", "settings", "message"),
    [
        ("string, encrypt", ENCRYPTION, r"encrypt \(2 of 2\) is not for keys.*encryption\.mode = siv"),
        ("string, entry-metadata", {}, r"entry-metadata \(2 of 2\) is not for keys.*entry\.metadata\.timestamp"),
        (
            "string, entry-metadata",
            {"entry.metadata.timestamp": False, "entry.metadata.index": True},
            r"different partitions.*entry\.metadata\.index = false",
        ),
        ("avro", {"avro.schema": MAP_KEY, "avro.framing": "container"}, r"avro \(1 of 1\) is not for keys.*framing"),
        ([Varying], {}, "Varying.* is not for keys.*Leave it to values"),
        ([SerializerChain([Varying()])], {}, "Varying.* is not for keys.*Leave it to values"),
    ],
)
def test_what_varies_is_not_for_keys(stages: Any, settings: dict[str, Any], message: str) -> None:
    Varying.closed = 0
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config({"key.serializers": stages, **settings}, is_key=True)
    assert Varying.closed == ("Varying" in message or "SerializerChain" in message)
    SerializerChain.from_config({"value.serializers": stages, **settings}).close()


def test_producers_refuse_it_too(new_producer: "NewProducer") -> None:
    config = {"key.serializers": "string, encrypt", "value.serializers": "string, encrypt", **ENCRYPTION}
    with pytest.raises(ConfigError, match=r"encrypt .* is not for keys"):
        new_producer(config)
    own = {"class": "encrypt", "encryption.mode": "siv"}
    assert len(new_producer({**config, "key.serializers": ["string", own]})) == 0


# Partitions


@pytest.mark.parametrize("partitioner", ["consistent_random", "murmur2_random"])
def test_keys_go_where_plain_producers_send_them(
    partitioner: str, broker: KafkaBroker, new_topic: "NewTopic", new_producer: "NewProducer"
) -> None:
    topic, keys = new_topic(7), [f"key {number}" for number in range(50)]
    settings = {"partitioner": partitioner, "linger.ms": 0}
    plain = confluent_kafka.Producer({**broker.client_config(), **settings})
    for key in keys:
        plain.produce(topic, b"plain", key)
    assert plain.flush(30) == 0
    plain.close()
    large = [f"{number} " * 1000 for number in range(20)]
    for _ in range(2):  # two producers, as two processes would have
        producer = new_producer(CONFIG, **settings)
        for key in keys + large:
            producer.produce(topic, "ours", key)
        assert producer.flush(30) == 0
    messages = raw(broker, topic)
    places: dict[bytes, list[int]] = {}
    for message in messages:
        places.setdefault(message.key(), []).append(message.partition())
    assert len(places) == len(keys) + len(large)
    assert all(len(places[key.encode()]) == 3 for key in keys)
    assert all(len(set(found)) == 1 for found in places.values())
    assert len({found[0] for found in places.values()}) > 1
    assert len(list(MemoryStore().list(topic))) == len(large)


@pytest.mark.parametrize("threshold", [None, "auto"])
def test_headers_do_not_change_whether_a_key_is_offloaded(
    threshold: str | None, broker: KafkaBroker, topic: str, new_producer: "NewProducer"
) -> None:
    producer = new_producer(
        {**CONFIG, "key.serializers": "bytes, large-message", "large.message.threshold.bytes": threshold or 965_000},
        **{"message.max.bytes": 970_000} if threshold is None else {},
    )
    largest = largest_key(970_000 if threshold is None else 1_000_000, None, 1_048_588)
    for size in (largest, largest + 1):
        for headers in ([], [("h", bytes(1000))]):
            producer.produce(topic, "value", bytes(size), headers=list(headers))
            assert producer.flush(30) == 0
    first, same, second, again = (message.key() for message in raw(broker, topic))
    assert first == same
    assert second == again


# Compaction


@contextmanager
def quick_cleaner(broker: KafkaBroker) -> Iterator[None]:
    """The broker looks for topics to compact every 100 ms instead of every 15 s."""
    admin = broker.admin()

    def change(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)

    change(AlterConfigOpType.SET)
    try:
        yield
    finally:
        change(AlterConfigOpType.DELETE)


def test_compaction_keeps_the_last_value_of_each_key(  # noqa: PLR0917, fixtures
    broker: KafkaBroker,
    s3_server: S3Server,
    bucket: str,
    new_topic: "NewTopic",
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
) -> None:
    topic = new_topic(
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "50",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "1",
        },
    )
    config = {**CONFIG, **s3_server.store_config(bucket), "large.message.id": "random"}
    # Small and large keys, small and large last values, and keys that are deleted.
    keys = {f"{size} {kind}": "x" * size for size in (10, 1000) for kind in ("small", "large", "deleted")}
    last = {
        f"{name} {pad}": None if "deleted" in name else "v" * (5 if "small" in name else 2000)
        for name, pad in keys.items()
    }
    for _ in range(2):
        with new_producer(config) as producer:
            for key in last:
                for old in ("old", "old " * 500):
                    producer.produce(topic, old, key)
            assert producer.flush(30) == 0
    producer = new_producer(config)
    for key, value in last.items():
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0
    live = {key: value for key, value in last.items() if value is not None}

    def fill() -> list[Any]:
        """Write a record, which lets the broker begin a new segment; the cleaner leaves the newest one alone."""
        producer.produce(topic, "filler", "filler")
        assert producer.flush(30) == 0
        return [message for message in raw(broker, topic) if message.key() != b"filler"]

    with quick_cleaner(broker):
        until = time.monotonic() + SECONDS
        found = fill()
        assert len(found) > len(live)
        while len(found) != len(live):
            assert time.monotonic() < until, f"the cleaner has left {len(found)} records of {len(live)}"
            found = fill()
    consumer = new_consumer(config)
    consumer.subscribe([topic])
    messages = fetch(consumer, len(live) + 1)
    assert {message.key(): message.value() for message in messages if message.key() != "filler"} == live
