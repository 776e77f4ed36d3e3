"""``poll`` delivers records from batches; what is in hand follows all other calls."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import KafkaException, Message, TopicPartition

from serde_chain import Consumer
from serde_chain.base import PlainDeserializer
from serde_chain.clients.confluent import plain_poll
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer, NewProducer
    from tests.conftest import NewTopic

COUNT = 100
SECONDS = 10
CHAIN = {"value.deserializer": "string"}
MANUAL = {**CHAIN, "enable.auto.commit": False}


@pytest.fixture(autouse=True)
def _long_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch ends for its time, also on a busy machine."""
    monkeypatch.setattr(plain_poll, "_IN_HAND", 3600.0)
    monkeypatch.setattr(plain_poll, "_MOMENT", 3600.0)


@pytest.fixture
def topic(new_topic: "NewTopic", new_producer: "NewProducer") -> str:
    """Two partitions of 100 records each; the values are their offsets."""
    name = new_topic(2)
    producer = new_producer({"value.serializer": "string"})
    for number in range(COUNT):
        for partition in range(2):
            producer.produce(name, str(number), partition=partition)
    assert producer.flush(30) == 0
    return name


def poll_one(consumer: Any) -> Any:
    return next(message for message in iter(lambda: consumer.poll(SECONDS), ()) if message is not None)


def poll_until(consumer: Any, is_reached: Callable[[], bool]) -> list[Any]:
    """Messages up to a state in which more records are in hand."""
    messages: list[Any] = []
    while not is_reached():
        messages.append(poll_one(consumer))
    return messages


def in_hand(consumer: Consumer) -> list[Any]:
    """Records in hand that are not delivered yet."""
    window = consumer._window
    window.note_given()
    return window.hand[len(window.given) :]


def is_amid(consumer: Consumer) -> Callable[[], bool]:
    """Whether both partitions' records, some delivered and some not, are in hand."""

    def check() -> bool:
        left = Counter(record.partition() for record in in_hand(consumer))
        return len(consumer._window.given) > 2 and min(left[0], left[1]) > 2

    return check


def follows(messages: list[Any]) -> bool:
    """Whether the messages of each partition come in order, without a gap and none twice."""
    return all(
        offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        for partition in {message.partition() for message in messages}
        for offsets in [[message.offset() for message in messages if message.partition() == partition]]
    )


def stored(consumer: Consumer) -> int:
    """What the client itself would commit now, counted in records."""
    with suppress(KafkaException):  # there is nothing new
        consumer._consumer.commit(asynchronous=False)
    places = [TopicPartition(place.topic, place.partition) for place in consumer.assignment()]
    return sum(max(place.offset, 0) for place in consumer.committed(places, SECONDS))


@pytest.fixture
def consumer(topic: str, new_consumer: "NewConsumer") -> Consumer:
    """A consumer of both partitions, in the midst of a batch with records of both."""
    consumer = new_consumer(MANUAL)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    consumer._window.fetch_several(lambda most, seconds: mixed(consumer, most, seconds), 40, SECONDS)
    return consumer


def mixed(consumer: Consumer, most: int, seconds: float) -> list[Any]:
    """Messages of both partitions in turns, whatever the order in which the client has them."""
    fetched: list[Any] = []
    while len(fetched) < 2 * COUNT:
        fetched += consumer._consumer.consume(most, seconds)
    by_partition = [[message for message in fetched if message.partition() == partition] for partition in range(2)]
    return [message for pair in zip(*by_partition, strict=True) for message in pair]


def test_batches_grow_and_every_record_comes_once(consumer: Consumer) -> None:
    sizes = set()
    messages = []
    for _ in range(2 * COUNT):
        messages.append(poll_one(consumer))
        sizes.add(len(consumer._window.hand))
    assert follows(messages)
    assert [message.value() for message in messages] == [str(message.offset()) for message in messages]
    assert max(sizes) > 32
    assert consumer.poll(0) is None


def test_nothing_is_stored_that_was_not_confirmed_by_a_next_call(consumer: Consumer) -> None:
    for count in range(1, 2 * COUNT + 1):
        poll_one(consumer)
        assert stored(consumer) < count
        if count % 10 == 0:
            consumer.commit(asynchronous=False)
            assert stored(consumer) == count


def test_the_position_is_behind_the_last_record(consumer: Consumer) -> None:
    for count in range(1, COUNT):
        poll_one(consumer)
        positions = consumer.position(consumer.assignment())
        assert sum(max(place.offset, 0) for place in positions) == count


