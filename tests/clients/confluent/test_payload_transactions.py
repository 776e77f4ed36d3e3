"""Payloads in the transactions of their records' producer: both are visible together, or neither."""

import hashlib
import threading
import uuid
import warnings
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from payload_stores import SupportsLeftovers, SupportsList, open_store
from payload_stores.kafka.store import KafkaStore
from serde_chain import ConfigError, Consumer, Producer, SerializerChain
from serde_chain.testing.services import KafkaBroker
from tests.clients.conftest import QUICK
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from tests.clients.conftest import Fetch, NewConsumer, NewProducer

CHAINS = {
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.payload.store.class": "kafka",
    "large.message.threshold.bytes": 1000,
}
SECONDS = 30


def large(number: int, size: int = 2_500_000) -> bytes:
    block = hashlib.sha256(str(number).encode()).digest()
    return block * (size // len(block))


def transactional() -> dict[str, Any]:
    return {**CHAINS, "transactional.id": f"id-{uuid.uuid4()}"}


@pytest.fixture
def store(broker: KafkaBroker) -> Iterator[KafkaStore]:
    store = open_store("kafka", broker.client_config())
    assert isinstance(store, KafkaStore)
    yield store
    store.close()


def in_topic(broker: KafkaBroker, topic: str, isolation: str) -> list[confluent_kafka.Message]:
    """All records of a topic's only partition that a plain consumer gets."""
    config = {
        **broker.client_config(),
        "group.id": str(uuid.uuid4()),
        "enable.partition.eof": True,
        **QUICK,
        "isolation.level": isolation,
    }
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[confluent_kafka.Message] = []
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return messages
            messages.append(message)
    finally:
        consumer.close()


def committed(broker: KafkaBroker, topic: str) -> int:
    return len(in_topic(broker, topic, "read_committed"))


def tombstones(broker: KafkaBroker, topic: str) -> int:
    return sum(message.value() is None for message in in_topic(broker, topic, "read_uncommitted"))


def begun(new_producer: "NewProducer", config: dict[str, Any]) -> Producer:
    producer = new_producer(config)
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    return producer


def test_chunks_and_records_become_visible_together(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    producer = begun(new_producer, transactional())
    for number in range(6):
        producer.produce(topic, large(number) if number % 2 else b"small")
    assert producer.flush(SECONDS) == 0
    payloads = f"{topic}.payloads"
    assert len(in_topic(broker, payloads, "read_uncommitted")) == 3 * 3, "three payloads of three chunks"
    assert committed(broker, payloads) == committed(broker, topic) == 0
    producer.commit_transaction(SECONDS)
    assert (committed(broker, payloads), committed(broker, topic)) == (9, 6)
    consumer = new_consumer(CHAINS)
    consumer.subscribe([topic])
    values = [message.value() for message in fetch(consumer, 6)]
    assert values == [large(number) if number % 2 else b"small" for number in range(6)]


def test_nothing_of_a_transaction_that_is_aborted_is_left(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", store: KafkaStore
) -> None:
    producer = begun(new_producer, transactional())
    producer.produce(topic, large(1))
    assert producer.flush(SECONDS) == 0
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce(topic, large(2))
    producer.commit_transaction(SECONDS)
    assert committed(broker, topic) == 1
    assert isinstance(store, SupportsList)
    assert [info.size for info in store.list(topic)] == [len(large(2))]
    assert isinstance(store, SupportsLeftovers)
    assert store.remove_leftovers(0) == 0
    assert tombstones(broker, f"{topic}.payloads") == 0, "the abort has done it"


def test_a_commit_waits_for_payloads_while_nothing_else_polls(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    # More than the client may hold: what waits for room has to let the others go on.
    producer = begun(new_producer, {**transactional(), "large.message.buffer.bytes": 6_000_000})
    for number in range(12):
        producer.produce(topic, large(number))
    producer.commit_transaction(SECONDS)
    consumer = new_consumer(CHAINS)
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 12)] == [large(number) for number in range(12)]


def test_callbacks_run_in_the_thread_that_polls(topic: str, new_producer: "NewProducer") -> None:
    threads: list[int] = []
    producer = begun(new_producer, transactional())
    for number in range(3):
        producer.produce(topic, large(number), on_delivery=lambda *_: threads.append(threading.get_ident()))
    producer.commit_transaction(SECONDS)
    assert threads == [threading.get_ident()] * 3


def test_two_producers_share_a_partition(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch"
) -> None:
    first, second = (begun(new_producer, transactional()) for _ in range(2))
    for number in range(6):
        (first, second)[number % 2].produce(topic, large(number))
        first.poll(0.05)
        second.poll(0.05)
    assert first.flush(SECONDS) == second.flush(SECONDS) == 0
    second.commit_transaction(SECONDS)
    first.abort_transaction(SECONDS)
    chunks = in_topic(broker, f"{topic}.payloads", "read_uncommitted")
    assert len(chunks) == 18, "both wrote there"
    consumer = new_consumer(CHAINS)
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 3)] == [large(number) for number in (1, 3, 5)]


