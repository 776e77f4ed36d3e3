"""Sweeps beside all that changes topics at once: none deletes a payload that a readable record refers to.

Where tombstones count, the records before one may have lost their payloads; all others may not.

``SERDE_CHAIN_SWEEP_ROUNDS=1000`` and ``SERDE_CHAIN_SWEEP_SEED`` for more than `make test-all` has.
"""

import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import product
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
# Each is half a minute or more: `make test-all` has each value, and of Spark what most can go wrong in.
FEW = {("local", "whole", "records"), ("local", "fields", "tombstones"), ("spark", "fields", "tombstones")}
CASES = [
    pytest.param(
        *(engine, chains, kind),
        id=f"{engine}-{chains}-{kind}",
        marks=[
            *([pytest.mark.spark] if engine == "spark" else []),
            *([] if (engine, chains, kind) in FEW else [pytest.mark.nightly]),
        ],
    )
    for engine, chains, kind in product(["local", "spark"], ["whole", "fields"], ["records", "tombstones"])
]


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that compacts soon."""
    with KafkaBroker(config={"log.cleaner.backoff.ms": "500"}) as running:
        yield running


@pytest.fixture
def tombstones(request: pytest.FixtureRequest) -> bool:
    """Whether tombstones count."""
    return bool(request.param == "tombstones")


@pytest.fixture
def topics(new_topic: "NewTopic", *, tombstones: bool) -> list[str]:
    compacting = {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0.001",
        "segment.ms": "2000",
        "max.compaction.lag.ms": "2000",
        "delete.retention.ms": "100",
    }
    if tombstones:  # which count before compaction
        compacting |= {"min.compaction.lag.ms": f"{2 * GRACE_MS}", "max.compaction.lag.ms": f"{2 * GRACE_MS}"}
    return [new_topic(PARTITIONS, compacting) for _ in range(2)]


@pytest.fixture
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

    def __init__(self, sweep: Sweep, config: Config, topics: list[str], folder: Path, *, tombstones: bool) -> None:
        self.outcomes: Counter[str] = Counter()
        self._wanted = {"sweeps": SWEEPS, "dead_keys": int(tombstones)}
        self.failures: list[BaseException] = []
        self._sweep_all = partial(sweep, config, topics, tombstones=tombstones)
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
            self.outcomes.update(sweeps=1, listed=report.listed, deleted=report.deleted, dead_keys=report.dead_keys)

    @property
    def has_seen_enough(self) -> bool:
        return all(self.outcomes[name] >= count for name, count in self._wanted.items())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(300)
        assert not self._thread.is_alive()


@pytest.mark.timeout(400 + 5 * ROUNDS)
@pytest.mark.parametrize(("sweep", "config", "tombstones"), CASES, indirect=True)
def test_rounds_beside_sweeps(
    *,
    sweep: Sweep,
    config: Config,
    topics: list[str],
    store: PayloadStore,
    broker: KafkaBroker,
    tmp_path: Path,
    tombstones: bool,
) -> None:
    """Half a minute: payloads are swept when they are older than the grace period, which is longer than a write."""
    config["large.message.grace.ms"] = GRACE_MS
    random, admin, done = Random(SEED), broker.admin(), 0
    with (
        DeserializerChain.from_config(config) as chain,
        PartitionReader(config, "checking", failure=JobError) as reader,
        Sweeping(sweep, config, topics, tmp_path, tombstones=tombstones) as sweeping,
    ):
        while not sweeping.failures and (done < ROUNDS or not sweeping.has_seen_enough):
            topic = random.choice(topics)
            produce(config, topic, random)
            if tombstones:  # others are written again before their tombstones are older than the grace period
                write_and_delete(config, topic, b"deleted %d" % done, random)
            for _ in range(random.randrange(3)):
                by = PublishContext(random.choice(["random", "content"]))
                store.publish(random.choice(topics), payload(random.randrange(200)), by)
            if random.random() < 0.1:
                delete_records(admin, reader, topic, random)
            for each in topics:
                assert_readable(chain, reader, each, tombstones=tombstones)
            done += 1
    if sweeping.failures:
        raise sweeping.failures[0]
    sys.stdout.write(f"seed {SEED}: {done} rounds, {dict(sweeping.outcomes)}\n")
    for topic in topics:
        delete_and_write_again(config, topic, random)
    # All writers have ended: a sweep leaves only payloads in use. Compaction may continue.
    with DeserializerChain.from_config(config) as chain:
        used = references(config, chain, topics, tombstones=tombstones)
    last = sweep(config, topics, grace_ms=0, delete=True, manifest=tmp_path / "last.jsonl", tombstones=tombstones)
    assert bool(last.dead_keys) == tombstones
    assert {reference for topic in topics for reference in stored(store, topic)} <= used
    with (
        DeserializerChain.from_config(config) as chain,
        PartitionReader(config, "checking", failure=JobError) as reader,
    ):
        for topic in topics:
            assert assert_readable(chain, reader, topic, tombstones=tombstones)


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
        if random.random() < 0.4:
            key = b"k%d" % random.randrange(12)
            for partition in range(PARTITIONS):
                producer.produce(topic, None, key, partition)
        if transactional:
            (producer.commit_transaction if random.random() < 0.7 else producer.abort_transaction)(30)
        # The topic is never empty, which would end every sweep.
        producer_of_last = {**config, "large.message.id": "content"}
    with Producer(producer_of_last) as producer:
        producer.produce(topic, value_of(config, payload(0), random), b"last", 0)


def write_and_delete(config: Config, topic: str, key: bytes, random: Random) -> None:
    """Write a record, and delete its key."""
    with Producer({**config, "large.message.id": "content"}) as producer:
        for value in (payload(random.randrange(200)), None):
            producer.produce(topic, value_of(config, value, random), key, 0)


def delete_and_write_again(config: Config, topic: str, random: Random) -> None:
    """Delete keys, write them again, delete them again; two of them share a payload."""
    records = [
        *((b"deleted twice", value) for value in (payload(300), None, payload(301), None)),
        *((b"back", value) for value in (payload(302), None, payload(303))),
        *((b"sharing and deleted", value) for value in (payload(304), None)),
        (b"sharing", payload(304)),
    ]
    with Producer({**config, "large.message.id": "content"}) as producer:
        for key, value in records:
            producer.produce(topic, value_of(config, value, random), key, 0)


def delete_records(admin: Any, reader: PartitionReader, topic: str, random: Random) -> None:
    """Delete the records at a partition's beginning."""
    place = TopicPartition(topic, random.randrange(PARTITIONS))
    low, high = reader.bounds(topic, place.partition)
    if high - low > 2:
        place.offset = random.randrange(low, high - 1)
        admin.delete_records([place])[place].result(30)


