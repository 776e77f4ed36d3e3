"""The limits of topics, learnt by ``encode`` and the column functions, on a real broker."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.functions import col, lit, struct

from serde_chain.clients.limits import KEY_ROOM, largest_value
from serde_chain.clients.topic_limits import TopicLimits
from serde_chain.spark import decode, encode, offload, serialize_udf
from serde_chain.spark.chains.portable import load
from serde_chain.spark.writing.plan import asking, open_setup
from serde_chain.testing.services import KafkaBroker
from tests.conftest import NewTopic

SCHEMA = {"type": "record", "name": "Image", "fields": [{"name": "data", "type": "bytes"}]}
REQUEST = 6_000_000
LIMITS = (5_000, 5_000_000)
Config = dict[str, Any]


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> Config:
    return {
        **broker.client_config(),
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "local",
        "large.message.threshold.bytes": "auto",
        "local.path": str(tmp_path / "payloads"),
        "max.request.size": REQUEST,
    }


@pytest.fixture
def offloaded(tmp_path: Path) -> Callable[[str], list[int]]:
    def sizes(topic: str) -> list[int]:
        folder = tmp_path / "payloads" / topic
        return sorted(path.stat().st_size for path in folder.iterdir()) if folder.exists() else []

    return sizes


def length_of(size: int) -> int:
    """Bytes of Avro's length of a field of a size."""
    return len(f"{2 * size:b}") // 7 + bool(len(f"{2 * size:b}") % 7)


def data_of(size: int) -> bytes:
    """A field whose record has a size in Avro."""
    data = bytes([size % 251]) * (size - length_of(size))
    assert len(data) + length_of(len(data)) == size
    return data


def write(frame: DataFrame, broker: KafkaBroker) -> None:
    """By Spark's sink, whose producer takes the same as the configuration, in batches that both topics accept."""
    sizes = {"kafka.max.request.size": str(REQUEST), "kafka.batch.size": str(min(LIMITS))}
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **sizes}
    frame.write.format("kafka").options(**options).save()


def read(spark: SparkSession, broker: KafkaBroker, topic: str, config: Config) -> list[bytes]:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    frame = spark.read.format("kafka").options(**options).option("startingOffsets", "earliest").load()
    return [bytes(row["data"]) for row in frame.transform(decode(config)).select("value.data").collect()]


@pytest.mark.parametrize("engine", ["arrow", "native"])
@pytest.mark.parametrize("limit", LIMITS)
def test_encode_to_one_topic(  # noqa: PLR0917
    caplog: pytest.LogCaptureFixture,
    spark: SparkSession,
    broker: KafkaBroker,
    new_topic: NewTopic,
    config: Config,
    offloaded: Callable[[str], list[int]],
    engine: str,
    limit: int,
) -> None:
    topic = new_topic(1, {"max.message.bytes": str(limit)})
    largest = largest_value(REQUEST, b"k", None, limit)
    values = [data_of(size) for size in (largest - 1, largest, largest + 1, 20)]
    rows = [(b"k", value) for value in values]
    records = spark.createDataFrame(rows, "key binary, data binary").select("key", struct("data").alias("value"))
    written = records.coalesce(1).transform(encode(config, topic=topic, engine=engine))
    if engine == "native":  # rows far below the limit stay in the JVM, since it is known when the query is planned
        plan = str(written._jdf.queryExecution().executedPlan().toString())
        assert f"> {largest_value(REQUEST, None, None, limit) - KEY_ROOM})" in plan
    write(written, broker)
    assert offloaded(topic) == [largest + 1]
    found = read(spark, broker, topic, config)
    assert sorted(map(len, found)) == sorted(map(len, values))
    assert sorted(found) == sorted(values)
    # Spark's producer makes batches of 16 KiB, and loses records of those that it has to split.
    warned = [record.getMessage() for record in caplog.records if "kafka.batch.size" in record.getMessage()]
    assert len(warned) == (limit == 5_000)


def test_topics_in_a_column(
    spark: SparkSession,
    broker: KafkaBroker,
    new_topic: NewTopic,
    config: Config,
    offloaded: Callable[[str], list[int]],
) -> None:
    topics = {new_topic(1, {"max.message.bytes": str(limit)}): limit for limit in LIMITS}
    sizes = {topic: largest_value(REQUEST, None, None, limit) for topic, limit in topics.items()}
    rows = [(topic, data_of(size + more)) for topic, size in sizes.items() for more in (-1, 0, 1)]
    records = spark.createDataFrame(rows, "topic string, data binary")
    written = records.select("topic", struct("data").alias("value")).coalesce(1).transform(encode(config))
    write(written, broker)
    for topic, size in sizes.items():
        assert offloaded(topic) == [size + 1]
        sent = sorted(data for other, data in rows if other == topic)
        assert sorted(read(spark, broker, topic, config)) == sent


@pytest.mark.parametrize("function", ["offload", "serialize_udf"])
def test_column_functions(
    spark: SparkSession, new_topic: NewTopic, config: Config, offloaded: Callable[[str], list[int]], function: str
) -> None:
    topic = new_topic(1, {"max.message.bytes": "5000"})
    config["value.serializers"] = "bytes, large-message"
    largest = largest_value(REQUEST, None, None, 5_000)
    frame = spark.createDataFrame([(bytes(size),) for size in (largest, largest + 1)], "value binary")
    record = (
        offload("value", None, config, topic=lit(topic))
        if function == "offload"
        else serialize_udf(config)(col("value"), lit(topic))
    )
    rows = frame.select(record.alias("r")).select(functions.length("r.value").alias("size")).collect()
    assert max(row["size"] for row in rows) == largest
    assert offloaded(topic) == [largest + 1]


def test_the_driver_asks_once(
    spark: SparkSession, new_topic: NewTopic, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, asked = new_topic(), []
    learnt = TopicLimits._read

    def count(self: TopicLimits, name: str) -> Any:
        asked.append(name)
        return learnt(self, name)

    monkeypatch.setattr(TopicLimits, "_read", count)
    encoding = encode(config, topic=topic)
    assert asked == []
    frame = spark.createDataFrame([(b"",)], "data binary").select(struct("data").alias("value"))
    for _ in range(3):  # as in foreachBatch
        frame.transform(encoding)
    assert asked == [topic]


def test_limits_that_cannot_be_asked_for(
    spark: SparkSession, config: Config, caplog: pytest.LogCaptureFixture, offloaded: Callable[[str], list[int]]
) -> None:
    frame = spark.createDataFrame([(bytes(900_000),)], "data binary").select(struct("data").alias("value"))
    del config["bootstrap.servers"], config["max.request.size"]
    frame.transform(encode(config, topic="nowhere", engine="arrow")).collect()
    (record,) = [record for record in caplog.records if record.name == "serde_chain"]
    assert "no bootstrap.servers. Records that max.request.size (1048576) allows are sent" in record.getMessage()
    assert offloaded("nowhere") == []


def test_a_topic_that_is_missing_is_asked_for_again_in_workers(config: Config) -> None:
    setup = open_setup(load(config))
    limits = asking(setup).limits("there-is-none")
    setup.close()
    assert (limits.asks, limits.only, limits.answers) == (True, None, {})


def test_records_without_a_topic_need_no_answer(spark: SparkSession, config: Config) -> None:
    frame = spark.createDataFrame([(b"small",)], "data binary").select(struct("data").alias("value"))
    (row,) = frame.transform(encode(config)).collect()
    assert bytes(row["value"])[-5:] == b"small"
