"""Records whose key is their Avro schema, as in Fink's topics, in Spark."""

import io
import json
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from serde_chain import ConfigError
from serde_chain.spark import decode
from tests.spark.records import kafka, row

OLD: dict[str, Any] = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "int"}]}
NEW: dict[str, Any] = {**OLD, "fields": [{"name": "flux", "type": "double"}, *OLD["fields"]]}
READER = {**OLD, "fields": [*OLD["fields"], {"name": "flux", "type": ["null", "double"], "default": None}]}
CONFIG = {"value.deserializers": "avro", "avro.framing": "record-key", "avro.reader.schema": json.dumps(READER)}


def written(schema: dict[str, Any], value: Any, at: int) -> tuple[Any, ...]:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return row(buffer.getvalue(), [], at, key=json.dumps(schema).encode())


def test_each_record_is_read_by_its_keys_schema(spark: SparkSession) -> None:
    records = [written(OLD, {"id": 1}, 0), written(NEW, {"id": 2, "flux": 0.5}, 1), row(None, [], 2, key=b"no schema")]
    found = kafka(spark, records).transform(decode(CONFIG)).select("value.*").collect()
    assert [tuple(each) for each in found] == [(1, None), (2, 0.5), (None, None)]


def test_the_native_engine_says_that_it_does_not_read_them(spark: SparkSession) -> None:
    frame = kafka(spark, [written(OLD, {"id": 1}, 0)])
    with pytest.raises(ConfigError, match="record's key"):
        frame.transform(decode(CONFIG, engine="native"))
