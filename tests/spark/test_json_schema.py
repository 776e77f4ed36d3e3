"""JSON that has to match a JSON Schema, and JSON of a schema registry, through Spark."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.errors import PythonException
from pyspark.sql import SparkSession, functions

from serde_chain.spark import decode, deserialize, encode
from serde_chain.testing.services import SchemaRegistry
from tests.spark.records import kafka, row

SCHEMA = {
    "title": "Alert",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "flux": {"type": "number", "minimum": 0}},
    "required": ["id", "flux"],
}
CONFIG: dict[str, Any] = {
    "value.serializer": "json",
    "value.deserializer": "json",
    "json.schema": json.dumps(SCHEMA),
}
GOOD = [{"id": 1, "flux": 0.5}, {"id": 2, "flux": 7}]
BAD: list[Any] = [{"id": 3, "flux": -1.0}, {"id": "4", "flux": 1.0}, {"id": 5}, [6]]
PROBLEM = "the value does not match json.schema"


def written(*values: Any) -> list[tuple[Any, ...]]:
    return [row(json.dumps(value).encode(), [], at) for at, value in enumerate(values)]


def test_documents_that_do_not_match(spark: SparkSession) -> None:
    records = kafka(spark, written(GOOD[0], *BAD, GOOD[1]))
    with pytest.raises(PythonException, match=rf"DecodeError: {PROBLEM}.*topic=alerts.*stage=json.*offset=1"):
        records.transform(decode(CONFIG)).collect()
    dropped = records.transform(decode(CONFIG, mode="DROPMALFORMED")).orderBy("offset").collect()
    assert [json.loads(found["value"]) for found in dropped] == GOOD
    checked = records.transform(decode(CONFIG, mode="PERMISSIVE")).orderBy("offset").collect()
    assert [found["value"] is None for found in checked] == [False, *[True] * len(BAD), False]
    assert all(PROBLEM in found["serde_error"] for found in checked if found["value"] is None)
    typed = deserialize("value", None, CONFIG, schema="id long, flux double", mode="PERMISSIVE").alias("v")
    fitted = records.select(typed, "offset").orderBy("offset").collect()
    assert [found["v"] and found["v"].asDict() for found in fitted] == [GOOD[0], *[None] * len(BAD), GOOD[1]]


def test_rows_that_do_not_match(spark: SparkSession) -> None:
    """Null is a value of a column, and no number to the schema."""
    rows = spark.createDataFrame([(1, 0.5), (2, None)], "id long, flux double")
    values = rows.select(functions.struct("*").alias("value"))
    [good] = values.where("value.flux is not null").transform(encode(CONFIG, topic="alerts")).collect()
    assert json.loads(good["value"]) == GOOD[0]
    with pytest.raises(PythonException, match=rf"EncodeError: {PROBLEM}.*topic=alerts.*stage=json"):
        values.transform(encode(CONFIG, topic="alerts")).collect()


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with registry.client() as found:
        yield found


@pytest.mark.full
def test_records_of_a_registry(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient, topic: str
) -> None:
    """Confluent's classes write and read the same records."""
    conf = registry.serializer_conf()
    config = {**CONFIG, "json.framing": "confluent", "schema.registry.url": registry.url}
    context = SerializationContext(topic, MessageField.VALUE)
    theirs = JSONSerializer(json.dumps(SCHEMA), client, conf=conf)
    read = JSONDeserializer(json.dumps(SCHEMA), schema_registry_client=client, conf=conf)
    typed = deserialize("value", None, config, schema="id long, flux double").alias("value")
    rows = [row(theirs(value, context), [], at) for at, value in enumerate(GOOD)]
    decoded = kafka(spark, rows).select(typed, "offset").orderBy("offset")
    encoded = decoded.transform(encode(config, topic=topic)).collect()
    assert [read(bytes(found["value"]), context) for found in encoded] == GOOD
    prefix = bytes(rows[0][1][:5])
    assert {bytes(found["value"][:5]) for found in encoded} == {prefix}
    unframed = row(json.dumps(GOOD[0]).encode(), [], len(rows))
    mixed = kafka(spark, [*rows, unframed]).transform(decode(config, mode="PERMISSIVE")).orderBy("offset")
    assert [found["value"] and json.loads(found["value"]) for found in mixed.collect()] == [*GOOD, None]
