"""Records through a real broker, with our clients and with confluent_kafka's own."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer, TopicPartition

from payload_stores import SupportsList, open_store
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import DeserializerChain, PayloadStoreError, SerializationError, SerializerChain
from serde_chain.testing.alerts import ALERT_SCHEMA, alert
from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer
    from tests.conftest import NewTopic

LARGE = {"large.message.payload.store.class": "memory"}
BYTES = {"value.serializers": "bytes, large-message", "value.deserializers": "large-message, bytes", **LARGE}
ALERTS = {
    "value.serializers": "avro, zstd, large-message",
    "value.deserializers": "large-message, zstd, avro",
    "key.serializer": "string",
    "key.deserializer": "string",
    "avro.schema": ALERT_SCHEMA,
    **LARGE,
}


def test_records_of_all_sizes(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    sizes = [1_000, 100_000, 1_500_000, 5_000, 2_000_000]
    alerts = [alert(number, size) for number, size in enumerate(sizes)]
    producer = new_producer(ALERTS)
    for number, value in enumerate(alerts):
        producer.produce(topic, value, f"key-{number}", headers=[("number", str(number))])
    assert producer.flush(30) == 0
    consumer = new_consumer(ALERTS)
    consumer.subscribe([topic])
    messages = fetch(consumer, len(alerts))
    assert [message.value() for message in messages] == alerts
    assert [message.key() for message in messages] == [f"key-{number}" for number in range(5)]
    assert [message.headers() for message in messages] == [[("number", str(n).encode())] for n in range(5)]
    assert len(list(MemoryStore().list(topic))) == 2


def test_files_are_streamed_in_order_with_other_records(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch", tmp_path: Path
) -> None:
    path = tmp_path / "image.fits"
    path.write_bytes(bytes(range(256)) * 10_000)
    reports: list[Any] = []
    producer = new_producer(BYTES)
    with path.open("rb") as file:
        for value in (path, b"small", file, tmp_path / "missing.fits", path):
            try:
                producer.produce(topic, value, on_delivery=lambda error, _: reports.append(error))
            except SerializationError as error:
                assert "missing.fits cannot be read" in str(error)  # noqa: PT017  the others go on
        assert producer.flush(30) == 0
    assert reports == [None] * 4
    consumer = new_consumer(BYTES)
    consumer.subscribe([topic])
    whole = path.read_bytes()
    assert [message.value() for message in fetch(consumer, 4)] == [whole, b"small", whole, whole]


def test_a_file_that_changes_before_its_upload_is_reported(
    topic: str, new_producer: "NewProducer", tmp_path: Path
) -> None:
    path = tmp_path / "image.fits"
    path.write_bytes(bytes(2_000_000))
    store = FaultyStore(MemoryStore())
    reports: list[Any] = []
    producer = new_producer(BYTES, **{"large.message.payload.store.class": store})
    with store.hanging():
        producer.produce(topic, path, on_delivery=lambda error, _: reports.append(error))
        path.write_bytes(bytes(1_999_999))
    assert producer.flush(30) == 0
    assert "was modified after its record was produced" in str(reports[0].__cause__)
    assert list(MemoryStore().list(topic)) == []


@pytest.mark.parametrize("call", ["poll", "consume"])
def test_a_lazy_consumer_downloads_what_it_is_asked_for(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", call: str
) -> None:
    producer = new_producer(BYTES)
    values = [bytes([number]) * (2_000_000 if number % 2 else 10) for number in range(6)]
    for number, value in enumerate(values):
        producer.produce(topic, value, headers=[("number", str(number).encode())])
    assert producer.flush(30) == 0
    store = FaultyStore(MemoryStore())
    lazy = {"large.message.fetch": "lazy", "large.message.payload.store.class": store}
    consumer = new_consumer(BYTES, **lazy)
    consumer.subscribe([topic])
    until = time.monotonic() + 30
    messages: list[Any] = []
    while len(messages) < len(values) and time.monotonic() < until:
        came = [consumer.poll(0.5)] if call == "poll" else consumer.consume(10, 0.5)
        messages += [message for message in came if message is not None]
    handles = [message.value() for message in messages]
    assert [handle.size for handle in handles] == [len(value) for value in values]
    assert [message.headers() for message in messages] == [[("number", str(n).encode())] for n in range(6)]
    assert store.calls == []
    assert handles[3].read() == values[3]
    with handles[5].open() as file:
        assert file.read() == values[5]
    assert handles[4].read() == values[4]
    assert store.calls == ["download", "open"]
    consumer.close()
    with pytest.raises(PayloadStoreError, match="its reader is closed"):
        handles[1].read()


@pytest.fixture
def kip_config(registry: SchemaRegistry, s3_server: S3Server, bucket: str) -> dict[str, object]:
    """The example of KIP-1159, with its Java names and its strings for numbers."""
    kafka = "org.apache.kafka.common.serialization"
    return {
        "value.serializers": f"kafka.serializers.KafkaAvroSerializer, {kafka}.largemessage.Serializer",
        "key.serializer": f"{kafka}.StringSerializer",
        "value.deserializers": f"{kafka}.largemessage.Deserializer, kafka.serializers.KafkaAvroDeserializer",
        "key.deserializer": f"{kafka}.StringDeserializer",
        "large.message.payload.store.class": f"{kafka}.largemessage.S3PayloadStore",
        "large.message.threshold.bytes": "1048576",
        "schema.registry.url": registry.url,
        **s3_server.store_config(bucket),
        "s3.retry.attempts": "3",
        "s3.connection.timeout.ms": "5000",
    }


def test_the_kips_own_example(
    kip_config: dict[str, object], topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    alerts = [alert(1, 2_000), alert(2, 3_000_000)]
    producer = new_producer({**kip_config, "avro.schema": ALERT_SCHEMA})
    for value in alerts:
        producer.produce(topic, value, value["object_id"])
    assert producer.flush(30) == 0
    consumer = new_consumer(kip_config)
    consumer.subscribe([topic])
    messages = fetch(consumer, 2)
    assert [message.value() for message in messages] == alerts
    assert [message.key() for message in messages] == [value["object_id"] for value in alerts]
    store = open_store("s3", kip_config)
    assert isinstance(store, SupportsList)
    [stored] = store.list(topic)
    assert 2_900_000 < stored.size < 3_100_000
    store.close()


def test_without_chains_it_is_confluents_client(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    producer, consumer = new_producer(), new_consumer()
    producer.produce(topic, "text", b"key", headers={"a": b"1"})
    producer.produce(topic, key="only a key")
    producer.produce(topic)
    assert (len(producer), bool(producer)) == (3, True)
    assert producer.flush(30) == 0
    consumer.subscribe([topic])
    messages = fetch(consumer, 3)
    assert [(message.key(), message.value()) for message in messages] == [
        (b"key", b"text"), (b"only a key", None), (None, None),
    ]  # fmt: skip
    assert messages[0].headers() == [("a", b"1")]


def test_plain_clients_see_the_kips_record(topic: str, broker: KafkaBroker, new_producer: "NewProducer") -> None:
    producer = new_producer(BYTES)
    producer.produce(topic, bytes(2_000_000), b"key", headers=[("user", b"1")])
    assert producer.flush(30) == 0
    plain = confluent_kafka.Consumer({**broker.client_config(), "group.id": "plain", "auto.offset.reset": "earliest"})
    plain.assign([TopicPartition(topic, 0, 0)])
    message = plain.poll(30)
    plain.close()
    assert message is not None
    assert (message.value() or b"").startswith(f"memory:///{topic}/".encode())
    names = [name for name, _ in list(message.headers() or ())]
    assert names == ["user", "large-message", "large-message-size", "large-message-digest"]


def test_tombstones_on_a_compacted_topic(
    new_topic: "NewTopic", new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    topic = new_topic(config={"cleanup.policy": "compact"})
    config = {**ALERTS, "large.message.id": "keyed"}
    producer, consumer = new_producer(config), new_consumer(config)
    producer.produce(topic, alert(1, 2_000_000), "one")
    producer.produce(topic, None, "one")
    assert producer.flush(30) == 0
    consumer.subscribe([topic])
    large, tombstone = fetch(consumer, 2)
    assert large.value() == alert(1, 2_000_000)
    assert (tombstone.key(), tombstone.value(), tombstone.headers()) == ("one", None, None)


def test_the_callers_headers_are_not_changed(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    producer, consumer = new_producer(BYTES), new_consumer(BYTES)
    as_list: list[Any] = [("a", b"1"), ("a", "2"), ("none", None)]
    as_dict = {"a": b"1", "b": "2"}
    for headers in (as_list, as_dict, as_list):
        producer.produce(topic, bytes(1_100_000), headers=headers)
    assert producer.flush(30) == 0
    assert as_list == [("a", b"1"), ("a", "2"), ("none", None)]
    assert as_dict == {"a": b"1", "b": "2"}
    consumer.subscribe([topic])
    first, second, third = (message.headers() for message in fetch(consumer, 3))
    assert first == third == [("a", b"1"), ("a", b"2"), ("none", None)]
    assert second == [("a", b"1"), ("b", b"2")]


def test_delivery_reports(topic: str, new_producer: "NewProducer") -> None:
    producer = new_producer(BYTES)
    reports: list[tuple[Any, Any]] = []

    def report(error: Any, message: Any) -> None:
        reports.append((error, message.offset()))

    producer.produce(topic, b"a", on_delivery=report)
    producer.produce(topic, b"b", callback=report, partition=0, timestamp=1_600_000_000_000)
    assert producer.flush(30) == 0
    assert reports == [(None, 0), (None, 1)]
    with pytest.raises(SerializationError, match=r"bytes takes bytes, not int \[topic=test-.*value.*such as json"):
        producer.produce(topic, 7, on_delivery=report)
    with pytest.raises(SerializationError, match=r"bytes takes bytes, not str .*Begin the chain with string"):
        producer.produce(topic, "text", on_delivery=report)
    assert len(producer) == 0


def test_a_batch_keeps_its_headers(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    producer, consumer = new_producer(BYTES), new_consumer(BYTES)
    delivered: list[Any] = []
    messages: list[dict[str, Any]] = [
        {"value": b"a", "key": b"k", "headers": [("n", b"1")], "timestamp": 1_600_000_000_000},
        {"value": "not bytes"},
        {"value": bytes(1_200_000), "headers": {"n": b"2"}, "partition": 0},
    ]
    count = producer.produce_batch(topic, messages, on_delivery=lambda error, _message: delivered.append(error))
    assert count == 2
    assert producer.flush(30) == 0
    assert delivered == [None, None]
    assert [isinstance(message.get("_error"), SerializationError) for message in messages] == [False, True, False]
    consumer.subscribe([topic])
    first, second = fetch(consumer, 2)
    assert (first.value(), first.headers(), first.timestamp()[1]) == (b"a", [("n", b"1")], 1_600_000_000_000)
    assert (second.value(), second.headers()) == (bytes(1_200_000), [("n", b"2")])


def test_transactions(topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch") -> None:
    producer = new_producer(BYTES, **{"transactional.id": topic})
    consumer = new_consumer(BYTES, **{"isolation.level": "read_committed"})
    producer.init_transactions(30)
    for value, commits in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value * 200_000)
        assert producer.flush(30) == 0
        if commits:
            group = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, 0)], group, 30)
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 1)] == [b"committed" * 200_000]


# In confluent_kafka's own clients


def test_chains_are_serializers_for_confluents_clients(broker: KafkaBroker, topic: str) -> None:
    write, read = SerializerChain.from_config(ALERTS), DeserializerChain.from_config(ALERTS)
    producer = SerializingProducer({**broker.client_config(), "value.serializer": write})
    values = [alert(1, 2_000), alert(2, 1_500_000)]
    for value in values:
        producer.produce(topic, value=value, headers=[("user", b"1")])
    assert producer.flush(30) == 0
    consumer = DeserializingConsumer(
        {**broker.client_config(), "value.deserializer": read, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        until = time.monotonic() + 30
        found: list[Any] = []
        while len(found) < 2 and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None:
                found.append(message.value())
        assert found == values
    finally:
        consumer.close()
