"""Declarative pipelines, whose query functions may not analyse a DataFrame: only the whole pipeline is analysed."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyarrow import parquet
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.functions import col, lit, struct
from pyspark.sql.utils import is_remote

from serde_chain import ConfigError, Consumer, Producer
from serde_chain.spark import dead_letters, decode, encode, explain, observe
from serde_chain.spark.columns.frame import types_of
from serde_chain.testing.services import KafkaBroker
from serde_chain.testing.services.spark import spark_environment, spark_jars
from tests.spark.records import encoded, kafka, row
from tests.spark.test_docs import blocks_of

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}],
}
Config = dict[str, Any]
RUN_SECONDS = 240


@contextmanager
def query_function(spark: SparkSession) -> Iterator[None]:
    """Refuse analysis, as in a pipeline's functions; without Spark Connect, nothing is refused."""
    from pyspark.pipelines.block_connect_access import block_spark_connect_execution_and_analysis

    with block_spark_connect_execution_and_analysis():
        assert (types_of(spark.range(1), ["id"]) is None) == is_remote()
        yield


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "key.serializer": "string",
        "key.deserializer": "string",
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "local",
        "large.message.threshold.bytes": 100,
        "local.path": str(tmp_path),
    }


@pytest.fixture
def records(spark: SparkSession, config: Config) -> DataFrame:
    """An inline record, an offloaded one, a tombstone and a record that is not Avro."""
    rows = []
    for at, note in enumerate(["M 51", "M" * 500]):
        headers: list[Any] = [("trace", b"%d" % at)]
        rows.append(row(encoded(config, {"id": at, "note": note}, headers), headers, at, b"key"))
    return kafka(spark, [*rows, row(None, [], 2, b"key"), row(b"\x01", [], 3, b"key")])


def applied(spark: SparkSession, frame: DataFrame, *steps: Callable[[DataFrame], DataFrame]) -> DataFrame:
    with query_function(spark):
        for step in steps:
            frame = frame.transform(step)
    return frame


@pytest.mark.parametrize("engine", ["auto", "arrow", "native"])
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_decode(spark: SparkSession, records: DataFrame, config: Config, mode: str, engine: str) -> None:
    given = records.where("offset < 3") if mode == "FAILFAST" else records
    expected = given.transform(decode(config, mode=mode, engine=engine))
    got = applied(spark, given, decode(config, mode=mode, engine=engine))
    assert got.columns == expected.columns
    # Only the engine that runs words the errors.
    got, expected = (
        (frame.withColumn("serde_error", col("serde_error").isNull()) for frame in (got, expected))
        if (mode == "PERMISSIVE")
        else (got, expected)
    )
    assert sorted(got.collect(), key=str) == sorted(expected.collect(), key=str)
    assert got.where("value.note = 'M 51' and headers[0].key = 'trace' and key = 'key'").count() == 1


def test_decode_of_a_source_without_headers_that_no_stage_needs(spark: SparkSession) -> None:
    config = {"value.deserializer": "string"}
    frame = spark.sql("SELECT binary('a') AS value, 7L AS offset")
    for mode in ("FAILFAST", "PERMISSIVE"):
        [got] = applied(spark, frame, decode(config, mode=mode)).collect()
        assert (got["value"], got["offset"]) == ("a", 7)
        assert "headers" not in got or got["headers"] is None


def test_what_is_missing_is_found_by_spark(spark: SparkSession, records: DataFrame, config: Config) -> None:
    for frame in (records.drop("headers"), records.drop("key"), records.withColumn("value", functions.array())):
        with pytest.raises((ConfigError, AnalysisException), match=r"headers|key|value"):
            _ = applied(spark, frame, decode(config)).schema


def test_dead_letters(spark: SparkSession, records: DataFrame, config: Config) -> None:
    steps = (decode(config, mode="PERMISSIVE", raw=True), lambda frame: dead_letters(frame, "dead"))
    [letter] = applied(spark, records, *steps).collect()
    assert (bytes(letter["key"]), bytes(letter["value"]), letter["topic"]) == (b"key", b"\x01", "dead")
    assert "serde-chain-error-offset" in {header["key"] for header in letter["headers"]}


@pytest.mark.parametrize("named", [True, False])
def test_encode(spark: SparkSession, config: Config, named: bool) -> None:
    frame = spark.range(2).select(
        struct(col("id").cast("int").alias("id"), functions.repeat(lit("M"), lit(300)).alias("note")).alias("value"),
        *(
            [col("id").cast("string").alias("key"), lit("alerts").alias("topic"), lit(1).alias("partition")]
            if named
            else []
        ),
    )
    topic = None if named else "alerts"
    if not named:
        del config["key.deserializer"]
    got = applied(spark, frame, encode(config, topic=topic), decode(config))
    rows = got.orderBy("value.id").collect()
    assert [(one["value"]["id"], one["topic"]) for one in rows] == [(0, "alerts"), (1, "alerts")]
    if named:
        assert [one["key"] for one in rows] == ["0", "1"]
        assert {one["partition"] for one in rows} == {1}


