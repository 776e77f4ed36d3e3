"""A streaming query that is killed and started again loses no record, and a sweep removes just what it has left behind.

Spark's sink gives each record at least once. So what holds is: the topic that is written has every record of the one
that is read, as it should be, and nothing else; a batch that was killed is there again, from its beginning; and the
records that a run writes to a partition stand in order. ``SERDE_CHAIN_STREAM_KILLS=10`` for more kills than
`make test-all` has.
"""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from payload_stores import open_store
from payload_stores.base import PayloadStore
from serde_chain import DeserializerChain, Producer, RecordContext
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.errors import JobError
from serde_chain.jobs import sweep
from serde_chain.testing.services import S3Server
from tests.jobs.conftest import Config, payload, stored
from tests.jobs.test_migrate import read
from tests.spark.jobs.children import BATCH, KILLS, kill, run, running, stream, wait_for_more, written

if TYPE_CHECKING:
    from tests.conftest import NewTopic

pytestmark = pytest.mark.full

PARTITIONS = 3
# More than all runs together can have done before the last one.
COUNT = 2 * BATCH * (KILLS + 1)
ORPHANS = 3
SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "image", "type": "bytes"},
        {"name": "seen", "type": "boolean", "default": False},
    ],
}


@pytest.fixture
def config(config: Config, s3_server: S3Server, bucket: str) -> Config:
    return {
        **config,
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "s3",
        **s3_server.store_config(bucket),
    }


@pytest.fixture
def store(config: Config) -> Iterator[PayloadStore]:
    store = open_store("s3", config)
    yield store
    store.close()


@pytest.mark.timeout(900 + 100 * KILLS)
def test_a_query_that_is_killed(config: Config, new_topic: "NewTopic", store: PayloadStore, tmp_path: Path) -> None:
    """Minutes: a process with Spark for each kill, and one that goes on to the end."""
    source, target = topics = new_topic(PARTITIONS), new_topic(PARTITIONS)
    with Producer(config) as producer:
        for number in range(COUNT):
            alert = {"id": number, "image": payload(number) if number % 2 else b"small"}
            producer.produce(source, alert, b"%d" % number, number % PARTITIONS, headers=[("n", b"%d" % number)])
    checkpoint = tmp_path / "checkpoint"
    with written(config, target, PARTITIONS) as records:
        counts: list[Callable[[], int]] = [
            lambda: len(stored(store, target)),  # a payload is there, and perhaps not yet its record
            records,  # records are there, and perhaps not yet all of their batch
            lambda: len(list(checkpoint.glob("commits/[0-9]*"))),  # between two batches
        ]
        for number in range(KILLS):
            # Random ids leave orphans, those of the content, by which a batch that runs again finds its payloads, none.
            ids = {"large.message.id": ("random", "content")[number % 2]}
            with running(stream, {**config, **ids}, topics, str(checkpoint)) as process:
                wait_for_more(counts[number % len(counts)], process)
                kill(process)
    run(600, stream, config, topics, str(checkpoint))
    repeats = assert_written(read(config, source), read(config, target))
    orphans = assert_swept(config, topics, store, tmp_path / "manifest.jsonl")
    sys.stdout.write(f"{KILLS} kills, {COUNT} records, {repeats} of them again, {orphans} orphans\n")
    assert_written(read(config, source), read(config, target))


def assert_written(source: list[list[Any]], target: list[list[Any]]) -> int:
    """Each partition has all records, in order but for batches that begin anew; returns how many are repeats."""
    repeats = 0
    for records, copies in zip(source, target, strict=True):
        expected = [(key, {**value, "seen": True}, headers) for key, value, headers, _ in records]
        found = [(key, value, headers) for key, value, headers, _ in copies]
        assert all(copy in expected for copy in found)
        places = [expected.index(copy) for copy in found]
        assert sorted(set(places)) == list(range(len(expected)))
        steps = [after - before for before, after in pairwise(places)]
        assert all(step <= 1 for step in steps)
        assert sum(step < 1 for step in steps) <= KILLS
        repeats += len(found) - len(expected)
    return repeats


def assert_swept(config: Config, topics: tuple[str, str], store: PayloadStore, manifest: Path) -> int:
    """A sweep deletes all payloads that are in no record, and no other; returns how many."""
    for number in range(ORPHANS):
        store.publish(topics[number % 2], payload(COUNT + number))
    before = {reference for topic in topics for reference in stored(store, topic)}
    used = references(config, topics)
    # By the engine of this process: that of Spark has the same rules, and starts for tens of seconds.
    sweep(config, topics, grace_ms=0, delete=True, manifest=manifest)
    assert {reference for topic in topics for reference in stored(store, topic)} == used
    deleted = {json.loads(line)["reference"] for line in manifest.read_text().splitlines()}
    assert deleted == before - used
    assert len(deleted) >= ORPHANS
    return len(deleted)


def references(config: Config, topics: tuple[str, str]) -> set[str]:
    """What the records of some topics refer to."""
    urls: set[str] = set()
    with (
        DeserializerChain.from_config(config) as chain,
        PartitionReader(config, "checking", failure=JobError) as reader,
    ):
        for topic in topics:
            for partition in range(PARTITIONS):
                for message in reader.read(topic, partition, *reader.bounds(topic, partition)):
                    context = RecordContext(topic, "value", message.headers() or [], message.key(), partition)
                    urls.update(reference.url for reference in chain.references_in(message.value(), context))
    return urls