def test_paused_partitions_wait_also_amid_a_batch(topic: str, consumer: Consumer) -> None:
    messages = poll_until(consumer, is_amid(consumer))
    consumer.pause([TopicPartition(topic, 0)])
    seen = len(messages)
    while len(messages) < seen + 20:
        messages.append(poll_one(consumer))
    assert {message.partition() for message in messages[seen:]} == {1}
    consumer.resume([TopicPartition(topic, 0)])
    while len(messages) < 2 * COUNT:
        messages.append(poll_one(consumer))
    assert follows(messages)


def test_a_seek_amid_a_batch_is_followed_at_once(topic: str, consumer: Consumer) -> None:
    messages = poll_until(consumer, is_amid(consumer))
    consumer.seek(TopicPartition(topic, 0, 70))
    after: list[Any] = []
    while sum(message.partition() == 0 for message in after) < 30:
        after.append(poll_one(consumer))
    assert [message.offset() for message in after if message.partition() == 0] == list(range(70, COUNT))
    assert follows([message for message in [*messages, *after] if message.partition() == 1])


@pytest.mark.parametrize("how", ["incremental_unassign", "unassign", "assign"])
def test_records_in_hand_of_a_partition_that_is_gone_are_dropped(topic: str, consumer: Consumer, how: str) -> None:
    messages = poll_until(consumer, is_amid(consumer))
    ends = {message.partition(): message.offset() + 1 for message in messages}
    match how:
        case "incremental_unassign":
            consumer.incremental_unassign([TopicPartition(topic, 0)])
        case "unassign":
            consumer.unassign()
        case "assign":
            consumer.assign([TopicPartition(topic, 1, ends[1])])
    if how == "unassign":
        assert consumer.poll(0) is None
    else:
        after = [poll_one(consumer) for _ in range(COUNT - ends[1])]
        assert [message.partition() for message in after] == [1] * len(after)
        assert follows([*(message for message in messages if message.partition() == 1), *after])


def test_only_the_last_record_can_be_taken_back(consumer: Consumer) -> None:
    last = poll_until(consumer, is_amid(consumer))[-1]
    for _ in range(3):
        consumer.take_back()
        again = poll_one(consumer)
        assert (again.partition(), again.offset(), again.value()) == (last.partition(), last.offset(), last.value())
    following = poll_one(consumer)
    consumer.take_back()
    consumer.take_back()
    again = poll_one(consumer)
    assert (again.partition(), again.offset()) == (following.partition(), following.offset())


@pytest.mark.parametrize("how", ["consume", "arrow"])
def test_other_ways_of_reading_go_on_amid_a_batch(consumer: Consumer, how: str) -> None:
    found = [(message.partition(), message.offset()) for message in poll_until(consumer, is_amid(consumer))]
    while len(found) < 2 * COUNT:
        if how == "consume":
            found += [(message.partition(), message.offset()) for message in consumer.consume(7, SECONDS)]
        else:
            found += [(row["partition"], row["offset"]) for row in consumer.consume_arrow(7, SECONDS).to_pylist()]
        message = consumer.poll(0)
        found += [(message.partition(), message.offset())] if message is not None else []
    assert sorted(found) == [(partition, offset) for partition in range(2) for offset in range(COUNT)]


def test_the_client_is_called_at_least_every_fifth_of_a_second(
    topic: str, new_consumer: "NewConsumer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_poll, "_IN_HAND", 0.2)
    now = 0.0
    monkeypatch.setattr(plain_poll, "time", SimpleNamespace(monotonic=lambda: now))
    consumer = new_consumer(MANUAL)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    messages = poll_until(consumer, lambda: len(in_hand(consumer)) > 5)
    calls: list[int] = []
    fetch_several = consumer._window.fetch_several

    def fetch(consume: Any, most: int, timeout: float) -> None:
        calls.append(most)
        fetch_several(consume, most, timeout)

    monkeypatch.setattr(consumer._window, "fetch_several", fetch)
    for called in (0, 1):
        now += 0.19
        messages.append(poll_one(consumer))
        assert len(calls) == called
    now += 0.19
    messages.append(poll_one(consumer))
    assert len(calls) == 1
    assert follows(messages)


def test_a_batch_has_no_record_of_a_partition_that_was_revoked_while_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The payload of the second record is awaited; a look-ahead serves the revocation of the first one's partition."""
    store = {"large.message.payload.store.class": "memory"}
    config = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "value.deserializers": "large-message", **store}
    with Consumer(config) as consumer:
        loop: Any = consumer._loop
        first, second = (Message(topic="t", partition=partition, offset=0) for partition in (1, 0))
        consumer._window.messages += [first, second]

        def wait(_record: object, _until: float) -> bool:
            if first in consumer._window.messages:
                consumer._window.drop({("t", 1)})
            return False

        monkeypatch.setattr(loop, "_read", lambda record: record if record is first else None)
        monkeypatch.setattr(loop, "_wait_for", wait)
        monkeypatch.setattr(loop, "plain", None)
        assert loop._gather(10, 0) == ([], [])