def test_encode_by_to_avro_needs_the_types(spark: SparkSession, config: Config) -> None:
    frame = spark.range(1).select(struct(col("id").cast("int"), lit("").alias("note")).alias("value"))
    bare = {**config, "value.serializers": "avro"}
    if is_remote():
        with pytest.raises(ConfigError, match="types are unknown in a query function"):
            applied(spark, frame, encode(bare, topic="alerts", engine="native"))
        with query_function(spark):
            assert "unknown" in explain(bare, writes=frame)


def test_observe(spark: SparkSession, broker: KafkaBroker, topic: str, records: DataFrame, config: Config) -> None:
    kafka_options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    written = records.withColumn("topic", lit(topic)).withColumn("partition", lit(0))
    written.write.format("kafka").options(**kafka_options).save()
    reading = {**kafka_options, "subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true"}
    stream = spark.readStream.format("kafka").options(**reading).load()
    steps = (observe("before"), decode(config, mode="PERMISSIVE", retries=True), observe("after"))
    query = applied(spark, stream, *steps).writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    [progress] = query.recentProgress
    before, after = (counts(progress["observedMetrics"][name]) for name in ("before", "after"))
    sizes = [len(one["value"]) for one in records.collect() if one["value"] is not None]
    assert (before["records"], before["tombstones"], before["bytes"]) == (4, 1, sum(sizes))
    assert (before["offloaded"], before["offloaded_bytes"]) == (1, 503)
    assert (after["records"], after["tombstones"], after["errors"], after["retries"]) == (4, 1, 1, 0)
    assert not after.get("bytes")


def counts(row: Row) -> dict[str, Any]:
    """Observed metrics; Spark Connect's client leaves them as the server sends them, values and schema."""
    found = row.asDict()
    names = [field["name"] for field in found["schema"]["fields"]] if "schema" in found else []
    return dict(zip(names, found["values"], strict=True)) if names else found


# Minutes; tests/spark/test_connect.py has its query functions.
@pytest.mark.nightly
@pytest.mark.timeout(RUN_SECONDS + 60)
def test_the_page_as_a_pipeline(broker: KafkaBroker, tmp_path: Path) -> None:
    """The command spark-pipelines, which starts Spark."""
    [code] = [block for block in blocks_of("python") if "import pipelines" in block]
    [specification] = blocks_of("yaml")
    broker.create_topic("copies-of-pipeline")
    source = f"alerts-of-pipeline-{tmp_path.name}"
    broker.create_topic(source)
    code = code.replace("localhost:9092", broker.bootstrap_servers).replace("/data/", f"{tmp_path}/")
    code = code.replace('"subscribe": "alerts"', f'"subscribe": "{source}"').replace(
        'topic="copies"', 'topic="copies-of-pipeline"'
    )
    names: dict[str, Any] = {}
    exec(re.search(r"^config = {.*?^}", code, re.DOTALL | re.MULTILINE)[0], names)  # type: ignore[index]  # noqa: S102, our own text
    with Producer({**names["config"], **broker.client_config(), "large.message.threshold.bytes": 1}) as producer:
        for at in range(200, 203):
            producer.produce(source, {"id": at}, key=str(at))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "alerts.py").write_text(code)
    (tmp_path / "spark-pipeline.yml").write_text(specification.replace("/data/", f"{tmp_path}/"))
    run_pipeline(tmp_path)
    alerts, numbers = (
        parquet.read_table(tmp_path / "spark-warehouse" / name).to_pylist() for name in ("alerts", "numbers")
    )
    assert sorted((one["key"], one["id"]) for one in alerts) == [(str(at), at) for at in range(200, 203)]
    assert numbers == [{"count": 3}]
    with Consumer(
        {**names["config"], **broker.client_config(), "group.id": "g", "auto.offset.reset": "earliest"}
    ) as consumer:
        consumer.subscribe(["copies-of-pipeline"])
        copies = consumer.consume(3, timeout=60)
    read: list[Any] = [(message.key(), message.value()) for message in copies]
    assert sorted((key, value["id"]) for key, value in read) == [(str(at), at) for at in range(200, 203)]


def run_pipeline(folder: Path) -> None:
    """Run the pipeline of a folder, as its user would; tables are below ``spark-warehouse`` there."""
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.jars": ",".join(map(str, spark_jars())),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    command = [str(home / "bin" / "spark-pipelines"), "run"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with spark_environment(SPARK_HOME=str(home)):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-8_000:]
