"""The consumer: records that cannot be read, offsets, pausing, rebalances, and a broker that is not there."""

import threading
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import (
    Consumer,
    DecodeError,
    PayloadNotFoundError,
    PayloadStoreUnavailableError,
    Producer,
    SerializationError,
)
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer
    from tests.conftest import NewTopic

JSON = {"value.deserializer": "json"}
GOOD = [b"0", b"1", b"not json", b"3", b"4"]


def fill(broker: KafkaBroker, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 50})
    for value in values:
        producer.produce(topic, value, partition=partition, headers=[("raw", value)])
    assert producer.flush(30) == 0


def read(consumer: Consumer, count: int, batch: int | None) -> list[Any]:
    """Values, and offsets of errors in their place, until there are as many as wanted; poll() where batch is None."""
    found: list[Any] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        try:
            one = consumer.poll(0.5) if batch is None else None
            messages = ([] if one is None else [one]) if batch is None else consumer.consume(batch, 0.5)
        except SerializationError as error:
            found.append(("bad", error.offset))
        else:
            assert all(message.error() is None for message in messages)
            found += [message.value() for message in messages]
    return found


@pytest.mark.parametrize("batch", [None, 1, 2, 3, 100])
def test_good_records_around_a_bad_one_are_all_handed_over(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", batch: int | None
) -> None:
    fill(broker, topic, GOOD)
    consumer = new_consumer(JSON)
    consumer.subscribe([topic])
    assert read(consumer, 5, batch) == [0, 1, ("bad", 2), 3, 4]
    assert consumer.consume(10, 0.2) == []


def test_several_bad_records(broker: KafkaBroker, topic: str, new_consumer: "NewConsumer") -> None:
    fill(broker, topic, [b"x", b"y", b"2", b"z"])
    consumer = new_consumer(JSON)
    consumer.subscribe([topic])
    assert read(consumer, 4, 10) == [("bad", 0), ("bad", 1), 2, ("bad", 3)]


def test_the_error_carries_the_record_and_its_place(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer"
) -> None:
    fill(broker, topic, [b"not json"])
    consumer = new_consumer(JSON)
    consumer.subscribe([topic])
    with pytest.raises(DecodeError, match=r"not JSON.*topic=test-.*, partition=0, offset=0\]") as caught:
        consumer.poll(30)
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.field) == (topic, 0, 0, "value")
    record: Any = error.record
    assert (record.value(), record.headers(), record.offset()) == (b"not json", [("raw", b"not json")], 0)


@pytest.mark.parametrize("batch", [None, 10])
def test_a_restart_meets_the_bad_record_again(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", batch: int | None
) -> None:
    fill(broker, topic, GOOD)
    config = {**JSON, "group.id": topic}
    with new_consumer(config) as first:
        first.subscribe([topic])
        assert read(first, 3, batch) == [0, 1, ("bad", 2)]
    # Closing committed what was handed over, and nothing behind the record that was not.
    with new_consumer(config) as second:
        second.subscribe([topic])
        assert read(second, 3, batch) == [("bad", 2), 3, 4]
    with new_consumer(config) as third:  # whoever goes on after the error, has decided to
        [committed] = third.committed([TopicPartition(topic, 0)], 30)
        assert committed.offset == 5


def test_offsets_are_stored_by_hand_when_so_configured(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer"
) -> None:
    fill(broker, topic, [b"0", b"1"])
    config = {**JSON, "group.id": topic, "enable.auto.offset.store": "false"}
    with new_consumer(config) as first:
        first.subscribe([topic])
        message = first.poll(30)
        assert message is not None
        assert read(first, 1, None) == [1]
        first.store_offsets(message=message)
    with new_consumer(config) as second:
        second.subscribe([topic])
        assert read(second, 1, None) == [1]


def test_commits_by_hand(broker: KafkaBroker, topic: str, new_consumer: "NewConsumer") -> None:
    fill(broker, topic, [b"0", b"1", b"2"])
    consumer = new_consumer({**JSON, "enable.auto.commit": False})
    consumer.subscribe([topic])
    assert read(consumer, 2, 2) == [0, 1]
    here = TopicPartition(topic, 0)
    assert [found.offset for found in consumer.commit(asynchronous=False) or ()] == [2]
    assert [found.offset for found in consumer.committed([here], 30)] == [2]
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert [found.offset for found in consumer.committed([here], 30)] == [1]


