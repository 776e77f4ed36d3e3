"""``large-fields`` in clients: through a real broker, a real S3 server and a real registry."""

import asyncio
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from payload_stores import PayloadStoreUnavailableError, open_store
from payload_stores.testing import FaultyStore
from serde_chain import AsyncProducer, Consumer, PayloadHandle, Producer
from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry

SCHEMA = """{"type": "record", "name": "Alert", "fields": [
    {"name": "id", "type": "long"}, {"name": "flux", "type": "double"},
    {"name": "cutout", "type": {"type": "record", "name": "Cutout", "fields": [{"name": "data", "type": "bytes"}]}},
    {"name": "stamps", "type": {"type": "array", "items": "bytes"}}]}"""
COUNT = 40
STORE = "large.message.payload.store.class"


def value(at: int) -> dict[str, Any]:
    stamps = [bytes([at]) * size for size in (10, 20_000, 9_000)] if at % 2 else []
    return {"id": at, "flux": at / 10, "cutout": {"data": bytes([at]) * 30_000}, "stamps": stamps}


@pytest.fixture
def store(s3_server: S3Server, bucket: str) -> Iterator[FaultyStore]:
    opened = open_store("s3", s3_server.store_config(bucket))
    yield FaultyStore(opened)
    opened.close()


@pytest.fixture
def config(broker: KafkaBroker, registry: SchemaRegistry, store: FaultyStore) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "log_level": 0,
        "linger.ms": 0,
        "schema.registry.url": registry.url,
        "avro.schema": SCHEMA,
        "value.serializers": "large-fields, avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro, large-fields",
        "large.fields.paths": "cutout.data, stamps[]",
        STORE: store,
    }


def produced(config: dict[str, Any], topic: str, count: int = COUNT) -> None:
    with Producer(config) as producer:
        for at in range(count):
            producer.produce(topic, value(at), str(at))
        assert producer.flush(60) == 0


def consumer(config: dict[str, Any], topic: str, **settings: Any) -> Any:
    settings = {key.replace("_", "."): setting for key, setting in settings.items()}
    found = Consumer({**config, "group.id": topic, "enable.auto.commit": False, **settings})
    found.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    return found


def inner(store: FaultyStore) -> Any:
    return store.store


def objects(store: FaultyStore, topic: str) -> int:
    return sum(1 for _ in inner(store).list(topic))


@pytest.mark.full
def test_records_come_back_in_order(config: dict[str, Any], store: FaultyStore, topic: str) -> None:
    produced(config, topic)
    assert objects(store, topic) == COUNT + COUNT // 2 * 2
    with consumer(config, topic) as reader:
        found = reader.consume(COUNT, 60)
        assert [message.value() for message in found] == [value(at) for at in range(COUNT)]
        assert not any(message.headers() for message in found)
        reader.seek(confluent_kafka.TopicPartition(topic, 0, 0))
        polled = [reader.poll(30) for _ in range(COUNT)]
    assert [message and message.value() for message in polled] == [value(at) for at in range(COUNT)]


def test_a_filter_on_small_fields_asks_the_store_for_nothing(
    config: dict[str, Any], store: FaultyStore, topic: str
) -> None:
    produced(config, topic)
    store.calls.clear()
    with consumer(config, topic, large_fields_fetch="lazy") as reader:
        found = [message.value() for message in reader.consume(COUNT, 60)]
        bright = [alert for alert in found if alert["flux"] > 3.5]
        assert (len(bright), store.calls) == (4, [])
        handle = bright[0]["cutout"]["data"]
        assert isinstance(handle, PayloadHandle)
        assert handle.read() == value(36)["cutout"]["data"]
        assert len(store.calls) == 1
    store.calls.clear()
    with consumer(config, topic) as reader:
        table = reader.consume_arrow(COUNT, 60, columns=["id", "flux"])
        assert table["value"].to_pylist() == [{"id": at, "flux": at / 10} for at in range(COUNT)]
        assert store.calls == []
    with consumer(config, topic) as reader:
        table = reader.consume_arrow(COUNT, 60, columns=["cutout.data"])
        assert table["value"].to_pylist() == [{"cutout": value(at)["cutout"]} for at in range(COUNT)]
        assert len(store.calls) == COUNT


