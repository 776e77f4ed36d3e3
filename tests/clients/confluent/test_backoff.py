"""A store, a registry or a key provider that is not there for a while: the consumer stays at the record."""

import itertools
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import (
    Consumer,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreUnavailableError,
    Producer,
    SchemaRegistryError,
    SerializationError,
)
from serde_chain.clients import backoff, timeouts
from serde_chain.record import Context
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer
    from tests.conftest import NewTopic

# Faults; the ordinary way has tests of its own.
pytestmark = pytest.mark.full

VALUES = [b"0", b"1", b"2", b"3", b"4"]


class Store(FaultyStore):
    """Is not there for a payload, or returns another one in its place."""

    not_for: bytes | None = None
    damages: bytes | None = None

    def download(self, reference: str) -> bytes:
        data = super().download(reference)
        if data == self.not_for:
            raise PayloadStoreUnavailableError("down")
        return b"?" if data == self.damages else data

    def is_back(self) -> None:
        self._errors.clear()


@pytest.fixture
def store() -> Store:
    MemoryStore.clear()
    return Store(MemoryStore())


def config_of(store: object) -> dict[str, Any]:
    return {"large.message.payload.store.class": store, "large.message.threshold.bytes": 0}


def fill(broker: KafkaBroker, topic: str, store: object, partition: int = 0, times: int = 1) -> None:
    with Producer(
        {**broker.client_config(), **config_of(store), "value.serializers": "bytes, large-message"}
    ) as producer:
        for value in VALUES * times:
            producer.produce(topic, value, partition=partition)


def take(consumer: Consumer, how: str) -> list[bytes]:
    seconds = 10.0 if how == "poll" else 1.0
    if how == "arrow":
        found: list[bytes] = consumer.consume_arrow(10, seconds).column("value").to_pylist()
        return found
    messages = consumer.consume(10, seconds) if how == "consume" else [consumer.poll(seconds)]
    return [bytes(message.value() or b"") for message in messages if message is not None]


def everything(consumer: Consumer, how: str, count: int = len(VALUES)) -> tuple[list[bytes], list[SerializationError]]:
    """The loop that everybody writes: errors are logged, and it goes on."""
    values: list[bytes] = []
    errors: list[SerializationError] = []
    until = time.monotonic() + 60
    while len(values) < count and time.monotonic() < until:
        try:
            values += take(consumer, how)
        except SerializationError as error:
            errors.append(error)
    return values, errors


@pytest.mark.parametrize("how", ["poll", "consume", "arrow"])
def test_a_store_that_is_not_there_for_a_while_costs_no_record(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Store, how: str
) -> None:
    fill(broker, topic, store)
    kind = PayloadStoreUnavailableError if how == "poll" else PayloadAccessDeniedError
    consumer = new_consumer({**config_of(store), "value.deserializers": "large-message", "group.id": topic})
    consumer.subscribe([topic])
    store.fail(kind("the store is not there"), times=1_000)
    errors: list[SerializationError] = []
    until = time.monotonic() + 60
    while len(errors) < 3 and time.monotonic() < until:
        try:
            assert take(consumer, how) == []
        except SerializationError as error:
            errors.append(error)
    assert {(type(error).__name__, error.offset) for error in errors} == {(kind.__name__, 0)}
    store.is_back()
    assert everything(consumer, how) == (VALUES, [])
    consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == len(VALUES)


def test_what_was_not_read_is_met_again_after_a_restart(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Store
) -> None:
    fill(broker, topic, store)
    store.not_for = b"1"
    config = {**config_of(store), "value.deserializers": "large-message", "group.id": topic}
    with new_consumer(config) as first:
        first.subscribe([topic])
        assert take(first, "poll") == [b"0"]
        for _ in range(3):
            with pytest.raises(PayloadStoreUnavailableError) as caught:
                take(first, "poll")
            assert caught.value.offset == 1  # type: ignore[attr-defined]
    store.not_for = None
    with new_consumer(config) as second:
        second.subscribe([topic])
        assert everything(second, "consume", 4) == (VALUES[1:], [])


