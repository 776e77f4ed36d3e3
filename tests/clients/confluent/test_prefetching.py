"""Payloads are fetched ahead of the reader: what it gets, in which order, and what becomes of what it leaves."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from payload_stores.memory import MemoryStore
from serde_chain import Consumer, PayloadStoreUnavailableError, Producer, SerializationError
from serde_chain.clients.confluent import reading_loop
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer, NewProducer
    from tests.conftest import NewTopic

COUNT = 24


class Gate(MemoryStore):
    """Hands a payload out once it may pass.

    Attributes:
        asked: Payloads that were asked for.
        fails_for: Payloads for which it is not there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[bytes] = []
        self.fails_for: set[bytes] = set()
        self.running = self.most = 0
        self._shut: set[bytes] = set()
        self._changed = threading.Condition()

    def download(self, reference: str) -> bytes:
        data = super().download(reference)
        with self._changed:
            self.asked.append(data)
            self.running += 1
            self.most = max(self.most, self.running)
            self._changed.notify_all()
            self._changed.wait_for(lambda: data not in self._shut, 60)
            self.running -= 1
            if data in self.fails_for:
                raise PayloadStoreUnavailableError("down")
        return data

    @contextmanager
    def shut(self, *payloads: bytes) -> Iterator[None]:
        with self._changed:
            self._shut.update(payloads)
        try:
            yield
        finally:
            self.let_through(*payloads)

    def let_through(self, *payloads: bytes) -> None:
        with self._changed:
            self._shut.difference_update(payloads)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, 60)


@pytest.fixture
def store() -> Gate:
    MemoryStore.clear()
    return Gate()


def config_of(store: object) -> dict[str, Any]:
    return {"large.message.payload.store.class": store, "large.message.threshold.bytes": 0}


def reading(store: object, **more: Any) -> dict[str, Any]:
    return {**config_of(store), "value.deserializers": "large-message", "large.message.downloads.in.flight": 4, **more}


def values_of(partition: int = 0, count: int = COUNT) -> list[bytes]:
    return [b"%d.%d" % (partition, number) for number in range(count)]


def fill(broker: KafkaBroker, topic: str, store: object, partition: int = 0, count: int = COUNT) -> list[bytes]:
    config = {**broker.client_config(), **config_of(store), "value.serializers": "bytes, large-message"}
    values = values_of(partition, count)
    with Producer(config) as producer:
        for value in values:
            producer.produce(topic, value, partition=partition)
    return values


def take(consumer: Consumer, how: str, seconds: float = 1) -> list[bytes]:
    messages = consumer.consume(COUNT, seconds) if how == "consume" else [consumer.poll(seconds)]
    assert all(message.error() is None for message in messages if message is not None)
    return [bytes(message.value() or b"") for message in messages if message is not None]


def everything(consumer: Consumer, how: str, count: int = COUNT) -> list[bytes]:
    values: list[bytes] = []
    until = time.monotonic() + 60
    while len(values) < count and time.monotonic() < until:
        values += take(consumer, how)
    return values


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_as_many_downloads_as_are_allowed_run_while_the_first_is_waited_for(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate, how: str
) -> None:
    values = fill(broker, topic, store)
    consumer = new_consumer(reading(store))
    consumer.assign([TopicPartition(topic, 0, 0)])
    with store.shut(*values):
        until = time.monotonic() + 60
        while store.running < 4 and time.monotonic() < until:
            assert take(consumer, how, 0.1) == []
        # It stays at that, however often it is asked.
        for _ in range(10):
            assert take(consumer, how, 0.01) == []
        assert sorted(store.asked) == sorted(values[:4])
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == 0
    assert everything(consumer, how) == values
    assert store.most == 4
    assert sorted(store.asked) == sorted(values)


def test_an_equal_payload_is_fetched_once_for_those_that_wait(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate
) -> None:
    config = {**broker.client_config(), **config_of(store), "large.message.id": "content"}
    with Producer({**config, "value.serializers": "bytes, large-message"}) as producer:
        for _ in range(6):
            producer.produce(topic, b"same")
    consumer = new_consumer(reading(store))
    consumer.assign([TopicPartition(topic, 0, 0)])
    with store.shut(b"same"):
        until = time.monotonic() + 60
        while len(consumer._window.under_way) < 6 and time.monotonic() < until:
            assert consumer.poll(0.1) is None
    assert everything(consumer, "poll", 6) == [b"same"] * 6
    assert store.asked == [b"same"]


