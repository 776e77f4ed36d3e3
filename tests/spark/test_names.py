"""What a column is called that has no alias, and what a query's plan shows."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.functions import col, lit, struct

from serde_chain.spark import (
    decode,
    decode_kafka,
    deserialize,
    deserialize_udf,
    encode,
    encode_kafka,
    entry_metadata,
    offload,
    register,
    resolve,
    resolve_fields,
    resolve_record,
    serialize,
    serialize_udf,
)
from tests.spark.records import KAFKA

SCHEMA = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "int"}]}
SECRETS = {
    "sasl.password": "hunter2",
    "s3.secret.key": "hunter2",
    "schema.registry.basic.auth.user.info": "u:hunter2",
}


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {
        **SECRETS,
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }


@pytest.fixture
def records(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(b"k", b"\2", "alerts", 0, 7, None, None)], KAFKA)


def of_fields(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "value.deserializers": "avro, large-fields"}


def columns_of(config: dict[str, Any]) -> dict[str, Column]:
    """What the functions return, by what it is to be called."""
    bytes_ = {**config, "value.serializers": "bytes, large-message"}
    return {
        "deserialize(value)": deserialize("value", "headers", config, topic="topic", offset="offset"),
        "deserialize": deserialize(col("value"), "headers", config, engine="arrow"),
        "deserialize(key)": deserialize_udf(config)("key", "headers"),
        "resolve(value)": resolve("value", "headers", config),
        "resolve_fields(value)": resolve_fields("value", "headers", of_fields(config)),
        "resolve_record(value)": resolve_record("value", "headers", "key", config),
        "entry_metadata(value)": entry_metadata("value"),
        "offload(value)": offload("value", "headers", config, topic="topic"),
        "serialize(value)": serialize("value", bytes_, topic="topic"),
        "serialize": serialize_udf(bytes_)(col("value"), lit("alerts")),
    }


@pytest.mark.full
def test_short_names(records: DataFrame, config: dict[str, Any]) -> None:
    columns = columns_of(config)
    assert records.select(*columns.values()).columns == list(columns)
    # A name is no hindrance inside an expression, in a filter, or below another one.
    value = deserialize("value", "headers", config)
    [row] = records.where(value["id"] == 1).select(value["id"].alias("id"), struct(value.alias("alert"))).collect()
    assert row["id"] == 1
    assert functions.coalesce(value, value) is not None
    assert records.select(value.alias("alert")).columns == ["alert"]


def test_names_that_spark_does_not_hide() -> None:
    assert (decode_kafka, encode_kafka) == (decode, encode)
    assert not {"decode_kafka", "encode_kafka"} & set(functions.__all__)


def test_no_secret_is_in_a_plan(spark: SparkSession, records: DataFrame, config: dict[str, Any]) -> None:
    register(spark, "alert_of_names", config)
    records.createOrReplaceTempView("records_of_names")
    frames = [
        records.transform(decode(config)),
        records.transform(decode(config, engine="arrow")),
        records.select(*columns_of(config).values()),
        records.select(struct(col("partition").alias("id")).alias("value")).transform(encode(config, topic="alerts")),
        spark.sql("SELECT alert_of_names(value, headers) FROM records_of_names"),
    ]
    for frame in frames:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            for how in ("extended", "codegen", "formatted", "cost"):
                frame.explain(how)
        assert "Scan" in shown.getvalue()
        assert "hunter2" not in shown.getvalue()
