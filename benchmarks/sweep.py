"""A sweep's own cost by the number of objects, with both engines: a synthetic listing, 99 % of it in use."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.harness import Row, Table
from benchmarks.simulated import config_of, fill, sweep_locally
from benchmarks.spark_queries import cpu_seconds, family
from serde_chain import jobs
from serde_chain.spark import jobs as spark_jobs
from serde_chain.testing.services import KafkaBroker, spark_session
from tests.memory import peak_bytes, reset_peak

OBJECTS: Final = (10_000, 100_000, 1_000_000)
OBJECTS_OF_QUICK: Final = (500, 1_000, 2_000)
ROUNDS: Final = 2
_OF_SPARK: Final = "That of Spark is its JVM's, and that of its driver beside it."
# Repetitions of small sweeps in a round.
TIMES: Final = (3, 1, 1)


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


@dataclass
class LocalFigures:
    """The cost of sweeps by the local engine, each in a process of its own.

    Attributes:
        seconds: Wall time, of each round.
        cpu: CPU time, in seconds.
        bytes: The process's peak memory, in all.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    bytes: int = 0


def run(*, quick: bool) -> Iterator[Table]:
    """Larger and larger stores: in total, and per additional object."""
    sizes = OBJECTS_OF_QUICK if quick else OBJECTS
    with KafkaBroker() as broker, spark_session("benchmark") as spark, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        topics = {objects: f"sweep-{objects}" for objects in sizes}
        for objects, topic in topics.items():
            fill(broker, topic, objects)
        for objects in (*sizes[:2], *sizes[:2]):  # Java compiles the code it runs
            _sweep(spark, broker, topics[objects], objects, folder)
        local = [LocalFigures() for _ in sizes]
        figures = [Figures(objects) for objects in sizes]
        for _ in range(1 if quick else ROUNDS):
            for one, times in zip(figures, TIMES, strict=True):
                for _ in range(1 if quick else times):
                    _measure(spark, broker, topics[one.objects], one, folder)
            for own, objects in zip(local, sizes, strict=True):
                _measure_locally(broker, topics[objects], objects, own, folder)
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
    seconds = [Row("Spark", one.seconds, at=at) for one, at in zip(figures, places, strict=True)]
    seconds += [Row("local", one.seconds, at=at) for one, at in zip(local, places, strict=True)]
    yield Table("sweep-seconds", "Sweep by number of objects", "s", seconds, axis="objects")
    cpu = [Row("Spark", one.cpu, at=at) for one, at in zip(figures, places, strict=True)]
    cpu += [Row("local", one.cpu, at=at) for one, at in zip(local, places, strict=True)]
    yield Table("sweep-cpu", "CPU time of a sweep by number of objects", "s", cpu, axis="objects")
    driver = [Row("driver, above what it had", [one.python_bytes / 2**20], at=f"{one.objects:,}") for one in figures]
    jvm = [Row("Spark, in all", [one.jvm_bytes / 2**20], at=f"{one.objects:,}") for one in figures]
    alone = [Row("local, in all", [one.bytes / 2**20], at=at) for one, at in zip(local, places, strict=True)]
    yield Table(
        "sweep-memory", "Peak memory of a sweep", "MiB", [*driver, *jvm, *alone], axis="objects", note=_OF_SPARK
    )


def _sweep(spark: SparkSession, broker: KafkaBroker, topic: str, objects: int, folder: Path) -> None:
    _check(
        spark_jobs.sweep(
            spark, config_of(broker.client_config(), objects), topic, delete=True, manifest=folder / topic
        ),
        objects,
    )


def _measure_locally(broker: KafkaBroker, topic: str, objects: int, figures: LocalFigures, folder: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(
        target=sweep_locally, args=(its, config_of(broker.client_config(), objects), topic, folder / topic)
    )
    started = time.perf_counter()
    process.start()
    its.close()
    try:
        report, cpu, peak = ours.recv()
        figures.seconds.append(time.perf_counter() - started)
    finally:
        process.join()
    _check(report, objects)
    figures.cpu.append(cpu)
    figures.bytes = max(figures.bytes, peak)


def _check(report: jobs.SweepReport, objects: int) -> None:
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
