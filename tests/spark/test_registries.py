"""Registries other than Confluent's in Spark, and Protobuf without a message class."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

from serde_chain import ConfigError, SchemaRegistryError
from serde_chain.spark import decode, deserialize, explain
from serde_chain.testing.services import S3Server, SchemaRegistry
from tests.schemas.contexts import context_registry
from tests.schemas.messages import ALERT, MESSAGE
from tests.schemas.test_contexts import staged
from tests.spark.records import encoded, kafka, row

OLDER = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}
NEWER = {**OLDER, "fields": [*OLDER["fields"], {"name": "name", "type": "string", "default": ""}]}


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=["glue", "apicurio"])
def settings(
    request: pytest.FixtureRequest, registry: SchemaRegistry, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    if request.param == "glue":
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        return {
            "schema.registry.type": "glue",
            "glue.region": "eu-west-1",
            "glue.endpoint.url": s3_server.url,
        }
    return {
        "schema.registry.type": "apicurio",
        "schema.registry.url": registry.url.replace("/apis/ccompat/v7", "/apis/registry/v3"),
    }


def test_spark_reads_avro_itself(spark: SparkSession, settings: dict[str, Any], topic: str) -> None:
    writing = {"value.serializer": "avro", **settings}
    rows = []
    for at, schema in enumerate((OLDER, NEWER)):
        value = {"id": at, "name": "a"}
        rows.append(row(encoded({**writing, "avro.schema": json.dumps(schema)}, value, [], topic), [], at))
    reading = {"value.deserializer": "avro", "avro.reader.schema": json.dumps(NEWER), **settings}
    assert "Python the schema ids other than these 2" in explain(reading, engine="native", topics=topic)
    found = kafka(spark, rows).transform(decode(reading, engine="native", topics=topic)).select("value.*")
    assert sorted(map(tuple, found.collect())) == [(0, ""), (1, "a")]


@pytest.mark.parametrize("settings", ["glue"], indirect=True)
@pytest.mark.parametrize("engine", ["native", "arrow"])
def test_compressed_records_of_glue(
    spark: SparkSession, settings: dict[str, Any], topic: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's functions cannot read those, which Python reads instead."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # of the workers, which ask the registry
        monkeypatch.setitem(spark.sparkContext.environment, name, "test")
    writing = {"value.serializer": "avro", "avro.schema": json.dumps(NEWER), **settings}
    values = [{"id": at, "name": "a" * 1000} for at in range(2)]
    rows = [
        row(encoded({**writing, "glue.compression": compression}, value, [], topic), [], at)
        for at, (value, compression) in enumerate(zip(values, ("none", "zlib"), strict=True))
    ]
    assert [len(each[1]) > 1000 for each in rows] == [True, False]
    reading = {"value.deserializer": "avro", "avro.reader.schema": json.dumps(NEWER), **settings}
    found = kafka(spark, rows).transform(decode(reading, engine=engine, topics=topic)).select("value.*")
    assert sorted(map(tuple, found.collect())) == [(0, "a" * 1000), (1, "a" * 1000)]


def test_a_column_without_a_schema_says_where_it_could_come_from(settings: dict[str, Any], topic: str) -> None:
    with pytest.raises(ConfigError, match=r"Set avro\.reader\.schema .*use\.latest\.version = true and topics="):
        decode({"value.deserializer": "avro", **settings}, topics=topic)


def test_a_column_of_protobuf_is_typed_by_the_registry(
    spark: SparkSession, settings: dict[str, Any], topic: str
) -> None:
    writing = {"value.serializer": "protobuf", "protobuf.message.class": ALERT, **settings}
    records = kafka(spark, [row(encoded(writing, MESSAGE, [], topic), [], 0)])
    reading = {"value.deserializer": "protobuf", **settings}
    with pytest.raises(ConfigError, match=r"has 2 messages.*Set protobuf.message.name to one of survey\.Visit, survey"):
        decode(reading, topics=topic)
    reading["protobuf.message.name"] = "survey.Alert"
    with pytest.raises(ConfigError, match=r"type of the values is unknown.*Pass topics="):
        decode(reading)
    found = records.transform(decode(reading, topics=topic))
    assert "time:struct<seconds:bigint,nanos:int>" in found.schema["value"].dataType.simpleString()
    ((value,),) = found.select("value").collect()
    assert (value.id, value.magnitude, value.scores, value.band) == (7, 21.5, {"real": 0.5}, "R")
    assert (value.time.seconds, [list(visit.flux) for visit in value.history]) == (5, [[1.5]])
    column = deserialize("value", None, reading, topics=topic)
    assert records.select(column.alias("v")).select("v.name").first() == ("M 51",)


def test_a_topic_without_schemas_is_said(settings: dict[str, Any], topic: str) -> None:
    with pytest.raises(SchemaRegistryError, match=f"the latest schema of {topic}"):
        decode({"value.deserializer": "protobuf", **settings}, topics=topic)


def test_avro_is_read_into_the_latest_schema(
    spark: SparkSession, settings: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # of the workers, which ask the registry
        monkeypatch.setitem(spark.sparkContext.environment, name, "test")
    writing = {"value.serializer": "avro", **settings}
    rows = [
        row(encoded({**writing, "avro.schema": json.dumps(schema)}, {"id": at, "name": "a"}, [], topic), [], at)
        for at, schema in enumerate((OLDER, NEWER))
    ]
    reading = {"value.deserializer": "avro", "use.latest.version": True, **settings}
    for engine in ("auto", "arrow"):
        found = kafka(spark, rows).transform(decode(reading, topics=topic, engine=engine)).select("value.*")
        assert sorted(map(tuple, found.collect())) == [(0, ""), (1, "a")]


def test_topics_of_two_contexts(spark: SparkSession) -> None:
    """One schema id means two schemas, so Spark's own function reads neither."""
    with context_registry() as contexts:
        for subject, kind in (("orders-value", "int"), (":.staging:orders-value", "string")):
            fields = [{"name": "id", "type": "int"}, {"name": "was", "type": kind}]
            contexts.register(subject, json.dumps({"type": "record", "name": "R", "fields": fields}))
        own = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
        reading = {
            "value.deserializer": "avro",
            "avro.reader.schema": json.dumps(own),
            "schema.registry.url": contexts.url,
            "subject.name.strategy": staged,
        }
        topics = ["orders", "staging-orders"]
        assert "one schema id means several schemas" in explain({**reading, "avro.native": "off"}, topics=topics)
        rows = [row(b"\0\0\0\0\1" + body, [], at) for at, body in enumerate((b"\2\4", b"\4\4ab"))]
        records = kafka(spark, rows).withColumn(
            "topic", functions.when(functions.col("offset") == 0, "orders").otherwise("staging-orders")
        )
        found = records.transform(decode(reading, topics=topics)).select("value.id")
        assert sorted(map(tuple, found.collect())) == [(1,), (2,)]


def test_json_schemas_of_several_files(spark: SparkSession, tmp_path: Path) -> None:
    """The workers get them from the driver; what leads nowhere is said before a row is dropped."""
    star = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    (tmp_path / "alert.json").write_text(json.dumps({"properties": {"star": {"$ref": "core/star.json"}}}))
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "star.json").write_text(json.dumps(star))
    reading = {"value.deserializer": "json", "json.schema.file": str(tmp_path / "alert.json")}
    rows = [row(value, [], at) for at, value in enumerate((b'{"star":{"name":"Vega"}}', b'{"star":{}}', b"{}"))]
    change = decode(reading, mode="DROPMALFORMED")
    (tmp_path / "core" / "star.json").unlink()
    assert kafka(spark, rows).transform(change).count() == 2
    with pytest.raises(ConfigError, match=r"core/star\.json' leads nowhere"):
        decode(reading, mode="DROPMALFORMED")
