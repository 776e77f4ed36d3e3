"""Sweeps beside all that changes topics at once: none deletes a payload that a readable record refers to.

``SERDE_CHAIN_SWEEP_ROUNDS=1000`` and ``SERDE_CHAIN_SWEEP_SEED`` for more than `make test-all` has.
"""

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import TopicPartition

from payload_stores.base import PayloadStore, PublishContext
from payload_stores.errors import PayloadNotFoundError
from serde_chain import DeserializerChain, Producer, RecordContext
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.errors import JobError
from serde_chain.testing.services import KafkaBroker
from tests.jobs.conftest import Config, Sweep, payload, stored

if TYPE_CHECKING:
    from tests.conftest import NewTopic

pytestmark = pytest.mark.full

ROUNDS = int(os.environ.get("SERDE_CHAIN_SWEEP_ROUNDS", "20"))
SEED = int(os.environ.get("SERDE_CHAIN_SWEEP_SEED", "14"))
# Longer than a record takes from its upload to the topic, on a machine that does much else.
GRACE_MS = 8_000
PARTITIONS = 2
SWEEPS = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that compacts soon."""
    with KafkaBroker(config={"log.cleaner.backoff.ms": "500"}) as running:
        yield running


@pytest.fixture
def topics(new_topic: "NewTopic") -> list[str]:
    compacting = {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "2000",
        "max.compaction.lag.ms": "2000",
        "delete.retention.ms": "100",
    }
    return [new_topic(PARTITIONS, compacting) for _ in range(2)]


@pytest.fixture(params=["whole", "fields"])
def config(config: Config, request: pytest.FixtureRequest) -> Config:
    """Chains that move whole values, and chains that move their fields, and what is still too large as a whole."""
    if request.param == "whole":
        return config
    fields = [{"name": "image", "type": "bytes"}, {"name": "stamps", "type": {"type": "array", "items": "bytes"}}]
    return {
        **config,
        "value.serializers": "large-fields, avro, large-message",
        "value.deserializers": "large-message, avro, large-fields",
        "avro.schema": json.dumps({"type": "record", "name": "Alert", "fields": fields}),
        "avro.framing": "none",
        "large.fields.paths": "image, stamps[]",
        "large.fields.min.bytes": 100,
        "large.message.threshold.bytes": 1000,
    }


def value_of(config: Config, data: bytes | None, random: Random) -> Any:
    """A value for the chains of a configuration."""
    if data is None or "avro" not in config["value.serializers"]:
        return data
    stamps = [payload(random.randrange(200)) for _ in range(random.randrange(3))]
    return {"image": data, "stamps": [*stamps, *([bytes(90)] * random.choice([0, 0, 20]))]}


class Sweeping:
    """Sweeps, one after the other, in a thread."""

    def __init__(self, sweep: Sweep, config: Config, topics: list[str], folder: Path) -> None:
        self.outcomes: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self._sweep_all = partial(sweep, config, topics)
        self._manifest = folder / "manifest.jsonl"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._sweep()
        except BaseException as error:  # noqa: BLE001, raised by the test
            self.failures.append(error)

    def _sweep(self) -> None:
        try:
            report = self._sweep_all(grace_ms=GRACE_MS, delete=True, manifest=self._manifest)
        except JobError as error:
            if not error.transient:
                raise
            # Records went while they were read. Nothing more was deleted, which the next one does.
            self.outcomes["ended"] += 1
        else:
            self.outcomes.update(sweeps=1, listed=report.listed, deleted=report.deleted)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(300)
        assert not self._thread.is_alive()


@pytest.mark.timeout(200 + 5 * ROUNDS)
def test_rounds_beside_sweeps(
    *, sweep: Sweep, config: Config, topics: list[str], store: PayloadStore, broker: KafkaBroker, tmp_path: Path
) -> None:
    config["large.message.grace.ms"] = GRACE_MS
    random, admin, done = Random(SEED), broker.admin(), 0
    with (
        DeserializerChain.from_config(config) as chain,
        PartitionReader(config, "checking", failure=JobError) as reader,
        Sweeping(sweep, config, topics, tmp_path) as sweeping,
    ):
        while not sweeping.failures and (done < ROUNDS or sweeping.outcomes["sweeps"] < SWEEPS):
            topic = random.choice(topics)
            produce(config, topic, random)
            for _ in range(random.randrange(3)):
                by = PublishContext(random.choice(["random", "content"]))
                store.publish(random.choice(topics), payload(random.randrange(200)), by)
            if random.random() < 0.1:
                delete_records(admin, reader, topic, random)
            for each in topics:
                assert_readable(chain, reader, each)
            done += 1
    if sweeping.failures:
        raise sweeping.failures[0]
    sys.stdout.write(f"seed {SEED}: {done} rounds, {dict(sweeping.outcomes)}\n")
    # Now that all is quiet, a sweep leaves exactly what is in use.
    sweep(config, topics, grace_ms=0, delete=True, manifest=tmp_path / "last.jsonl")
    with DeserializerChain.from_config(config) as chain:
        used = references(config, chain, topics)
    assert {reference for topic in topics for reference in stored(store, topic)} <= used
    with (
        DeserializerChain.from_config(config) as chain,
        PartitionReader(config, "checking", failure=JobError) as reader,
    ):
        for topic in topics:
            assert assert_readable(chain, reader, topic)


def produce(config: Config, topic: str, random: Random) -> None:
    """Produce records, by a producer with or without transactions, of which some are aborted."""
    transactional = random.random() < 0.2
    settings: Config = {"large.message.id": random.choice(["random", "content"])}
    if transactional:
        settings["transactional.id"] = f"{topic}-{random.randrange(3)}"
    with Producer({**config, **settings}) as producer:
        if transactional:
            producer.init_transactions(30)
            producer.begin_transaction()
        for _ in range(random.randrange(1, 8)):
            value = random.choice([payload(random.randrange(200)), payload(random.randrange(20)), b"small", None])
            producer.produce(
                topic, value_of(config, value, random), b"k%d" % random.randrange(12), random.randrange(PARTITIONS)
            )
        if transactional:
            (producer.commit_transaction if random.random() < 0.7 else producer.abort_transaction)(30)
        # The topic is never empty, which would end every sweep.
        producer_of_last = {**config, "large.message.id": "content"}
    with Producer(producer_of_last) as producer:
        producer.produce(topic, value_of(config, payload(0), random), b"last", 0)


def delete_records(admin: Any, reader: PartitionReader, topic: str, random: Random) -> None:
    """Delete the records at a partition's beginning."""
    place = TopicPartition(topic, random.randrange(PARTITIONS))
    low, high = reader.bounds(topic, place.partition)
    if high - low > 2:
        place.offset = random.randrange(low, high - 1)
        admin.delete_records([place])[place].result(30)