def test_an_open_transaction_holds_no_reader_up(
    broker: KafkaBroker, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch", new_topic: Any
) -> None:
    held, topic = new_topic(), new_topic()
    config = {"kafka.payload.topic": f"payloads-{uuid.uuid4()}"}
    broker.create_topic(config["kafka.payload.topic"])
    waiting = begun(new_producer, {**transactional(), **config})
    waiting.produce(held, large(1))
    assert waiting.flush(SECONDS) == 0
    other = new_producer({**CHAINS, **config})
    other.produce(topic, large(2))
    assert other.flush(SECONDS) == 0
    consumer = new_consumer({**CHAINS, **config})
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, 1)] == [large(2)]
    waiting.abort_transaction(SECONDS)


def test_a_producer_that_is_fenced_commits_neither(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", store: KafkaStore
) -> None:
    config = transactional()
    fenced = begun(new_producer, config)
    fenced.produce(topic, large(1))
    assert fenced.flush(SECONDS) == 0
    successor = begun(new_producer, config)
    successor.produce(topic, large(2))
    successor.commit_transaction(SECONDS)
    fenced.produce(topic, large(3))
    with pytest.raises(KafkaException):
        fenced.commit_transaction(SECONDS)
    with pytest.raises(KafkaException) as caught:
        fenced.abort_transaction(SECONDS)
    assert caught.value.args[0].fatal()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # confluent_kafka's own, since it cannot abort
        assert fenced.close()
    assert committed(broker, topic) == 1
    assert [info.size for info in store.list(topic)] == [len(large(2))]


def test_what_is_aborted_while_it_is_written_is_in_no_later_transaction(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer"
) -> None:
    # Leftovers are those of all topics of the pattern, and other tests write theirs.
    own = {"kafka.payload.topic": f"payloads-{uuid.uuid4()}.{{topic}}"}
    producer = begun(new_producer, {**transactional(), **own})
    for number in range(5):
        for each in range(3):
            producer.produce(topic, large(each, 8_000_000))
        producer.poll(0.01 * number)
        producer.abort_transaction(SECONDS)
        producer.begin_transaction()
    producer.produce(topic, large(9))
    producer.commit_transaction(SECONDS)
    with closing(open_store("kafka", {**broker.client_config(), **own})) as store:
        assert isinstance(store, KafkaStore)
        assert [info.size for info in store.list(topic)] == [len(large(9))]
        assert store.remove_leftovers(0) == 0


def is_committed(producer: Producer) -> bool:
    """Commit, after a call that may have done it; or abort, where an interrupt has swallowed a report."""
    try:
        producer.commit_transaction(SECONDS)
    except KafkaException as error:
        if error.args[0].txn_requires_abort():
            producer.abort_transaction(SECONDS)
            return False
    return True