def test_a_rebalance_drops_what_is_in_hand_and_the_next_member_goes_on_there(
    topic: str, new_consumer: "NewConsumer", monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {**MANUAL, "group.id": topic, "session.timeout.ms": 6000, "heartbeat.interval.ms": 100}
    first = new_consumer(group)
    found: list[Any] = []
    waiting: list[int] = []

    def revoked(consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        waiting.append(len(consumer._window.messages))
        consumer.commit(asynchronous=False)

    first.subscribe([topic], on_revoke=revoked)
    found += poll_until(first, lambda: len(in_hand(first)) > 10)
    second = new_consumer(group)
    second.subscribe([topic])
    # The first member takes the same record again and again, until it is called back.
    monkeypatch.setattr(plain_poll, "_IN_HAND", 0.0)
    last = found.pop()
    message: Any = None
    while not waiting:
        first.take_back()
        message = first.poll(0)
        assert waiting or (message.partition(), message.offset()) == (last.partition(), last.offset())
        found += filter(None, [second.poll(0)])
    found += filter(None, [message])
    while len(found) < 2 * COUNT:
        found += filter(None, [first.poll(0.05), second.poll(0.05)])
    places = Counter((message.partition(), message.offset()) for message in found)
    assert places == Counter((partition, offset) for partition in range(2) for offset in range(COUNT))
    assert waiting[0] == 0


def test_a_close_commits_what_was_delivered(broker: KafkaBroker, topic: str) -> None:
    config = {**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest", **CHAIN}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        for _ in range(50):
            poll_one(consumer)
        assert in_hand(consumer)
    with Consumer(config) as after:
        places = [TopicPartition(topic, partition) for partition in range(2)]
        assert sum(max(place.offset, 0) for place in after.committed(places, SECONDS)) == 50


def test_records_between_those_with_headers_come_in_order(
    new_topic: "NewTopic", new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    name = new_topic(1)
    producer = new_producer()
    for number in range(COUNT):
        bad = number == 61
        producer.produce(
            name, b"\xff" if bad else b"%d" % number, headers=[("h", b"1")] if number % 25 in {0, 1, 12} else None
        )
    assert producer.flush(30) == 0
    consumer = new_consumer({**CHAIN, "serde.error.policy": "skip", "enable.partition.eof": True})
    consumer.assign([TopicPartition(name, 0, 0)])
    messages: list[Any] = []
    while not messages or messages[-1].error() is None:
        messages.append(poll_one(consumer))
    assert [message.value() for message in messages[:-1]] == [str(number) for number in range(COUNT) if number != 61]
    assert [message.headers() is not None for message in messages[:3]] == [True, True, False]
    assert consumer.skipped == 1


class Counting(PlainDeserializer[bytes]):
    """Counts what it decodes."""

    calls: ClassVar[list[bytes]] = []

    @staticmethod
    def plain(data: Any) -> bytes:
        Counting.calls.append(bytes(data))
        return bytes(data)


def test_slow_records_are_decoded_one_by_one(
    topic: str, new_consumer: "NewConsumer", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_poll, "_MOMENT", -1.0)  # each takes longer
    Counting.calls.clear()
    consumer = new_consumer({"value.deserializer": Counting})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for count in range(1, 20):
        poll_one(consumer)
        assert len(Counting.calls) == count


def test_large_records_make_small_batches(
    new_topic: "NewTopic", new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    name = new_topic(1)
    producer = new_producer()
    for size in [10] * 300 + [100_000] * 200:
        producer.produce(name, bytes(size))
    assert producer.flush(30) == 0
    consumer = new_consumer({"value.deserializer": "bytes"})
    consumer.assign([TopicPartition(name, 0, 0)])
    large: list[int] = []
    for count in range(500):
        poll_one(consumer)
        if count >= 440:  # behind the batches that small records made large
            large.append(len(consumer._window.messages))
    assert max(large) <= 16


@pytest.mark.full
def test_interrupts_amid_batches(topic: str, new_consumer: "NewConsumer") -> None:
    """Each record is interrupted at every one of the points at which it can be."""
    consumer = new_consumer(MANUAL)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    consumer._window.fetch_several(lambda most, seconds: mixed(consumer, most, seconds), 40, SECONDS)
    messages: list[Any] = []
    point = interrupts = 0
    while len(messages) < 2 * COUNT:
        consumer._window._wary_until = 0.0  # batches go on, in place of a second of single records
        try:
            with interrupted_at(point):
                messages.append(poll_one(consumer))
            point = 0 if len(consumer._window.hand) > 3 else point
        except KeyboardInterrupt:
            point += 1
            interrupts += 1
    assert follows(messages)
    assert interrupts > 20
