"""What queries fetch: none fails for a payload that it does not need. Payloads are deleted, or downloads counted."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from examples import alerts as example
from serde_chain.spark import decode
from tests.spark.counting import counting, downloads
from tests.spark.records import encoded, kafka, row
from tests.spark.test_decode import plan_of

ENGINES = ["arrow", "native"]
COUNT = 12
SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "flux", "type": "double"},
        {"name": "mjd", "type": "double"},
        {"name": "object", "type": "string"},
        {"name": "stamp", "type": "bytes"},
    ],
}
STEP = "fetch_field"

Query = Callable[[DataFrame], DataFrame]

# None of them uses the stamps.
SMALL: dict[str, Query] = {
    "one field": lambda alerts: alerts.select("value.flux"),
    "two fields": lambda alerts: alerts.select("value.flux", "value.mjd"),
    "star": lambda alerts: alerts.select("value.*").select("flux", "mjd"),
    "text": lambda alerts: alerts.select("value.object", "value.flux"),
    "aggregate": lambda alerts: alerts.select("value.*").groupBy("mjd").agg(functions.avg("flux")),
    "filter": lambda alerts: alerts.where("value.flux > 3 and value.object like 'o%'").select("offset", "value.mjd"),
    "any case": lambda alerts: alerts.select("VALUE.Flux", "Value.MJD"),
    "chain": lambda alerts: (
        alerts.withColumn("flux", functions.col("value.flux") * 2)
        .withColumn("mjd", functions.col("value.mjd"))
        .withColumn("both", functions.expr("flux + mjd"))
        .drop("value")
    ),
    "join": lambda alerts: alerts.join(alerts.select("offset").limit(3), "offset").select("value.flux", "value.mjd"),
    "union": lambda alerts: alerts.unionByName(alerts).select("value.flux", "value.mjd"),
    "window": lambda alerts: alerts.selectExpr(
        "value.flux", "row_number() over (partition by value.object order by value.mjd) as nth"
    ).where("nth = 1"),
    "distinct": lambda alerts: alerts.select("value.object", "value.flux").distinct(),
    "sorted": lambda alerts: alerts.orderBy("value.flux").select("value.mjd", "value.object"),
    "rollup of fields": lambda alerts: alerts.select("value.*").rollup("object").agg(functions.max("flux")),
    "dropped": lambda alerts: alerts.select("value.*").drop("stamp"),
    "cached": lambda alerts: alerts.select("value.flux", "value.mjd").persist(),
}
# Where values may be null, whether they are is known only with all of their fields.
NEVER_NULL: dict[str, Query] = {
    "not null": lambda alerts: alerts.where("value is not null").select("value.flux"),
    "counted": lambda alerts: alerts.select(functions.count("value")),
}


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.schema": json.dumps(SCHEMA),
        "large.fields.paths": "stamp",
        "large.fields.min.bytes": 100,
        **counting(folder),
        **more,
    }


def alert(at: int) -> dict[str, Any]:
    return {"flux": float(at), "mjd": float(at % 3), "object": f"o{at % 2}", "stamp": b"%d" % at * 200}


def sent(config: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Alerts of two partitions, and a tombstone."""
    rows = []
    for at in range(COUNT):
        headers: list[Any] = []
        key, value, topic, _, *others = row(encoded(config, alert(at), headers), headers, at, key=b"k%d" % at)
        rows.append((key, value, topic, at % 2, *others))
    return [*rows, row(None, [], COUNT, key=b"gone")]


