"""Columns are found as Spark finds names: regardless of case, or not, as the session says."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from serde_chain import ConfigError
from serde_chain.spark import dead_letters, decode, encode, observe
from serde_chain.spark.columns.kafka import HEADERS

CONFIG = {"key.deserializer": "string", "value.deserializer": "string", "value.serializers": "bytes, zstd"}
OTHER_CASE = """SELECT binary('k') AS Key, binary('v') AS Value, 7L AS OFFSET, 'x' AS Other,
    array(named_struct('key', 'trace', 'value', binary('1'))) AS HEADERS"""
TWICE = "SELECT binary('v') AS value, 1 AS VALUE, binary('k') AS key, 2 AS Key"


@pytest.fixture(params=[False, True], ids=["insensitive", "sensitive"])
def is_sensitive(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[bool]:
    spark.conf.set("spark.sql.caseSensitive", str(request.param).lower())
    yield request.param
    spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
@pytest.mark.parametrize("engine", ["arrow", "native"])
@pytest.mark.parametrize("offloads", [False, True])
def test_decode(
    spark: SparkSession, *, is_sensitive: bool, engine: str, mode: str, offloads: bool, tmp_path: Path
) -> None:
    config: dict[str, Any] = dict(CONFIG)
    if offloads:
        store = {"large.message.payload.store.class": "local", "local.path": str(tmp_path)}
        config |= {"value.deserializers": "large-message, string", **store}
        del config["value.deserializer"]
    transform = decode(config, mode=mode, engine=engine)
    if is_sensitive:
        with pytest.raises(ConfigError, match="no column value"):
            spark.sql(OTHER_CASE).transform(transform)
        given = spark.sql(TWICE).withColumn("headers", lit(None).cast(HEADERS))
        [row] = given.transform(transform).collect()
        assert tuple(row)[:4] == ("v", 1, "k", 2)
        return
    [row] = spark.sql(OTHER_CASE).transform(transform).collect()
    assert [name.lower() for name in row.asDict()][:5] == ["key", "value", "offset", "other", "headers"]
    assert tuple(row)[:4] == ("k", "v", 7, "x")
    assert row[4] == [("trace", b"1")]
    with pytest.raises(ConfigError, match=r"several columns value .*spark\.sql\.caseSensitive"):
        spark.sql(OTHER_CASE).select("*", lit(1).alias("VALUE")).transform(transform)


def test_encode(spark: SparkSession, is_sensitive: bool) -> None:
    transform = encode({**CONFIG, "key.serializer": "bytes"}, topic="alerts")
    if is_sensitive:
        check_refused(spark, transform)
        assert spark.sql(TWICE).transform(transform).select("key").collect() == [(b"k",)]
        return
    # Spark's sink knows these names only.
    frame = spark.sql(OTHER_CASE).transform(transform)
    assert frame.columns == ["topic", "key", "value", "headers"]
    [row] = frame.transform(decode({"value.deserializers": "zstd, string"})).collect()
    assert (row["key"], row["value"], row["headers"]) == (b"k", "v", [("trace", b"1")])


def test_observe_and_dead_letters(spark: SparkSession, is_sensitive: bool) -> None:
    if is_sensitive:
        check_refused(spark, observe("counts"))
        return
    assert spark.sql(OTHER_CASE).transform(observe("counts")).columns == ["Key", "Value", "OFFSET", "Other", "HEADERS"]
    bad = spark.sql("SELECT 'alerts' AS Topic, 0 AS Partition, 7L AS OFFSET, binary(X'FF') AS Value")
    config = {"value.deserializer": "string"}
    [letter] = dead_letters(bad.transform(decode(config, mode="PERMISSIVE", raw=True)), "dead").collect()
    assert (letter["topic"], letter["value"]) == ("dead", b"\xff")


def check_refused(spark: SparkSession, transform: Callable[[DataFrame], DataFrame]) -> None:
    with pytest.raises(ConfigError, match="no column value"):
        spark.sql(OTHER_CASE).transform(transform)
