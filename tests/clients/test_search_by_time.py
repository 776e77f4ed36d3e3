"""Searches by time in a topic whose frames were switched on later: every client and command finds the same record."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as Place
from confluent_kafka import OFFSET_END, TopicPartition

from serde_chain import AsyncConsumer, ConfigError, Consumer
from serde_chain.cli.browse.topic import Patience, Readers, Topic, asked
from serde_chain.clients.aiokafka import Consumer as AiokafkaConsumer
from serde_chain.config import load
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.entry_metadata import frame
from tests.cli.conftest import run
from tests.conftest import NewTopic

SECONDS = 30.0
BEGIN_MS = 1_700_000_000_000
# Number of the first framed record. Offsets are those numbers.
SWITCHED = 50
COUNT = 100
CHAIN = {"value.deserializers": "entry-metadata, string"}

# A time, and the first record of it.
TIMES = {
    BEGIN_MS - 1: 0,
    BEGIN_MS + 200: 20,
    BEGIN_MS + 490: 49,
    BEGIN_MS + 491: 50,
    BEGIN_MS + 770: 77,
    BEGIN_MS + 991: COUNT,
}


@pytest.fixture
def mixed(broker: KafkaBroker, new_topic: NewTopic) -> str:
    """Two partitions alike: 50 records without frames, then 50 whose timestamps are those of a source, much older.

    Behind them is an aborted transaction.
    """
    topic = new_topic(2, {"retention.ms": "-1"})
    producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": topic, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(2):
        for number in range(COUNT):
            value, at = b"%d" % number, BEGIN_MS + 10 * number
            if number >= SWITCHED:
                value, at = frame(value, broker_timestamp=at), BEGIN_MS - 10**9
            producer.produce(topic, value, partition=partition, timestamp=at)
    producer.commit_transaction(60)
    producer.begin_transaction()
    for partition in range(2):
        for _ in range(5):
            producer.produce(topic, b"aborted", partition=partition, timestamp=BEGIN_MS + 10**6)
    producer.flush(30)
    producer.abort_transaction(60)
    return topic


@pytest.fixture
def config(broker: KafkaBroker, mixed: str) -> dict[str, Any]:
    return {**broker.client_config(), **CHAIN, "group.id": mixed, "log_level": 0}


def offset_of(number: int) -> int:
    return number if number < COUNT else OFFSET_END


def test_the_consumer_searches_by_frames(config: dict[str, Any], mixed: str) -> None:
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(mixed, 0, 0)])
        message = consumer.poll(SECONDS)
        assert message is not None
        for wanted, number in TIMES.items():
            places = consumer.offsets_for_times([TopicPartition(mixed, each, wanted) for each in (1, 0)], SECONDS)
            assert [(each.partition, each.offset) for each in places] == [
                (1, offset_of(number)),
                (0, offset_of(number)),
            ]
        # Each its own time; constants have their own meaning.
        asked_for = [(1, BEGIN_MS + 200), (0, BEGIN_MS + 770), (0, OFFSET_END)]
        early, late, end = consumer.offsets_for_times([TopicPartition(mixed, *each) for each in asked_for])
        assert (early.offset, late.offset) == (20, 77)
        assert end.offset >= COUNT
        # The consumer's own position is where it was.
        message = consumer.poll(SECONDS)
        assert message is not None
        assert (message.offset(), message.value()) == (1, "1")
        consumer.seek(late)


def test_a_chain_without_frames_gets_the_brokers_answer(config: dict[str, Any], mixed: str) -> None:
    with (
        Consumer({**config, "value.deserializers": "string"}) as ours,
        confluent_kafka.Consumer({name: setting for name, setting in config.items() if name not in CHAIN}) as theirs,
    ):
        for wanted in TIMES:
            places = [TopicPartition(mixed, 0, wanted)]
            assert [each.offset for each in ours.offsets_for_times(places, SECONDS)] == [
                each.offset for each in theirs.offsets_for_times(places, SECONDS)
            ]


def test_errors_of_a_search_are_the_clients(config: dict[str, Any], mixed: str) -> None:
    with Consumer(config) as consumer:
        places = [TopicPartition(mixed, partition, BEGIN_MS + 200) for partition in (9, 1)]
        unknown, known = consumer.offsets_for_times(places, SECONDS)
        assert unknown.error is not None
        assert (known.error, known.offset) == (None, 20)
    with Consumer({**config, "bootstrap.servers": "127.0.0.1:1"}) as consumer:
        started = time.monotonic()
        with pytest.raises(confluent_kafka.KafkaException):
            consumer.offsets_for_times([TopicPartition(mixed, 0, BEGIN_MS)], 0.5)
        assert time.monotonic() - started < 20


def test_a_search_ends_in_time(config: dict[str, Any], mixed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from serde_chain.clients.confluent.partitions import PartitionReader

    # The fault: a partition whose records do not come.
    monkeypatch.setattr(PartitionReader, "take", lambda *_: ([], {}))
    with Consumer(config) as consumer:
        with pytest.raises(confluent_kafka.KafkaException, match=f"no record came in time.*topic={mixed}") as caught:
            consumer.offsets_for_times([TopicPartition(mixed, 0, BEGIN_MS)], 1)
        assert caught.value.args[0].code() == confluent_kafka.KafkaError._TIMED_OUT


def test_the_asynchronous_consumer_searches_by_frames(config: dict[str, Any], mixed: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(config) as consumer:
            for wanted, number in TIMES.items():
                [place] = await consumer.offsets_for_times([TopicPartition(mixed, 0, wanted)], SECONDS)
                assert place.offset == offset_of(number)

    asyncio.run(asyncio.wait_for(main(), 100))


def test_aiokafkas_consumer_searches_by_frames(broker: KafkaBroker, mixed: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
    }

    async def main() -> None:
        first, second = Place(mixed, 0), Place(mixed, 1)
        searcher = AIOKafkaConsumer(**settings, max_partition_fetch_bytes=16384)
        async with AiokafkaConsumer(AIOKafkaConsumer(mixed, **settings), CHAIN, searcher=searcher) as consumer:
            for wanted, number in TIMES.items():
                found = await consumer.offsets_for_times({first: wanted, second: BEGIN_MS + 200})
                place = found[first]
                if number == COUNT:
                    assert place is None
                else:
                    assert place is not None
                    assert (place.offset, place.timestamp) == (number, BEGIN_MS + 10 * number)
                other = found[second]
                assert other is not None
                assert other.offset == 20
        async with AiokafkaConsumer(AIOKafkaConsumer(mixed, **settings), CHAIN) as consumer:
            with pytest.raises(ConfigError, match="searcher="):
                await consumer.offsets_for_times({first: BEGIN_MS})
        async with AiokafkaConsumer(AIOKafkaConsumer(mixed, **settings), {}) as consumer:
            found = await consumer.offsets_for_times({first: BEGIN_MS + 200})  # the broker's answer
            assert found[first] is not None

    asyncio.run(asyncio.wait_for(main(), 100))


@pytest.fixture
def path(config: dict[str, Any], tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key} = {value}\n" for key, value in config.items()))
    return file


Show = Callable[[int], list[int]]


@pytest.fixture(params=["consume", "consume --raw", "inspect", "browse"])
def shown(request: pytest.FixtureRequest, path: Path, mixed: str) -> Iterator[Show]:
    """The offsets of partition 1 that a command shows from a time on."""

    def command(wanted: int) -> list[int]:
        words = [*request.param.split(), path, mixed, "--from", wanted, "--partition", 1, "--count", 500, "--json"]
        code = 1 if wanted == max(TIMES) and request.param == "inspect" else 0  # it has nothing to show
        return [json.loads(line)["offset"] for line in run(*words, code=code).stdout.splitlines()]

    readers = Readers(load(path), SECONDS)

    def page(wanted: int) -> list[int]:
        selection = asked({"partition": "1", "from": str(wanted)})
        rows = Topic(readers, mixed, ()).page(selection, Patience(SECONDS)).rows
        return sorted(row.offset for row in rows)

    yield page if request.param == "browse" else command
    readers.close()


@pytest.mark.full
def test_commands_search_by_frames(shown: Show) -> None:
    for wanted, number in TIMES.items():
        offsets = shown(wanted)
        # A page of browse ends before.
        assert offsets == list(range(number, number + len(offsets)))
        assert bool(offsets) is (number < COUNT)
