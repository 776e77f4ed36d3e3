"""Chains as functions of SQL."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, SparkRuntimeException
from pyspark.sql import SparkSession, functions

from serde_chain import ConfigError, RecordContext, SerializerChain
from serde_chain.spark import deserialize_udf, register

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}],
}
CONFIG: dict[str, Any] = {
    "value.serializers": "avro, large-message",
    "value.deserializers": "large-message, avro",
    "avro.schema": json.dumps(SCHEMA),
    "large.message.payload.store.class": "local",
    "large.message.threshold.bytes": 100,
}


@pytest.fixture(params=["arrow", pytest.param("pandas", marks=pytest.mark.full)])
def udf_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pandas":
        monkeypatch.delattr(functions, "arrow_udf")


@pytest.mark.usefixtures("udf_kind")
def test_register(spark: SparkSession, tmp_path: Any) -> None:
    config = {**CONFIG, "local.path": str(tmp_path)}
    rows = []
    with SerializerChain.from_config(config) as chain:
        for at, name in enumerate(["M 51", "M" * 500]):
            headers: Any = []
            value = chain({"id": at, "name": name}, RecordContext("alerts", "value", headers))
            rows.append((value, headers or None, "alerts", at))
    rows.append((None, None, "alerts", 2))
    records = spark.createDataFrame(
        rows, "value binary, headers array<struct<key:string,value:binary>>, topic string, offset bigint"
    )
    records.createOrReplaceTempView("records")
    register(spark, "alert", config)
    register(spark, "alert", config)  # again
    read = spark.sql("SELECT offset, alert(value, headers) AS alert FROM records ORDER BY offset")
    assert read.schema["alert"].dataType.simpleString() == "struct<id:int,name:string>"
    assert [row["alert"] and row["alert"]["name"] for row in read.collect()] == ["M 51", "M" * 500, None]
    [row] = spark.sql("SELECT alert(value, headers, topic => topic).id FROM records WHERE offset = 0").collect()
    assert row == (0,)
    with pytest.raises(PythonException, match=r"DecodeError.*topic=alerts.*offset=7"):
        spark.sql("SELECT alert(binary('x'), NULL, topic => 'alerts', offset => 7)").collect()


def test_types_and_modes(spark: SparkSession) -> None:
    register(spark, "numbers", {"value.deserializers": "json"}, schema="struct<a: int>", mode="PERMISSIVE")
    rows = spark.sql("""SELECT numbers(binary('{"a": 1}')).a, numbers(binary('x')) IS NULL""").collect()
    assert rows == [(1, True)]


@pytest.mark.parametrize("name", ["", "a b", "x) RETURN 1; --", "1a"])
def test_names(spark: SparkSession, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a function"):
        register(spark, name, {"value.deserializers": "string"})


def test_without_headers_that_the_chain_needs(spark: SparkSession, tmp_path: Path) -> None:
    """References would be taken for values, as text by this chain, with no error at all."""
    config = {**CONFIG, "local.path": str(tmp_path), "value.deserializers": "large-message, string"}
    spark.sql("SELECT binary('file:///t/1') AS value, 't' AS topic").createOrReplaceTempView("references")
    register(spark, "texts", config)
    for call in ("texts(value)", "texts(value, topic => topic)"):
        with pytest.raises(SparkRuntimeException, match=r"texts\(\) requires the headers, .*: texts\(value, headers\)"):
            spark.table("references").selectExpr(call).collect()
    with pytest.raises(ConfigError, match=r"the chain requires the record's headers .*includeHeaders"):
        spark.table("references").select(deserialize_udf(config)("value"))
    register(spark, "plain_texts", {"value.deserializer": "string"})
    assert spark.sql("SELECT plain_texts(value, topic => topic) FROM references").collect() == [("file:///t/1",)]
