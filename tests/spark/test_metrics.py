"""Counts of records and payloads in what Spark reports of a query."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.local import LocalStore
from serde_chain import ConfigError, Producer
from serde_chain.catalogue import FORMATS, find_format
from serde_chain.record import RecordContext
from serde_chain.spark import decode, encode, observe
from serde_chain.spark.metrics import _MARKS
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.reference_format import Reference

Config = dict[str, Any]
VALUES = [b"small", None, b"x" * 5000, b"y" * 3000]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.threshold.bytes": 1000,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }


def encoded(spark: SparkSession, config: Config) -> DataFrame:
    records = spark.createDataFrame([(value,) for value in VALUES], "value binary")
    return records.transform(encode(config, topic="alerts"))


def test_what_is_written_and_what_is_read_in_a_batch(spark: SparkSession, config: Config) -> None:
    written, read, after = Observation("written"), Observation("read"), Observation("after")
    rows = encoded(spark, config).transform(observe(written)).collect()
    references = sum(len(row["value"]) for row in rows if row["headers"])
    expected = {"records": 4, "tombstones": 1, "bytes": 5 + references, "offloaded": 2, "offloaded_bytes": 8000}
    assert written.get == expected
    schema = "topic string, value binary, headers array<struct<key:string,value:binary>>"
    records = spark.createDataFrame([(*row[:2], row[2]) for row in rows], schema)
    records = records.transform(observe(read)).transform(decode(config, mode="PERMISSIVE"))
    assert len(records.transform(observe(after)).collect()) == 4
    assert read.get == expected
    assert after.get["errors"] == 0
    assert (after.get["bytes"], after.get["offloaded"]) == (8005, 0)


def test_errors_are_counted(spark: SparkSession, config: Config) -> None:
    config["value.deserializers"] = "large-message, string"
    seen = Observation()
    records = spark.createDataFrame(
        [(b"fine", None), (b"\xff", None)], encoded(spark, config).select("value", "headers").schema
    )
    records.transform(decode(config, mode="PERMISSIVE")).transform(observe(seen)).collect()
    assert seen.get == {"records": 2, "tombstones": 0, "offloaded": 0, "offloaded_bytes": 0, "errors": 1}


@pytest.mark.full
def test_the_progress_of_a_streaming_query(
    spark: SparkSession, config: Config, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    with Producer({**broker.client_config(), **config}) as producer:
        for value in VALUES:
            producer.produce(topic, value)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    records = spark.readStream.format("kafka").options(**options).load()
    decoded = records.transform(observe("alerts")).transform(decode(config)).select("value")
    writer = decoded.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(100)
    counted = [progress.observedMetrics["alerts"] for progress in query.recentProgress if progress.observedMetrics]
    assert sum(row["records"] for row in counted) == 4
    assert sum(row["offloaded"] for row in counted) == 2
    assert sum(row["offloaded_bytes"] for row in counted) == 8000


@pytest.mark.full
def test_batches_limited_by_bytes(
    spark: SparkSession, config: Config, broker: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    """The recipe of docs/spark-execution.md: bytes per record, as their headers say, become a limit of records."""
    sizes = [10, 50_000, 2_000, 200_000] * 15

    def send() -> None:
        with Producer({**broker.client_config(), **config}) as producer:
            for at, size in enumerate(sizes):
                producer.produce(topic, bytes([at]) * size)

    send()
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    seen = Observation()
    raw = spark.read.format("kafka").options(**options).load()
    raw.transform(observe(seen)).write.format("noop").mode("append").save()
    payloads = seen.get["offloaded_bytes"]
    assert payloads == sum(size for size in sizes if size > 10)

    def fetched(most: int) -> list[int]:
        """The bytes of payloads in each batch of the query, which goes on where it stopped."""
        limit = max(1, int(most * seen.get["records"] / (seen.get["bytes"] + payloads)))
        stream = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger=str(limit)).load()
        decoded = stream.transform(observe("batch")).transform(decode(config)).select("value")
        writer = decoded.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        rows = [progress.observedMetrics.get("batch") for progress in query.recentProgress]
        return [row["offloaded_bytes"] for row in rows if row is not None and row["offloaded_bytes"]]

    batches = fetched(1_000_000)
    assert sum(batches) == payloads
    assert len(batches) > 1
    assert max(batches) < 1.25 * 1_000_000
    # The limit is not part of the checkpoint.
    send()
    assert fetched(2 * payloads) == [payloads]


def test_headers_that_are_not_what_they_seem(spark: SparkSession) -> None:
    """What others have written does not end the query."""
    seen = Observation()
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [],
        [("large-message", b"false"), ("large-message-size", b"7")],
        [("large-message", b"true"), ("large-message-size", b"many")],
        [("large-message", b"TRUE"), ("large-message-size", None)],
        [("large-message", None)],
    ]
    records = spark.createDataFrame(
        [(b"a", each) for each in headers], "value binary, headers array<struct<key:string,value:binary>>"
    )
    records.transform(observe(seen)).collect()
    assert seen.get == {"records": 6, "tombstones": 0, "bytes": 6, "offloaded": 2, "offloaded_bytes": 0}


def test_sizes_that_are_too_large_together(spark: SparkSession) -> None:
    """Spark's own sum would end the query, wherever its SQL is ANSI's."""
    seen = Observation()
    size = str(2**63 - 1).encode()
    records = spark.createDataFrame(
        [(b"a", [("large-message", b"true"), ("large-message-size", size)])] * 2,
        "value binary, headers array<struct<key:string,value:binary>>",
    )
    assert len(records.transform(observe(seen)).collect()) == 2
    assert seen.get == {"records": 2, "tombstones": 0, "bytes": 2, "offloaded": 2, "offloaded_bytes": 0}


@pytest.mark.parametrize("name", [name for name in FORMATS.builtins if find_format(name).writes])
def test_the_mark_of_each_format(name: str) -> None:
    reference_format = find_format(name)
    if reference_format.in_band:
        pytest.skip("its mark is in the value")
    headers: list[tuple[str, Any]] = []
    reference_format.write_reference(
        Reference("s3://bucket/topic/id"), RecordContext("t", "value", headers), is_key=False
    )
    assert [(header, content) for header, content in headers if _MARKS.get(header) == content]


class Stumbling(LocalStore):
    """Refuses each operation once."""

    refuses = True

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        self._stumble()
        return super().publish(topic, data, context)

    def download(self, reference: str) -> bytes:
        self._stumble()
        return super().download(reference)

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        return PayloadStore.download_verified(self, reference, size=size, digest=digest)

    def _stumble(self) -> None:
        self.refuses = not self.refuses
        if not self.refuses:
            raise PayloadStoreUnavailableError("busy")


@pytest.mark.full
@pytest.mark.parametrize("engine", ["native", "arrow"])
def test_retries_of_stores(spark: SparkSession, config: Config, engine: str) -> None:
    config |= {"large.message.payload.store.class": Stumbling, "large.message.store.retry.attempts": 2}
    config |= {"large.message.uploads.in.flight": 1, "large.message.downloads.in.flight": 1}
    field = {"name": "data", "type": ["bytes", "null"]}
    config["avro.schema"] = json.dumps({"type": "record", "name": "Image", "fields": [field]})
    config |= {"value.serializers": "avro, large-message", "value.deserializers": "large-message, avro"}
    values = [None if value is None else (value,) for value in VALUES]
    frame = spark.createDataFrame([(value,) for value in values], "value struct<data: binary>").coalesce(1)
    written, read = Observation(), Observation()
    encoded = frame.transform(encode(config, topic="alerts", engine=engine, retries=True)).transform(observe(written))
    rows = encoded.select("topic", "value", "headers", "serde_retries").collect()
    # The first that may have caused them has them all.
    expected = [0, 0, 2, 0] if engine == "native" else [2, 0, 0, 0]
    assert [row["serde_retries"] for row in rows] == expected
    assert written.get["retries"] == 2
    records = spark.createDataFrame([row[:3] for row in rows], encoded.select("topic", "value", "headers").schema)
    decoded = records.coalesce(1).transform(decode(config, engine=engine, retries=True)).transform(observe(read))
    back = decoded.collect()
    assert [row["value"] for row in back] == values
    # Payloads are fetched in growing steps, of which the first two have one payload each.
    assert [row["serde_retries"] for row in back] == ([0, 0, 1, 1] if engine == "native" else [1, 0, 0, 1])
    assert read.get["retries"] == 2


def test_a_frame_without_values(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="no column value"):
        spark.range(1).transform(observe("nothing"))
