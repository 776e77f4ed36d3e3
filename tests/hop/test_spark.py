"""What hop-client wrote, in Spark: value, key, headers and time of the stored record in place of its placeholder."""

import json
import uuid
from typing import Any

import bson
import pytest
from hop.models import AvroBlob, Blob, JSONBlob
from pyspark.sql import DataFrame, Row, SparkSession

from serde_chain.spark import decode, resolve_record
from serde_chain.testing.services import KafkaBroker, OffloadServer
from tests.http_servers import reply, serve
from tests.spark.records import kafka
from tests.spark.records import row as kafka_row

# hop-client warns of plain http, as it should.
pytestmark = pytest.mark.filterwarnings("ignore:Large message offload service is bare HTTP")

LARGE = 2_000_000
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "fields": [{"name": "id", "type": "long"}, {"name": "image", "type": "bytes"}],
    }
)


@pytest.fixture
def config(
    broker: KafkaBroker,
    offload_server: OffloadServer,  # noqa: ARG001  it announces itself
    announcements: None,  # noqa: ARG001  another worker than that of the other tests of hop
) -> dict[str, Any]:
    return {**broker.client_config("alice"), "large.message.payload.store.class": "hop"}


def read(spark: SparkSession, broker: KafkaBroker, topic: str) -> DataFrame:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return source.option("subscribe", topic).option("includeHeaders", "true").load().orderBy("offset")


def headers_of(row: Row) -> dict[str, bytes]:
    return {header["key"]: bytes(header["value"]) for header in row["headers"]}


@pytest.mark.full
def test_bytes(spark: SparkSession, broker: KafkaBroker, config: dict[str, Any], topic: str, new_hop: Any) -> None:
    hop = new_hop()
    for size in (10, LARGE):
        assert hop.write(topic, Blob(bytes(size)), headers={"h": b"v"}, key="k") is None
    records = read(spark, broker, topic)
    placeholder = records.collect()[1]
    decoded = records.transform(decode({**config, "value.deserializers": "large-message, bytes"}))
    assert decoded.schema == records.schema
    for row, size in zip(decoded.collect(), (10, LARGE), strict=True):
        assert (bytes(row["value"]), bytes(row["key"])) == (bytes(size), b"k")
        assert headers_of(row)["h"] == b"v"
        assert headers_of(row)["_format"] == b"blob"
    stored = decoded.collect()[1]
    assert headers_of(stored)["_id"] != headers_of(placeholder)["_id"]
    assert (stored["partition"], stored["offset"]) == (placeholder["partition"], placeholder["offset"])
    whole = records.select(
        resolve_record(
            "value",
            "headers",
            "key",
            {**config, "value.deserializers": "large-message, bytes"},
            topic="topic",
            timestamp="timestamp",
        ).alias("r")
    ).collect()
    assert [(len(row["r"]["value"]), bytes(row["r"]["key"])) for row in whole] == [(10, b"k"), (LARGE, b"k")]
    assert whole[1]["r"]["timestamp"] == stored["timestamp"]


def test_json(spark: SparkSession, broker: KafkaBroker, config: dict[str, Any], topic: str, new_hop: Any) -> None:
    hop = new_hop()
    documents = [{"id": at, "image": "x" * size} for at, size in enumerate((10, LARGE))]
    for document in documents:
        assert hop.write(topic, JSONBlob(document), key="k") is None
    decoded = read(spark, broker, topic).transform(decode({**config, "value.deserializers": "large-message, json"}))
    assert [json.loads(row["value"]) for row in decoded.collect()] == documents


def test_avro(spark: SparkSession, broker: KafkaBroker, config: dict[str, Any], topic: str, new_hop: Any) -> None:
    hop = new_hop()
    records = [{"id": at, "image": bytes(size)} for at, size in enumerate((10, LARGE))]
    for record in records:
        assert hop.write(topic, AvroBlob(record, schema=json.loads(SCHEMA)), key="k") is None
    assert hop.write(topic, Blob(b"another format")) is None
    settings = {"value.deserializers": "large-message, avro", "avro.framing": "container", "avro.schema": SCHEMA}
    decoded = read(spark, broker, topic).transform(decode({**config, **settings}, mode="PERMISSIVE"))
    *good, other = decoded.collect()
    assert [row["value"].asDict() for row in good] == records
    assert other["value"] is None
    assert "the format 'blob', not avro" in other["serde_error"]
    assert "offset=2" in other["serde_error"]


@pytest.mark.parametrize("timestamp", [1 << 62, pytest.param(-(1 << 62), marks=pytest.mark.full)])
def test_a_stored_record_of_a_time_that_spark_does_not_have_cannot_be_read(spark: SparkSession, timestamp: int) -> None:
    document = bson.encode({"message": b"payload", "headers": [], "key": b"stored", "timestamp": timestamp})
    external = [("_format", b"external")]
    with serve(lambda request: reply(request, 200, document, "application/bson")) as url:
        config = {
            "value.deserializers": "large-message, bytes",
            "large.message.payload.store.class": "hop",
            "hop.offload.url": url,
        }
        placeholder = json.dumps({"url": f"{url}/msg/{uuid.uuid4()}"}).encode()
        records = kafka(spark, [kafka_row(placeholder, external, 0, b"k"), kafka_row(b"good", [], 1)])
        bad, good = records.transform(decode(config, mode="PERMISSIVE")).collect()
        assert (bad["value"], bytes(bad["key"]), headers_of(bad)) == (None, b"k", dict(external))
        assert f"{timestamp} ms, out of Spark's range" in bad["serde_error"]
        assert "offset=0" in bad["serde_error"]
        assert (bytes(good["value"]), good["serde_error"]) == (b"good", None)
        with pytest.raises(Exception, match=r"DecodeError: .* out of Spark's range \[topic=alerts"):
            records.transform(decode(config)).collect()
