"""Payloads fetched ahead: in parallel, each once, within bounds. Without Spark."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from payload_stores.errors import PayloadNotFoundError
from serde_chain.spark.downloads import Downloads
from serde_chain.wire.reference_format import Reference


class Store:
    """Counts what is asked of it, and what it has handed out at a time."""

    def __init__(self, seconds: float = 0.002) -> None:
        self.seconds = seconds
        self.asked: list[str] = []
        self.running = self.most = 0
        self.lock = threading.Lock()

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
        return reference.url.encode() * (reference.size or 1)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def references(*urls: str, size: int | None = None) -> list[Reference]:
    return [Reference(url, size) for url in urls]


def test_each_distinct_reference_once_and_in_parallel(pool: ThreadPoolExecutor) -> None:
    store, wanted = Store(0.02), references(*"abcabcdefga")
    ahead = Downloads(store, wanted, pool, in_flight=4, max_bytes=1000)
    assert [ahead.take(reference) for reference in wanted] == [reference.url.encode() for reference in wanted]
    assert sorted(store.asked) == list("abcdefg")
    assert 1 < store.most <= 4
    assert not ahead._started


@pytest.mark.parametrize("size", [10, None])
def test_the_bound_of_bytes(pool: ThreadPoolExecutor, size: int | None) -> None:
    store, wanted = Store(), references(*(f"{at:010}" for at in range(20)), size=size)
    ahead = Downloads(store, wanted, pool, in_flight=8 if size else 3, max_bytes=30)
    for reference in wanted:
        ahead.take(reference)
        assert sum(ahead._bytes.values()) <= 30
    assert store.most <= 3
    assert len(store.asked) == 20


def test_a_payload_above_the_bound_is_fetched_alone(pool: ThreadPoolExecutor) -> None:
    store, wanted = Store(), references("a", "b", "c", size=100)
    ahead = Downloads(store, wanted, pool, in_flight=8, max_bytes=30)
    assert [len(ahead.take(reference)) for reference in wanted] == [100, 100, 100]
    assert store.most == 1


def test_what_is_kept_for_later_makes_room(pool: ThreadPoolExecutor) -> None:
    store, wanted = Store(), references(*"abcdabcd", size=10)
    ahead = Downloads(store, wanted, pool, in_flight=2, max_bytes=20)
    assert [ahead.take(reference)[:1] for reference in wanted] == [reference.url.encode() for reference in wanted]
    assert set(store.asked) == set("abcd")


def test_an_error_is_that_of_every_record_that_refers_to_it(pool: ThreadPoolExecutor) -> None:
    store, wanted = Store(), references("a", "gone", "gone", "b")
    ahead = Downloads(store, wanted, pool, in_flight=8, max_bytes=1000)
    assert ahead.take(wanted[0]) == b"a"
    for _ in range(2):
        with pytest.raises(PayloadNotFoundError):
            ahead.take(wanted[1])
    assert ahead.take(wanted[3]) == b"b"
    assert store.asked.count("gone") == 1


def test_cancelled(pool: ThreadPoolExecutor) -> None:
    store, wanted = Store(0.01), references(*"abcdefgh")
    ahead = Downloads(store, wanted, pool, in_flight=2, max_bytes=1000)
    ahead.take(wanted[0])
    ahead.cancel()
    pool.submit(int).result()
    assert len(store.asked) < 8
