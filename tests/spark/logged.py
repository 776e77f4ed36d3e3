"""What Spark keeps of queries holds no secret. Run by ``test_cluster.py``, on a cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from serde_chain.spark import decode, encode, register
from serde_chain.testing.services import S3Server

SECRET = "hunter2"
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
COLUMNS = "topic string, value binary, headers array<struct<key: string, value: binary>>"


def said(frame: DataFrame) -> str:
    """The error of a query."""
    with pytest.raises(PythonException) as caught:
        frame.collect()
    return str(caught.value)


@pytest.mark.parametrize("engine", ["arrow", "native"])
def test_no_secret_is_in_the_event_log(spark: SparkSession, s3_server: S3Server, bucket: str, engine: str) -> None:
    """Nor in the errors of a store and of a registry that are not there, which it has as well."""
    config: dict[str, Any] = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": "s3",
        "large.message.threshold.bytes": 10,
        **s3_server.store_config(bucket),
        "s3.secret.key": SECRET,
        "s3.retry.attempts": 1,
        "sasl.password": SECRET,
    }
    values = spark.createDataFrame([(b"x" * 100,), (b"y",)], "value binary")
    rows = values.transform(encode(config, topic="t", engine=engine)).collect()
    records = spark.createDataFrame(rows, COLUMNS)
    assert len(records.transform(decode(config, engine=engine)).collect()) == 2
    register(spark, f"logged_{engine}", config)
    assert len(records.selectExpr(f"logged_{engine}(value, headers)").collect()) == 2
    away = {**config, "s3.endpoint.url": "http://127.0.0.1:1"}
    registry = {
        **config,
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "schema.registry.url": "http://127.0.0.1:1",
        "schema.registry.basic.auth.user.info": f"user:{SECRET}",
        "schema.registry.max.retries": "0",
    }
    framed = spark.createDataFrame([("t", b"\0\0\0\0\1\2", None)], COLUMNS)
    errors = [
        said(records.transform(decode(away, engine=engine, mode="PERMISSIVE"))),
        said(values.transform(encode(away, topic="t", engine=engine))),
        said(framed.transform(decode(registry, mode="PERMISSIVE"))),
    ]
    assert not [error for error in errors if SECRET in error]
    folder = Path(str(spark.conf.get("spark.eventLog.dir")).removeprefix("file:"))
    kept = b"".join(path.read_bytes() for path in folder.rglob("events_*"))
    assert b"PayloadStoreUnavailableError" in kept
    assert SECRET.encode() not in kept
