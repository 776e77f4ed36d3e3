"""Ctrl-C in a process that goes on, as in a notebook: no record is dropped, whatever was under way."""

import logging
import random
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException, TopicPartition

from serde_chain import Consumer, Producer
from serde_chain.testing.services import KafkaBroker
from tests.clients.confluent.test_topic_limits import AUTO, set_limit
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer
    from tests.conftest import NewTopic

COUNT = 12
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'


def fill(broker: KafkaBroker, topic: str, *, headers: bool = True) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 50})
    for value in range(COUNT):
        producer.produce(topic, bytes([value * 2]), headers=[("n", b"%d" % value)] if headers else None)
    assert producer.flush(30) == 0


def found_in(message: Any) -> int:
    return int(message.value()["n"])


def take(consumer: Consumer, how: str) -> list[Any]:
    """Offsets and values of what one call hands over."""
    if how == "arrow":
        return [(row["offset"], row["value"]["n"]) for row in consumer.consume_arrow(3, 5).to_pylist()]
    messages = consumer.consume(3, 5) if how == "consume" else [consumer.poll(5)]
    return [(message.offset(), found_in(message)) for message in messages if message is not None]


# Records without headers go the fast way.
@pytest.mark.full
@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("how", ["poll", "consume", "arrow"])
def test_what_was_not_handed_over_comes_with_the_next_call(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", how: str, *, headers: bool
) -> None:
    fill(broker, topic, headers=headers)
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
    assert interrupts > COUNT * 2


@pytest.mark.full
@pytest.mark.parametrize("headers", [True, False])
def test_ways_of_reading_may_change_after_an_interrupt(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", *, headers: bool
) -> None:
    fill(broker, topic, headers=headers)
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


@pytest.mark.parametrize("seed", range(3))
def test_a_record_is_in_the_topic_or_reported_and_the_producer_goes_on(  # noqa: PLR0917, fixtures
    broker: KafkaBroker,
    new_topic: "NewTopic",
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    fetch: "Fetch",
    seed: int,
) -> None:
    # The limit is lowered while the producer runs, so that all records are refused at first and sent again.
    topic = new_topic(1, {"max.message.bytes": "1000000"})
    producer = new_producer(AUTO)
    producer.produce(topic, b"first")
    assert producer.flush(30) == 0
    set_limit(broker, topic, 9_000)
    chance = random.Random(seed)
    # Where records are on their way; what an interrupted encoding leaves behind is nothing.
    files = ("confluent/producer", "confluent/outbox", "sender", "buffer", "driver")
    within = tuple(f"serde_chain/clients/{name}" for name in files)
    reports: Counter[int] = Counter()
    accepted: set[int] = set()
    failures: dict[int, Any] = {}
    for number in range(60):

        def delivered(error: Any, _message: Any, number: int = number) -> None:
            reports[number] += 1
            if error is not None:
                failures[number] = error

        with suppress(KeyboardInterrupt), interrupted_at(chance.randrange(150), within):
            producer.produce(topic, number.to_bytes(2, "big") * 5_000, on_delivery=delivered)
            accepted.add(number)
        if chance.random() < 0.3:
            with suppress(KeyboardInterrupt), interrupted_at(chance.randrange(60), within):
                producer.poll(0)
        if chance.random() < 0.1:
            with suppress(KeyboardInterrupt), interrupted_at(chance.randrange(200), within):
                producer.flush(10)
    assert 10 < len(accepted) < 60
    assert producer.flush(30) == len(producer) == 0
    assert set(reports) >= accepted
    assert set(reports.values()) == {1}
    # Where an interrupt swallowed the report of a refusal, nobody knows what the record would have become.
    assert {error.name() for error in failures.values()} <= {"_INTR"}
    # Bytes are counted by delivery alone: there is room for further records at once.
    for number in range(60, 80):
        producer.produce(topic, number.to_bytes(2, "big") * 4_000)
    assert producer.flush(30) == 0
    consumer = new_consumer(AUTO)
    consumer.assign([TopicPartition(topic, 0, 0)])
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    found = [int.from_bytes(message.value()[:2], "big") for message in fetch(consumer, end)[1:]]
    assert consumer.poll(0.3) is None
    assert Counter(found) + Counter(failures.keys() - set(found)) == Counter([*reports, *range(60, 80)])


def test_close_reports_what_it_gives_up(topic: str, caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[Any] = []
    config: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "value.serializer": "string"}
    producer = Producer(**config)
    for text in ("a", "b"):
        producer.produce(topic, text, on_delivery=lambda error, _message: outcomes.append(error and error.name()))
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt), interrupted_at(0):
        producer.close()
    assert outcomes == ["_PURGE_QUEUE"] * 2
    assert "undelivered records are dropped" in caplog.text
    assert producer.close()
