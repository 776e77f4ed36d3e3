"""Spark: ``resolve`` from Kafka, by share of offloaded records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pyspark.sql import Column, SparkSession, functions

from benchmarks.harness import Table
from benchmarks.spark_queries import Line, arrow_udf, in_kafka, length, measure, scaled, tables
from payload_stores import open_store
from serde_chain import RecordContext, SerializerChain
from serde_chain.spark import resolve
from serde_chain.testing.services import KafkaBroker, spark_session

# Per cent, and records.
SHARES: Final = ((0, 200_000), (1, 200_000), (10, 100_000), (100, 10_000))
PAYLOAD_BYTES: Final = 16_384


def run(*, quick: bool) -> Iterator[Table]:
    """A table for each share."""
    with KafkaBroker() as broker, spark_session("benchmark") as spark:
        for share, count in SHARES:
            yield from _share(spark, broker, share, scaled(count, quick=quick), quick=quick)


def _share(spark: SparkSession, broker: KafkaBroker, share: int, count: int, *, quick: bool) -> Iterator[Table]:
    with tempfile.TemporaryDirectory() as folder:
        store = {"large.message.payload.store.class": "local", "local.path": folder}
        records = list(_records(store, share, count))
        raw = in_kafka(spark, broker, f"share-{share}", records)
        references = [value.decode() for value, headers in records if headers]
        config = {**store, "value.deserializers": "large-message, bytes"}
        resolved = resolve("value", "headers", config, partition="partition", offset="offset")
        times = measure(
            {
                "resolve": lambda: length(raw, resolved),
                "without": lambda: length(raw, "value"),
                "idle": lambda: length(raw, _idle()),
                "download": lambda: _download(store, references),
            },
            quick=quick,
        )
    # Sums: a query can be faster, since it reads while payloads arrive.
    lines = [
        Line("resolve", times["resolve"], times["without"] + times["download"], "the query without it, and downloads"),
        Line("resolve", times["resolve"], times["idle"] + times["download"], "an idle UDF, and downloads"),
    ]
    yield from tables(
        f"spark-resolve-{share}",
        f"Spark resolve from Kafka, {share} % offloaded; payloads of {PAYLOAD_BYTES >> 10} KiB in a folder",
        count,
        lines,
    )


def _idle() -> Column:
    """A no-op Python function on the same rows: Spark's overhead for any function."""
    offloaded = functions.exists("headers", lambda header: header["key"].isin("large-message"))

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    called = arrow_udf(same, "binary", functions.when(offloaded, functions.col("value")))
    return functions.when(offloaded, called).otherwise(functions.col("value"))


def _records(store: Mapping[str, object], share: int, count: int) -> Iterator[tuple[bytes, list[Any]]]:
    config = {**store, "value.serializers": "bytes, large-message", "large.message.threshold.bytes": 1000}
    with SerializerChain.from_config(config) as chain:
        for at in range(count):
            headers: list[Any] = []
            size = PAYLOAD_BYTES if at % 100 < share else 200
            yield chain(at.to_bytes(8, "big") * (size // 8), RecordContext("t", "value", headers)) or b"", headers


def _download(config: Mapping[str, object], references: list[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        store = open_store("local", config)
        for _ in pool.map(store.download, references):
            pass
        store.close()
