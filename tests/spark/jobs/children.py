"""Jobs and queries in processes to be killed; each leads a group, to which its JVM and its workers belong.

Those without Spark start without its packages.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from serde_chain.jobs.copying import copy_partition
from serde_chain.jobs.migration_plan import MigratePlan
from tests.chaos.points import kill_at

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

__all__ = [
    "BATCH",
    "KILLS",
    "copy_until",
    "kill",
    "migrate_all",
    "migrate_and_stay",
    "run",
    "running",
    "stream",
    "wait_for_more",
    "written",
]

# Records of a batch of `stream`.
BATCH: Final = 30
# Each is a process with Spark that is killed; `make nightly` has more.
KILLS: Final = int(os.environ.get("SERDE_CHAIN_STREAM_KILLS", "1"))

_SPAWN: Final = multiprocessing.get_context("spawn")


@contextmanager
def running(work: Callable[..., None], *arguments: object) -> Iterator[SpawnProcess]:
    """Run a function in a process that leads a group; what is left of it in the end is killed."""
    process = _SPAWN.Process(target=_lead, args=(work, arguments))
    process.start()
    try:
        yield process
    finally:
        kill(process)


def _lead(work: Callable[..., None], arguments: tuple[object, ...]) -> None:
    os.setsid()
    work(*arguments)


def kill(process: SpawnProcess) -> None:
    """Kill a process and all that it has started, as when a machine goes down."""
    assert process.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # one that has just begun does not lead its group yet
    process.join(60)


def run(seconds: float, work: Callable[..., None], *arguments: object) -> None:
    """Run a function in a process, to its end."""
    with running(work, *arguments) as process:
        process.join(seconds)
        assert process.exitcode == 0


def wait_for_more(count: Callable[[], int], process: SpawnProcess) -> None:
    """Wait until a process that has just begun has made a number grow."""
    before, until = count(), time.monotonic() + 300
    while time.monotonic() < until and process.exitcode is None:
        if count() > before:
            return
        process.join(0.02)
    pytest.fail("nothing came")


@contextmanager
def written(config: dict[str, Any], topic: str, partitions: int) -> Iterator[Callable[[], int]]:
    """What counts the records that were ever written to a topic."""
    reader = Consumer({"bootstrap.servers": config["bootstrap.servers"], "group.id": "watching"})
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    try:
        yield lambda: sum(reader.get_watermark_offsets(place, 30, cached=False)[1] for place in places)
    finally:
        reader.close()


def copy_until(plan: MigratePlan, end: int, point: int) -> None:
    """Do a task's work, and be killed at a point."""
    kill_at(point)
    copy_partition(plan, 0, end)


def migrate_all(source: dict[str, Any], target: dict[str, Any], topics: tuple[str, str], checkpoint: str) -> None:
    """Migrate, in a Spark session of its own."""
    from serde_chain.spark.jobs import migrate
    from tests.spark.sessions import session_of_tests

    with session_of_tests() as spark:
        migrate(spark, source, target, *topics, checkpoint=checkpoint)


def migrate_and_stay(
    source: dict[str, Any], target: dict[str, Any], topics: tuple[str, str], checkpoint: str, done: str
) -> None:
    """Migrate, say so by a file, and wait to be killed."""
    migrate_all(source, target, topics, checkpoint)
    Path(done).touch()
    threading.Event().wait()


def stream(config: dict[str, Any], topics: tuple[str, str], checkpoint: str) -> None:
    """Read a topic, change its records, and write them to the same partitions of another one, up to its present end."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions

    from serde_chain.spark import decode, encode
    from tests.spark.sessions import session_of_tests

    source, target = topics
    servers = {"kafka.bootstrap.servers": config["bootstrap.servers"]}
    reading = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"}
    with session_of_tests() as spark:
        records = spark.readStream.format("kafka").options(**servers, **reading).option("maxOffsetsPerTrigger", BATCH)
        decoded = records.load().transform(decode(config))
        seen = decoded["value"].withField("seen", functions.lit(True)).alias("value")
        changed = decoded.select("key", seen, "headers", "partition").transform(encode(config, topic=target))
        writer = changed.writeStream.format("kafka").options(**servers).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True)
        # Spark 4.1.1's source ends a query once more when it has run a batch again (SPARK-57438).
        with suppress(StreamingQueryException):
            query.start().awaitTermination()
        query.start().awaitTermination()
