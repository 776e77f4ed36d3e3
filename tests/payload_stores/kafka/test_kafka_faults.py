"""A broker that is killed and comes back: calls end in time with a typed error, and the store goes on by itself."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from payload_stores import PayloadStoreError, PayloadStoreUnavailableError, open_store
from payload_stores.kafka import KafkaStore, writer
from serde_chain.testing.services import KafkaBroker
from tests.payload_stores.kafka.test_bad_input import DATA

if TYPE_CHECKING:
    from tests.payload_stores.kafka.conftest import NewStore

TIMEOUT_MS = 3_000


@pytest.fixture
def mortal() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        broker.create_topic("t.payloads", 2)
        yield broker


@pytest.fixture
def store(mortal: KafkaBroker) -> Iterator[KafkaStore]:
    store = open_store("kafka", {**mortal.client_config(), "kafka.payload.timeout.ms": TIMEOUT_MS})
    assert isinstance(store, KafkaStore)
    yield store
    store.close()


@pytest.mark.full
def test_a_broker_that_is_killed_and_comes_back(mortal: KafkaBroker, store: KafkaStore) -> None:
    """The broker is started twice."""
    before = [store.publish("t", DATA) for _ in range(2)]
    assert store.download(before[0]) == DATA
    mortal.kill()
    for call in (
        lambda: store.publish("t", DATA),
        lambda: store.download(before[1]),
        lambda: store.read_range(before[1], 0, 1),
        lambda: store.delete(before[1]),
        lambda: list(store.list("t")),
        lambda: store.expiration("t"),
        lambda: open_store("kafka", {**mortal.client_config(), "kafka.payload.timeout.ms": 1000}).download(before[0]),
    ):
        with pytest.raises(PayloadStoreUnavailableError) as caught:
            call()
        assert not caught.value.about_record
    mortal.restart()
    for reference in before:
        assert store.download(reference) == DATA
    assert store.download(store.publish("t", DATA[::-1])) == DATA[::-1]


@pytest.mark.full
def test_a_broker_that_is_killed_under_way(mortal: KafkaBroker, store: KafkaStore) -> None:
    """What was published is there afterwards; what was not is an error, or there as well."""
    payloads = [os.urandom(3_000_000) for _ in range(40)]
    published: list[tuple[bytes, str]] = []
    begun = threading.Event()

    def publish(data: bytes) -> None:
        until = time.monotonic() + 100
        while time.monotonic() < until:
            try:
                published.append((data, store.publish("t", data)))
            except PayloadStoreUnavailableError:
                continue
            if len(published) >= 5:
                begun.set()
            return

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(publish, data) for data in payloads]
        assert begun.wait(60)
        mortal.kill()
        mortal.restart()
        for future in running:
            future.result(100)
    assert len(published) == len(payloads)
    for data, reference in published:
        assert store.download(reference) == data
    listed = {info.reference for info in store.list("t")}
    assert listed >= {reference for _, reference in published}
    for reference in listed:
        assert len(store.download(reference)) == 3_000_000
    store.remove_leftovers(0)
    assert {info.reference for info in store.list("t")} == listed


def test_a_store_that_was_closed(new_store: "NewStore") -> None:
    store = new_store()
    reference = store.publish("t", DATA)
    store.close()
    for call in (lambda: store.publish("t", DATA), lambda: store.download(reference)):
        with pytest.raises(PayloadStoreError, match="closed"):
            call()


def test_a_thread_that_cannot_be_started(new_store: "NewStore", monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store()

    def refuse(_job: object) -> None:
        raise PayloadStoreUnavailableError("no thread can be started")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "run_in_daemon_thread", refuse)
        with pytest.raises(PayloadStoreUnavailableError, match="no thread"):
            store.publish("t", DATA)
    assert store.download(store.publish("t", DATA)) == DATA


@pytest.mark.full
def test_a_forked_process_has_clients_of_its_own(new_store: "NewStore") -> None:
    store = new_store()
    reference = store.publish("t", DATA)
    assert store.download(reference) == DATA
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert store.expiration("t"), "which the parent's client would wait for in vain"
            status = 0 if store.download(store.publish("t", DATA)) == store.download(reference) == DATA else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert store.download(store.publish("t", DATA)) == DATA
