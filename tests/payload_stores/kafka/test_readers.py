"""The store's consumers between two downloads, on the real broker."""

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import Any

import confluent_kafka
import pytest

from payload_stores.errors import PayloadNotFoundError
from payload_stores.kafka import readers
from payload_stores.kafka.readers import IdleReaders, Position, Reader
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import interrupted_at
from tests.payload_stores.kafka.conftest import NewStore

SIZE = 1_500_000


@pytest.fixture
def takes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each download: whether its consumer was at the payload already."""
    seen: list[bool] = []
    take = IdleReaders.take

    def noted(self: IdleReaders, wanted: Position | None) -> Any:
        found = take(self, wanted)
        if wanted is not None:
            seen.append(found is not None and found.position is not None)
        return found

    monkeypatch.setattr(IdleReaders, "take", noted)
    return seen


@pytest.fixture
def topic(broker: KafkaBroker) -> Callable[[int], tuple[str, str]]:
    """Creates a payload topic with this many partitions; returns its name, and that of the records' topic."""

    def make(partitions: int) -> tuple[str, str]:
        name = f"payloads-{uuid.uuid4().hex[:12]}"
        broker.create_topic(name, partitions)
        return name, "t"

    return make


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_payloads_in_order_are_read_without_assigning_again(
    new_store: NewStore, takes: list[bool], topic: Callable[[int], tuple[str, str]]
) -> None:
    name, records = topic(3)
    store = new_store(**{"kafka.payload.topic": name})
    payloads = [os.urandom(SIZE) for _ in range(9)]
    references = [store.publish(records, payload) for payload in payloads]
    assert [store.download(reference) for reference in references] == payloads
    assert takes == [False] * 3 + [True] * 6
    # Another order is read as well.
    assert [store.download(reference) for reference in reversed(references)] == payloads[::-1]


