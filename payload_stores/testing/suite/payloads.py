"""Payloads are returned as published, also with several threads; otherwise there is a typed error."""

# ruff: noqa: D102, S101, S301  the name of a test says what it shows, assert is how pytest checks

from __future__ import annotations

import pickle
import threading
import tracemalloc
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.errors import (
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
)
from payload_stores.ids import sha256_digest
from payload_stores.middleware import Middleware
from payload_stores.registry import open_store
from payload_stores.testing.suite.base import StoreTests, innermost, payload

T = TypeVar("T")


class PayloadTests(StoreTests):
    """Payloads of every size and kind."""

    # Round trips.

    @pytest.mark.parametrize("size", [0, 1, 255, 65_537])
    def test_round_trip(self, store: PayloadStore, size: int) -> None:
        data = payload(size)
        assert store.download(store.publish(self.topic, data)) == data

    def test_round_trip_of_a_large_payload(self, store: PayloadStore) -> None:
        data = payload(self.large_bytes)
        downloaded = store.download(store.publish(self.topic, data))
        assert type(downloaded) is bytes
        assert downloaded == data

    @pytest.mark.parametrize("size", [0, 1000, None], ids=["empty", "small", "large"])
    @pytest.mark.parametrize("strategy", ["random", "content"])
    def test_what_is_kept_is_the_payload(self, store: PayloadStore, size: int | None, strategy: Any) -> None:
        data = payload(self.large_bytes if size is None else size)
        assert self.raw_read(store.publish(self.topic, data, PublishContext(strategy))) == data

    @pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: memoryview(b"-" + data)[1:]])
    def test_any_buffer(self, store: PayloadStore, kind: Callable[[bytes], Buffer]) -> None:
        data = payload(1000)
        assert store.download(store.publish(self.topic, kind(data))) == data

    def test_buffer_of_wider_items(self, store: PayloadStore) -> None:
        data = payload(1000)
        assert store.download(store.publish(self.topic, memoryview(data).cast("I"))) == data

    def test_payload_is_what_it_was_when_it_was_published(self, store: PayloadStore) -> None:
        data = bytearray(payload(1000))
        reference = store.publish(self.topic, data)
        data[:] = bytes(len(data))
        assert store.download(reference) == payload(1000)

    def test_nothing_is_left_of_a_longer_payload(self, store: PayloadStore) -> None:
        """A payload with the same id is refused or replaced, never mixed; ids may be custom."""
        context = PublishContext(payload_id=str(uuid.uuid4()))
        longer, shorter = payload(1000), payload(10, seed=1)
        first = store.publish(self.topic, longer, context)
        try:
            second = store.publish(self.topic, shorter, context)
        except PayloadStoreError:
            assert store.download(first) == longer
        else:
            assert store.download(second) == shorter

    @pytest.mark.parametrize("junk", [b"\0", b"junk"])
    def test_content_that_was_damaged_is_not_relied_on(self, store: PayloadStore, junk: bytes) -> None:
        """An object with the content's id and trailing bytes, as left by an untested writer."""
        data = payload(1000)
        reference = store.publish(self.topic, data, PublishContext("content"))
        self.raw_write(reference, reference.rpartition("/")[2], data + junk)
        assert store.download(store.publish(self.topic, data, PublishContext("content"))) == data

    def test_another_store_of_the_same_configuration_reads_it(
        self, store: PayloadStore, config: Mapping[str, object]
    ) -> None:
        reference = store.publish(self.topic, b"shared")
        reader = open_store(self.store_class, config)
        assert reader.download(reference) == b"shared"
        reader.close()

    def test_a_payload_is_compared_with_what_was_published(self, store: PayloadStore) -> None:
        data = payload(1000)
        reference, digest = store.publish(self.topic, data), sha256_digest(data)
        assert store.download_verified(reference, size=1000, digest=digest) == data
        assert store.download_verified(reference) == data
        for wrong in ({"size": 999}, {"digest": sha256_digest(b"")}, {"size": 1001, "digest": digest}):
            with pytest.raises(PayloadIntegrityError) as caught:
                store.download_verified(reference, **wrong)
            assert caught.value.about_record
            assert caught.value.reference == reference

    @pytest.mark.parametrize("large", [False, True])
    def test_a_payload_larger_than_published_is_not_fetched(
        self, store: PayloadStore, monkeypatch: pytest.MonkeyPatch, large: bool
    ) -> None:
        if _changes_payloads(store):
            pytest.skip("a middleware that changes payloads has their size only afterwards")
        size = self.large_bytes if large else 1000
        reference = store.publish(self.topic, payload(size))

        def fetched_whole(*_args: object, **_published: object) -> None:
            pytest.fail(
                "a payload was fetched before its size was compared with the published one: call "
                "self.check_size(size, reference) in download, before reading the bytes"
            )

        for published in (1, size - 1):
            with monkeypatch.context() as patched:
                patched.setattr(innermost(store), "verify", fetched_whole)
                with pytest.raises(PayloadIntegrityError) as caught:
                    store.download_verified(reference, size=published)
            assert caught.value.about_record
            assert caught.value.reference == reference
        assert store.download_verified(reference, size=size) == payload(size)

    # Missing and oversized payloads.

    def test_a_payload_that_is_gone(self, store: PayloadStore) -> None:
        prefix = store.publish(self.topic, b"data").rpartition("/")[0]
        reference = f"{prefix}/{uuid.uuid4()}"
        with pytest.raises(PayloadNotFoundError) as caught:
            store.download(reference)
        assert not caught.value.transient
        assert caught.value.reference == reference

    def test_errors_can_be_pickled(self, store: PayloadStore) -> None:
        prefix = store.publish(self.topic, b"data").rpartition("/")[0]
        with pytest.raises(PayloadNotFoundError) as caught:
            store.download(f"{prefix}/{uuid.uuid4()}")
        copy = pickle.loads(pickle.dumps(caught.value))
        assert type(copy) is PayloadNotFoundError
        assert str(copy) == str(caught.value)

    @pytest.mark.parametrize("large", [False, True])
    def test_a_payload_above_the_limit_is_not_downloaded(self, config: Mapping[str, object], large: bool) -> None:
        size = self.large_bytes if large else 1000
        data = payload(size)
        just, too_small = (
            open_store(self.store_class, {**config, PayloadStore.MAX_PAYLOAD.name: limit}) for limit in (size, size - 1)
        )
        reference = just.publish(self.topic, data)
        assert just.download(reference) == data
        self.refuse_too_large(lambda: too_small.download(reference))
        just.close()
        too_small.close()

    # Several at once.

    @pytest.mark.usefixtures("asked_ids")
    @pytest.mark.parametrize("large", [False, True])
    def test_the_same_content_from_several_threads(self, store: PayloadStore, large: bool) -> None:
        data = payload(self.large_bytes if large else 1000)
        references = _at_once(4, lambda _: store.publish(self.topic, data, PublishContext("content")))
        assert len(set(references)) == (1 if store.stable_references else 4)
        assert store.download(references[0]) == data

    def test_different_payloads_from_several_threads(self, store: PayloadStore) -> None:
        def publish_and_download(number: int) -> bool:
            data = payload(50_000 + number, seed=number)
            return store.download(store.publish(self.topic, data)) == data

        assert all(_at_once(8, publish_and_download))

    def test_memory_of_a_publish(self, store: PayloadStore) -> None:
        if self.extra_memory is None:
            pytest.skip("the payload stays in the memory of this process")
        size = 32 << 20
        data = bytes(size)
        store.publish(self.topic, data[: self.large_bytes])  # modules are loaded once: not a cost per payload
        tracemalloc.start()
        try:
            store.publish(self.topic, data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak <= self.extra_memory * size

    def test_closing_twice(self, config: Mapping[str, object]) -> None:
        store = open_store(self.store_class, config)
        store.close()
        store.close()


def _at_once(count: int, job: Callable[[int], T]) -> list[T]:
    """Run a job in several threads that start at the same time."""
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        barrier.wait(timeout=30)
        return job(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def _changes_payloads(store: PayloadStore) -> bool:
    """Whether the inner store may hold payloads of another size."""
    kind = type(store)
    return (
        isinstance(store, Middleware)
        and kind.download is not Middleware.download
        and kind.download_verified is Middleware.download_verified
    )