def test_seek_reads_a_bad_record_again(broker: KafkaBroker, topic: str, new_consumer: "NewConsumer") -> None:
    fill(broker, topic, GOOD)
    consumer = new_consumer(JSON)
    consumer.subscribe([topic])
    assert read(consumer, 3, 10) == [0, 1, ("bad", 2)]
    for _ in range(2):
        consumer.seek(TopicPartition(topic, 0, 2))
        assert read(consumer, 3, 10) == [("bad", 2), 3, 4]
    consumer.seek(TopicPartition(topic, 0, 1))
    assert read(consumer, 1, 1) == [1]


def test_position_is_behind_what_was_handed_over(broker: KafkaBroker, topic: str, new_consumer: "NewConsumer") -> None:
    fill(broker, topic, GOOD)
    consumer = new_consumer(JSON)
    consumer.subscribe([topic])

    def position() -> int | None:
        [found] = consumer.position([TopicPartition(topic, 0)])
        return found.offset

    assert read(consumer, 2, 10) == [0, 1]
    assert position() == 2
    assert read(consumer, 1, 10) == [("bad", 2)]
    assert position() == 3
    assert read(consumer, 1, 1) == [3]
    assert position() == 4


def test_paused_partitions_wait(broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer") -> None:
    topic = new_topic(partitions=2)
    fill(broker, topic, [b"0", b"bad", b"1", b"2"], 0)
    consumer = new_consumer(JSON)
    first, second = (TopicPartition(topic, number, 0) for number in range(2))
    consumer.assign([first, second])
    assert read(consumer, 2, 10) == [0, ("bad", 1)]  # two records are fetched and not handed over yet
    consumer.pause([first])
    fill(broker, topic, [b"10", b"11"], 1)
    assert read(consumer, 2, 10) == [10, 11]
    assert consumer.consume(10, 0.2) == []
    assert consumer.poll(0.2) is None
    consumer.resume([first])
    assert read(consumer, 2, 10) == [1, 2]


def test_what_was_fetched_is_dropped_when_its_partition_goes(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer"
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        fill(broker, topic, [b"bad", b"%d" % number], number)
    consumer = new_consumer(JSON)
    first, second = (TopicPartition(topic, number, 0) for number in range(2))
    consumer.assign([first, second])
    found = read(consumer, 1, 10)
    assert found == [("bad", 0)]
    consumer.assign([second])  # by hand
    assert read(consumer, 2, 10) == [("bad", 0), 1]
    consumer.incremental_assign([first])
    assert read(consumer, 1, 10) == [("bad", 0)]
    consumer.incremental_unassign([first])
    assert consumer.consume(10, 0.2) == []
    consumer.unassign()
    assert consumer.assignment() == []


@pytest.mark.parametrize("in_steps", [False, True])
def test_offsets_of_all_assigned_partitions_are_stored(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", *, in_steps: bool
) -> None:
    topic = new_topic(partitions=2)
    consumer = new_consumer({"enable.auto.commit": False})
    first, second = (TopicPartition(topic, number, 0) for number in range(2))
    if in_steps:
        consumer.assign([first])
        consumer.incremental_assign([second])
    else:
        consumer.subscribe([topic])
        assert consumer.consume(1, 5) == []
    for number in range(2):
        fill(broker, topic, GOOD, number)
    time.sleep(0.5)  # for records of both in one batch
    assert len(read(consumer, 2 * len(GOOD), 100)) == 2 * len(GOOD)
    consumer.commit(asynchronous=False)
    assert [found.offset for found in consumer.committed([first, second], 30)] == [len(GOOD)] * 2


def test_a_rebalance_hands_over_each_record_once(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer"
) -> None:
    topic = new_topic(partitions=2)
    for number in range(2):
        fill(broker, topic, [b"bad", b"%d" % (10 * number), b"%d" % (10 * number + 1)], number)
    assigned: list[Any] = []
    revoked: list[Any] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.append((consumer, len(partitions)))

    def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        revoked.append((consumer, len(partitions)))

    first = new_consumer(JSON, **{"group.id": topic})
    first.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
    seen: list[Any] = read(first, 1, 10)
    assert seen == [("bad", 0)]
    assert assigned == [(first, 2)]
    second = new_consumer(JSON, **{"group.id": topic})
    second.subscribe([topic])
    until = time.monotonic() + 60
    others: list[Any] = []
    while len(assigned) < 2 and time.monotonic() < until:  # the callbacks run within poll
        for consumer, into in ((first, seen), (second, others)):
            try:
                message = consumer.poll(0.1)
            except SerializationError as error:
                into.append(("bad", error.partition))
            else:
                into.extend([] if message is None else [message.value()])
    assert revoked == [(first, 2)]
    values = [value for value in (*seen, *others) if isinstance(value, int)]
    assert len(values) == len(set(values))
    assert first.memberid() != second.memberid()
    first.unsubscribe()
    assert first.consume(10, 0.2) == []


def test_a_store_that_is_down_can_be_waited_for(broker: KafkaBroker, topic: str, new_consumer: "NewConsumer") -> None:
    store = FaultyStore(MemoryStore())
    config = {"large.message.payload.store.class": store, "large.message.threshold.bytes": 0}
    with Producer({**broker.client_config(), **config, "value.serializers": "bytes, large-message"}) as producer:
        for value in (b"0", b"1", b"2"):
            producer.produce(topic, value)
    consumer = new_consumer({**config, "value.deserializers": "large-message, json"})
    consumer.assign([TopicPartition(topic, 0, 1)])
    store.fail(PayloadStoreUnavailableError("down"), times=1_000)
    with pytest.raises(PayloadStoreUnavailableError) as caught:
        consumer.poll(30)
    error = caught.value
    assert isinstance(error, SerializationError)
    assert error.transient
    assert error.offset == 1
    store._errors.clear()
    consumer.seek(TopicPartition(topic, 0, error.offset))
    assert read(consumer, 2, 2) == [1, 2]
    MemoryStore.clear()
    consumer.seek(TopicPartition(topic, 0, 2))
    with pytest.raises(PayloadNotFoundError, match="offset=2"):
        consumer.poll(30)


def test_metadata(broker: KafkaBroker, topic: str, new_consumer: "NewConsumer") -> None:
    fill(broker, topic, [b"0"])
    consumer = new_consumer(JSON)
    assert topic in consumer.list_topics(timeout=30).topics
    assert consumer.cluster_id(30)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, 1)
    [found] = consumer.offsets_for_times([TopicPartition(topic, 0, 1)], 30)
    assert found.offset == 0
    assert consumer.consumer_group_metadata() is not None


def test_a_broker_that_is_not_there_is_waited_for_no_longer_than_asked() -> None:
    config = {**JSON, "bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    with Consumer(config) as consumer:
        consumer.subscribe(["any"])
        started = time.monotonic()
        assert consumer.poll(0.2) is None
        # The client says so in messages that are errors.
        assert all(message.error() is not None for message in consumer.consume(5, 0.2))
        with pytest.raises(confluent_kafka.KafkaException):
            consumer.list_topics(timeout=0.2)
        assert time.monotonic() - started < 10
    with Producer({**config, "value.serializer": "json", "message.timeout.ms": 200}) as producer:
        outcomes: list[Any] = []
        producer.produce("any", {}, on_delivery=lambda error, _message: outcomes.append(error))
        producer.flush(30)
        assert [error is None for error in outcomes] == [False]


def test_a_closed_consumer_says_so(new_consumer: "NewConsumer") -> None:
    consumer = new_consumer(JSON)
    consumer.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_threads_that_read_at_the_same_time_learn_that_they_must_not(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", how: str
) -> None:
    begun, may_go = threading.Event(), threading.Event()

    def stage(data: bytes, _ctx: object) -> bytes:
        begun.set()
        assert may_go.wait(60)
        return data

    fill(broker, topic, [b"0"])
    consumer = new_consumer({"value.deserializer": stage})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[Any] = []
    batch = None if how == "poll" else 1
    waiting = threading.Thread(target=lambda: values.extend(read(consumer, 1, batch)), daemon=True)
    waiting.start()
    assert begun.wait(60)
    for call in (consumer.poll, consumer.consume, consumer.consume_arrow):
        with pytest.raises(RuntimeError, match="in use by another thread"):
            call()
    may_go.set()
    waiting.join(60)
    assert values == [b"0"]
    assert consumer.poll(0) is None
