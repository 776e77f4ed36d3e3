"""A batch of payloads of a gigabyte, with half of that as address space; tests/spark/test_worker_memory.py runs it."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from serde_chain.spark import decode
from tests.spark.records import encoded, kafka, row

SIZE = 2_000_000
COUNT = 500


@pytest.mark.parametrize("last", ["bytes", "avro"])
def test_references_to_twice_the_memory(spark: SparkSession, tmp_path: Path, last: str) -> None:
    config: dict[str, Any] = {
        "value.serializers": f"{last}, large-message",
        "value.deserializers": f"large-message, {last}",
        "avro.schema": '"bytes"',
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }
    headers: list[Any] = []
    reference = encoded(config, bytes(SIZE), headers)
    [path] = [path for path in tmp_path.rglob("*") if path.is_file()]
    rows = []
    for at in range(COUNT):
        # Each its own reference, since equal ones are downloaded once.
        (path.parent / f"{path.name}-{at}").hardlink_to(path)
        rows.append(row(reference + b"-%d" % at, headers, at))
    batch = kafka(spark, rows)
    # All rows reach a worker together.
    assert int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") or 0) > COUNT
    lengths = batch.transform(decode(config, engine="arrow")).select(functions.length("value").alias("n"))
    assert lengths.agg(functions.count("n"), functions.sum("n")).collect() == [(COUNT, COUNT * SIZE)]
