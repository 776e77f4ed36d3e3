"""Producers that are dropped without `close`."""

import asyncio
import gc
import os
import re
import threading
import time
import uuid
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Producer
from serde_chain.testing.services import KafkaBroker

SECONDS = 30
LARGE = {
    "value.serializers": "bytes, large-message",
    "large.message.threshold.bytes": 1000,
    "large.message.payload.store.class": "memory",
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "idempotent": {"enable.idempotence": True},
    "offloaded": LARGE,
    "negotiated": {**LARGE, "large.message.threshold.bytes": "auto", "enable.idempotence": True},
}


def threads_of_librdkafka() -> int:
    """How many threads of this process are librdkafka's, by their names."""
    count = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            count += task.joinpath("comm").read_text().startswith("rdk:")
    return count


def ended(before: int) -> bool:
    """Whether there are no more of them than before, sooner or later."""
    until = time.monotonic() + SECONDS
    while threads_of_librdkafka() > before and time.monotonic() < until:
        gc.collect()
        threading.Event().wait(0.05)
    return threads_of_librdkafka() <= before


def in_topic(broker: KafkaBroker, topic: str) -> int:
    consumer = confluent_kafka.Consumer({**broker.client_config(), "group.id": str(uuid.uuid4())})
    try:
        low, high = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), SECONDS)
        return high - low
    finally:
        consumer.close()


@pytest.fixture(autouse=True)
def _memory() -> None:
    MemoryStore.clear()


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_what_it_had_is_sent_and_the_client_ends(
    broker: KafkaBroker, topic: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = threads_of_librdkafka()
    told: list[object] = []

    def drop() -> None:
        producer = Producer({**broker.client_config(), **WAYS[way], "linger.ms": 500})
        for _ in range(10):
            producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _message: told.append(error))
        del producer
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"close.*at most 1\d records"):
        drop()
    assert ended(before)
    assert told == [None] * 10
    assert in_topic(broker, topic) == 10
    assert re.search(r"at most 1\d records", caplog.text)


@pytest.mark.parametrize("closes", [True, False])
def test_one_that_has_nothing_left(broker: KafkaBroker, topic: str, *, closes: bool) -> None:
    before = threads_of_librdkafka()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        producer = Producer({**broker.client_config(), "enable.idempotence": True})
        producer.produce(topic, b"x")
        assert producer.flush(SECONDS) == 0
        if closes:
            producer.close()
        del producer
        gc.collect()
        assert ended(before)
    assert [warning.category for warning in caught] == ([] if closes else [ResourceWarning])


def test_one_for_asyncio(broker: KafkaBroker, topic: str) -> None:
    before = threads_of_librdkafka()

    async def main() -> None:
        producer = AsyncProducer({**broker.client_config(), **LARGE})
        await (await producer.produce(topic, b"x" * 2000))
        del producer
        with pytest.warns(ResourceWarning, match="close"):
            await asyncio.to_thread(ended, before)
        assert threads_of_librdkafka() <= before

    asyncio.run(main())


def test_one_in_a_forked_process_is_left_alone(broker: KafkaBroker) -> None:
    """Its threads are the parent's."""
    producer = Producer(broker.client_config())
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            producer.__del__()
            os.write(write, b"left")
        finally:
            os._exit(0)
    os.close(write)
    assert os.read(read, 4) == b"left"
    os.waitpid(child, 0)
    os.close(read)
    producer.close()


def test_one_that_could_not_be_made() -> None:
    with pytest.raises(confluent_kafka.KafkaException):
        Producer({"no.such.key": 1})
    gc.collect()