def test_a_stream_is_read_without_assigning_again(
    new_store: NewStore, takes: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ranges end with chunks: half a chunk would be fetched again, and all that was fetched after it."""
    monkeypatch.setattr(readers, "_WAIT_S", 3600.0)
    store = new_store()
    payload = os.urandom(20_000_000)
    with store.open(store.publish("t", payload)) as file:
        assert b"".join(iter(lambda: file.read(1 << 20), b"")) == payload
    assert takes == [False, False, True, True]  # its last chunk, which has the size, and three ranges


def test_what_comes_after_an_end_that_was_seen(
    new_store: NewStore, takes: list[bool], topic: Callable[[int], tuple[str, str]]
) -> None:
    name, records = topic(1)
    store = new_store(**{"kafka.payload.topic": name})
    for _ in range(5):  # the waiting consumer has seen the end of the partition before the next payload comes
        payload = os.urandom(SIZE)
        assert store.download(store.publish(records, payload)) == payload
    assert takes == [False, True, True, True, True]


def test_many_at_a_time_take_turns_in_a_partition(
    new_store: NewStore, takes: list[bool], topic: Callable[[int], tuple[str, str]]
) -> None:
    name, records = topic(1)
    store = new_store(**{"kafka.payload.topic": name})
    payloads = [os.urandom(SIZE) for _ in range(16)]
    references = [store.publish(records, payload) for payload in payloads]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(store.download, references)) == payloads
    assert takes.count(True) >= 8


def test_markers_of_transactions_are_passed_over(
    broker: KafkaBroker, new_store: NewStore, takes: list[bool], topic: Callable[[int], tuple[str, str]]
) -> None:
    name, records = topic(1)
    store = new_store(**{"kafka.payload.topic": name})
    first = store.publish(records, b"first" * 1000)
    producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"of somebody else", partition=0)
    producer.commit_transaction(30)
    second = store.publish(records, b"second" * 1000)
    assert (store.download(first), store.download(second)) == (b"first" * 1000, b"second" * 1000)
    assert takes == [False, True]


def test_a_missing_payload_behind_a_waiting_consumer(
    new_store: NewStore, topic: Callable[[int], tuple[str, str]]
) -> None:
    name, records = topic(1)
    store = new_store(**{"kafka.payload.topic": name})
    reference = store.publish(records, b"p" * 1000)
    assert store.download(reference) == b"p" * 1000
    beyond = reference.replace("/0/0-0/", "/0/1-1/")
    assert beyond != reference
    with pytest.raises(PayloadNotFoundError):
        store.download(beyond)
    assert store.download(store.publish(records, b"q" * 1000)) == b"q" * 1000


def test_a_waiting_consumer_gives_up_its_position(
    monkeypatch: pytest.MonkeyPatch, new_store: NewStore, topic: Callable[[int], tuple[str, str]]
) -> None:
    monkeypatch.setattr(readers, "_WAIT_S", 0.05)
    name, records = topic(1)
    store = new_store(**{"kafka.payload.topic": name})
    reference = store.publish(records, b"p" * 1000)
    store.download(reference)
    idle = store._broker._idle
    eventually(lambda: bool(idle._idle) and all(each.position is None for each in idle._idle))
    assert all(not each.consumer.assignment() for each in idle._idle)
    assert store.download(reference) == b"p" * 1000


def test_a_closed_store_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch, new_store: NewStore, topic: Callable[[int], tuple[str, str]]
) -> None:
    monkeypatch.setattr(readers, "_WAIT_S", 600)
    before = set(threading.enumerate())
    name, records = topic(1)
    store = new_store(**{"kafka.payload.topic": name})
    store.download(store.publish(records, b"p" * 1000))
    store.close()
    eventually(lambda: not {each for each in threading.enumerate() if isinstance(each, threading.Timer)} - before)


@pytest.fixture
def idle() -> Iterator[IdleReaders]:
    readers = IdleReaders()
    yield readers
    readers.close()


@pytest.fixture
def turns(idle: IdleReaders) -> Callable[[], None]:
    """Reads one payload after the other in another thread: two turns."""

    def take_turns() -> None:
        for offset in (0, 2):
            place = Position("t", 0, offset)
            with idle.turn(place, place._replace(offset=offset + 2), 60):
                assert idle.take(place) is None

    def run() -> None:
        thread = threading.Thread(target=take_turns, daemon=True)  # the end of the tests must not wait for it
        thread.start()
        thread.join(30)
        assert not thread.is_alive()

    return run


def test_an_interrupt_anywhere_leaves_nothing_locked(idle: IdleReaders, turns: Callable[[], None]) -> None:
    """Also in the standard library's Python code: a Condition stays locked, and all later downloads hang."""
    within = ("payload_stores/kafka/readers.py", threading.__file__)
    place = Position("t", 0, 0)
    for number in count():
        is_interrupted = True
        with suppress(KeyboardInterrupt), interrupted_at(number, within):
            with idle.turn(place, place._replace(offset=2), 60):
                idle.take(place)
            is_interrupted = False
        turns()
        # One whose end was interrupted is forgotten by those who have waited for it.
        assert idle._coming == []
        if not is_interrupted:
            break
    assert number > 10


def test_an_interrupted_wait_is_forgotten(idle: IdleReaders, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each later download of that position would wait a second."""
    place = Position("t", 0, 0)

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(idle, "_await", interrupted)
        with pytest.raises(KeyboardInterrupt), idle.turn(place, place._replace(offset=2), 60):
            pytest.fail("it has waited")
    assert idle._coming == []


class _Consumer:
    def __init__(self) -> None:
        self.closed = self.unassigned = 0
        self.on_unassign: Callable[[], object] = int

    def close(self) -> None:
        self.closed += 1

    def unassign(self) -> None:
        self.unassigned += 1
        self.on_unassign()


def _given(idle: IdleReaders, count: int) -> list[Any]:
    """Idle consumers, each at the beginning of a partition of its own."""
    consumers: list[Any] = [_Consumer() for _ in range(count)]
    for partition, consumer in enumerate(consumers):
        idle.give(Reader(consumer, Position("t", partition, 0)))
    return consumers


def test_of_too_many_consumers_the_oldest_is_closed(idle: IdleReaders) -> None:
    """The one that was just used is where the next payload begins."""
    consumers = _given(idle, readers._MOST + 1)
    assert [consumer.closed for consumer in consumers] == [1] + [0] * readers._MOST
    reader = idle.take(Position("t", readers._MOST, 0))
    assert reader is not None
    assert (reader.consumer, reader.position) == (consumers[-1], Position("t", readers._MOST, 0))


def test_of_too_many_consumers_one_without_a_position_is_closed_first(idle: IdleReaders) -> None:
    consumers = _given(idle, readers._MOST)
    bare: Any = _Consumer()
    idle.give(Reader(bare))
    assert [consumer.closed for consumer in (*consumers, bare)] == [0] * readers._MOST + [1]


def test_consumers_in_use_count(idle: IdleReaders) -> None:
    """Otherwise several at a time would each connect a new one, and close as many, although old ones are idle."""
    consumers = _given(idle, readers._MOST)
    meanwhile: list[Reader | None] = []
    # Another thread takes one before the first has been unassigned.
    consumers[0].on_unassign = lambda: meanwhile.append(idle.take(Position("u", 1, 0)))
    first = idle.take(Position("u", 0, 0))
    lent = [first, *meanwhile]
    assert [reader.consumer for reader in lent if reader] == consumers[:2]
    assert all(reader.position is None for reader in lent if reader)
    assert [consumer.unassigned for consumer in consumers[:3]] == [1, 1, 0]
    del first, lent
    meanwhile.clear()  # never returned, as after an interrupt
    assert idle.take(Position("u", 4, 0)) is None


def test_a_failed_consumer_no_longer_counts(idle: IdleReaders) -> None:
    consumers = _given(idle, readers._MOST)
    reader = idle.take(Position("u", 0, 0))
    assert reader is not None
    idle.drop(reader)
    assert consumers[0].closed == 1
    assert idle.take(Position("u", 0, 0)) is None


def test_the_closest_consumer_is_taken(broker: KafkaBroker, idle: IdleReaders) -> None:
    """Several that follow each other through a partition would each fetch all of it."""
    consumers = {
        offset: confluent_kafka.Consumer({**broker.client_config(), "group.id": "none"}) for offset in (6, 9, 7, 11)
    }
    for offset, consumer in consumers.items():
        idle.give(Reader(consumer, Position("t", 0, offset)))
    for offset in (9, 7):
        reader = idle.take(Position("t", 0, 10))
        assert reader is not None
        assert (reader.consumer, reader.position) == (consumers.pop(offset), Position("t", 0, 10))


def test_only_positions_just_before_lead_to_a_record() -> None:
    wanted = Position("t", 1, 10)
    leads = [offset for offset in range(20) if Position("t", 1, offset).leads_to(wanted)]
    assert leads == [6, 7, 8, 9, 10]
    assert not Position("t", 0, 10).leads_to(wanted)
    assert not Position("u", 1, 10).leads_to(wanted)
