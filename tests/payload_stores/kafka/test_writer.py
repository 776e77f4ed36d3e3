"""The order of chunks in a partition, on the real broker."""

import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from itertools import count
from threading import Barrier

import pytest

from payload_stores.kafka import writer
from payload_stores.kafka.writer import _Turns
from payload_stores.middleware import Deadline
from tests.interrupts import interrupted_at
from tests.payload_stores.kafka.conftest import NewStore

CHUNKS = 9
SIZE = CHUNKS * 1_000_000


def offsets(reference: str) -> tuple[int, int]:
    first, _, last = reference.split("/")[5].partition("-")
    return int(first), int(last)


@pytest.mark.full
def test_payloads_that_are_published_at_a_time_are_not_mixed(
    new_store: NewStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of one would read the chunks of all."""
    monkeypatch.setattr(writer, "_TURN_SECONDS", 60)  # a busy machine may need longer than two
    monkeypatch.setattr(writer, "_TURN_SHARE", 1)
    store, ready = new_store(), Barrier(4)
    payloads = [os.urandom(SIZE) for _ in range(4)]
    streams = iter(range(4))

    def publish(payload: bytes) -> str:
        is_stream = next(streams) % 2
        ready.wait(30)
        return store.publish_stream("t", io.BytesIO(payload)) if is_stream else store.publish("t", payload)

    with ThreadPoolExecutor(4) as threads:
        references = list(threads.map(publish, payloads))
    assert sorted(map(offsets, references)) == [(at * CHUNKS, (at + 1) * CHUNKS - 1) for at in range(4)]
    assert [store.download(reference) for reference in references] == payloads


class Nested(io.BytesIO):
    """A stream that stops after some chunks until something else is done."""

    def __init__(self, data: bytes, do: Callable[[], object]) -> None:
        super().__init__(data)
        self._do = do

    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() > 3_000_000:
            do, self._do = self._do, lambda: None
            do()
        return super().read(size)


@pytest.mark.full
def test_a_stream_that_stops_does_not_stop_others(new_store: NewStore) -> None:
    """Otherwise a slow source would let uploads to its partition fail."""
    store = new_store(**{"kafka.payload.timeout.ms": 8000})
    payload, others = os.urandom(SIZE), [b"one", b"two"]
    references: list[str] = []
    reference = store.publish_stream(
        "t", Nested(payload, lambda: references.extend(store.publish("t", other) for other in others))
    )
    assert [store.download(each) for each in references] == others
    assert store.download(reference) == payload
    first, last = offsets(reference)
    assert all(first < offsets(each)[0] < last for each in references), "they have waited for the stream"


@pytest.mark.full
def test_a_stream_that_stops_leaves_others_within_their_deadlines(new_store: NewStore) -> None:
    """However long the store's own timeout is."""
    store = new_store(**{"kafka.payload.timeout.ms": 120_000})
    beside = Deadline(store, 20_000)
    references: list[str] = []
    store.publish_stream("t", Nested(os.urandom(SIZE), lambda: references.append(beside.publish("t", b"other"))))
    assert [store.download(each) for each in references] == [b"other"]


def test_only_payloads_take_turns(new_store: NewStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow stream must not delay tombstones: their order does not matter."""
    taken: list[tuple[str, int]] = []
    turn = _Turns.turn

    def counted(turns: _Turns, place: tuple[str, int], seconds: float) -> AbstractContextManager[None]:
        taken.append(place)
        return turn(turns, place, seconds)

    monkeypatch.setattr(_Turns, "turn", counted)
    store = new_store()
    store.delete(store.publish("t", b"payload"))
    assert len(taken) == 1


def test_an_interrupt_anywhere_leaves_no_turn_taken() -> None:
    turns, place = _Turns(), ("t", 0)
    for number in count():
        is_interrupted = True
        with (
            suppress(KeyboardInterrupt),
            interrupted_at(number, ("payload_stores/kafka/writer.py", threading.__file__)),
        ):
            with turns.turn(place, 60):
                pass
            is_interrupted = False
        with ThreadPoolExecutor(1) as threads:
            threads.submit(turns.turn(place, 60).__enter__).result(30)
        if not is_interrupted:
            break
    assert number > 5
