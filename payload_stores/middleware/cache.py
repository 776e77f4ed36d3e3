"""Keeps downloaded payloads in memory, for records that share a payload."""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Final, NamedTuple, TypeVar

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.buffers import checked_range
from payload_stores.errors import ContextualError, PayloadStoreError
from payload_stores.kip1159 import KipPayloadStore
from payload_stores.middleware.base import Middleware

T = TypeVar("T")

_PATIENCE_MS: Final = 60_000


def _ignore(result: str) -> None:
    """Hits and misses are not reported."""


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """Statistics of a cache.

    Attributes:
        hits: Downloads answered from the cache, including those that waited for another's download.
        misses: Downloads from the store.
        evictions: Payloads evicted to make room.
        payloads: Number of cached payloads.
        bytes: Their total size.

    Example:
        >>> CacheFigures(hits=15, misses=1, evictions=0, payloads=1, bytes=7).hits
        15
    """

    hits: int
    misses: int
    evictions: int
    payloads: int
    bytes: int


class CachedPayloads:
    """The contents of a cache: the most recently used payloads, and the downloads in flight.

    Caches of stores with the same configuration may share one.

    Args:
        max_bytes: Maximum total size of the payloads.
        patience_ms: How long to wait for another's download, which may hang, before starting a new one, in ms.
        observe: Called with ``hit`` or ``miss`` for each requested payload.

    Example:
        >>> payloads = CachedPayloads(1000)
        >>> payloads.get("memory:///t/1", None, lambda: b"downloaded"), payloads.get("memory:///t/1", None, bytes)
        (b'downloaded', b'downloaded')
    """

    def __init__(
        self, max_bytes: int, *, patience_ms: int = _PATIENCE_MS, observe: Callable[[str], object] = _ignore
    ) -> None:
        self._observe = observe
        self._max_bytes = max_bytes
        self._patience = patience_ms / 1000
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._flights: dict[_Key, _Flight] = {}
        self._lock = threading.Lock()
        self._hits = self._misses = self._evictions = 0

    def __reduce__(self) -> tuple[Callable[[int], CachedPayloads], tuple[int]]:
        # Pickled without the payloads, which may be gigabytes.
        return partial(type(self), patience_ms=round(self._patience * 1000), observe=self._observe), (self._max_bytes,)

    def figures(self) -> CacheFigures:
        """The statistics so far."""
        with self._lock:
            return CacheFigures(self._hits, self._misses, self._evictions, len(self._kept), self._size())

    def get(
        self, reference: str, digest: str | None, download: Callable[[], bytes], *, size: int | None = None
    ) -> bytes:
        """Return a payload: from the cache, from a download in flight, or from a new one.

        Args:
            reference: The reference.
            digest: The digest the payload is verified against; one verified against another digest is not used.
            download: Fetches and verifies it.
            size: The expected size in bytes; a failure with another record's size is not shared.

        Raises:
            PayloadStoreError: As the download; each waiting caller gets a separate error.
        """
        key = _Key(reference, digest, size)
        while True:
            kept = self.peek(reference, digest)
            if kept is not None:
                return kept
            mine = _Flight()
            try:
                with self._lock:
                    flight = self._flights.get(key)
                    if flight is None or time.monotonic() - flight.began > self._patience:
                        if flight is not None:
                            flight.is_wanted = False
                        self._flights[key] = flight = mine
                        self._misses += 1
                if flight is mine:
                    self._observe("miss")
                    mine.payload = data = download()
                    self._keep(key, mine)
                    return data
            except Exception as error:
                mine.error = _own(error)  # without the traceback, which forms a cycle with this frame
                raise
            finally:
                # Twice: Ctrl-C may interrupt the first, and others would wait in vain.
                try:
                    self._end(key, mine)
                finally:
                    self._end(key, mine)
            if flight.ended.wait(max(0.0, flight.began + self._patience - time.monotonic())):
                if flight.payload is not None:
                    self._count_hit()
                    return flight.payload
                if flight.error is not None:
                    raise _own(flight.error)
            # It was interrupted, or hangs: one of the waiting callers starts over.

    def peek(self, reference: str, digest: str | None = None) -> bytes | None:
        """A cached payload; None if it is not cached, or was not verified against this digest."""
        with self._lock:
            kept = self._kept.get(reference)
            if kept is None or (digest is not None and digest != kept.digest):
                return None
            self._kept.move_to_end(reference)
        self._count_hit()
        return kept.payload

    def forget(self, reference: str) -> None:
        """Drop a payload; a download in flight is neither cached nor shared with later callers."""
        with self._lock:
            self._kept.pop(reference, None)
            for key in [key for key in self._flights if key.reference == reference]:
                self._flights.pop(key).is_wanted = False

    def clear(self) -> None:
        """Drop all payloads."""
        with self._lock:
            self._kept.clear()

    def _count_hit(self) -> None:
        with self._lock:
            self._hits += 1
        self._observe("hit")

    def _keep(self, key: _Key, flight: _Flight) -> None:
        reference, digest = key.reference, key.digest
        payload = flight.payload or b""
        if len(payload) > self._max_bytes:
            return
        with self._lock:
            if not flight.is_wanted:
                return
            self._kept.pop(reference, None)
            # Evict first, so that the limit holds wherever Ctrl-C interrupts.
            while self._size() + len(payload) > self._max_bytes:
                self._kept.popitem(last=False)
                self._evictions += 1
            self._kept[reference] = _Kept(payload, digest)

    def _size(self) -> int:
        # Recomputed: a running total could drift, and this is cheaper than a download.
        return sum(len(kept.payload) for kept in self._kept.values())

    def _end(self, key: _Key, flight: _Flight) -> None:
        """Wake the callers waiting for a download; idempotent."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
        flight.ended.set()


class _Key(NamedTuple):
    """Identifies downloads with equal results: the reference, and the expected digest and size."""

    reference: str
    digest: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """A payload, and the digest it was verified against."""

    payload: bytes
    digest: str | None


class _Flight:
    """A download in flight.

    Attributes:
        began: Start time.
        ended: Set when it ends.
        payload: The result.
        error: The failure.
        is_wanted: Whether to cache the result.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.ended = threading.Event()
        self.payload: bytes | None = None
        self.error: Exception | None = None
        self.is_wanted = True


