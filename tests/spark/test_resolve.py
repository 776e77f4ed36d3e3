"""Payloads in place of references, with only the records that have one passing through Python."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession, functions

from serde_chain import ConfigError, RecordContext, SerializerChain
from serde_chain.spark import resolve, resolve_record

SCHEMA = "value binary, headers array<struct<key:string,value:binary>>, key binary, partition int, offset bigint"
Config = dict[str, Any]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.threshold.bytes": 100,
        "large.message.id": "content",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }


VALUES = [b"small", b"x" * 500, None, b"y" * 1000, b"x" * 500, b""]


def frame(spark: SparkSession, config: Config, values: list[bytes | None] = VALUES, key: bytes = b"k") -> DataFrame:
    rows = []
    keys = SerializerChain.from_config(config, is_key=True)
    with SerializerChain.from_config(config) as chain:
        for at, value in enumerate(values):
            headers: Any = [("trace", b"1")] if at % 2 else []
            context = RecordContext("topic", "key", headers)
            encoded_key = keys(key, context)
            encoded = chain(value, RecordContext("topic", "value", headers))
            rows.append((encoded, headers or None, encoded_key, 0, at))
    return spark.createDataFrame(rows, SCHEMA).coalesce(1)


@pytest.fixture(params=["arrow", pytest.param("pandas", marks=pytest.mark.full)])
def udf_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pandas":
        monkeypatch.delattr(functions, "arrow_udf")


def values_of(rows: list[Row]) -> list[bytes | None]:
    return [row["v"] if row["v"] is None else bytes(row["v"]) for row in rows]


@pytest.mark.usefixtures("udf_kind")
def test_resolve(spark: SparkSession, config: Config) -> None:
    records = frame(spark, config)
    resolved = records.select(resolve("value", "headers", config).alias("v"), "offset")
    assert resolved.schema["v"].dataType.simpleString() == "binary"
    assert values_of(resolved.orderBy("offset").collect()) == VALUES
    nothing = records.select("value", functions.lit(None).cast("array<struct<key:string,value:binary>>").alias("h"))
    assert values_of(nothing.select(resolve("value", "h", config).alias("v")).limit(1).collect()) == [b"small"]


@pytest.mark.usefixtures("udf_kind")
def test_resolve_record(spark: SparkSession, config: Config) -> None:
    config |= {"key.serializers": "bytes, large-message", "key.deserializers": "large-message, bytes"}
    now = functions.timestamp_millis(functions.col("offset"))
    for key in (b"k", b"k" * 200):
        records = frame(spark, config, key=key).withColumn("timestamp", now)
        column = resolve_record("value", "headers", "key", config, timestamp="timestamp", offset="offset").alias("r")
        resolved = records.select(column, "offset").orderBy("offset").select("r.*", "offset")
        rows = resolved.select("*", functions.unix_millis("timestamp").alias("ms")).collect()
        assert resolved.columns == ["value", "headers", "key", "timestamp", "offset"]
        assert values_of([Row(v=row["value"]) for row in rows]) == VALUES
        assert {bytes(row["key"]) for row in rows} == {key}
        assert [row["headers"] and [header["key"] for header in row["headers"]] for row in rows] == [
            None,
            ["trace"],
        ] * 3
        assert [row["ms"] for row in rows] == list(range(6))


def test_payloads_that_cannot_be_had(spark: SparkSession, config: Config) -> None:
    records = frame(spark, config)
    for path in Path(config["local.path"]).rglob("*"):
        if path.is_file() and path.read_bytes()[:1] == b"x":
            path.unlink()
    column = resolve("value", "headers", config, topic=functions.lit("t"), partition="partition", offset="offset")
    expected = r"PayloadNotFoundError.*topic=t, field=value, stage=large-message \(1 of 2\), partition=0, offset=1"
    with pytest.raises(PythonException, match=expected):
        records.select(column).collect()
    left = records.select(resolve("value", "headers", config, mode="PERMISSIVE").alias("v"), "offset")
    assert values_of(left.orderBy("offset").collect()) == [b"small", None, None, b"y" * 1000, None, b""]
    whole = records.select(resolve_record("value", "headers", "key", config, mode="PERMISSIVE").alias("v"), "offset")
    found = whole.orderBy("offset").collect()[1]["v"]
    assert (found["value"], bytes(found["key"])) == (None, b"k")
    # What could help to find the payload is still there.
    assert "large-message" in {header["key"] for header in found["headers"]}


def test_mistakes_are_found_on_the_driver(spark: SparkSession, config: Config) -> None:
    records = frame(spark, config)
    with pytest.raises(ConfigError, match="no stage of the configuration follows references"):
        resolve("value", "headers", {"value.deserializer": "bytes"})
    with pytest.raises(AnalysisException, match="headers"):
        _ = records.select(resolve("value", "no_headers", config)).schema
    with pytest.raises(AnalysisException, match="DATATYPE_MISMATCH"):
        _ = records.select(resolve("value", "offset", config)).schema


def test_payloads_of_several_routes_and_a_cache(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    """The routes travel to the executors, as other settings do."""
    config |= {
        "large.message.route.images.topics": "images-*",
        "large.message.route.images.local.path": str(tmp_path / "images"),
        "large.message.route.images.threshold.bytes": 10,
        "large.message.store.cache.bytes": 1_000_000,
    }
    (tmp_path / "images").mkdir()
    rows = []
    with SerializerChain.from_config(config) as chain:
        for at, topic in enumerate(("images-1", "topic") * 3):
            headers: Any = []
            rows.append((chain(b"z" * 200, RecordContext(topic, "value", headers)), headers, b"k", 0, at))
    assert {bytes(row[0]).split(b"/")[-3] for row in rows} == {b"images", tmp_path.name.encode()}
    records = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    assert values_of(records.select(resolve("value", "headers", config).alias("v")).collect()) == [b"z" * 200] * 6