def assert_readable(chain: DeserializerChain, reader: PartitionReader, topic: str, *, tombstones: bool) -> int:
    """All records of a topic can be read, where tombstones count only those behind them; returns how many."""
    count = 0
    for partition in range(PARTITIONS):
        lost: dict[int, bytes] = {}
        # All of them first: the reader goes back to single records below.
        for message in list(reader.read(topic, partition, *reader.bounds(topic, partition))):
            offset, key = message.offset(), message.key()
            try:
                value = chain(message.value(), context(message))
            except PayloadNotFoundError:
                # Compaction may have removed it meanwhile, and a sweep its payload thereafter.
                if list(reader.read(topic, partition, offset, offset + 1)):
                    lost[offset] = key
            else:
                if value is None and tombstones:
                    lost = {offset: each for offset, each in lost.items() if each != key}
            count += 1
        # Compaction may have removed the tombstone as well, but the record before.
        left = [offset for offset in lost if list(reader.read(topic, partition, offset, offset + 1))]
        assert not left, (topic, partition, left)
    return count


def references(config: Config, chain: DeserializerChain, topics: list[str], *, tombstones: bool) -> set[str]:
    """What the records that are in the log refer to; where tombstones count, only those of keys that are not dead."""
    urls: set[str] = set()
    dead = dead_keys(config, topics) if tombstones else set()
    for message in read_all(config, topics, "read_uncommitted"):
        if message.value() is not None and (message.topic(), message.key()) not in dead:
            found = chain.references_in(message.value(), context(message))
            urls.update(reference.url for reference in found)
    return urls


def dead_keys(config: Config, topics: list[str]) -> set[tuple[str, bytes]]:
    """Topic and key, if the key's newest record is a tombstone in each partition, and committed."""
    committed = {place_of(message) for message in read_all(config, topics, "read_committed")}
    newest: dict[tuple[str, bytes], dict[int, Any]] = {}
    for message in read_all(config, topics, "read_uncommitted"):
        newest.setdefault((message.topic(), message.key()), {})[message.partition()] = message
    return {
        key
        for key, messages in newest.items()
        if all(message.value() is None and place_of(message) in committed for message in messages.values())
    }


def read_all(config: Config, topics: list[str], isolation: str) -> Iterator[Any]:
    settings: Config = {"isolation.level": isolation}
    with PartitionReader(config, "checking", failure=JobError, **settings) as reader:
        for topic in topics:
            for partition in range(PARTITIONS):
                yield from reader.read(topic, partition, *reader.bounds(topic, partition))


def place_of(message: Any) -> tuple[str, int, int]:
    return message.topic(), message.partition(), message.offset()


def context(message: Any) -> RecordContext:
    return RecordContext(message.topic(), "value", message.headers() or [], message.key(), message.partition())
