"""Both engines say and do the same, whatever is in topics and stores.

``SERDE_CHAIN_ENGINE_CASES=1000`` for more cases than `make test-all` has.
"""

import json
import os
import shutil
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from payload_stores import open_store
from payload_stores.base import PublishContext
from serde_chain import Producer, jobs
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.codec import Record
from serde_chain.errors import JobError
from serde_chain.jobs.finding import ReferenceFinder
from serde_chain.jobs.reference_plan import open_readers, plan_reading
from serde_chain.spark import jobs as spark_jobs
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.kip1159 import MARKER
from serde_chain.wire.large_fields import HEADER
from tests.hypothesis_profiles import examples
from tests.jobs.conftest import Config, Sweep, local_audit, payload, spark_audit, stored

pytestmark = pytest.mark.full

CASES = int(os.environ.get("SERDE_CHAIN_ENGINE_CASES", examples(12)))
PARTITIONS = 2
GRACE_S = 3600
OLD_MS = (time.time_ns() // 1_000_000) - 2 * GRACE_S * 1000


@dataclass(frozen=True)
class Entry:
    """A record, or a payload without one.

    Attributes:
        kind: What it is.
        number: Which payload, and which key.
        topic: Which topic.
        to: The topic of the payload that it refers to.
        partition: Its partition.
    """

    kind: str
    number: int
    topic: int
    to: int
    partition: int


@dataclass(frozen=True)
class World:
    """Topics and a store.

    Attributes:
        topics: How many topics are swept.
        ids: How payloads are named.
        fields: Whether single fields are moved.
        with_keys: Whether keys are moved as well.
        entries: What is in them, in the order in which it came.
        old: Whether a payload is older than the grace period, in the order of their names, over and over.
        removed: How many records have gone from the first partition of the first topic.
        downloads: Whether an audit downloads payloads.
        compacted: Whether topics are compacted; a sweep of such topics is also one with tombstones.
    """

    topics: int
    ids: str
    fields: bool
    with_keys: bool
    entries: list[Entry]
    old: list[bool]
    removed: int
    downloads: bool
    compacted: tuple[bool, bool]


# Where most placeholders are malformed, a sweep ends: some are enough.
KINDS = [
    *["payload", "orphan", "refers"] * 3,
    *["tombstone"] * 3,
    *["small", "young tombstone", "aborted", "aborted tombstone", "missing", "malformed", "no fields"],
]
topic = st.integers(0, 1)
ENTRIES = st.builds(Entry, st.sampled_from(KINDS), st.integers(0, 6), topic, topic, st.integers(0, PARTITIONS - 1))
WORLDS = st.builds(
    World,
    topics=st.integers(1, 2),
    ids=st.sampled_from(["random", "content", "keyed"]),
    fields=st.booleans(),
    with_keys=st.booleans(),
    entries=st.lists(ENTRIES, min_size=3, max_size=25),
    old=st.lists(st.sampled_from([True, True, False]), min_size=1, max_size=4),
    removed=st.sampled_from([0, 0, 0, 0, 1, 3, 100]),
    downloads=st.booleans(),
    compacted=st.tuples(st.booleans(), st.booleans()),
)


@pytest.mark.timeout(120 + 20 * CASES)
def test_reports_manifests_and_problems(spark: SparkSession, broker: KafkaBroker) -> None:
    """Each case takes seconds: both engines audit it and sweep it twice."""
    said: list[str] = []

    # An example takes seconds: it is not made smaller.
    @settings(max_examples=CASES, deadline=None, database=None, phases=[Phase.generate])
    @given(world=WORLDS)
    def agree(world: World) -> None:
        with tempfile.TemporaryDirectory() as name:
            said.append(compare(world, spark, broker, Path(name)))

    agree()
    # Not all of them ended with an error.
    assert any(text.startswith("report") for text in said)


def compare(world: World, spark: SparkSession, broker: KafkaBroker, folder: Path) -> str:
    """Let both engines work on the same world; returns what they said."""
    topics = [f"world-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    for name, is_compacted in zip(topics, world.compacted, strict=True):
        broker.create_topic(name, PARTITIONS, {"cleanup.policy": "compact,delete"} if is_compacted else {})
    config: Config = {
        **broker.client_config(),
        "value.serializers": "large-fields, json" if world.fields else "bytes, large-message",
        "value.deserializers": "json, large-fields" if world.fields else "large-message, bytes",
        **({"key.serializers": "bytes, large-message"} if world.with_keys else {}),
        "large.fields.paths": "image",
        "large.fields.min.bytes": 100,
        "large.message.threshold.bytes": 100,
        "large.message.payload.store.class": "local",
        "large.message.id": world.ids,
        "local.path": str(folder / "payloads"),
    }
    if not world.fields:
        del config["large.fields.paths"], config["large.fields.min.bytes"]
    if world.with_keys:
        del config["large.message.id"]  # that of keys is content
    fill(world, config, topics)
    if world.removed:
        remove(world, config, broker, topics[0])
    age(world, folder / "payloads")
    swept = topics[: world.topics]
    audits = [partial(local_audit), partial(spark_audit, spark)]
    audited = [audit(config, swept, payloads=world.downloads) for audit in audits]
    assert audited[0] == audited[1]
    sweeps: list[Sweep] = [jobs.sweep, partial(spark_jobs.sweep, spark)]
    dry = [outcome(sweep, config, swept, None) for sweep in sweeps]
    assert dry[0] == dry[1]
    if any(world.compacted[: world.topics]):
        sweeps = [partial(sweep, tombstones=True) for sweep in sweeps]
    shutil.copytree(folder / "payloads", folder / "before", dirs_exist_ok=True)
    store = open_store("local", config)
    before = {reference for name in swept for reference in stored(store, name)}
    local = outcome(sweeps[0], config, swept, folder / "local.jsonl")
    if local[0].startswith("report"):
        used, dead = in_use(config, swept, {name for name, yes in zip(topics, world.compacted, strict=True) if yes})
        assert before & used <= {*local[2]}
        assert not {each for each in {*local[2]} - used if is_old(each)}
        assert f"dead_keys={dead})" in local[0]
    shutil.rmtree(folder / "payloads")
    shutil.copytree(folder / "before", folder / "payloads")
    assert outcome(sweeps[1], config, swept, folder / "spark.jsonl") == local
    return str(local[0])


def fill(world: World, config: Config, topics: list[str]) -> None:
    """Create what is in a world."""
    store = open_store("local", config)
    broker = {"bootstrap.servers": config["bootstrap.servers"]}
    raw = confluent_kafka.Producer(broker)
    with Producer(config) as producer:
        for entry in world.entries:
            topic, data = topics[entry.topic], payload(entry.number)
            key = b"%d" % entry.number * (200 if world.with_keys and entry.number % 3 == 0 else 1)
            if entry.kind == "orphan":
                store.publish(topic, data, PublishContext("content"))
            elif entry.kind in {"refers", "missing"}:
                url = store.reference(topics[entry.to], "0" * 36)
                if entry.kind == "refers":
                    url = store.publish(topics[entry.to], data, PublishContext("content"))
                assert url is not None
                raw.produce(topic, url.encode(), key, entry.partition, headers=[(MARKER, b"true")])
            elif entry.kind.startswith("aborted"):
                producer.flush(30)
                raw.flush(30)
                url = store.publish(topic, data, PublishContext("content")) if entry.kind == "aborted" else None
                abort(broker, topic, url, key, entry.partition)
            elif "tombstone" in entry.kind:
                more: Config = {} if entry.kind == "young tombstone" else {"timestamp": OLD_MS}
                producer.produce(topic, None, key, entry.partition, **more)
            elif entry.kind == "malformed":
                raw.produce(topic, b"x" * 20_000, key, entry.partition, headers=[(MARKER, b"true")])
            elif entry.kind == "no fields":
                raw.produce(topic, b"{}", key, entry.partition, headers=[(HEADER, b"{")])
            else:
                text = b"small" if entry.kind == "small" else data
                value: Any = {"image": text.decode()} if world.fields else text
                producer.produce(topic, value, key, entry.partition)
    assert raw.flush(30) == 0
    store.publish("elsewhere", b"the first payload creates the store")


def abort(broker: Config, topic: str, url: str | None, key: bytes, partition: int) -> None:
    """Produce a record in a transaction that is aborted: a reference, or an old tombstone."""
    producer = confluent_kafka.Producer({**broker, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    if url is None:
        producer.produce(topic, None, key, partition, timestamp=OLD_MS)
    else:
        producer.produce(topic, url.encode(), key, partition, headers=[(MARKER, b"true")])
    assert producer.flush(30) == 0
    producer.abort_transaction(30)


def remove(world: World, config: Config, broker: KafkaBroker, topic: str) -> None:
    """Remove the first records of a topic's first partition, as retention does."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": config["bootstrap.servers"], "group.id": "bounds"})
    _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), 30)
    reader.close()
    admin = broker.admin()
    place = TopicPartition(topic, 0, min(world.removed, end))
    admin.delete_records([place])[place].result(30)


def in_use(config: Config, topics: list[str], compacted: set[str]) -> tuple[set[str], int]:
    """What a sweep with tombstones must not delete, in as few words as possible; and the number of dead keys."""
    plan = plan_reading(config, tuple(topics))
    readers = open_readers(plan.config)
    records: dict[tuple[str, Any], dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    committed: set[Any] = set()
    for isolation in ("read_committed", "read_uncommitted"):
        isolated: Config = {"isolation.level": isolation}
        with PartitionReader(config, "checking", failure=JobError, **isolated) as reader:
            for name, partition in product(topics, range(PARTITIONS)):
                for each in reader.read(name, partition, *reader.bounds(name, partition)):
                    if isolation == "read_committed":
                        committed.add((name, partition, each.offset()))
                        continue
                    headers = each.headers() or []
                    time_ms = each.timestamp()[1]
                    record = Record(name, each.value(), each.key(), headers, partition, time_ms, each.offset())
                    records[name, each.key()][partition].append(record)
    used: set[str] = set()
    count = 0
    for (name, _key), partitions in records.items():
        newest = [of_partition[-1] for of_partition in partitions.values()]
        is_dead = name in compacted and all(
            each.value is None and each.timestamp == OLD_MS and (name, each.partition, each.offset) in committed
            for each in newest
        )
        count += is_dead
        of_key = newest if is_dead else [each for of_partition in partitions.values() for each in of_partition]
        found = ReferenceFinder(plan, readers).find(of_key)
        used |= {each.reference.url for entries in found for each in entries if each.reference is not None}
    for chain in readers.values():
        chain.close()
    return used, count


def is_old(reference: str) -> bool:
    """Whether a payload is older than the grace period."""
    return Path(reference.removeprefix("file://")).stat().st_mtime < time.time() - GRACE_S


def age(world: World, folder: Path) -> None:
    """Make payloads old."""
    written = time.time() - 2 * GRACE_S
    for at, path in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        if world.old[at % len(world.old)]:
            os.utime(path, (written, written))


def outcome(sweep: Callable[..., jobs.SweepReport], config: Config, topics: list[str], manifest: Path | None) -> Any:
    """What a sweep says and does."""
    try:
        report = sweep(config, topics, grace_ms=GRACE_S * 1000, delete=manifest is not None, manifest=manifest)
    except JobError as error:
        said = f"error: {error}"
    else:
        assert (report.manifest is None) == (not report.deleted)
        said = f"report: {replace(report, manifest=None)}"
    store = open_store("local", config)
    noted = manifest.read_text().splitlines() if manifest is not None and manifest.exists() else []
    lines = sorted((json.loads(line) for line in noted), key=lambda line: str(line["reference"]))
    return said, lines, sorted(reference for topic in topics for reference in stored(store, topic))
