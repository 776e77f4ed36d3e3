"""Queries of large fields fetch each payload that they need once: joins, windows, caches, views, sinks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from serde_chain.spark import decode
from tests.spark.counting import downloads
from tests.spark.records import kafka
from tests.spark.test_fetched import COUNT, ENGINES, Query, alert, sent, settings

pytestmark = pytest.mark.full

# With the number of payloads that they need. The topic has twelve, of two partitions, and a tombstone.
QUERIES: dict[str, tuple[Query, int]] = {
    "join": (
        lambda alerts: alerts.join(alerts.sparkSession.range(3).withColumnRenamed("id", "offset"), "offset").select(
            "value.stamp"
        ),
        COUNT,
    ),
    "join of a filtered side": (
        lambda alerts: (
            alerts.where("offset < 4")
            .select("offset", "value.stamp")
            .join(alerts.sparkSession.range(3).withColumnRenamed("id", "offset"), "offset")
        ),
        4,
    ),
    "semi join by a small field": (
        lambda alerts: alerts.select("offset", "value.stamp").join(
            alerts.where("value.flux < 2").select("offset"), "offset", "left_semi"
        ),
        COUNT,
    ),
    "window": (
        lambda alerts: alerts.selectExpr(
            "value.stamp", "row_number() over (partition by partition order by offset desc) as nth"
        ).where("nth = 1"),
        COUNT,
    ),
    "dropDuplicates": (lambda alerts: alerts.select("partition", "value.stamp").dropDuplicates(["partition"]), COUNT),
    "functions in aggregates": (
        lambda alerts: alerts.groupBy("value.object").agg(
            functions.max(functions.length("value.stamp")),
            functions.sum(functions.when(functions.col("value.flux") > 3, functions.crc32("value.stamp"))),
            functions.first("value.stamp"),
        ),
        COUNT,
    ),
    "rollup": (lambda alerts: alerts.rollup("partition").agg(functions.max(functions.length("value.stamp"))), COUNT),
    "explode": (
        lambda alerts: alerts.where("partition = 1").select(
            "offset", functions.explode(functions.array("value.stamp"))
        ),
        COUNT // 2,
    ),
    "lambda function": (
        lambda alerts: alerts.selectExpr("exists(array(value.stamp), x -> length(x) > 300) as long"),
        COUNT,
    ),
    "case": (lambda alerts: alerts.selectExpr("case when value.flux > 8 then value.stamp end"), COUNT),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_queries_of_payloads(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """A query for each row of the table."""
    alerts = kafka(spark, sent(settings(tmp_path))).transform(decode(settings(tmp_path), engine=engine))
    for name, (query, expected) in QUERIES.items():
        assert downloads(tmp_path).total() == 0, name
        query(alerts).collect()
        counts = downloads(tmp_path)
        assert (len(counts), max(counts.values())) == (expected, 1), name


@pytest.mark.parametrize("engine", ENGINES)
def test_views_and_caches(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    alerts = kafka(spark, sent(settings(tmp_path))).transform(decode(settings(tmp_path), engine=engine))
    alerts.createOrReplaceTempView("alerts")
    found = spark.sql(
        "WITH few AS (SELECT * FROM alerts WHERE partition = 0) SELECT value.stamp FROM few WHERE offset < 4"
    )
    assert (found.count(), downloads(tmp_path).total()) == (2, 0)
    assert (len(found.collect()), downloads(tmp_path).total()) == (2, 2)
    spark.sql("CACHE TABLE stamps AS SELECT offset, value.stamp FROM alerts WHERE value.flux > 5")
    assert downloads(tmp_path).total() == 6
    joined = spark.sql("SELECT a.stamp FROM stamps a JOIN stamps b USING (offset) ORDER BY length(a.stamp)")
    assert (len(joined.collect()), downloads(tmp_path).total()) == (6, 0)
    spark.catalog.clearCache()
    spark.catalog.dropTempView("stamps")


@pytest.mark.parametrize("engine", ENGINES)
def test_file_sinks(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """A stream to Parquet writes what it selects."""
    config = settings(tmp_path)
    kafka(spark, sent(config)).write.parquet(str(tmp_path / "raw"))
    raw = spark.readStream.schema(kafka(spark, []).schema).parquet(str(tmp_path / "raw"))
    alerts = raw.transform(decode(config, engine=engine))
    selections = {
        "small": (alerts.select("offset", "value.flux", "value.object"), 0),
        "filtered": (alerts.where("partition = 1 and value.flux > 4").select("offset", "value.stamp"), 4),
        "all": (alerts.select("offset", "value.stamp"), COUNT),
    }
    for name, (rows, expected) in selections.items():
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        writer.trigger(availableNow=True).start(str(tmp_path / name)).awaitTermination()
        counts = downloads(tmp_path)
        assert (counts.total(), max(counts.values(), default=1)) == (expected, 1), name
    written = spark.read.parquet(str(tmp_path / "all")).where("stamp is not null").collect()
    assert {each["offset"]: each["stamp"] for each in written} == {at: alert(at)["stamp"] for at in range(COUNT)}


ACTIONS: dict[str, Callable[[DataFrame], object]] = {
    "limit": lambda rows: rows.limit(2).collect(),
    "show": lambda rows: rows.show(3),
    "first": lambda rows: rows.first(),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_few_rows(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """Limits before decode hold exactly."""
    config = settings(tmp_path)
    rows = kafka(spark, sent(config)).limit(3).transform(decode(config, engine=engine))
    for columns in ("value.stamp", "value.*"):
        for name, action in ACTIONS.items():
            assert downloads(tmp_path).total() == 0
            action(rows.select("offset", columns))
            counts = downloads(tmp_path)
            assert len(counts) <= 3, (columns, name)
            assert max(counts.values()) == 1, (columns, name)
