"""The fast ways give what the full ones give: the same records, the same errors with their place."""

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import TopicPartition

from serde_chain import Consumer, EncodeError, Producer, SerializationError
from serde_chain.base import PlainDeserializer
from serde_chain.clients import timeouts
from serde_chain.clients.confluent import reading_loop
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer, NewProducer

MEMORY = {"large.message.payload.store.class": "memory"}
SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
CHAINS = {
    "none": ({}, {}, b"value"),
    "bytes": ({"value.serializers": "bytes, large-message"}, {"value.deserializers": "large-message, bytes"}, b"value"),
    "text": ({"value.serializers": "string, zstd"}, {"value.deserializers": "zstd, string"}, "value"),
    "avro": (
        {"key.serializer": "string", "value.serializers": "avro, zstd, large-message", "avro.schema": SCHEMA},
        {"key.deserializer": "string", "value.deserializers": "large-message, zstd, avro", "avro.schema": SCHEMA},
        {"n": 1},
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("chains", CHAINS)
def test_both_ways_give_the_same(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", chains: str
) -> None:
    writing, reading, value = CHAINS[chains]
    producer = new_producer({**MEMORY, **writing} if "large" in str(writing) else writing)
    key = "key" if "key.serializer" in writing else b"key"
    for given in (value, None):
        headers: Any
        for headers in (None, [("h", b"1")]):
            producer.produce(topic, given, key, headers=headers)
            producer.produce(topic, given, headers=headers)
    assert producer.flush(30) == 0
    expected = [(given, k, h) for given in (value, None) for h in (None, [("h", b"1")]) for k in (key, None)]
    consumer = new_consumer({**MEMORY, **reading} if "large" in str(reading) else reading)
    for how in ("poll", "consume"):
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages: list[Any] = []
        while len(messages) < len(expected):
            # As many as there are: it waits for others.
            count = min(5, len(expected) - len(messages))
            messages += [consumer.poll(10)] if how == "poll" else consumer.consume(count, 10)
        assert [(message.value(), message.key(), message.headers()) for message in messages] == expected


def test_errors_have_their_place(topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer") -> None:
    new_plain = new_producer()
    new_plain.produce(topic, b"\xff")
    new_plain.produce(topic, b"text")
    assert new_plain.flush(30) == 0
    producer = new_producer({"value.serializer": "string"})
    with pytest.raises(EncodeError, match=rf"topic={topic}.* stage=string \(1 of 1\)"):
        producer.produce(topic, 5)
    consumer = new_consumer({"value.deserializer": "string"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    with pytest.raises(SerializationError, match=r"stage=string \(1 of 1\), partition=0, offset=0") as caught:
        consumer.poll(10)
    assert caught.value.record is not None
    message: Any = consumer.poll(10)
    assert message.value() == "text"


def test_a_long_key_is_no_reason_to_refuse_a_value(topic: str, new_producer: "NewProducer") -> None:
    producer = new_producer({**MEMORY, "value.serializers": "bytes, large-message"})
    size = 1_000_000 - 5000
    producer.produce(topic, bytes(size), bytes(10_000))  # together above what the client sends
    producer.produce(topic, bytes(size), b"key")
    largest = 1_000_000 - 36
    for key in (b"k" * 1000, "k" * 1000, "\N{GREEK SMALL LETTER KAPPA}" * 1000):
        producer.produce(topic, bytes(largest - 500), key)
    outcomes: list[Any] = []
    producer.produce(topic, bytes(largest), on_delivery=lambda error, _message: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_buffers_are_sent_as_bytes(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", kind: type
) -> None:
    producer = new_producer({"value.serializers": "bytes"})
    producer.produce(topic, kind(b"payload"))
    assert producer.flush(30) == 0
    consumer = new_consumer({"value.deserializers": "bytes"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message: Any = consumer.poll(10)
    assert message.value() == b"payload"


def test_calls_look_as_they_did(new_producer: "NewProducer", new_consumer: "NewConsumer") -> None:
    producer, consumer = new_producer({"value.serializer": "string"}), new_consumer({"value.deserializer": "string"})
    assert [*inspect.signature(producer.produce).parameters][:3] == ["topic", "value", "key"]
    assert producer.produce.__doc__ == Producer.produce.__doc__
    assert [*inspect.signature(consumer.poll).parameters] == ["timeout"]
    assert consumer.poll.__doc__ == Consumer.poll.__doc__


def test_a_subclass_may_override_them(topic: str, broker: KafkaBroker) -> None:
    class Counting(Producer):
        count = 0

        def produce(self, *args: Any, **kwargs: Any) -> None:
            self.count += 1
            super().produce(*args, **kwargs)

    class Upper(Consumer):
        def poll(self, timeout: float = -1) -> Any:
            message: Any = super().poll(timeout)
            return None if message is None else message.value().upper()

    with Counting({**broker.client_config(), "value.serializer": "string"}) as producer:
        producer.produce(topic, "text")
        producer.produce_batch(topic, [{"value": "more"}])
        assert producer.flush(30) == 0
        assert producer.count == 2
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    with Upper({**broker.client_config(), **group, "value.deserializer": "string"}) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        texts: list[Any] = []
        while len(texts) < 2:
            texts += [text for text in [consumer.poll(10)] if text is not None]
    assert texts == ["TEXT", "MORE"]


def test_offsets_are_stored_by_the_next_call(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    producer = new_producer({"value.serializer": "string"})
    for text in ("a", "b", "c"):
        producer.produce(topic, text)
    assert producer.flush(30) == 0
    consumer = new_consumer({"value.deserializer": "string", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for count in range(3):
        message = None
        while message is None:
            message = consumer.poll(10)
        if count:
            assert consumer.position([TopicPartition(topic, 0)])[0].offset == count + 1
    consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 3


def poll_one(consumer: Any) -> Any:
    return next(message for message in iter(lambda: consumer.poll(10), ()) if message is not None)


def leave(consumer: Consumer, how: str, partition: TopicPartition) -> None:
    match how:
        case "assign":
            consumer.assign([partition])
        case "unassign":
            consumer.unassign()
        case "incremental_unassign":
            consumer.incremental_unassign([partition])
        case "unsubscribe":
            consumer.unsubscribe()
        case "seek":
            consumer.seek(partition)
            assert consumer.poll(0) is None


@pytest.mark.parametrize("how", ["assign", "unassign", "incremental_unassign", "unsubscribe", "seek", "close"])
def test_what_was_handed_over_is_committed_however_its_partition_is_left(
    topic: str, broker: KafkaBroker, new_producer: "NewProducer", how: str
) -> None:
    producer = new_producer({"value.serializer": "string"})
    producer.produce(topic, "a")
    producer.produce(topic, "b")
    assert producer.flush(30) == 0
    config = {**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer({**config, "value.deserializer": "string"}) as consumer:
        if how == "unsubscribe":
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition(topic, 0, 0)])
        assert poll_one(consumer).value() == "a"
        leave(consumer, how, TopicPartition(topic, 0, 2))
    with Consumer(config) as after:
        assert after.committed([TopicPartition(topic, 0)], 10)[0].offset == 1


class Slow(PlainDeserializer[str]):
    """Takes a second for each record, by a clock that nothing else moves."""

    now: ClassVar[float] = 0.0

    @staticmethod
    def plain(data: Any) -> str:
        Slow.now += 1
        return bytes(data).decode()


def test_slow_records_do_not_keep_the_consumer_from_polling(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = new_producer({"value.serializer": "string"})
    for number in range(20):
        producer.produce(topic, str(number))
    assert producer.flush(30) == 0
    consumer = new_consumer({"value.deserializer": Slow, "max.poll.interval.ms": 6000, "session.timeout.ms": 6000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for module in (reading_loop, timeouts):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: Slow.now))
    texts: list[Any] = []
    while len(texts) < 20:
        began = Slow.now
        texts += [message.value() for message in consumer.consume(20, 10)]
        assert Slow.now - began <= 3  # half of the interval
    assert texts == [str(number) for number in range(20)]


def test_the_end_of_a_partition_is_no_record_whose_offset_is_stored(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    producer = new_producer({"value.serializer": "string"})
    producer.produce(topic, "only")
    assert producer.flush(30) == 0
    consumer = new_consumer({"value.deserializer": "string", "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Any] = []
    while len(messages) < 2:
        messages += [message for message in [consumer.poll(10)] if message is not None]
    assert [message.error() is None for message in messages] == [True, False]
    assert consumer.poll(0) is None
    consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 1