@pytest.mark.full
def test_ctrl_c_at_any_point_of_a_commit(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", fetch: "Fetch", store: KafkaStore
) -> None:
    producer = begun(new_producer, transactional())
    within = ("serde_chain/clients/", "payload_stores/kafka/")
    expected = []
    interrupts = 0
    for number in range(0, 400, 7):
        producer.produce(topic, large(number, 1_200_000))
        try:
            with interrupted_at(number, within):
                producer.commit_transaction(SECONDS)
        except KeyboardInterrupt:
            interrupts += 1
            if not is_committed(producer):
                producer.begin_transaction()
                continue
        expected.append(large(number, 1_200_000))
        producer.begin_transaction()
    producer.abort_transaction(SECONDS)
    assert interrupts > 5
    assert len(expected) > interrupts
    consumer = new_consumer(CHAINS)
    consumer.subscribe([topic])
    assert [message.value() for message in fetch(consumer, len(expected))] == expected
    assert consumer.poll(0.3) is None
    assert len(list(store.list(topic))) == len(expected), "no payload without its record, none twice"


def test_records_without_a_transaction_roll_back_by_tombstones(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", store: KafkaStore
) -> None:
    producer = new_producer(CHAINS)
    reports: list[Any] = []
    producer.produce(topic, large(1), partition=7, on_delivery=lambda error, _: reports.append(error and error.name()))
    assert producer.flush(SECONDS) == 0
    producer.close()
    assert reports == ["_UNKNOWN_PARTITION"]
    assert list(store.list(topic)) == []
    assert tombstones(broker, f"{topic}.payloads") == 3


def test_content_ids_roll_back_as_well_since_no_other_record_shares_the_payload(
    topic: str, new_producer: "NewProducer", store: KafkaStore
) -> None:
    producer = new_producer({**CHAINS, "large.message.id": "content"})
    producer.produce(topic, large(1))
    producer.produce(topic, large(1), partition=7)
    assert producer.flush(SECONDS) == 0
    producer.close()
    assert len(list(store.list(topic))) == 1


def test_a_store_on_another_cluster_is_in_no_transaction(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", store: KafkaStore
) -> None:
    config = {**transactional(), "kafka.bootstrap.servers": broker.bootstrap_servers}  # for all that it knows
    producer = begun(new_producer, config)
    producer.produce(topic, large(1))
    assert producer.flush(SECONDS) == 0
    assert len(list(store.list(topic))) == 1, "it was written at once"
    producer.abort_transaction(SECONDS)
    producer.close()
    assert list(store.list(topic)) == [], "and deleted"


def test_keys_are_refused() -> None:
    config = {**CHAINS, "key.serializers": "bytes, large-message", "bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match="gives equal keys different references") as caught:
        SerializerChain.from_config(config, is_key=True)
    assert caught.value.key == "large.message.payload.store.class"
    with pytest.raises(ConfigError, match="equal keys"):
        Producer(config)


def test_reports_of_errors_alone_are_refused() -> None:
    config = {**transactional(), "bootstrap.servers": "127.0.0.1:1", "delivery.report.only.error": True}
    with pytest.raises(ConfigError, match="learning where it has written"):
        Producer(config)


def test_a_reader_needs_nothing_but_the_stores_name(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", fetch: "Fetch"
) -> None:
    producer = new_producer(CHAINS)
    producer.produce(topic, large(1))
    assert producer.flush(SECONDS) == 0
    broker.allow("bob", ["READ"], topic=topic)
    broker.allow("bob", ["READ"], topic=f"{topic}.payloads")
    broker.allow("bob", ["READ"], group="*")
    config = {**CHAINS, **broker.client_config("bob"), "group.id": "bobs", "auto.offset.reset": "earliest"}
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        assert [message.value() for message in fetch(consumer, 1)] == [large(1)]
