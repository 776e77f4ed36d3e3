"""What becomes of records that cannot be read: raised, skipped, or put into a dead-letter topic."""

import logging
import pickle
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import ConfigError, Consumer, PayloadStoreUnavailableError, Producer, SerializationError
from serde_chain.clients.dead_letters import ROOM_BYTES, DeadLetter, Origin, read_dead_letter
from serde_chain.clients.limits import largest_value
from serde_chain.errors import DeadLetterError
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer
    from tests.conftest import NewTopic

JSON = {"value.deserializer": "json"}
VALUES = [b"0", b"bad 1", b"2", b"bad 3", b"bad 4", b"5", b"bad 6"]
GOOD = [0, 2, 5]
HOW = pytest.mark.parametrize("how", ["poll", "consume", "arrow"])


def fill(broker: KafkaBroker, topic: str, partition: int = 0, values: list[bytes] = VALUES) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 50})
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            b"key %d" % number,
            partition=partition,
            headers=[("n", b"%d" % number)],
            timestamp=1_000 + number,
        )
    assert producer.flush(30) == 0


def take(consumer: Consumer, how: str, seconds: float = 1) -> list[Any]:
    if how == "arrow":
        # Without a schema, a column has the text of JSON.
        return [int(value) for value in consumer.consume_arrow(10, seconds).column("value").to_pylist()]
    messages = consumer.consume(10, seconds) if how == "consume" else [consumer.poll(seconds)]
    return [message.value() for message in messages if message is not None]


def everything(consumer: Consumer, how: str, count: int = len(GOOD)) -> list[Any]:
    values: list[Any] = []
    until = time.monotonic() + 60
    while (len(values) < count or consumer.skipped < 4) and time.monotonic() < until:
        values += take(consumer, how)
    return values


def letters(broker: KafkaBroker, topic: str, count: int) -> list[Any]:
    group = {"group.id": "reader of letters", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**broker.client_config(), **group})
    metadata = consumer.list_topics(topic, timeout=30).topics[topic]
    consumer.assign([TopicPartition(topic, partition, 0) for partition in metadata.partitions])
    found: list[Any] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        found += consumer.consume(count, 0.5)
    found += consumer.consume(10, 0.2)
    consumer.close()
    return found


