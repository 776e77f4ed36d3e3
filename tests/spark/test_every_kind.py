"""One chain of each kind through ``deserialize``: what the chains themselves give."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from serde_chain import RecordContext, SerializerChain
from serde_chain.spark import deserialize
from serde_chain.testing.services import S3Server, SchemaRegistry
from tests.stages.protobuf.protobuf_messages import descriptor_set

pytestmark = pytest.mark.full

AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "blob", "type": "bytes"}],
    }
)
AVRO = {"avro.schema": AVRO_SCHEMA}
RECORDS = [{"id": 1, "blob": b"small"}, {"id": 2, "blob": bytes(range(256)) * 20}]
BYTES = [b"small", bytes(range(256)) * 20]
POSITIONS = [{"ra": 1.5, "dec": 0.0}, {"ra": 2.5, "dec": -3.5}]
TOPIC = "topic"
KEYS = {"encryption.keys": {"k": bytes(range(32))}}
DICTS = {"protobuf.message.name": "sky.Position", "protobuf.values": "dict"}

REGISTRY = {"schema.registry.url": ""}
FLAG = {"large.message.format": "bakdata-flag", "large.message.accept": "bakdata-flag"}
HEADERS = {**FLAG, "large.message.format": "bakdata-headers", "large.message.accept": "bakdata-headers"}
DESCRIBED = {"serde.chain.describe": True, "serde.chain.allow": "json, snappy, large-message"}
OBJECTS = [{"id": 1}, {"id": 2}]


class Kind(NamedTuple):
    """A chain in the order of the serializers, its settings, what goes through it, and the type if it says none.

    For stages whose columns hold the values as bytes, also the stage.
    """

    stages: str
    settings: dict[str, Any]
    values: list[Any]
    schema: str | None = None
    encoded_by: str | None = None


KINDS = {
    "avro confluent": Kind("avro, large-message", {**AVRO, **REGISTRY}, RECORDS),
    "avro header": Kind("avro, large-message", {**AVRO, **REGISTRY, "avro.framing": "header"}, RECORDS),
    "avro single-object": Kind("avro", {**AVRO, "avro.framing": "single-object"}, RECORDS),
    "avro container": Kind("avro, large-message", {**AVRO, "avro.framing": "container"}, RECORDS),
    "all of them": Kind("avro, zstd, encrypt, large-message, entry-metadata", {**AVRO, **KEYS}, RECORDS),
    "protobuf": Kind("protobuf, large-message", DICTS, POSITIONS),
    "protobuf confluent": Kind("protobuf", {**DICTS, **REGISTRY}, POSITIONS),
    "json": Kind("json, large-message", {}, OBJECTS, "id bigint"),
    "msgpack": Kind("msgpack, large-message", {}, OBJECTS, "id bigint"),
    "npy": Kind("npy, large-message", {}, [np.arange(3), np.ones((2, 2))], encoded_by="npy"),
    "arrow": Kind("arrow, zstd, large-message", {}, [pa.table({"id": [1]})], encoded_by="arrow"),
    "string": Kind("string, gzip, large-message", {}, ["small", "large" * 1000]),
    "bytes": Kind("bytes, lz4, large-message", {}, BYTES),
    "long": Kind("long", {}, [1, -(2**63)]),
    "bakdata-headers": Kind("bytes, large-message", {**HEADERS, "large.message.compression": "zstd"}, BYTES),
    "bakdata-flag": Kind("bytes, large-message", FLAG, BYTES),
    "self-describing": Kind("json, snappy, large-message", DESCRIBED, OBJECTS, "id bigint"),
}


@pytest.fixture
def stores(s3_server: S3Server, bucket: str, tmp_path: Path) -> dict[bool, dict[str, Any]]:
    """By whether it is bakdata's."""
    return {
        True: {"large.message.payload.store.class": "s3", **s3_server.store_config(bucket)},
        False: {"large.message.payload.store.class": "local", "local.path": str(tmp_path)},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_through_spark(
    spark: SparkSession, registry: SchemaRegistry, stores: dict[bool, dict[str, Any]], tmp_path: Path, kind: str
) -> None:
    values, schema, stage = KINDS[kind].values, KINDS[kind].schema, KINDS[kind].encoded_by
    writing, reading = configs(kind, registry, stores, tmp_path)
    rows = encoded(writing, [*values, None])
    frame = spark.createDataFrame(rows, "value binary, headers array<struct<key:string,value:binary>>").coalesce(1)
    column = deserialize("value", "headers", reading, topic=functions.lit(TOPIC), schema=schema)
    found = [row["v"] for row in frame.select(column.alias("v")).collect()]
    if stage is not None:
        values = [data for data, _ in encoded({"value.serializers": stage}, values)]
    assert [plain(value) for value in found] == [*values, None]


def configs(
    kind: str, registry: SchemaRegistry, stores: dict[bool, dict[str, Any]], folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The writer's configuration and the reader's."""
    stages, settings, *_ = KINDS[kind]
    config: dict[str, Any] = dict(settings)
    if "schema.registry.url" in config:
        config["schema.registry.url"] = registry.url
    if "large-message" in stages:
        config |= {**stores["bakdata" in kind], "large.message.threshold.bytes": 3}
    if "protobuf" in stages:
        config["protobuf.descriptor.set.file"] = str(folder / "descriptors")
        (folder / "descriptors").write_bytes(descriptor_set())
    described = "serde.chain.describe" in config
    reading = {**config, "value.deserializers": "auto" if described else stages.split(", ")[::-1]}
    return {**config, "value.serializers": stages}, reading


def encoded(config: Mapping[str, Any], values: list[Any]) -> list[tuple[bytes | None, Any]]:
    with SerializerChain.from_config(config) as chain:
        rows = []
        for value in values:
            headers: list[Any] = []
            rows.append((chain(value, RecordContext(TOPIC, "value", headers)), headers or None))
    return rows


def plain(value: Any) -> Any:
    """As the chain's own values are."""
    if hasattr(value, "asDict"):
        return {name: plain(found) for name, found in value.asDict().items()}
    return bytes(value) if isinstance(value, bytearray) else value
