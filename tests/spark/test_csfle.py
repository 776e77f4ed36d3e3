"""Confluent's field encryption in Spark: its serializers, made by name in the workers, where their rules run."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.rules.encryption.dek_registry.dek_registry_client import DekRegistryClient
from pyspark.sql import SparkSession

from serde_chain import DeserializerChain, SerializerChain
from serde_chain.spark import decode, deserialize, encode
from tests.schemas.confluent_registry import ConfluentRegistries, confluent_registries
from tests.schemas.encrypted import encrypting, schema, stage
from tests.spark.records import kafka, row

ROWS = [(f"star {number}", str(number)) for number in range(40)]


@pytest.fixture
def registries() -> Iterator[ConfluentRegistries]:
    with confluent_registries() as running:
        running.schemas.register_schema("alerts-value", schema("AVRO", encrypting(expiry_days=1)))
        yield running


def writing(registries: ConfluentRegistries) -> dict[str, Any]:
    return {"value.serializers": [stage("AvroWriter", registries.url), "zstd"]}


def reading(registries: ConfluentRegistries) -> dict[str, Any]:
    return {"value.deserializers": ["zstd", stage("AvroReader", registries.url)]}


def written(spark: SparkSession, registries: ConfluentRegistries) -> list[bytes]:
    """Values that workers have encrypted."""
    frame = spark.createDataFrame(ROWS, "name string, numbers string").coalesce(1)
    encoded = frame.selectExpr("struct(*) value", "'alerts' topic").transform(encode(writing(registries)))
    values = [bytes(found.value) for found in encoded.collect()]
    inflate = DeserializerChain.from_config({"value.deserializers": "zstd"})
    assert not any(b"star" in inflate(value) for value in values)
    return values


def test_the_rules_run_in_the_workers(spark: SparkSession, registries: ConfluentRegistries) -> None:
    with SerializerChain.from_config(writing(registries)) as write:
        table = pa.table(list(zip(*ROWS, strict=True)), ["name", "numbers"])
        values = write.from_arrow(table, topic="alerts").values.to_pylist()
    # So old, for the rule, that the workers make a new key.
    for dek in registries.keys._dek_cache.deks.values():
        dek.ts -= 2 * 86_400_000
    values += written(spark, registries)
    assert sorted(dek.version for dek in registries.keys._dek_cache.deks.values()) == [1, 2]

    registries.asked.clear()
    records = kafka(spark, [row(value, [], at) for at, value in enumerate(values)])
    decoded = records.transform(decode(reading(registries)))
    assert decoded.schema["value"].dataType.simpleString() == "struct<name:string,numbers:string>"
    assert registries.asked == []
    assert sorted(map(tuple, decoded.select("value.*").collect())) == sorted([*ROWS, *ROWS])
    # The worker asks once for a key, not for each record.
    path = "/dek-registry/v1/keks/stars/deks/alerts-value/versions/{}"
    assert [registries.asked.count(path.format(version)) for version in (1, 2)] == [1, 1]
    star = deserialize("value", None, reading(registries), topic="topic", schema="numbers string, name string")
    found = records.select(star.alias("star")).select("star.numbers", "star.name").collect()
    assert sorted((name, number) for number, name in found) == sorted([*ROWS, *ROWS])

    # Another configuration, for a worker that has not seen the keys; and these are lost.
    registries.keys = DekRegistryClient.new_client({"url": "mock://"})
    other = {**reading(registries), "serde.error.policy": "raise"}
    lost = records.limit(2).transform(decode(other, mode="PERMISSIVE")).select("value", "serde_error").collect()
    assert [found_row.value for found_row in lost] == [None, None]
    assert all("no kek found for stars" in found_row.serde_error for found_row in lost)
