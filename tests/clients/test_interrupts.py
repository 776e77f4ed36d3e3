"""Ctrl-C in a process that goes on, as in a notebook: no record is dropped, whatever was under way."""

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, TopicPartition

from serde_chain import Consumer
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer

COUNT = 12
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'


def fill(broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 50})
    for value in range(COUNT):
        producer.produce(topic, bytes([value * 2]), headers=[("n", b"%d" % value)])
    assert producer.flush(30) == 0


def found_in(message: Any) -> int:
    return int(message.value()["n"])


def take(consumer: Consumer, how: str) -> list[Any]:
    """Offsets and values of what one call hands over."""
    if how == "arrow":
        return [(row["offset"], row["value"]["n"]) for row in consumer.consume_arrow(3, 5).to_pylist()]
    messages = consumer.consume(3, 5) if how == "consume" else [consumer.poll(5)]
    return [(message.offset(), found_in(message)) for message in messages if message is not None]


@pytest.mark.parametrize("how", ["poll", "consume", "arrow"])
def test_what_was_not_handed_over_comes_with_the_next_call(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", how: str
) -> None:
    fill(broker, topic)
    consumer = new_consumer({"value.deserializer": "avro", "avro.schema": SCHEMA, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = take(consumer, how)
    point = interrupts = 0
    while len(found) < COUNT:
        try:
            with interrupted_at(point):
                found += take(consumer, how)
            point = 0  # every point of this call was met
        except KeyboardInterrupt:
            interrupts += 1
            point += 1
            assert consumer.position([TopicPartition(topic, 0)])[0].offset <= len(found)
        with suppress(KafkaException):  # there is nothing new to commit
            consumer.commit(asynchronous=False)
        assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset in {len(found), OFFSET_INVALID}
    assert found == [(n, n) for n in range(COUNT)]
    assert interrupts > COUNT * 3


def test_ways_of_reading_may_change_after_an_interrupt(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer"
) -> None:
    fill(broker, topic)
    consumer = new_consumer({"value.deserializer": "avro", "avro.schema": SCHEMA})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    chance = random.Random(7)
    while len(found) < COUNT:
        try:
            with interrupted_at(chance.randrange(250)):
                found += take(consumer, chance.choice(["poll", "consume", "arrow"]))
        except KeyboardInterrupt:
            continue
    assert found == [(n, n) for n in range(COUNT)]
