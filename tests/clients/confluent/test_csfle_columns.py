"""Confluent's field encryption in batches: its serializers, made by name, on registries that answer any process."""

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.schema_registry.rules.encryption.dek_registry.dek_registry_client import DekRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.arrow import Batch
from tests.schemas.confluent_registry import ConfluentRegistries, confluent_registries
from tests.schemas.encrypted import STAR, encrypting, schema, stage, with_rules

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer, NewProducer

ROWS = [{"name": "Vega", "numbers": "1"}, {"name": "Deneb", "numbers": "2 " * 1000}]
LARGE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 1000}
KINDS = ["AVRO", "JSON", "PROTOBUF"]
CLASSES = {"AVRO": "Avro", "JSON": "Json", "PROTOBUF": "Protobuf"}


@pytest.fixture
def registries() -> Iterator[ConfluentRegistries]:
    with confluent_registries() as running:
        yield running


def writer(kind: str, url: str) -> SerializerChain:
    return SerializerChain.from_config({"value.serializers": [stage(f"{CLASSES[kind]}Writer", url), "zstd"]})


def reader(kind: str, url: str) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": ["zstd", stage(f"{CLASSES[kind]}Reader", url)]})


def theirs(kind: str, url: str) -> Any:
    """Confluent's own deserializer."""
    if kind == "AVRO":
        return AvroDeserializer(**with_rules(url))
    if kind == "JSON":
        return JSONDeserializer(None, **with_rules(url))
    return ProtobufDeserializer(STAR, **with_rules(url))


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_encrypted_and_read(kind: str, registries: ConfluentRegistries) -> None:
    registries.schemas.register_schema("stars-value", schema(kind, encrypting()))
    with writer(kind, registries.url) as write, reader(kind, registries.url) as read:
        values = write.from_arrow(pa.Table.from_pylist([*ROWS, *ROWS]), topic="stars").values
        assert read.to_arrow(values, topic="stars").to_pylist() == [*ROWS, *ROWS]
        # Each table has its own rows: they, not the user's, are what the rules change.
        one_by_one = [write(dict(row), RecordContext("stars", "value", [])) for row in ROWS]
        assert read.to_arrow([*one_by_one, None], topic="stars").to_pylist() == [*ROWS, None]
    # As they are, and for Confluent's reader.
    inflate = DeserializerChain.from_config({"value.deserializers": "zstd"})
    plain = [inflate(value.as_py()) for value in values]
    assert not any(name in data for data in plain for name in (b"Vega", b"Deneb"))
    ctx = SerializationContext("stars", MessageField.VALUE)
    found = [theirs(kind, registries.url)(data, ctx) for data in plain[:2]]
    assert [(star.name, star.numbers) if kind == "PROTOBUF" else tuple(star.values()) for star in found] == [
        tuple(row.values()) for row in ROWS
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_expire_are_replaced_and_the_old_ones_still_read(kind: str, registries: ConfluentRegistries) -> None:
    registries.schemas.register_schema("stars-value", schema(kind, encrypting(expiry_days=1)))
    table = pa.Table.from_pylist(ROWS)
    old = writer(kind, registries.url).from_arrow(table, topic="stars").values.to_pylist()
    # A DEK of yesterday is one whose registry notes so.
    for dek in registries.keys._dek_cache.deks.values():
        dek.ts -= 2 * 86_400_000
    new = writer(kind, registries.url).from_arrow(table, topic="stars").values.to_pylist()
    assert sorted(dek.version for dek in registries.keys._dek_cache.deks.values()) == [1, 2]
    with reader(kind, registries.url) as read:
        assert read.to_arrow([old[0], new[1], new[0], old[1]], topic="stars").to_pylist() == [*ROWS, *ROWS]


def test_a_lost_key_is_an_error_of_its_records(registries: ConfluentRegistries) -> None:
    registries.schemas.register_schema("stars-value", schema("AVRO", encrypting()))
    ctx = RecordContext("stars", "value", [])
    lost = writer("AVRO", registries.url)(dict(ROWS[0]), ctx)
    registries.keys = DekRegistryClient.new_client({"url": "mock://"})
    with reader("AVRO", registries.url) as read:
        result = read.read_batch(Batch([lost, None, b"foreign"], topic="stars"))
        assert result.values.to_pylist() == [None, None, None]
        assert sorted(result.errors) == [0, 2]
        assert "no kek found for stars" in str(result.errors[0])
        assert result.errors[0].about_record
        # A new key is not that of the old record, and reads the records that it wrote.
        found = writer("AVRO", registries.url)(dict(ROWS[0]), ctx)
        result = read.read_batch(Batch([lost, found], topic="stars"))
        assert result.values.to_pylist() == [None, ROWS[0]]
        assert sorted(result.errors) == [0]


def test_through_a_broker(
    registries: ConfluentRegistries, topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    registries.schemas.register_schema(f"{topic}-value", schema("AVRO", encrypting()))
    config = {**LARGE, "value.serializers": [stage("AvroWriter", registries.url), "large-message"]}
    assert new_producer(config).produce_arrow(pa.Table.from_pylist(ROWS), topic) == 2
    config = {**LARGE, "value.deserializers": ["large-message", stage("AvroReader", registries.url)]}
    config["group.id"] = uuid.uuid4().hex
    consumer = new_consumer(config)
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < 2:
        found += consumer.consume_arrow(2, 1)["value"].to_pylist()
    assert found == ROWS
