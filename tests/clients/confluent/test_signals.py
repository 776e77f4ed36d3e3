"""Signals that end the client's own call, which drops what it has taken from librdkafka: it is asked for again."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaException, TopicPartition

from serde_chain import Consumer, Producer
from tests.interrupts import interrupted_at
from tests.signals import SECONDS, Signals

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.conftest import NewConsumer, NewProducer
    from tests.conftest import NewTopic

COUNT = 12
WAYS = ["poll", "consume", "arrow"]
LARGE = {"large.message.threshold.bytes": 100}
CHAINS: dict[str, dict[str, Any]] = {
    "none": {},
    "plain": {"chain": "bytes"},
    "headers": {"chain": "bytes", "headers": True},
    "large": {"chain": "large-message", "large.message.payload.store.class": "local", **LARGE},
    "lazy": {
        "chain": "large-message",
        "large.message.payload.store.class": "local",
        "large.message.fetch": "lazy",
        **LARGE,
    },
    "kafka": {"chain": "large-message", "large.message.payload.store.class": "kafka", **LARGE},
}


class SoftTimeLimitExceededError(Exception):
    """What a task queue's handler of SIGALRM raises."""


def value_of(number: int) -> bytes:
    return b"%d" % number + bytes(200)


def number_in(value: Any) -> int:
    data = value if isinstance(value, bytes) else value.read()
    return int(bytes(data).rstrip(b"\0"))


def take(consumer: Consumer, how: str, timeout: float = 2) -> list[tuple[Any, Any]]:
    """Offsets and values of what one call hands over."""
    if how == "arrow":
        return [(row["offset"], row["value"]) for row in consumer.consume_arrow(3, timeout).to_pylist()]
    messages = consumer.consume(3, timeout) if how == "consume" else [consumer.poll(timeout)]
    return [(message.offset(), message.value()) for message in messages if message is not None]


def read(consumer: Consumer, how: str, count: int, signals: Signals) -> list[Any]:
    """The loop that everybody writes; it ends early when nothing more comes."""
    found: list[Any] = []
    until = time.monotonic() + SECONDS
    idle = 0
    while len(found) < count and time.monotonic() < until and idle < 4:
        try:
            taken = take(consumer, how)
        except signals.kind:
            signals.caught()
            continue
        idle = 0 if taken else idle + 1
        found += taken
    return found


def configured(chain: str, side: str, folder: "Path") -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    config = dict(CHAINS[chain])
    name = config.pop("chain", None)
    headers = [("h", b"1")] if config.pop("headers", False) else []
    if config.get("large.message.payload.store.class") == "local":
        config["local.path"] = str(folder)
    return {**config, **({f"value.{side}": name} if name else {})}, headers


@pytest.mark.full
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("how", WAYS)
def test_no_record_is_lost_or_doubled_when_signals_end_the_waiting_call(  # noqa: PLR0917, fixtures
    new_topic: "NewTopic",
    new_producer: "NewProducer",
    new_consumer: "NewConsumer",
    tmp_path: "Path",
    how: str,
    chain: str,
) -> None:
    topic = new_topic(2)
    written, headers = configured(chain, "serializers", tmp_path)
    producer = new_producer(written)
    writes = [partial(write, producer, topic, number, headers) for number in range(COUNT)]
    consumer = new_consumer(configured(chain, "deserializers", tmp_path)[0], **{"enable.auto.commit": False})
    partitions = [TopicPartition(topic, partition) for partition in range(2)]
    await_coordinator(consumer, partitions)  # first: that there is none yet would be a message
    consumer.assign(partitions)
    with Signals() as signals, signals.before_each(writes):
        found = read(consumer, how, COUNT, signals)
    assert signals.raised >= COUNT / 2
    assert sorted(number_in(value) for _, value in found) == list(range(COUNT))
    assert consumer.poll(0) is None
    consumer.commit(asynchronous=False)
    assert sum(place.offset for place in consumer.committed(consumer.assignment(), 10)) == COUNT