def _own(error: Exception) -> Exception:
    """A copy of an error for a waiting caller: a traceback raised in several threads grows with each."""
    if isinstance(error, ContextualError):
        return copy.copy(error)
    return PayloadStoreError(f"another caller's download of this payload failed: {type(error).__name__}: {error}")


class Cache(Middleware):
    """Keeps downloaded payloads in memory; concurrent readers of one payload share a download.

    A payload is cached under its reference, with the digest it was verified against
    (:meth:`PayloadStore.download_verified`): for a record with another digest, it is downloaded and verified again.
    Failures are not cached. Payloads larger than the whole cache, opened files and whole records
    (``SupportsRecords``) bypass it. Payloads deleted or published again through this store are dropped; payloads
    deleted by others stay until evicted.

    Args:
        store: The inner store.
        max_bytes: Maximum total size of the payloads.
        payloads: The contents of another cache with the same configuration, to share them.

    Example:
        >>> from payload_stores import open_store
        >>> store = Cache(open_store("memory", {}), max_bytes=64 << 20)
        >>> reference = store.publish("alerts", b"payload")
        >>> store.download(reference), store.download(reference), store.figures().misses
        (b'payload', b'payload', 1)
    """

    def __init__(
        self, store: PayloadStore | KipPayloadStore, max_bytes: int, *, payloads: CachedPayloads | None = None
    ) -> None:
        super().__init__(store)
        self.payloads = CachedPayloads(max_bytes) if payloads is None else payloads

    def figures(self) -> CacheFigures:
        """The statistics so far, of all caches that share the contents."""
        return self.payloads.figures()

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Publish without caching, since few writers read. See :meth:`PayloadStore.publish`."""
        return self._published(super().publish(topic, data, context))

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish a stream. See :class:`~payload_stores.SupportsStreaming`."""
        return self._published(super().publish_stream(topic, reader, context))

    def download(self, reference: str) -> bytes:
        """Return a cached payload, verified or not, or download it. See :meth:`PayloadStore.download`."""
        return self._get(reference, None, lambda: self.store.download(reference))

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Return a verified payload, or download it. See :meth:`PayloadStore.download_verified`."""
        payload = self._get(
            reference, digest, lambda: self.store.download_verified(reference, size=size, digest=digest), size
        )
        # The digest matches the cached payload, but another record may have given another size.
        self.verify(payload, reference, size=size)
        return payload

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Slice a cached payload, or fetch the part. See :class:`~payload_stores.SupportsRanges`."""
        part = checked_range(start, length)
        kept = self.payloads.peek(reference)
        return super().read_range(reference, start, length) if kept is None else kept[part]

    def delete(self, reference: str) -> None:
        """Delete a payload, also from the cache. See :class:`~payload_stores.SupportsDelete`."""
        self.payloads.forget(reference)
        try:
            super().delete(reference)
        finally:
            self.payloads.forget(reference)  # in case it was fetched meanwhile

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete payloads, also from the cache. See :class:`~payload_stores.SupportsDeleteMany`."""
        for reference in references:
            self.payloads.forget(reference)
        try:
            return super().delete_many(references)
        finally:
            for reference in references:
                self.payloads.forget(reference)  # as for one

    def _get(self, reference: str, digest: str | None, download: Callable[[], bytes], size: int | None = None) -> bytes:
        payload = self.payloads.get(reference, digest, download, size=size)
        self.check_size(len(payload), reference)
        return payload

    def _published(self, reference: str) -> str:
        # A custom id may have belonged to another payload.
        self.payloads.forget(reference)
        return reference
