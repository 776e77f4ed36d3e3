"""How the records of a window are read, without a client."""

import signal
import threading
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

import pytest
from confluent_kafka import Message

from serde_chain.clients.window import Window
from serde_chain.clients.window_reader import WindowReader
from serde_chain.errors import PayloadStoreUnavailableError, SerializationError, in_chain
from serde_chain.transfer import Prefetch, Question, Transfer

SECONDS = 30.0


def reader_of(
    begin: Callable[[Any], Any],
    *records: Any,
    is_marked: bool = True,
    fetches: bool = True,
    told: Callable[[], None] = lambda: None,
) -> WindowReader:
    window = Window()
    window.messages += records
    prefetch = Prefetch(methodcaller("run"), in_flight=2, max_bytes=100) if fetches else None
    if prefetch is not None:
        prefetch.notify = told
    return WindowReader(window, begin, lambda _record: is_marked, prefetch)


def message(offset: int) -> "Message[bytes, bytes]":
    return Message(topic="t", partition=0, offset=offset, value=b"v")


class TimeLimitError(Exception):
    """What a task queue's signal handler raises."""


@pytest.fixture
def late() -> Iterator[Callable[[Any], Any]]:
    """Begins a record while the task's time ends."""

    def end(*_: object) -> None:
        raise TimeLimitError

    before = signal.signal(signal.SIGUSR1, end)
    yield lambda _record: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_the_end_of_a_tasks_time_is_no_failure_of_a_record(late: Callable[[Any], Any]) -> None:
    record = message(0)
    reader = reader_of(late, record)
    with pytest.raises(TimeLimitError):
        reader.payload_bytes(record)
    with pytest.raises(TimeLimitError):
        reader.look_ahead()


def test_a_failure_of_a_store_ahead_of_its_turn_is_tried_again() -> None:
    failures: list[SerializationError] = [in_chain(PayloadStoreUnavailableError("the store is down"))]

    def fetch() -> bytes:
        if failures:
            raise failures.pop()
        return b"payload"

    record, ended = message(0), threading.Event()
    reader = reader_of(lambda _record: Question(fetch, bytes, key=None), record, told=ended.set)
    assert reader.fetches_ahead
    assert reader.look_ahead()
    assert ended.wait(SECONDS)
    assert not failures
    assert reader.read(record) is None, "it is fetched again"
    assert reader.wait(record, SECONDS)
    assert reader.read(record) == b"payload"


def test_what_is_fetched_ahead_is_fetched_once() -> None:
    fetched: list[int] = []

    def begin(record: Any) -> Any:
        return Question(lambda: fetched.append(record.offset()), lambda _: record.offset(), key=None)

    records = [message(0), message(1)]
    reader = reader_of(begin, *records)
    assert reader.look_ahead()
    assert not reader.look_ahead(), "no others have come"
    assert not reader.wants_more
    for record in reversed(records):
        assert reader.wait(record, SECONDS)
        assert reader.read(record) == record.offset()
    assert sorted(fetched) == [0, 1]


class Large(Transfer[bytes]):
    """Has as many bytes as may be held at a time."""

    def __init__(self) -> None:
        self.key, self.size = None, 100
        self.begun = threading.Event()

    def run(self) -> bytes:
        self.begun.set()
        return bytes(100)

    def resume(self, result: bytes, /) -> int:
        return len(result)


def test_a_payload_that_was_taken_makes_room_for_the_next() -> None:
    records, payloads = [message(0), message(1)], [Large(), Large()]
    reader = reader_of(lambda record: payloads[record.offset()], *records)
    assert reader.look_ahead()
    assert reader.wait(records[0], SECONDS)
    assert not payloads[1].begun.is_set()
    assert reader.read(records[0]) == 100
    assert payloads[1].begun.wait(SECONDS), "the next download did not start, although there was room"


@pytest.mark.parametrize(("is_marked", "fetches"), [(False, True), (True, False)])
def test_a_record_without_a_payload_is_not_begun_to_learn_its_size(*, is_marked: bool, fetches: bool) -> None:
    begun: list[Any] = []
    reader = reader_of(begun.append, is_marked=is_marked, fetches=fetches)
    assert reader.payload_bytes(message(0)) == 0
    assert not begun
    assert reader.fetches_ahead == fetches
    assert not reader.may_wait(message(0))


def test_nothing_is_fetched_of_records_beyond_the_bound() -> None:
    begun: list[int] = []

    def begin(record: Any) -> Any:
        begun.append(record.offset())
        return b"small" if record.offset() == 1 else Large()

    records = [message(offset) for offset in range(5)]
    reader = reader_of(begin, *records)
    assert reader.look_ahead_within_bound() == records[:2]
    assert begun == [0, 1, 2]
    assert reader.wait(records[0], SECONDS)
    assert [reader.read(records[0]), *reader._window.decoded.values()] == [100, b"small"]
    assert not reader._window.under_way
