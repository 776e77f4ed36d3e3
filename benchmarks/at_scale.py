"""A sweep by step and by number of payloads: what the model of ``benchmarks/model.py`` is computed from."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.harness import Row, Table
from benchmarks.simulated import config_of, fill
from benchmarks.spark_queries import FamilyClock
from benchmarks.sweep_steps import STEPS, Clock, Spent, answer_locally, sweep
from serde_chain.jobs.sweeping import SweepReport
from serde_chain.spark.jobs.sweeping import SparkSweep
from serde_chain.testing.services import KafkaBroker, spark_session

PAYLOADS: Final = (10_000, 100_000, 1_000_000)
PAYLOADS_OF_QUICK: Final = (500, 1_000, 2_000)
# Repetitions, of which the cheapest counts: other programs only add to CPU time.
TIMES: Final = (3, 2, 1)
# Records without a payload, for each with one: 1 % large.
PLAIN: Final = 99


def run(*, quick: bool) -> Iterator[Table]:
    """Each step of both engines, for more and more payloads; then a log in which one record in a hundred is large."""
    sizes = PAYLOADS_OF_QUICK if quick else PAYLOADS
    with KafkaBroker() as broker, spark_session("benchmark") as spark, tempfile.TemporaryDirectory() as name:
        gateway: Any = SparkContext._gateway  # noqa: SLF001, pyspark has no public name for its JVM
        of_jvm = FamilyClock(gateway.proc.pid)
        clock = partial(_cpu_seconds, of_jvm)
        engines = {"local": partial(_local, Path(name)), "Spark": partial(_spark, spark, clock, Path(name))}
        client = broker.client_config()
        spent: dict[tuple[str, int], Spent] = {}
        for count in sizes:
            fill(broker, f"large-{count}", count)
        for count in (*sizes[:2], *sizes[:2]):  # Java compiles the code it runs
            _checked(*engines["Spark"](config_of(client, count), f"large-{count}"), count)
        for count, times in zip(sizes, TIMES, strict=True):
            config = config_of(client, count)
            for engine, sweep_by in engines.items():
                several = [_checked(*sweep_by(config, f"large-{count}"), count) for _ in range(1 if quick else times)]
                spent[engine, count] = _least(several)
        few = sizes[0]
        fill(broker, "mixed", few, plain=PLAIN)
        mixed = {
            engine: _checked(*sweep_by(config_of(client, few), "mixed"), few) for engine, sweep_by in engines.items()
        }
    yield _by_step(spent)
    yield _further(spent, sizes)
    records = few * (1 + PLAIN)
    yield Table(
        "at-scale-records",
        "Reading a log in which 1 % of the records are large",
        "CPU µs per record",
        [Row(engine, [_microseconds(each.cpu["read"], records)]) for engine, each in mixed.items()],
        note=f"{records:,} records, the others of 200 bytes.",
    )
    yield Table(
        "at-scale-memory",
        "Peak memory of the process that sweeps, by step",
        "MiB",
        [
            Row(f"{engine}, {step}", [each.bytes[step] / 2**20], at=f"{count:,}")
            for (engine, count), each in spent.items()
            for step in STEPS
        ],
        axis="payloads",
        note="Of Spark, the driver's Python, with the benchmark itself.",
    )


def _by_step(spent: dict[tuple[str, int], Spent]) -> Table:
    rows = [
        Row(f"{engine}, {step}", [_microseconds(each.cpu[step], count)], at=f"{count:,}")
        for (engine, count), each in spent.items()
        for step in STEPS
    ]
    return Table("at-scale", "A sweep by step, 1 % orphans", "CPU µs per payload", rows, axis="payloads")


def _further(spent: dict[tuple[str, int], Spent], sizes: Sequence[int]) -> Table:
    rows = []
    for engine in dict.fromkeys(engine for engine, _ in spent):
        first = None
        for less, more in pairwise(sizes):
            span = f"{less:,} to {more:,}"
            each = {
                step: _microseconds(spent[engine, more].cpu[step] - spent[engine, less].cpu[step], more - less)
                for step in STEPS
            }
            total = sum(each.values())
            rows += [Row(f"{engine}, {step}", [cost], at=span) for step, cost in each.items()]
            first = total if first is None else first
            rows.append(Row(f"{engine}, all", [total], f"{sizes[0]:,} to {sizes[1]:,}", [first], at=span))
    note = "What a sweep takes however many payloads there are is in none of them. The ratio of a flat cost is 1."
    return Table("at-scale-further", "What each further payload takes", "CPU µs", rows, note=note)


def _microseconds(seconds: float, count: int) -> float:
    return seconds * 1e6 / count


def _least(several: Sequence[Spent]) -> Spent:
    return Spent(
        {step: min(each.cpu[step] for each in several) for step in STEPS},
        {step: round(statistics.median(each.bytes[step] for each in several)) for step in STEPS},
    )


def _local(folder: Path, config: dict[str, object], topic: str) -> tuple[SweepReport, Spent]:
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(target=answer_locally, args=(its, config, topic, folder / topic))
    process.start()
    its.close()
    try:
        answer: tuple[SweepReport, Spent] = ours.recv()
    finally:
        process.join()
    return answer


def _spark(
    spark: SparkSession, clock: Clock, folder: Path, config: dict[str, object], topic: str
) -> tuple[SweepReport, Spent]:
    return sweep(partial(SparkSweep, spark, None), config, topic, folder / topic, clock)


def _cpu_seconds(of_jvm: FamilyClock) -> float:
    """CPU time of this process, without the broker, and of Spark."""
    return time.process_time() + of_jvm()


def _checked(report: SweepReport, spent: Spent, count: int) -> Spent:
    if (report.listed, report.deleted) != (count, count // 100):
        raise AssertionError(f"{report} instead of {count} listed and {count // 100} deleted payloads")
    return spent
