"""Figures of a store's calls."""

import io
import threading

import pytest

from payload_stores import (
    PayloadNotFoundError,
    PayloadStoreUnavailableError,
    SupportsDelete,
    SupportsStreaming,
    open_store,
)
from payload_stores.ids import sha256_digest
from payload_stores.memory import MemoryStore
from payload_stores.middleware import Cache, Metered, Middleware, Retry
from payload_stores.testing import FaultyStore


@pytest.fixture
def faulty() -> FaultyStore:
    MemoryStore.clear()
    return FaultyStore(open_store("memory", {}))


def test_calls_are_counted_by_operation_and_outcome(faulty: FaultyStore) -> None:
    store = Metered(faulty)
    assert store.snapshot() == {}
    reference = store.publish("topic", memoryview(b"payload!").cast("I"))
    store.download(reference)
    store.download_verified(reference, size=8, digest=sha256_digest(b"payload!"))
    assert isinstance(store, SupportsDelete)
    store.delete(reference)
    with pytest.raises(PayloadNotFoundError):
        store.download(reference)
    faulty.fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        store.download(reference)
    assert isinstance(store, SupportsStreaming)
    store.publish_stream("topic", io.BytesIO(b"stream"))
    figures = store.snapshot()
    assert {name: (each.calls, each.bytes, each.in_flight) for name, each in figures.items()} == {
        "publish": (1, 8, 0),
        "download": (4, 16, 0),
        "delete": (1, 0, 0),
        "publish_stream": (1, 6, 0),
    }
    assert figures["download"].errors == {"PayloadNotFoundError": 1, "KeyboardInterrupt": 1}
    assert figures["download"].succeeded == 2
    assert 0 < figures["publish"].slowest <= figures["publish"].seconds


def test_those_under_way_are_counted(faulty: FaultyStore) -> None:
    begun = threading.Event()

    class Told(Middleware):
        def download(self, reference: str) -> bytes:
            begun.set()
            return super().download(reference)

    store = Metered(Told(faulty))
    reference = store.publish("topic", b"payload")
    with faulty.hanging():
        thread = threading.Thread(target=store.download, args=(reference,))
        thread.start()
        assert begun.wait(60)
        assert store.snapshot()["download"].in_flight == 1
    thread.join(60)
    assert store.snapshot()["download"].in_flight == 0


def test_innermost_it_counts_attempts_and_not_what_the_cache_has(faulty: FaultyStore) -> None:
    metered = Metered(faulty)
    store = Cache(Retry(metered, wait_ms=1), 1000)
    reference = store.publish("topic", b"payload")
    faulty.fail(PayloadStoreUnavailableError("away"), times=2)
    for _ in range(5):
        assert store.download(reference) == b"payload"
    assert metered.snapshot()["download"].calls == 3
