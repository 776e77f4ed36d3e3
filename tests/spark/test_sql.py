"""Chains as functions of SQL."""

import json
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession, functions

from serde_chain import ConfigError, RecordContext, SerializerChain
from serde_chain.spark import register

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


@pytest.fixture(params=["arrow", "pandas"])
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
    [row] = spark.sql("SELECT alert(value, topic => topic).id FROM records WHERE offset = 0").collect()
    assert row == (0,)
    with pytest.raises(PythonException, match=r"DecodeError.*topic=alerts.*offset=7"):
        spark.sql("SELECT alert(binary('x'), topic => 'alerts', offset => 7)").collect()


def test_types_and_modes(spark: SparkSession) -> None:
    register(spark, "numbers", {"value.deserializers": "json"}, schema="struct<a: int>", mode="PERMISSIVE")
    rows = spark.sql("""SELECT numbers(binary('{"a": 1}')).a, numbers(binary('x')) IS NULL""").collect()
    assert rows == [(1, True)]


@pytest.mark.parametrize("name", ["", "a b", "x) RETURN 1; --", "1a"])
def test_names(spark: SparkSession, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a function"):
        register(spark, name, {"value.deserializers": "string"})