def test_a_wrong_column_loses_no_record(config: dict[str, Any], topic: str) -> None:
    produced(config, topic, 3)
    with consumer(config, topic) as reader:
        with pytest.raises(Exception, match="Did you mean flux"):
            reader.consume_arrow(3, 60, columns=["fluxx"])
        assert reader.consume_arrow(3, 60, columns=["flux"])["offset"].to_pylist() == [0, 1, 2]


def test_tables_respect_the_bound_of_selected_fields(config: dict[str, Any], topic: str) -> None:
    produced(config, topic, 6)
    settings = {"large.message.downloads.max.bytes": 65_000}
    with consumer({**config, **settings}, topic) as reader:
        sizes: list[int] = []
        while sum(sizes) < 6:
            sizes.append(len(reader.consume_arrow(6 - sum(sizes), 60, columns=["cutout.data"])))
        assert max(sizes) <= 3
        reader.seek(confluent_kafka.TopicPartition(topic, 0, 0))
        assert len(reader.consume_arrow(6, 60, columns=["id"])) == 6


def test_confluents_deserializer_reads_the_rest(config: dict[str, Any], registry: SchemaRegistry, topic: str) -> None:
    config |= {"value.serializers": "large-fields, avro"}
    produced(config, topic, 2)
    with (
        SchemaRegistryClient({"url": registry.url, "timeout": 30}) as client,
        consumer({**config, "value.deserializers": "bytes"}, topic) as reader,
    ):
        theirs = AvroDeserializer(client)
        for at, message in enumerate(reader.consume(2, 60)):
            found = theirs(message.value(), SerializationContext(topic, MessageField.VALUE))
            assert (found["id"], found["flux"]) == (at, at / 10)
            assert found["cutout"]["data"].startswith(b"s3://")


def test_a_record_that_fails_later_leaves_nothing(config: dict[str, Any], store: FaultyStore, topic: str) -> None:
    # By record: a failed one is reported once its payloads are deleted, which may be after the next one's delivery.
    reports: dict[str, Any] = {}
    with Producer(config) as producer:
        wrong = {**value(1), "flux": "bright"}
        producer.produce(topic, wrong, on_delivery=lambda error, _: reports.update(wrong=error))
        producer.produce(topic, value(2), on_delivery=lambda error, _: reports.update(right=error))
        assert producer.flush(60) == 0
    assert reports["right"] is None
    assert "flux" in str(reports["wrong"])
    assert objects(store, topic) == 1


def test_one_failed_upload_leaves_nothing(config: dict[str, Any], store: FaultyStore, topic: str) -> None:
    reports: list[Any] = []
    store.fail(PayloadStoreUnavailableError("down"))
    with Producer(config) as producer:
        producer.produce(topic, value(1), on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(60) == 0
    assert "down" in str(reports[0])
    assert objects(store, topic) == 0


def test_an_aborted_transaction_leaves_nothing(config: dict[str, Any], store: FaultyStore, topic: str) -> None:
    with Producer({**config, "transactional.id": topic}) as producer:
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, value(1))
        producer.flush(60)
        assert objects(store, topic) == 3
        producer.abort_transaction(60)
        producer.begin_transaction()
        producer.produce(topic, value(3))
        producer.commit_transaction(60)
    assert objects(store, topic) == 3
    with consumer(config, topic, isolation_level="read_committed") as reader:
        assert [message.value()["id"] for message in reader.consume(1, 60)] == [3]


def test_a_missing_payload_is_the_records_fault(config: dict[str, Any], store: FaultyStore, topic: str) -> None:
    produced(config, topic, 3)
    with consumer({**config, "large.fields.fetch": "lazy"}, topic) as reader:
        (first, *_) = reader.consume(3, 60)
        inner(store).delete(first.value()["cutout"]["data"].reference)
    with consumer({**config, "serde.error.policy": "skip"}, topic) as reader:
        assert [reader.poll(60).value()["id"] for _ in range(2)] == [1, 2]
        assert reader.skipped == 1


def test_asyncio(config: dict[str, Any], topic: str) -> None:
    async def send() -> None:
        async with AsyncProducer(config) as producer:
            for at in range(5):
                await producer.produce(topic, value(at))

    asyncio.run(send())
    with consumer(config, topic) as reader:
        assert [message.value() for message in reader.consume(5, 60)] == [value(at) for at in range(5)]
