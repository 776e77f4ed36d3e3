"""How the records of a window are read, without a client."""

import signal
from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

import pytest
from confluent_kafka import Message

from serde_chain.clients.window import Window
from serde_chain.clients.window_reader import WindowReader
from serde_chain.transfer import Prefetch


def reader_of(begin: Callable[[Any], Any], *records: Any) -> WindowReader:
    window = Window()
    window.messages += records
    return WindowReader(window, begin, lambda _record: True, Prefetch(methodcaller("run"), in_flight=2, max_bytes=100))


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
