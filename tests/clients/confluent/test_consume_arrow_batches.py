"""What tables from a broker hold, and which offsets are stored for them."""

import time
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, TopicPartition

from serde_chain import Consumer, SerializationError
from tests.clients.conftest import NewConsumer, NewProducer
from tests.conftest import NewTopic

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
WRITE = {"value.serializers": "avro", "key.serializer": "string", "avro.schema": SCHEMA}
READ = {"value.deserializers": "avro", "key.deserializer": "string", "avro.schema": SCHEMA}
LARGE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 100}


def rows(consumer: Consumer, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        found += consumer.consume_arrow(count - len(found), 0.5).to_pylist()
    assert len(found) == count
    return found


def committed(consumer: Consumer, topic: str) -> int:
    consumer.commit(asynchronous=False)
    return int(consumer.committed([TopicPartition(topic, 0)], 10)[0].offset)


def test_only_what_was_handed_over_is_stored(new_producer: NewProducer, new_consumer: NewConsumer, topic: str) -> None:
    with new_producer(WRITE) as producer:
        for n in range(4):
            producer.produce(topic, {"n": n})
    with new_producer() as raw:
        raw.produce(topic, b"\xff")
    config = {**READ, "enable.auto.commit": False}
    consumer = new_consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert rows(consumer, 1)[0]["offset"] == 0
    assert committed(consumer, topic) == 1
    assert [row["offset"] for row in rows(consumer, 3)] == [1, 2, 3]
    assert committed(consumer, topic) == 4
    with pytest.raises(SerializationError) as caught:
        rows(consumer, 1)
    assert caught.value.offset == 4
    with pytest.raises(KafkaException, match="No offset stored"):
        consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 4


def test_an_empty_table_has_its_columns(new_consumer: NewConsumer, topic: str) -> None:
    consumer = new_consumer(READ)
    consumer.assign([TopicPartition(topic, 0, 0)])
    for table in (consumer.consume_arrow(10, 0.1), consumer.consume_arrow(0)):
        assert table.num_rows == 0
        assert table.column_names == ["topic", "partition", "offset", "timestamp", "key", "headers", "value"]
        assert table.schema.field("key").type == pa.string()
        assert table.schema.field("value").type == pa.struct([pa.field("n", pa.int64(), nullable=False)])


def test_large_messages_and_tombstones(new_producer: NewProducer, new_consumer: NewConsumer, topic: str) -> None:
    values = [b"small", b"x" * 1000, None, b"y" * 2000]
    with new_producer({**LARGE, "value.serializers": "bytes, large-message"}) as producer:
        for value in values:
            producer.produce(topic, value, headers=[("own", b"1")])
    consumer = new_consumer({**LARGE, "value.deserializers": "large-message"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = rows(consumer, 4)
    assert [row["value"] for row in found] == values
    assert [row["headers"] for row in found] == [[{"key": "own", "value": b"1"}]] * 4
    assert [row["key"] for row in found] == [None] * 4


def test_paused_partitions(new_producer: NewProducer, new_consumer: NewConsumer, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with new_producer(WRITE) as producer:
        for n in range(6):
            producer.produce(topic, {"n": n}, partition=n % 2)
    consumer = new_consumer(READ)
    consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
    first = rows(consumer, 1)[0]
    paused = TopicPartition(topic, first["partition"])
    consumer.pause([paused])
    assert [row["partition"] for row in rows(consumer, 3)] == [1 - first["partition"]] * 3
    assert consumer.consume_arrow(10, 0.5).num_rows == 0
    consumer.resume([paused])
    rest = rows(consumer, 2)
    assert [(row["partition"], row["offset"]) for row in rest] == [(paused.partition, 1), (paused.partition, 2)]


def test_headers_without_a_value(new_producer: NewProducer, new_consumer: NewConsumer, topic: str) -> None:
    with new_producer(WRITE) as producer:
        producer.produce(topic, {"n": 1}, headers=[("empty", b""), ("null", None), ("é", b"\xff")])
    consumer = new_consumer(READ)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [tuple(pair.values()) for pair in rows(consumer, 1)[0]["headers"]] == [
        ("empty", b""),
        ("null", None),
        ("é", b"\xff"),
    ]
