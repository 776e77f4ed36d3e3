"""Payloads fetched ahead: in parallel, each once, within bounds. Without Spark."""

import threading
import time
from typing import Self

import pytest

from payload_stores.errors import PayloadNotFoundError, PayloadStoreUnavailableError
from serde_chain.stages.large_message.prefetch import Downloads
from serde_chain.wire.reference_format import Reference


class Payload(bytes):
    """Tells its store when it is dropped."""

    store: "Store"

    @classmethod
    def of(cls, content: bytes, store: "Store") -> Self:
        payload = cls(content)
        payload.store = store
        return payload

    def __del__(self) -> None:
        with self.store.lock:
            self.store.held -= len(self)


class Store:
    """Counts what is asked of it, what it hands out at a time, and the bytes of what is not dropped yet."""

    def __init__(self, seconds: float = 0.002, size: int = 10) -> None:
        self.seconds = seconds
        self.size = size
        self.asked: list[str] = []
        self.running = self.most = 0
        self.held = self.most_held = 0
        self.lock = threading.RLock()

    def __call__(self, reference: Reference) -> bytes:
        with self.lock:
            self.asked.append(reference.url)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        with self.lock:
            self.running -= 1
            if "gone" in reference.url:
                raise PayloadNotFoundError("the payload is gone")
            payload = Payload.of(reference.url.encode() * (reference.size or self.size), self)
            self.held += len(payload)
            self.most_held = max(self.most_held, self.held)
        return payload


def references(*urls: str, size: int | None = None) -> list[Reference]:
    return [Reference(url, size) for url in urls]


def downloads(store: Store, wanted: list[Reference], *, in_flight: int = 8, max_bytes: int = 1000) -> Downloads:
    return Downloads(store, wanted, in_flight=in_flight, max_bytes=max_bytes, timeout_ms=5000)


def test_each_distinct_reference_once_and_in_parallel() -> None:
    store, wanted = Store(0.02), references(*"abcabcdefga")
    with downloads(store, wanted, in_flight=4) as ahead:
        assert [ahead.take(reference) for reference in wanted] == [reference.url.encode() * 10 for reference in wanted]
        assert sorted(store.asked) == list("abcdefg")
        assert 1 < store.most <= 4
        assert store.held == 70
        ahead.let_go()
        assert store.held == 0


@pytest.mark.parametrize("size", [10, None])
def test_the_bound_of_bytes(size: int | None) -> None:
    store, wanted = Store(), references(*"abcdefghijklmnopqrst", size=size)
    with downloads(store, wanted, in_flight=8 if size else 3, max_bytes=30) as ahead:
        for reference in wanted:
            ahead.take(reference)
            ahead.let_go()
    assert 10 < store.most_held <= 30
    assert store.most <= 3
    assert len(store.asked) == 20
    assert store.held == 0


def test_payloads_that_say_no_size_are_taken_for_as_large_as_the_largest_so_far() -> None:
    store, wanted = Store(size=30), references(*"abcdefghijklmnopqrst")
    with downloads(store, wanted, in_flight=6, max_bytes=60) as ahead:
        for reference in wanted[:6]:
            ahead.take(reference)
            ahead.let_go()
        store.most_held = 0
        for reference in wanted[6:]:
            ahead.take(reference)
            ahead.let_go()
    assert 30 <= store.most_held <= 60


def test_what_was_taken_and_not_let_go_counts() -> None:
    store, wanted = Store(), references(*"abcdef", size=10)
    with downloads(store, wanted, max_bytes=30) as ahead:
        for reference in wanted[:3]:
            ahead.take(reference)
        assert len(store.asked) == 3
        ahead.take(wanted[3])  # one may always be had
        assert len(store.asked) == 4
        ahead.let_go()
        ahead.take(wanted[4])
    assert len(store.asked) == 6


def test_a_payload_above_the_bound_is_fetched_alone() -> None:
    store, wanted = Store(), references("a", "b", "c", size=100)
    with downloads(store, wanted, max_bytes=30) as ahead:
        for reference in wanted:
            assert ahead.take(reference) == reference.url.encode() * 100
            ahead.let_go()
    assert store.most == 1


def test_what_is_kept_for_later_makes_room() -> None:
    store, wanted = Store(), references(*"abcdabcd", size=10)
    with downloads(store, wanted, in_flight=2, max_bytes=20) as ahead:
        for reference in wanted:
            assert ahead.take(reference) == reference.url.encode() * 10
            ahead.let_go()
    assert set(store.asked) == set("abcd")


def test_an_error_is_that_of_every_record_that_refers_to_it() -> None:
    store, wanted = Store(), references("a", "gone", "gone", "b")
    with downloads(store, wanted) as ahead:
        assert ahead.take(wanted[0]) == b"a" * 10
        errors = []
        for _ in range(2):
            with pytest.raises(PayloadNotFoundError) as caught:
                ahead.take(wanted[1])
            errors.append(caught.value)
        assert errors[0] is not errors[1]
        assert ahead.take(wanted[3]) == b"b" * 10
    assert store.asked.count("gone") == 1


def test_one_deadline_for_all_that_is_taken_together() -> None:
    hanging, release = threading.Event(), threading.Event()

    def download(reference: Reference) -> bytes:
        if reference.url == "hangs":
            hanging.set()
            release.wait(30)
        return b"x"

    wanted = references("a", "hangs", "b", "c")
    with Downloads(download, wanted, in_flight=1, max_bytes=1000, timeout_ms=1000) as ahead:
        assert ahead.take(wanted[0]) == b"x"
        for reference in wanted[1:3]:  # the second waits behind the first
            with pytest.raises(PayloadStoreUnavailableError, match="within 1000 ms"):
                ahead.take(reference)
        assert hanging.is_set()
        release.set()
        ahead.let_go()
        assert ahead.take(wanted[3]) == b"x"  # which has a deadline of its own


def test_nothing_is_fetched_ahead_once_it_is_closed() -> None:
    store, wanted = Store(0.05), references(*"abcdefgh", size=10)
    with downloads(store, wanted, in_flight=2) as ahead:
        ahead.take(wanted[0])
    ahead.take(wanted[7])
    assert {"a", "h"} <= set(store.asked) <= {"a", "b", "h"}  # b's thread may say so at any time


def test_what_hangs_is_not_waited_for() -> None:
    hangs, release = threading.Event(), threading.Event()

    def download(reference: Reference) -> bytes:
        if reference.url == "b":
            hangs.set()
            release.wait(30)
        return b"x"

    try:
        with Downloads(download, references("a", "b"), in_flight=2, max_bytes=1000, timeout_ms=30_000) as ahead:
            ahead.take(Reference("a"))
            assert hangs.wait(30)
        assert not release.is_set()  # it was left while the other one was on its way
    finally:
        release.set()
