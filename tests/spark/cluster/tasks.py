"""Tasks on executors: they are tried again, and run twice. Run by ``test_cluster.py``, on a cluster."""

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.functions import lit

from payload_stores import open_store
from payload_stores.base import SupportsList
from serde_chain import Producer
from serde_chain.spark import decode, encode, resolve
from serde_chain.testing.services import KafkaBroker, S3Server

Config = dict[str, Any]
LARGE = 2 << 20
# Executors start while the first test runs.
pytestmark = pytest.mark.timeout(400)
TASKS = 4


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "local.path": str(tmp_path / "payloads"),
    }


@pytest.fixture
def store(spark: SparkSession) -> Callable[[str], str]:
    """The name of a store that only this test has, for executors too."""
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("stores.py")))
    return "stores.{}".format


def payloads(spark: SparkSession) -> DataFrame:
    """Two payloads for each task, all of them different."""
    value = functions.rpad(functions.col("id").cast("string"), LARGE, " ").cast("binary")
    return spark.range(2 * TASKS, numPartitions=TASKS).select(value.alias("value"))


def check(config: Config, encoded: DataFrame, path: Path) -> None:
    """All payloads can be read, and nothing lies beside them."""
    rows = encoded.collect()
    assert len(rows) == 2 * TASKS
    back = encoded.sparkSession.createDataFrame(rows, encoded.schema).select(
        resolve("value", "headers", {**config, "large.message.payload.store.class": "local"}).alias("value")
    )
    assert {int(bytes(row["value"]).strip()) for row in back.collect()} == set(range(2 * TASKS))
    assert len(list((path / "payloads" / "alerts").iterdir())) == 2 * TASKS


def test_an_executor_that_dies_between_uploads_leaves_no_orphan(
    spark: SparkSession, config: Config, store: Callable[[str], str], tmp_path: Path
) -> None:
    config["large.message.payload.store.class"] = store("DyingStore")
    check(config, payloads(spark).transform(encode(config, topic="alerts")), tmp_path)
    assert_died(tmp_path)


def assert_died(path: Path) -> None:
    """An executor has been killed."""
    died = int((path / "died").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(died, 0)


def test_a_stream_goes_on_when_an_executor_dies_between_downloads(
    *,
    spark: SparkSession,
    config: Config,
    broker: KafkaBroker,
    new_topic: Callable[[int], str],
    store: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """No row is lost or there twice."""
    config["large.message.payload.store.class"] = "local"
    topic = new_topic(2)
    sent = {b"%d" % at * LARGE for at in range(TASKS)}
    with Producer({**config, **broker.client_config()}) as producer:
        for at, value in enumerate(sorted(sent)):
            producer.produce(topic, value, partition=at % 2)
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    options = {**kafka, "startingOffsets": "earliest", "includeHeaders": "true", "maxOffsetsPerTrigger": "2"}
    records = spark.readStream.format("kafka").options(**options).load()
    decoded = records.transform(decode({**config, "large.message.payload.store.class": store("DyingStore")}))
    writer = decoded.writeStream.format("parquet").option("path", str(tmp_path / "table"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert_died(tmp_path)
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert len(rows) == TASKS
    assert {bytes(row["value"]) for row in rows} == sent


def test_a_task_that_runs_twice_leaves_no_orphan(
    spark: SparkSession, config: Config, store: Callable[[str], str], tmp_path: Path
) -> None:
    """Speculation: a copy of the slow task runs on the other executor while it goes on."""
    config["large.message.payload.store.class"] = store("SlowStore")
    check(config, payloads(spark).transform(encode(config, topic="alerts")), tmp_path)
    assert (tmp_path / "slow").exists()


def test_a_store_that_fails_now_and_then_leaves_no_orphan(
    spark: SparkSession, config: Config, store: Callable[[str], str], tmp_path: Path
) -> None:
    """Each task fails at each of its payloads once, and is tried again."""
    config["large.message.payload.store.class"] = store("FlakyStore")
    check(config, payloads(spark).transform(encode(config, topic="alerts")), tmp_path)
    assert len(list(tmp_path.glob("failed-*"))) == 2 * TASKS


def test_from_kafka_to_kafka_with_payloads_in_s3(
    *,
    spark: SparkSession,
    config: Config,
    broker: KafkaBroker,
    s3_server: S3Server,
    bucket: str,
    new_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    config |= {"large.message.payload.store.class": "s3", **s3_server.store_config(bucket)}
    source, target = new_topic(2), new_topic(2)
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    payloads(spark).transform(encode(config, topic=source)).write.format("kafka").options(**kafka).save()
    reading = {**kafka, "startingOffsets": "earliest", "includeHeaders": "true"}
    records = spark.readStream.format("kafka").options(**reading).option("subscribe", source).load()
    doubled = records.transform(decode(config)).select(functions.concat("value", lit(b"x")).alias("value"))
    writer = doubled.transform(encode(config, topic=target)).writeStream.format("kafka").options(**kafka)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    written = spark.read.format("kafka").options(**reading).option("subscribe", target).load()
    rows = written.transform(decode(config)).collect()
    assert {bytes(row["value"])[:2].strip() for row in rows} == {b"%d" % at for at in range(2 * TASKS)}
    assert {len(row["value"]) for row in rows} == {LARGE + 1}
    with closing(open_store("s3", s3_server.store_config(bucket))) as opened:
        assert isinstance(opened, SupportsList)
        for topic in (source, target):
            assert len(list(opened.list(topic))) == 2 * TASKS
