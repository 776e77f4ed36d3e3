"""Spark: the memory of Python workers that move large payloads, above the batch at hand.

The kernel reports the peak of each worker, while real queries run. Beside its batches, a worker may hold
64 MiB of payloads (``large.message.downloads.max.bytes``) and another 64 MiB.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, functions

from benchmarks.harness import Row, Table
from benchmarks.spark_queries import arrow_udf, cached, family, length
from serde_chain import RecordContext, SerializerChain
from serde_chain.spark import deserialize, encode, resolve
from serde_chain.testing.services import spark_session
from tests.memory import peak_bytes, reset_peak

MIB: Final = 1 << 20
# Bytes per payload, and number of payloads.
CASES: Final = ((1_200_000, 200), (20_000_000, 24))
_COLUMNS: Final = "value binary, headers array<struct<key: string, value: binary>>"


def run(*, quick: bool) -> Iterator[Table]:
    """By way and payload size."""
    rows = []
    with spark_session("benchmark", memory="4g") as spark:
        for size, count in CASES[:1] if quick else CASES:
            for name, taken, batches in _case(spark, size, count):
                rows.append(Row(name, [(taken - batches) / MIB], at=f"{size / 1e6:g} MB"))
    yield Table("spark-memory", "Spark's Python workers, above the batches at hand", "MiB", rows, axis="payload")


def _case(spark: SparkSession, size: int, count: int) -> list[tuple[str, int, int]]:
    """Peak memory, and the batches' share of it, by way."""
    with tempfile.TemporaryDirectory() as folder:
        store: dict[str, object] = {"large.message.payload.store.class": "local", "local.path": folder}
        reading = {**store, "value.deserializers": "large-message, bytes"}
        writing = {**store, "value.serializers": "bytes, large-message"}
        references = _references(spark, writing, size, count)
        payloads = cached(spark.range(count).select(functions.expr(f"cast(repeat('x', {size}) AS binary) AS value")))
        ways: dict[str, tuple[DataFrame, Any]] = {
            "resolve": (references, resolve("value", "headers", reading)),
            "deserialize": (references, deserialize("value", "headers", reading)),
            "encode": (payloads.transform(encode(writing, topic="t")), "value"),
            "idle": (payloads, arrow_udf(_same, "binary", functions.col("value"))),
        }
        taken = {name: _taken(lambda way=way: length(*way)) for name, way in ways.items()}  # type: ignore[misc]
        payloads.unpersist()
        references.unpersist()
    # Downloads are handed over in parts of 8 MiB or one payload: the last one, and the one being built.
    parts = 2 * max(size, 8 * MIB)
    # Uploads arrive in Spark's own batches, which any Python function has.
    return [
        ("resolve", taken["resolve"], parts),
        ("deserialize", taken["deserialize"], parts),
        ("encode", taken["encode"], taken["idle"]),
    ]


def _references(spark: SparkSession, config: dict[str, object], size: int, count: int) -> DataFrame:
    rows = []
    with SerializerChain.from_config(config) as chain:
        for _ in range(count):
            ctx = RecordContext("t", "value", [])
            rows.append((chain(bytes(size), ctx), list(ctx.headers or ())))
    return cached(spark.createDataFrame(rows, _COLUMNS))


def _taken(query: Callable[[], None]) -> int:
    """By how many bytes the peak of the largest worker rises in a query that has been run before."""
    query()
    before = {worker: reset_peak(worker) for worker in _workers()}
    query()
    # Spark ends idle workers.
    return max(peak_bytes(worker) - before[worker] for worker in _workers() if worker in before)


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _workers() -> list[int]:
    """Processes forked by Spark's ``pyspark.daemon``."""
    daemons = [
        process for process in family(os.getpid()) if b"pyspark.daemon" in Path(f"/proc/{process}/cmdline").read_bytes()
    ]
    return [process for process in daemons if process != min(daemons)]