@HOW
def test_skip(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", how: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(broker, topic)
    config = {**JSON, "serde.error.policy": "skip", "group.id": topic}
    with caplog.at_level(logging.WARNING), new_consumer(config) as consumer:
        consumer.subscribe([topic])
        assert everything(consumer, how) == GOOD
        assert consumer.skipped == 4
    logged = [record.getMessage() for record in caplog.records if "is skipped" in record.getMessage()]
    assert len(logged) == 4
    assert "offset=1" in logged[0]
    assert f"topic={topic}" in logged[0]
    with new_consumer(config) as after:  # the last one counts as handed over too
        assert after.committed([TopicPartition(topic, 0)], 30)[0].offset == len(VALUES)


@HOW
def test_dead_letters(broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", how: str) -> None:
    topic, dead = new_topic(2), new_topic(1)
    fill(broker, topic, partition=1)
    config = {**JSON, "serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead, "group.id": topic}
    with new_consumer(config) as consumer:
        consumer.subscribe([topic])
        assert everything(consumer, how) == GOOD
    found = letters(broker, dead, 4)
    assert [(each.key(), each.value()) for each in found] == [
        (b"key %d" % number, b"bad %d" % number) for number in (1, 3, 4, 6)
    ]
    said = dict(found[0].headers())
    assert found[0].headers()[0] == ("n", b"1")
    assert said.pop("serde-chain-error-message").startswith(b"the bytes are not JSON")
    assert said == {
        "n": b"1",
        "serde-chain-error-kind": b"DecodeError",
        "serde-chain-error-stage": b"json (1 of 1)",
        "serde-chain-error-topic": topic.encode(),
        "serde-chain-error-partition": b"1",
        "serde-chain-error-offset": b"1",
        "serde-chain-error-timestamp": b"1001",
    }
    letter = read_dead_letter(found[3].headers())
    assert letter == DeadLetter(Origin(topic, 1, 6, 1006), [("n", b"6")])
    with new_consumer(config) as after:
        assert after.committed([TopicPartition(topic, 1)], 30)[0].offset == len(VALUES)


@pytest.mark.full
@HOW
def test_a_dead_letter_that_is_not_taken_keeps_the_consumer_at_its_record(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", how: str
) -> None:
    topic = new_topic(1)
    dead = f"{topic}-dead"
    fill(broker, topic)
    config = {**JSON, "serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead, "group.id": topic}
    with new_consumer(config) as consumer:
        consumer.subscribe([topic])
        values: list[Any] = []
        errors: list[SerializationError] = []
        until = time.monotonic() + 60
        while len(errors) < 2 and time.monotonic() < until:
            try:
                values += take(consumer, how)
            except SerializationError as error:
                errors.append(error)
        assert values == [0]
        for refused in errors:
            assert isinstance(refused, DeadLetterError)
            assert (refused.offset, refused.about_record, refused.dead_letter_topic) == (1, False, dead)
            assert "nknown topic" in str(refused)
            assert "not JSON" in str(refused)
            assert refused.record is not None
        again = pickle.loads(pickle.dumps(errors[0]))  # noqa: S301, our own bytes
        assert (type(again), str(again)) == (DeadLetterError, str(errors[0]))
        assert consumer.skipped == 0
        consumer.commit(asynchronous=False)
        assert consumer.committed([TopicPartition(topic, 0)], 30)[0].offset == 1
        broker.create_topic(dead)
        assert [0, *everything(consumer, how, 2)] == GOOD
    assert [each.value() for each in letters(broker, dead, 4)] == [b"bad %d" % number for number in (1, 3, 4, 6)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("room", "headers", "key", "lacks"),
    [
        (ROOM_BYTES, [], b"k", set()),
        (350, [], b"k", {"message"}),
        (190, [], b"k", {"message", "kind", "stage"}),
        (0, [("n", b"1")], b"k", {"value"}),
        (0, [("n", b"1" * 3000)], b"k", {"value"}),
        (0, [("n", b"1" * 9700)], b"k", {"value", "headers"}),
        (0, [], b"k" * 9800, {"value", "key"}),
    ],
)
def test_a_record_of_the_largest_size_stops_nothing(
    *,
    broker: KafkaBroker,
    new_topic: "NewTopic",
    new_consumer: "NewConsumer",
    room: int,
    headers: list[Any],
    key: bytes,
    lacks: set[str],
) -> None:
    limit = 10_000
    topic, dead = (
        new_topic(1, {"max.message.bytes": f"{limit}"}),
        new_topic(1, {"max.message.bytes": f"{limit + room}"}),
    )
    value = b"x" * largest_value(1 << 30, key, headers, limit)
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, value, key, headers=headers)
    assert producer.flush(30) == 0  # each in a batch of its own
    producer.produce(topic, b"1")
    assert producer.flush(30) == 0
    config = {**JSON, "serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead}
    consumer = new_consumer(config)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[Any] = []
    until = time.monotonic() + 60
    while not values and time.monotonic() < until:
        values += take(consumer, "poll")
    assert (values, consumer.skipped) == ([1], 1)
    [found] = letters(broker, dead, 1)
    letter = read_dead_letter(found.headers())
    said = {name.removeprefix("serde-chain-error-") for name, _ in found.headers()}
    assert letter.origin[:3] == (topic, 0, 0)
    assert {"message", "kind", "stage"} - said == lacks & {"message", "kind", "stage"}
    dropped = lacks & {"value", "headers", "key"} | ({"headers"} if "key" in lacks else set())
    assert set(letter.dropped) == dropped
    assert found.value() == (None if "value" in dropped else value)
    assert found.key() == (None if "key" in dropped else key)
    assert letter.headers == ([] if "headers" in dropped else headers)


def test_a_topic_that_takes_not_even_the_position(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer"
) -> None:
    topic, dead = new_topic(1), new_topic(1, {"max.message.bytes": "100"})
    fill(broker, topic, values=[b"x" * 2000, b"1"])
    consumer = new_consumer({**JSON, "serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead})
    consumer.assign([TopicPartition(topic, 0, 0)])
    with pytest.raises(DeadLetterError, match=r"(?i)message size too large.*max\.message\.bytes") as caught:
        consumer.poll(30)
    assert not caught.value.transient
    consumer.seek(TopicPartition(topic, 0, 1))
    message: Any = consumer.poll(30)
    assert message.value() == 1


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_a_store_that_is_not_there_is_never_passed_over(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", policy: str
) -> None:
    MemoryStore.clear()
    topic, dead = new_topic(1), new_topic(1)
    store = FaultyStore(MemoryStore())
    config = {"large.message.payload.store.class": store, "large.message.threshold.bytes": 0}
    with Producer({**broker.client_config(), **config, "value.serializers": "bytes, large-message"}) as producer:
        for value in (b"0", b"1", b"2"):
            producer.produce(topic, value)
    there = MemoryStore()
    there.delete(next(info.reference for info in there.list(topic) if there.download(info.reference) == b"1"))
    chosen = {"serde.error.policy": policy, "serde.dead.letter.topic": dead}
    consumer = new_consumer({**config, **chosen, "value.deserializers": "large-message"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    store.fail(PayloadStoreUnavailableError("down"), times=1_000)
    for _ in range(2):
        with pytest.raises(PayloadStoreUnavailableError):
            consumer.poll(30)
    assert consumer.skipped == 0
    store._errors.clear()
    values: list[Any] = []
    until = time.monotonic() + 60
    while len(values) < 2 and time.monotonic() < until:
        values += take(consumer, "poll")
    assert (values, consumer.skipped) == ([b"0", b"2"], 1)
    if policy == "dead-letter":
        [letter] = letters(broker, dead, 1)
        headers = dict(letter.headers())
        assert headers["serde-chain-error-kind"] == b"PayloadNotFoundError"
        # As it came: a reference, with the headers that say so.
        assert letter.value().startswith(b"memory://")
        assert "large-message" in headers


@pytest.mark.parametrize("how", ["poll", "consume", "arrow"])
def test_an_interrupt_loses_no_dead_letter(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", how: str
) -> None:
    topic, dead = new_topic(1), new_topic(1)
    fill(broker, topic)
    chosen = {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": dead, "enable.auto.commit": False}
    consumer = new_consumer({**JSON, **chosen})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[Any] = []
    point = interrupts = 0
    until = time.monotonic() + 90
    while (len(values) < len(GOOD) or consumer.skipped < 4) and time.monotonic() < until:
        try:
            with interrupted_at(point, ("serde_chain/clients",)):
                values += take(consumer, how, 0.05)
            point = 0
        except KeyboardInterrupt:
            interrupts += 1
            point += 2
    assert values == GOOD
    assert interrupts > 20
    # Perhaps twice, if the interrupt came just when it was put there.
    assert {each.value() for each in letters(broker, dead, 4)} == {b"bad %d" % number for number in (1, 3, 4, 6)}


def test_a_topic_is_needed_and_names_are_checked() -> None:
    common = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    with pytest.raises(ConfigError, match=r"serde\.dead\.letter\.topic"):
        Consumer({**common, "serde.error.policy": "dead-letter"})
    with pytest.raises(ConfigError, match=r"has no effect without serde\.error\.policy.*Set it to dead-letter"):
        Consumer({**common, "serde.dead.letter.topic": "dead"})
    with pytest.raises(ConfigError, match=r"Did you mean serde\.error\.policy"):
        Consumer({**common, "serde.error.polcy": "skip"})
    with pytest.raises(ConfigError, match="expected one of"):
        Consumer({**common, "serde.error.policy": "ignore"})