def await_coordinator(consumer: Consumer, places: list[TopicPartition]) -> None:
    """Wait for that of a new broker, which takes its time."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        with suppress(KafkaException):
            consumer.committed(places, 1)
            return


def write(producer: Producer, topic: str, number: int, headers: Any = None, partitions: int = 2) -> None:
    producer.produce(topic, value_of(number), partition=number % partitions, headers=headers or None)
    assert producer.flush(SECONDS) == 0


@pytest.mark.parametrize("how", WAYS)
def test_an_ordinary_exception_of_a_handler_counts_likewise(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", how: str
) -> None:
    producer = new_producer()
    consumer = new_consumer({"value.deserializers": "bytes", "serde.error.policy": "skip"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    writes = [partial(write, producer, topic, number, partitions=1) for number in range(COUNT)]
    with Signals(SoftTimeLimitExceededError, signal.SIGALRM) as signals, signals.before_each(writes):
        found = read(consumer, how, COUNT, signals)
    assert signals.raised >= COUNT / 2
    assert [number_in(value) for _, value in found] == list(range(COUNT))
    assert consumer.skipped == 0


STARTS = {
    "explicit": (3, {}),
    "beginning": (OFFSET_BEGINNING, {}),
    "committed": (OFFSET_INVALID, {}),
    "earliest": (OFFSET_INVALID, {}),
    "latest": (OFFSET_INVALID, {"auto.offset.reset": "latest"}),
}


@pytest.mark.full
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("start", STARTS)
def test_a_signal_during_the_first_contact_with_a_partition(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", start: str, how: str
) -> None:
    producer = new_producer()
    for number in range(COUNT):
        write(producer, topic, number, partitions=1)
    offset, more = STARTS[start]
    consumer = new_consumer(more)
    await_coordinator(consumer, [TopicPartition(topic, 0)])
    if start == "committed":
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    consumer.assign([TopicPartition(topic, 0, offset)])
    writes = [partial(write, producer, topic, COUNT + number, partitions=1) for number in range(3)]
    while start == "latest" and consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True)[1] < COUNT:
        assert consumer.poll(0.1) is None  # until it knows the end
    first = {"explicit": 3, "committed": 5, "latest": COUNT}.get(start, 0)
    with Signals() as signals, signals.before_each(writes):
        found = read(consumer, how, COUNT + 3 - first, signals)
        # In here: the signals come while the consumer is called. Records from before may have come first.
        while not found or number_in(found[-1][1]) != COUNT + 2:
            more_found = read(consumer, how, 1, signals)
            assert more_found, found
            found += more_found
    numbers = [number_in(value) for _, value in found]
    if start == "latest" and how != "poll":
        # No one knows what was the end then: some from before come too.
        numbers = numbers[numbers.index(COUNT) :]
    assert numbers == list(range(first, COUNT + 3))


SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'


@contextmanager
def soft_limit() -> Iterator[list[str]]:
    """A handler of SIGALRM as task queues have it; yields where it has raised."""
    raised: list[str] = []

    def handle(_number: int, frame: FrameType | None) -> None:
        raised.append(str(frame and frame.f_back and frame.f_back.f_back))
        raise SoftTimeLimitExceededError("the task takes too long")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        yield raised
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.full
@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("how", WAYS)
def test_what_a_handler_raises_is_no_verdict_on_a_record_and_comes_out_unchanged(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", how: str, *, headers: bool
) -> None:
    producer = new_producer()
    for number in range(6):
        producer.produce(topic, bytes([number * 2]), headers=[("n", b"1")] if headers else None)
    assert producer.flush(SECONDS) == 0
    config = {"value.deserializer": "avro", "avro.schema": SCHEMA, "serde.error.policy": "skip"}
    consumer = new_consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    point = seen = 0
    with soft_limit() as raised:
        while len(found) < 6:
            try:
                with interrupted_at(point, act=lambda: signal.raise_signal(signal.SIGALRM)):
                    found += take(consumer, how, 5)
                point = 0
            except SoftTimeLimitExceededError:
                seen += 1
                point += 1
            assert len(raised) == seen, raised[-1]
    assert [(offset, value["n"]) for offset, value in found] == [(n, n) for n in range(6)]
    assert seen > 6
    assert consumer.skipped == 0