@pytest.mark.parametrize("engine", ENGINES)
def test_queries_of_small_fields(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """They need no store."""
    config = settings(tmp_path)
    raw = kafka(spark, sent(config))
    shutil.rmtree(tmp_path / "payloads")
    alerts = raw.transform(decode(config, engine=engine))
    full = raw.transform(decode(config, engine=engine, tombstones=False))
    assert (alerts.schema["value"].nullable, full.schema["value"].nullable) == (True, False)
    alerts.createOrReplaceTempView("alerts")
    in_sql = spark.sql("SELECT value.flux, value.mjd FROM alerts WHERE value.flux > 3 ORDER BY value.mjd")
    for name, query in SMALL.items():
        assert STEP not in plan_of(query(alerts)), name
    for name, query in (SMALL | NEVER_NULL).items():
        assert STEP not in plan_of(query(full)), name
    assert STEP not in plan_of(in_sql)
    stamps = plan_of(alerts.select("value.stamp"))
    assert STEP in stamps
    # The value is read once, and headers are not made for a step that needs one of them.
    assert (stamps.count(" [decode("), "__serde_chain_headers" in stamps) == (engine == "arrow", False)
    # Nor do Kafka's columns come to it: it gets the field, and one text that describes the record.
    step = next(line for line in stamps.splitlines() if f"[{STEP}[" in line)
    assert ("headers#" in step, "offset#" in step) == (False, False)
    assert [len(SMALL["two fields"](each).collect()) for each in (alerts, full)] == [COUNT + 1, COUNT]
    assert {each["avg(flux)"] for each in SMALL["aggregate"](alerts).collect()} == {None, 4.5, 5.5, 6.5}
    assert len(NEVER_NULL["not null"](full).collect()) == COUNT
    spark.catalog.clearCache()


# Between a query's fields and `decode`, these use all of `value`: Spark does not look into it.
SELECT_FIRST: dict[str, Query] = {
    "observe": lambda rows: rows.observe("seen", functions.count(functions.lit(1)).alias("rows")),
    "ids": lambda rows: rows.withColumn("number", functions.monotonically_increasing_id()).where("number > 1"),
    "random": lambda rows: rows.withColumn("chance", functions.rand(1)).where("chance > 0.1"),
    "overlapping windows": lambda rows: rows.withColumn(
        "period", functions.window("timestamp", "10 minutes", "5 minutes")
    ).where("period is not null"),
    "dropDuplicates": lambda rows: rows.dropDuplicates(["offset"]),
}
# Functions that are given whole rows, of which Spark does not know what they use.
WHOLE_ROWS: dict[str, Query] = {
    "mapInPandas": lambda rows: rows.mapInPandas(lambda batches: batches, "flux double"),
    "applyInPandas": lambda rows: rows.groupBy("object").applyInPandas(lambda some: some, "flux double"),
    "dropna": lambda rows: rows.dropna(),
    "randomSplit": lambda rows: rows.randomSplit([0.5, 0.5], seed=1)[0],
}


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_queries_that_have_to_select_first(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """As docs/spark-execution.md lists them, also where no value is null."""
    config = settings(tmp_path)
    alerts = kafka(spark, sent(config)).transform(decode(config, engine=engine, tombstones=False))
    star = alerts.select("offset", "timestamp", "value.*")
    for name, query in SELECT_FIRST.items():
        assert STEP in plan_of(query(alerts).select("value.flux")), name
        assert STEP not in plan_of(query(star).select("flux")), name
    for name, query in WHOLE_ROWS.items():
        assert STEP in plan_of(query(star).select("flux")), name
        assert STEP not in plan_of(query(star.select("object", "flux")).select("flux")), name


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_watermarks_come_first(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """A stream of counts by time needs no stamps, with a watermark before `decode` or behind a selection."""
    config = settings(tmp_path)
    kafka(spark, sent(config)).write.parquet(str(tmp_path / "raw"))
    shutil.rmtree(tmp_path / "payloads")
    raw = spark.readStream.schema(kafka(spark, []).schema).parquet(str(tmp_path / "raw"))
    late = ("timestamp", "1 hour")
    before = raw.withWatermark(*late).transform(decode(config, engine=engine))
    alerts = raw.transform(decode(config, engine=engine))
    behind = alerts.select("timestamp", "value.*").withWatermark(*late)
    hour = functions.window("timestamp", "1 hour")
    counted = before.groupBy(hour, "value.object").count()
    assert "EventTimeWatermark" in plan_of(counted)
    assert STEP not in plan_of(counted)
    assert STEP not in plan_of(behind.groupBy(hour, "object").count())
    assert STEP not in plan_of(behind.dropDuplicatesWithinWatermark(["object"]).select("flux"))
    assert STEP in plan_of(alerts.withWatermark(*late).groupBy(hour, "value.object").count())
    writer = before.groupBy(hour, "value.object").count().writeStream.format("memory").queryName("by_hour")
    writer.outputMode("append").trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("stages", ["avro, large-fields", "large-message, avro"])
def test_filters_on_kafka_columns_come_first(spark: SparkSession, tmp_path: Path, stages: str, engine: str) -> None:
    """And filters on values fetch once."""
    config = settings(tmp_path, **{"value.deserializers": stages, "large.message.threshold.bytes": 100})
    config["value.serializers"] = ", ".join(reversed(stages.split(", ")))
    config["key.deserializer"] = "string"
    alerts = kafka(spark, sent(config)).transform(decode(config, engine=engine))
    filters = {
        "partition = 0 and offset < 3": 2,
        "timestamp is null and offset between 2 and 4": 3,
        "key = 'k7'": 1,
        "topic = 'others'": 0,
        "value.flux > 8": 3 if stages.endswith("large-fields") else COUNT,
        "length(value.stamp) > 500": COUNT,
        "partition = 1 and value.stamp is not null": COUNT // 2,
    }
    for condition, expected in filters.items():
        assert downloads(tmp_path).total() == 0
        rows = alerts.where(condition).select("offset", "value.stamp").collect()
        counts = downloads(tmp_path)
        assert (counts.total(), max(counts.values(), default=1)) == (expected, 1), condition
        assert all(each["stamp"] == (b"%d" % each["offset"] * 200 if each["offset"] < COUNT else None) for each in rows)


@pytest.mark.parametrize("engine", ENGINES)
def test_light_curves_need_no_images(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Those of docs/alerts.md."""
    config = settings(tmp_path, **{"avro.schema": json.dumps(example.SCHEMA), "large.fields.paths": "cutout*"})
    headers: list[Any] = []
    raw = kafka(spark, [row(encoded(config, example.packet(7, 2_000_000), headers), headers, 0)])
    shutil.rmtree(tmp_path / "payloads")
    alerts = raw.transform(decode(config, engine=engine)).select("value.*")
    found = example.detections(alerts)
    assert STEP not in plan_of(found)
    assert len(found.collect()) > 5


@pytest.mark.parametrize("engine", ENGINES)
def test_streams_fetch_what_they_use(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """In foreachBatch, where it decodes: Spark hands over whole rows. Written twice, with persist()."""
    config = settings(tmp_path)
    kafka(spark, sent(config)).write.parquet(str(tmp_path / "raw"))
    raw = spark.readStream.schema(kafka(spark, []).schema).parquet(str(tmp_path / "raw"))
    seen: list[Any] = []

    def write(rows: DataFrame, _: int) -> None:
        batch = rows.transform(decode(config, engine=engine))
        batch.select("value.flux", "value.mjd").write.format("noop").mode("append").save()
        seen.append(downloads(tmp_path).total())
        kept = batch.where("partition = 0").select("value.stamp").persist()
        for _ in range(2):
            kept.write.format("noop").mode("append").save()
            seen.append(downloads(tmp_path).total())
        kept.unpersist()

    stream = raw.writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    stream.start().awaitTermination()
    assert seen == [0, COUNT // 2, 0]
