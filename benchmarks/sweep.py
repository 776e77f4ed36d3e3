"""A sweep's own cost by the number of objects: a store with a synthetic listing, whose objects are 99 % in use."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Final

import confluent_kafka
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.harness import Row, Table
from benchmarks.spark_queries import cpu_seconds, family
from payload_stores.base import Buffer, PayloadInfo, PayloadStore, PublishContext
from payload_stores.options import Option, integer
from serde_chain.spark.jobs import sweep
from serde_chain.testing.services import KafkaBroker, spark_session
from serde_chain.wire.kip1159 import MARKER
from tests.memory import peak_bytes, reset_peak

OBJECTS: Final = (10_000, 100_000, 1_000_000)
OBJECTS_OF_QUICK: Final = (500, 1_000, 2_000)
ROUNDS: Final = 3
# Repetitions of small sweeps in a round.
TIMES: Final = (5, 2, 1)
OLD: Final = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS: Final = 4


class Simulated(PayloadStore):
    """Lists a given number of payloads, none of which exists."""

    scheme = "simulated"
    OBJECTS: ClassVar[Option[int]] = Option("simulated.objects", integer(0), 0, doc="how many there are")
    options = (*PayloadStore.options, OBJECTS)

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the number."""
        super().configure(config)
        self._count = self.OBJECTS.read(config)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Not called."""
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        """Not called."""
        raise NotImplementedError

    def reference(self, topic: str, payload_id: str) -> str:
        """The reference of an id."""
        return f"simulated:///{topic}/{payload_id}"

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """All of them, regardless of age."""
        return (PayloadInfo(reference(topic, at), 4096, OLD) for at in range(self._count))

    def info(self, reference: str) -> PayloadInfo:
        """As listed."""
        return PayloadInfo(reference, 4096, OLD)

    def delete(self, reference: str) -> None:
        """Nothing is there."""


@dataclass
class Figures:
    """The cost of sweeps.

    Attributes:
        objects: The number of objects.
        seconds: Wall time, of each round.
        cpu: CPU time of the driver, the JVM and Spark's workers, in seconds: useful on a busy machine.
        python_bytes: The driver's peak memory above its previous use.
        jvm_bytes: The JVM's total peak memory.
    """

    objects: int
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    python_bytes: int = 0
    jvm_bytes: int = 0


def reference(topic: str, at: int) -> str:
    """The reference of an object."""
    return f"simulated:///{topic}/{at * 0x9E3779B97F4A7C15 % 2**128:032x}"


def run(*, quick: bool) -> Iterator[Table]:
    """Larger and larger stores: in total, and per additional object."""
    sizes = OBJECTS_OF_QUICK if quick else OBJECTS
    with KafkaBroker() as broker, spark_session("benchmark") as spark, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        topics = {objects: _fill(broker, objects) for objects in sizes}
        for objects in (*sizes[:2], *sizes[:2]):  # Java compiles the code it runs
            _sweep(spark, broker, topics[objects], objects, folder)
        figures = [Figures(objects) for objects in sizes]
        for _ in range(1 if quick else ROUNDS):
            for one, times in zip(figures, TIMES, strict=True):
                for _ in range(1 if quick else times):
                    _measure(spark, broker, topics[one.objects], one, folder)
    places = [f"{one.objects:,}" for one in figures]
    grown = [
        [(cpu - statistics.median(less.cpu)) / (more.objects - less.objects) * 1e6 for cpu in more.cpu]
        for less, more in pairwise(figures)
    ]
    spans = [f"{less} to {more}" for less, more in pairwise(places)]
    first = statistics.median(grown[0])
    yield Table(
        "sweep",
        "Sweep, 1 % orphans: what each further object takes",
        "CPU µs an object",
        [Row("sweep", of, spans[0], [first] * len(of), at) for of, at in zip(grown, spans, strict=True)],
        note="What a sweep takes however many objects there are is in none of them.",
    )
    seconds = [Row("sweep", one.seconds, at=at) for one, at in zip(figures, places, strict=True)]
    yield Table("sweep-seconds", "Sweep by number of objects", "s", seconds, axis="objects")
    driver = [Row("driver, above what it had", [one.python_bytes / 2**20], at=f"{one.objects:,}") for one in figures]
    jvm = [Row("JVM, in all", [one.jvm_bytes / 2**20], at=f"{one.objects:,}") for one in figures]
    yield Table("sweep-memory", "Peak memory of a sweep", "MiB", [*driver, *jvm], axis="objects")


def _fill(broker: KafkaBroker, objects: int) -> str:
    """Create a topic that refers to all but every hundredth object."""
    topic = f"sweep-{objects}"
    broker.create_topic(topic, PARTITIONS)
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 50, "queue.buffering.max.messages": 0})
    for at in range(objects):
        if at % 100:
            url = reference(topic, at).encode()
            producer.produce(topic, url, partition=at % PARTITIONS, headers=[(MARKER, b"true")])
        if at % 10_000 == 0:
            producer.flush()
    producer.flush()
    return topic


def _sweep(spark: SparkSession, broker: KafkaBroker, topic: str, objects: int, folder: Path) -> None:
    config: dict[str, object] = {
        **broker.client_config(),
        "value.deserializers": "large-message",
        "large.message.payload.store.class": Simulated,
        "simulated.objects": objects,
    }
    report = sweep(spark, config, topic, delete=True, manifest=folder / topic)
    expected = (objects, objects // 100)
    if (report.listed, report.deleted) != expected:
        raise AssertionError(f"{report} instead of {expected}")


def _measure(spark: SparkSession, broker: KafkaBroker, topic: str, figures: Figures, folder: Path) -> None:
    gateway: Any = SparkContext._gateway  # noqa: SLF001, pyspark has no public name for its JVM
    jvm = gateway.proc.pid
    before = reset_peak()
    reset_peak(jvm)
    # The broker is not included.
    started, used = time.perf_counter(), cpu_seconds([os.getpid(), *family(jvm)])
    _sweep(spark, broker, topic, figures.objects, folder)
    figures.seconds.append(time.perf_counter() - started)
    figures.cpu.append(cpu_seconds([os.getpid(), *family(jvm)]) - used)
    figures.python_bytes = max(figures.python_bytes, peak_bytes() - before)
    figures.jvm_bytes = max(figures.jvm_bytes, peak_bytes(jvm))