@pytest.mark.parametrize("how", ["poll", "consume", "arrow"])
def test_what_is_wrong_with_a_record_is_passed_over(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Store, how: str
) -> None:
    fill(broker, topic, store)
    consumer = new_consumer({**config_of(store), "value.deserializers": "large-message", "group.id": topic})
    consumer.subscribe([topic])
    there = MemoryStore()
    there.delete(next(info.reference for info in there.list(topic) if there.download(info.reference) == b"2"))
    assert take(consumer, "poll") == [b"0"]
    values, errors = everything(consumer, how, 3)
    assert values == [b"1", b"3", b"4"]
    assert [(type(error).__name__, error.offset) for error in errors] == [(PayloadNotFoundError.__name__, 2)]


def test_a_damaged_payload_is_passed_over(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Store
) -> None:
    fill(broker, topic, store)
    consumer = new_consumer({**config_of(store), "value.deserializers": "large-message"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    store.damages = b"0"
    with pytest.raises(PayloadIntegrityError, match="offset=0"):
        take(consumer, "poll")
    assert everything(consumer, "poll", 4) == (VALUES[1:], [])


def test_waits_grow_and_a_short_poll_returns_in_them(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, topic, store)
    consumer = new_consumer({**config_of(store), "value.deserializers": "large-message"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    store.fail(PayloadStoreUnavailableError("down"), times=1_000)
    # A clock that goes on only here: however slow this machine is, no wait is over before its time.
    clock = SimpleNamespace(now=time.monotonic())
    for module in (backoff, timeouts):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    for wait in (0.1, 0.2, 0.4, 0.8):
        with pytest.raises(PayloadStoreUnavailableError):
            consumer.poll(60)
        clock.now += wait - 0.01
        assert consumer.poll(0) is None
        assert consumer.consume(10, 0) == []
        assert consumer.consume_arrow(10, 0).num_rows == 0
        clock.now += 0.02
    store.is_back()
    monkeypatch.undo()
    assert everything(consumer, "poll") == (VALUES, [])


def test_nothing_is_fetched_meanwhile_and_all_is_afterwards(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", store: Store
) -> None:
    topic = new_topic(2)
    fill(broker, topic, store, 0, times=20)
    fill(broker, topic, store, 1, times=20)
    consumer = new_consumer({**config_of(store), "value.deserializers": "large-message", "group.id": topic})
    consumer.subscribe([topic])
    store.fail(PayloadStoreUnavailableError("down"), times=1_000)
    with pytest.raises(PayloadStoreUnavailableError):
        consumer.poll(10)
    fetched = consumer._window.count()
    for _ in range(40):
        try:
            assert consumer.poll(0.01) is None
        except PayloadStoreUnavailableError:
            continue
    # One record per poll would be more than these.
    assert consumer._window.count() <= fetched + 1
    store.is_back()
    values, errors = everything(consumer, "poll", 40 * len(VALUES))
    assert (sorted(values), errors) == (sorted(VALUES * 40), [])


@pytest.mark.parametrize("leave", ["seek", "pause", "assign"])
def test_the_record_can_be_left(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", store: Store, leave: str
) -> None:
    topic = new_topic(2)
    fill(broker, topic, store, 0)
    consumer = new_consumer({**config_of(store), "value.deserializers": "large-message"})
    both = [TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)]
    consumer.assign(both)
    store.fail(PayloadStoreUnavailableError("down"), times=1_000)
    for _ in range(2):
        with pytest.raises(PayloadStoreUnavailableError):
            consumer.poll(10)
    store.is_back()
    if leave == "seek":
        consumer.seek(TopicPartition(topic, 0, 3))
        assert everything(consumer, "poll", 2) == (VALUES[3:], [])
    elif leave == "assign":
        consumer.assign([TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 0)])
        assert everything(consumer, "poll", 3) == (VALUES[2:], [])
    else:
        consumer.pause([both[0]])
        fill(broker, topic, store, 1)
        assert everything(consumer, "poll") == (VALUES, [])
        assert consumer.poll(0.2) is None
        consumer.resume([both[0]])
        assert everything(consumer, "poll") == (VALUES, [])


@pytest.mark.full
@pytest.mark.parametrize("way", ["unassign", "unsubscribe", "incremental", "rebalance"])
def test_partitions_that_were_given_back_while_a_record_could_not_be_read_are_read_when_they_come_again(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", store: Store, way: str
) -> None:
    topic = new_topic(2)
    fill(broker, topic, store, 0)
    fill(broker, topic, store, 1)
    config = {**config_of(store), "value.deserializers": "large-message", "group.id": topic}
    consumer = new_consumer(config)
    both = [TopicPartition(topic, at, 0) for at in (0, 1)]
    if way in {"unassign", "incremental"}:
        consumer.assign(both)
    else:
        consumer.subscribe([topic])
    store.fail(PayloadStoreUnavailableError("down"), times=1_000)
    with pytest.raises(PayloadStoreUnavailableError):
        consumer.poll(20)
    assert consumer.poll(0) is None  # waits, and fetches nothing meanwhile
    store.is_back()
    if way == "unassign":
        consumer.unassign()
        consumer.assign(both)
    elif way == "incremental":
        consumer.incremental_unassign(both)
        consumer.incremental_assign(both)
    elif way == "unsubscribe":
        consumer.unsubscribe()
        consumer.subscribe([topic])
    else:
        store.fail(PayloadStoreUnavailableError("down"), times=1_000)
        with new_consumer(config) as other:
            other.subscribe([topic])
            until = time.monotonic() + 60
            while not (len(other.assignment()) == len(consumer.assignment()) == 1) and time.monotonic() < until:
                if not other.assignment():
                    other.poll(0.05)
                with suppress(PayloadStoreUnavailableError):
                    consumer.poll(0.05)
            assert len(other.assignment()) == len(consumer.assignment()) == 1
        while len(consumer.assignment()) < 2 and time.monotonic() < until:
            with suppress(PayloadStoreUnavailableError):
                consumer.poll(0.05)
        store.is_back()
    values, _ = everything(consumer, "poll", 2 * len(VALUES))
    assert sorted(values) == sorted(VALUES * 2)


@pytest.mark.full
def test_the_end_of_another_partition_in_front_does_not_end_the_wait(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", store: Store
) -> None:
    topic = new_topic(2)
    consumer = new_consumer({**config_of(store), "value.deserializers": "large-message", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 1, 0)])
    assert consumer._loop.fetch_several(1, 20)
    fill(broker, topic, store, 0)
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    until = time.monotonic() + 60
    while len(list(consumer._window.waiting())) < 2 and time.monotonic() < until:
        consumer._window.fetch(consumer._consumer.poll, 0.5)
    assert [message.error() is None for message in consumer._window.waiting()] == [False, True]
    store.fail(PayloadStoreUnavailableError("down"), times=1_000)
    tries = []
    for _ in range(4):
        with pytest.raises(PayloadStoreUnavailableError):
            consumer.consume_arrow(1, 20)
        tries.append(time.monotonic())
    waits = [after - before for before, after in itertools.pairwise(tries)]
    assert all(wait >= least for wait, least in zip(waits, (0.1, 0.2, 0.4), strict=True))
    store.is_back()
    assert everything(consumer, "arrow") == (VALUES, [])


def test_an_answer_that_another_package_did_not_get_is_not_the_records_fault(
    broker: KafkaBroker, topic: str, new_consumer: "NewConsumer"
) -> None:
    fill(broker, topic, MemoryStore())
    faults = [ConnectionRefusedError("refused"), TimeoutError("late"), SchemaRegistryError("401"), MemoryError()]
    raised = len(faults)

    def stage(data: bytes, _ctx: Context) -> bytes:
        if faults:
            raise faults.pop(0)
        return data

    consumer = new_consumer({**config_of(MemoryStore()), "value.deserializers": ["large-message", stage]})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values, errors = everything(consumer, "poll")
    assert values == VALUES
    assert [error.about_record for error in errors] == [False] * raised