def test_one_partition_does_not_hold_up_the_others(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", store: Gate
) -> None:
    topic = new_topic(2)
    first, second = (fill(broker, topic, store, number) for number in range(2))
    consumer = new_consumer(reading(store))
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    with store.shut(first[0]):
        values: list[bytes] = []
        until = time.monotonic() + 60
        while len(values) < COUNT and time.monotonic() < until:
            values += consumer_values(consumer)
        assert values == second
        assert [place.offset for place in consumer.position(consumer.assignment())] == [0, COUNT]
    assert everything(consumer, "consume") == first


def consumer_values(consumer: Consumer) -> list[bytes]:
    return [bytes(message.value() or b"") for message in consumer.consume(4 * COUNT, 0.2)]


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_small_records_among_large_ones_stay_in_order(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate, how: str
) -> None:
    config = {**broker.client_config(), **config_of(store), "large.message.threshold.bytes": 10}
    values = [b"large %d" % number * 10 if number % 7 == 0 else b"%d" % number for number in range(200)]
    with Producer({**config, "value.serializers": "bytes, large-message"}) as producer:
        for value in values:
            producer.produce(topic, value)
    consumer = new_consumer(reading(store))
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert everything(consumer, how, 200) == values
    assert consumer._window.under_way == {}


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_keys_may_be_large_too(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate, how: str
) -> None:
    config = {
        **config_of(store),
        "key.serializers": "bytes, large-message",
        "value.serializers": "bytes, large-message",
    }
    with Producer({**broker.client_config(), **config}) as producer:
        for number in range(COUNT):
            producer.produce(topic, b"value %d" % number, b"key %d" % number)
    consumer = new_consumer(reading(store, **{"key.deserializers": "large-message"}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    until = time.monotonic() + 60
    while len(found) < COUNT and time.monotonic() < until:
        messages = consumer.consume(5, 1) if how == "consume" else [consumer.poll(1)]
        found += [(message.key(), message.value()) for message in messages if message is not None]
    assert found == [(b"key %d" % number, b"value %d" % number) for number in range(COUNT)]


@pytest.mark.parametrize("way", ["pause", "seek", "incremental_unassign", "unassign"])
def test_what_is_left_is_not_fetched_any_more_and_comes_when_it_is_wanted(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate, way: str
) -> None:
    values = fill(broker, topic, store)
    here = TopicPartition(topic, 0, 0)
    consumer = new_consumer(reading(store))
    consumer.assign([here])
    with store.shut(*values):
        until = time.monotonic() + 60
        while store.running < 4 and time.monotonic() < until:
            assert consumer.poll(0.1) is None
        match way:
            case "pause":
                consumer.pause([here])
            case "seek":
                consumer.seek(TopicPartition(topic, 0, 5))
            case "incremental_unassign":
                consumer.incremental_unassign([here])
            case "unassign":
                consumer.unassign()
        assert consumer._window.under_way == {}
        assert way == "seek" or consumer.poll(0.2) is None
    begin = 0
    match way:
        case "pause":
            consumer.resume([here])
        case "seek":
            begin = 5
        case "incremental_unassign":
            consumer.incremental_assign([here])
        case "unassign":
            consumer.assign([here])
    assert everything(consumer, "poll", COUNT - begin) == values[begin:]
    # Dropped before they began, save for those in flight.
    assert len(store.asked) <= COUNT - begin + 4


PROTOCOLS = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "new": {"group.protocol": "consumer"},
}


@pytest.mark.full
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_hands_each_record_over_once_while_members_come_and_go(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", store: Gate, protocol: str
) -> None:
    """Three rebalances of a group, by the broker's timing."""
    topic = new_topic(4)
    values = [value for number in range(4) for value in fill(broker, topic, store, number)]
    config = reading(store, **PROTOCOLS[protocol], **{"group.id": topic})
    first = new_consumer(config)
    first.subscribe([topic])
    seen = everything(first, "poll", 3)
    # The first one waits for a payload that does not come, and is a member all the same.
    with store.shut(*values):
        second = new_consumer(config)
        second.subscribe([topic])
        until = time.monotonic() + 60
        while not (len(first.assignment()) == len(second.assignment()) == 2) and time.monotonic() < until:
            for consumer in (first, second):
                seen += take(consumer, "poll", 0.1)
        assert len(first.assignment()) == len(second.assignment()) == 2
    until = time.monotonic() + 60
    while len(seen) < len(values) // 2 and time.monotonic() < until:
        for consumer in (first, second):
            seen += take(consumer, "poll", 0.2)
    second.close()
    until = time.monotonic() + 60
    while len(seen) < len(values) and time.monotonic() < until:
        seen += take(first, "poll", 0.5)
    assert sorted(seen) == sorted(values)
    for number in range(4):
        mine = [value for value in seen if value.startswith(b"%d." % number)]
        assert mine == values_of(number)


@pytest.mark.full
def test_a_member_that_waits_for_a_payload_serves_its_group(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", store: Gate
) -> None:
    topic = new_topic(2)
    values = [value for number in range(2) for value in fill(broker, topic, store, number)]
    config = reading(store, **{"group.id": topic})
    first, second = new_consumer(config), new_consumer(config)
    first.subscribe([topic])
    seen: list[Any] = []

    def wait() -> None:
        message = first.poll(120)  # one call
        seen.append(None if message is None else message.value())

    waiting = threading.Thread(target=wait, daemon=True)
    with store.shut(*values):
        waiting.start()
        store.wait_for(lambda: store.running == 4)
        second.subscribe([topic])
        until = time.monotonic() + 60
        while not second.assignment() and time.monotonic() < until:
            assert second.poll(0.1) is None
        assert len(second.assignment()) == 1
        assert waiting.is_alive()
    waiting.join(60)
    assert len(seen) == 1
    others = everything(second, "poll", COUNT)
    assert len({value.split(b".")[0] for value in others}) == 1
    mine = everything(first, "poll", COUNT - 1)
    assert sorted([*seen, *mine, *others]) == sorted(values)


def test_a_download_that_hangs_ends_with_an_error_and_is_begun_anew(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate
) -> None:
    values = fill(broker, topic, store, count=3)
    consumer = new_consumer(reading(store, **{"large.message.store.timeout.ms": 300}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    with store.shut(values[1]):
        assert take(consumer, "poll", 30) == [values[0]]
        for _ in range(2):
            with pytest.raises(PayloadStoreUnavailableError, match="within 300 ms") as caught:
                consumer.poll(30)
            assert isinstance(caught.value, SerializationError)
            assert (caught.value.offset, caught.value.about_record) == (1, False)
    assert everything(consumer, "poll", 2) == values[1:]


def test_what_failed_ahead_of_its_turn_is_tried_again_at_it(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate
) -> None:
    values = fill(broker, topic, store, count=5)
    consumer = new_consumer(reading(store))
    consumer.assign([TopicPartition(topic, 0, 0)])
    store.fails_for = set(values[1:])
    with store.shut(values[0]):
        until = time.monotonic() + 60
        while set(store.asked) < set(values) and time.monotonic() < until:
            assert consumer.poll(0.1) is None
        store.wait_for(lambda: store.running == 1)
        store.fails_for = set()
    assert everything(consumer, "poll", 5) == values


@pytest.mark.full
def test_a_record_whose_partition_goes_in_the_middle_of_a_call_is_not_handed_over(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate
) -> None:
    values = fill(broker, topic, store, count=5)
    here = TopicPartition(topic, 0, 0)
    left = threading.Event()

    def leave(_statistics: str) -> None:
        if consumer._window.decoded and not left.is_set():
            left.set()
            consumer.incremental_unassign([here])

    consumer = new_consumer(reading(store, **{"stats_cb": leave, "statistics.interval.ms": 100}))
    consumer.incremental_assign([here])
    with store.shut(values[1]):
        until = time.monotonic() + 60
        while not left.is_set() and time.monotonic() < until:
            assert consumer.consume(5, 3) == []
    assert left.is_set()
    consumer.incremental_assign([here])
    assert everything(consumer, "consume", 5) == values


def test_the_wait_for_a_payload_counts_from_the_call(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate
) -> None:
    values = fill(broker, topic, store, count=1)
    consumer = new_consumer(reading(store))
    consumer.assign([TopicPartition(topic, 0, 0)])
    with store.shut(*values):
        until = time.monotonic() + 60
        while not store.running and time.monotonic() < until:
            assert consumer.poll(0.1) is None
        assert consumer.poll(0) is None
        assert consumer.consume(5, 0) == []
    assert take(consumer, "poll", 60) == values


def test_close_and_the_end_of_the_process_do_not_wait_for_downloads(broker: KafkaBroker, topic: str) -> None:
    MemoryStore.clear()
    program = f"""
import threading
from payload_stores.memory import MemoryStore
from serde_chain import Consumer, Producer

class Hanging(MemoryStore):
    def download(self, reference):
        asked.set()
        threading.Event().wait()

asked = threading.Event()
config = {{**{broker.client_config()!r}, "large.message.payload.store.class": Hanging(),
          "large.message.threshold.bytes": 0, "group.id": "g", "auto.offset.reset": "earliest"}}
with Producer({{**config, "value.serializers": "bytes, large-message"}}) as producer:
    producer.produce({topic!r}, b"value")
consumer = Consumer({{**config, "value.deserializers": "large-message"}})
consumer.subscribe([{topic!r}])
while not asked.is_set():
    assert consumer.poll(0.1) is None
consumer.close()
print("closed")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_an_interrupt_at_any_point_costs_nothing_but_a_download(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate, how: str
) -> None:
    values = fill(broker, topic, store, count=10)
    consumer = new_consumer(reading(store, **{"enable.auto.commit": False}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = everything(consumer, "poll", 1)
    point = interrupts = 0
    while len(found) < len(values):
        try:
            with interrupted_at(point):
                messages = consumer.consume(3, 5) if how == "consume" else [consumer.poll(5)]
                found += [bytes(message.value() or b"") for message in messages if message is not None]
            point = 0
        except KeyboardInterrupt:
            interrupts += 1
            point += 1
            assert consumer.position([TopicPartition(topic, 0)])[0].offset <= len(found)
    assert found == values
    assert interrupts > 100
    assert consumer._window.under_way == {}
    with suppress(Exception):
        consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == len(values)


def test_a_chain_without_large_messages_fetches_no_payloads_ahead(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer"
) -> None:
    config = {**broker.client_config(), "value.serializers": "bytes, zstd"}
    with Producer(config) as producer:
        for number in range(50):
            producer.produce(topic, b"%d" % number, headers=[("n", b"%d" % number)])
    consumer = new_consumer({"value.deserializers": "zstd"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    for number in range(50):
        message: Any = next(iter(filter(None, iter(lambda: consumer.poll(10), 1))))
        assert message.value() == b"%d" % number
        assert not consumer._window.under_way


@pytest.mark.full
def test_a_window_that_is_full_grows_no_more_while_the_group_is_served(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_loop, "_AHEAD", 4)
    monkeypatch.setattr(reading_loop, "_STEP", 2)
    monkeypatch.setattr(reading_loop, "_UNASKED", 10)
    monkeypatch.setattr(reading_loop, "_TICK", 0.0)
    values = fill(broker, topic, store, count=200)
    consumer = new_consumer(reading(store))
    consumer.assign([TopicPartition(topic, 0, 0)])
    with store.shut(values[0]):
        until = time.monotonic() + 60
        while not consumer._backoff.held and time.monotonic() < until:
            assert consumer.poll(0.01) is None
        count = consumer._window.count()
        for _ in range(50):
            assert consumer.poll(0) is None
        assert consumer._window.count() <= count + 1 <= 20
    assert everything(consumer, "poll", 200) == values
    assert not consumer._backoff.held


@pytest.mark.parametrize("how", ["consume", "arrow"])
def test_a_batch_ends_where_its_payloads_fill_the_bound(
    topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer", how: str
) -> None:
    config: dict[str, Any] = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 100}
    with new_producer({**config, "value.serializers": "large-message"}) as producer:
        for number in range(40):
            producer.produce(topic, bytes([number]) * 1_000)
    consumer = new_consumer({
        **config, "value.deserializers": "large-message", "large.message.downloads.max.bytes": 5_500
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    sizes: list[int] = []
    found: list[int] = []
    while len(found) < 40:
        if how == "arrow":
            values: list[Any] = consumer.consume_arrow(40, 2).column("value").to_pylist()
        else:
            values = [message.value() for message in consumer.consume(40, 2)]
        sizes.append(len(values))
        found += [value[0] for value in values]
    assert found == list(range(40))
    assert max(sizes) == 6  # up to the one that passes the bound