def assert_readable(chain: DeserializerChain, reader: PartitionReader, topic: str) -> int:
    """All records of a topic can be read; returns how many."""
    count = 0
    for partition in range(PARTITIONS):
        for message in reader.read(topic, partition, *reader.bounds(topic, partition)):
            try:
                chain(message.value(), context(message))
            except PayloadNotFoundError:
                # Compaction may have removed it meanwhile, and a sweep its payload thereafter.
                offset = message.offset()
                assert not list(reader.read(topic, partition, offset, offset + 1)), (topic, partition, offset)
            count += 1
    return count


def references(config: Config, chain: DeserializerChain, topics: list[str]) -> set[str]:
    """What the records that are in the log refer to."""
    urls: set[str] = set()
    settings: Config = {"isolation.level": "read_uncommitted"}
    with PartitionReader(config, "checking", failure=JobError, **settings) as reader:
        for topic in topics:
            for partition in range(PARTITIONS):
                for message in reader.read(topic, partition, *reader.bounds(topic, partition)):
                    if message.value() is not None:
                        found = chain.references_in(message.value(), context(message))
                        urls.update(reference.url for reference in found)
    return urls


def context(message: Any) -> RecordContext:
    return RecordContext(message.topic(), "value", message.headers() or [], message.key(), message.partition())
