"""The store that fails by chance."""

import io
import threading
from collections import Counter
from typing import Any

import pytest

from payload_stores import (
    PayloadStoreError,
    PayloadStoreUnavailableError,
    StoredRecord,
    SupportsDelete,
    SupportsList,
    SupportsRanges,
    SupportsRecords,
    SupportsStreaming,
    open_store,
)
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore, Toxic

DATA = bytes(range(100))


class Records(MemoryStore):
    """A store that keeps records, their values at least."""

    def publish_record(self, topic: str, record: StoredRecord, context: Any = None) -> str:
        return self.publish(topic, record.value, context)

    def download_record(self, reference: str) -> StoredRecord:
        return StoredRecord(self.download(reference), key=b"key")


@pytest.fixture
def store() -> FaultyStore:
    MemoryStore.clear()
    return FaultyStore(Records())


def test_toxics_befall_operations_and_paths(store: FaultyStore) -> None:
    store.add(Toxic("transient", operations=("publish",), path="images-*"))
    store.add(Toxic("permanent", operations=("download",), path="*/secret/*"))
    kept, secret = store.publish("alerts", DATA), store.publish("secret", DATA)
    assert store.download(kept) == DATA
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish("images-1", DATA)
    with pytest.raises(PayloadStoreError) as caught:
        store.download(secret)
    assert not caught.value.transient
    assert not caught.value.about_record
    assert store.injected == Counter(transient=1, permanent=1)
    store.heal()
    assert store.download(secret) == DATA


def test_cuts(store: FaultyStore) -> None:
    reference, other = store.publish("topic", DATA), store.publish("topic", DATA)
    store.add(Toxic("cut"))
    assert store.download(reference) == DATA[:50]
    assert isinstance(store, SupportsRanges)
    assert store.read_range(reference, 10, 20) == DATA[10:20]
    assert isinstance(store, SupportsStreaming)
    assert store.open(reference).read() == DATA[:50]
    assert isinstance(store, SupportsRecords)
    assert store.download_record(reference) == StoredRecord(DATA[:50], key=b"key")
    assert isinstance(store, SupportsList)
    listed = store.list("topic")
    assert next(listed).reference in {reference, other}
    with pytest.raises(PayloadStoreUnavailableError):
        next(listed)
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish("topic", DATA)
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish_stream("topic", io.BytesIO(DATA))
    with pytest.raises(PayloadStoreUnavailableError):
        store.publish_record("topic", StoredRecord(DATA))
    assert store.injected == Counter(cut=8)
    store.heal()
    assert len(list(store.list("topic"))) == 2


def test_corruption_changes_one_bit_of_what_is_read(store: FaultyStore) -> None:
    store.add(Toxic("corrupt"))
    reference = store.publish("topic", DATA)
    empty = store.publish("topic", b"")
    assert isinstance(store, SupportsStreaming)
    assert isinstance(store, SupportsRecords)
    for data in (store.download(reference), store.open(reference).read(), store.download_record(reference).value):
        changed = [a ^ b for a, b in zip(data, DATA, strict=True) if a != b]
        assert changed == [1]
    assert store.download(empty) == b""
    assert MemoryStore().download(reference) == DATA


def test_an_answer_that_is_lost_comes_after_the_deed(store: FaultyStore) -> None:
    reference = store.publish("topic", DATA)
    store.add(Toxic("error after success"))
    assert isinstance(store, SupportsDelete)
    assert isinstance(store, SupportsStreaming)
    assert isinstance(store, SupportsList)
    for call in (
        lambda: store.publish("topic", DATA),
        lambda: store.publish_stream("topic", io.BytesIO(DATA)),
        lambda: store.delete(reference),
    ):
        with pytest.raises(PayloadStoreUnavailableError):
            call()
    assert len(list(store.list("topic"))) == 2
    assert reference not in {info.reference for info in store.list("topic")}
    assert store.injected == Counter({"error after success": 3})


def test_what_hangs_goes_on_when_it_is_released(store: FaultyStore) -> None:
    reference = store.publish("topic", DATA)
    store.add(Toxic("hang"))
    results: list[bytes] = []
    thread = threading.Thread(target=lambda: results.append(store.download(reference)))
    thread.start()
    while thread.is_alive():
        store.release()
        thread.join(0.01)
    assert results == [DATA]


def test_latency_and_what_comes_with_it(store: FaultyStore) -> None:
    store.add(Toxic("latency", seconds=0.001), Toxic("latency", seconds=0.001), Toxic("corrupt"), Toxic("transient"))
    with pytest.raises(PayloadStoreUnavailableError):
        store.download("memory:///topic/1")
    assert store.injected == Counter(latency=1, transient=1)  # nothing was read that could be damaged


def test_the_same_seed_has_the_same_faults() -> None:
    def faults(seed: int) -> list[bool]:
        store = FaultyStore(open_store("memory", {}), seed=seed)
        reference = store.publish("topic", DATA)
        store.add(Toxic("corrupt", probability=0.3))
        return [store.download(reference) == DATA for _ in range(50)]

    assert faults(1) == faults(1) != faults(2)
    assert 20 < sum(faults(3)) < 50


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"kind": "transcient"}, "no kind of fault 'transcient'; did you mean transient"),
        ({"kind": "cut", "operations": ("publsh",)}, "no operation 'publsh'; did you mean publish"),
        ({"kind": "cut", "operations": ("x",)}, "no operation 'x'; delete, delete_many, download, "),
        ({"kind": "cut", "operations": "publish"}, "operations is a tuple of names, not 'publish'"),
        ({"kind": "cut", "probability": 10}, "between 0 and 1, not 10"),
    ],
)
def test_a_fault_that_would_never_occur_is_refused(fault: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Toxic(**fault)
