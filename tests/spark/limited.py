"""Tests on a session whose workers have little address space; tests/spark/test_worker_memory.py runs them."""

import json
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from serde_chain.spark import decode, deserialize, encode
from tests.spark.records import encoded, kafka, row

SCHEMA = {
    "type": "record",
    "name": "Image",
    "fields": [{"name": "at", "type": "int"}, {"name": "pixels", "type": "bytes"}],
}
LARGE = 3_000_000


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.id": "content",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }


def test_large_payloads(spark: SparkSession, config: dict[str, Any]) -> None:
    rows = []
    for at in range(10):
        headers: list[Any] = []
        value = encoded(config, {"at": at, "pixels": bytes([at]) * LARGE}, headers)
        rows.append(row(value, headers, at))
    read = kafka(spark, rows).transform(decode(config))
    lengths = read.select("value.at", functions.length("value.pixels")).collect()
    assert sorted(lengths) == [(at, LARGE) for at in range(10)]
    written = read.select("key", "value", "topic", "offset").transform(encode(config, topic="again"))
    again = written.withColumn("offset", functions.lit(0).cast("bigint")).transform(decode(config))
    lengths = again.select("value.at", functions.length("value.pixels")).collect()
    assert sorted(lengths) == [(at, LARGE) for at in range(10)]


@pytest.mark.parametrize("engine", ["arrow", "native"])
def test_small_records(spark: SparkSession, config: dict[str, Any], engine: str) -> None:
    values = [encoded(config, {"at": at, "pixels": b"x"}, []) for at in range(3)]
    records = kafka(spark, [row(values[at % 3], [], at) for at in range(20_000)])
    read = records.select(deserialize("value", "headers", config, topic="topic", engine=engine).alias("v"))
    assert read.agg(functions.sum("v.at"), functions.count("v")).collect() == [(19_999, 20_000)]


def test_the_limit_is_in_force(spark: SparkSession) -> None:
    """Last, since it loads pyarrow without us into workers that are used again."""

    def limits(batches: Iterable[Any]) -> Iterable[Any]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"limit": [resource.getrlimit(resource.RLIMIT_AS)[0]]})

    text = spark.conf.get("spark.executor.pyspark.memory")
    assert text is not None
    limit = int(text[:-1]) << {"m": 20, "g": 30}[text[-1]]
    assert spark.range(1).mapInArrow(limits, "limit long").collect() == [(limit,)]
