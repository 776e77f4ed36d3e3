"""Downloaded payloads that stay in memory, for records that refer to the same."""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Final, NamedTuple, TypeVar

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.buffers import checked_range
from payload_stores.errors import ContextualError, PayloadStoreError
from payload_stores.middleware.base import Middleware

__all__ = ["Cache", "CacheFigures", "CachedPayloads"]

T = TypeVar("T")

_PATIENCE_MS: Final = 60_000


def _ignore(result: str) -> None:
    """Where no one counts hits and misses."""


@dataclass(frozen=True, slots=True)
class CacheFigures:
    """What a cache has done.

    Attributes:
        hits: Downloads that it answered, those that waited for another's among them.
        misses: Downloads that went to the store.
        evictions: Payloads that had to make room.
        payloads: How many it holds.
        bytes: How many bytes these have.

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
    """What a cache holds: the payloads that were asked for last, and the downloads under way.

    Caches of stores with the same configuration may share one.

    Args:
        max_bytes: Most bytes of all payloads together.
        patience_ms: How long one waits for another's download before it begins its own, in ms: that one may hang.
        told: Called with ``hit`` or ``miss`` for each payload that is asked for.

    Example:
        >>> payloads = CachedPayloads(1000)
        >>> payloads.get("memory:///t/1", None, lambda: b"downloaded"), payloads.get("memory:///t/1", None, bytes)
        (b'downloaded', b'downloaded')
    """

    def __init__(
        self, max_bytes: int, *, patience_ms: int = _PATIENCE_MS, told: Callable[[str], object] = _ignore
    ) -> None:
        self._told = told
        self._max_bytes = max_bytes
        self._patience = patience_ms / 1000
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._flights: dict[_Key, _Flight] = {}
        self._lock = threading.Lock()
        self._hits = self._misses = self._evictions = 0

    def __reduce__(self) -> tuple[Callable[[int], CachedPayloads], tuple[int]]:
        # A pickled cache is empty: it may hold gigabytes.
        return partial(type(self), patience_ms=round(self._patience * 1000), told=self._told), (self._max_bytes,)

    def figures(self) -> CacheFigures:
        """What has been done until now."""
        with self._lock:
            return CacheFigures(self._hits, self._misses, self._evictions, len(self._kept), self._size())

    def get(
        self, reference: str, digest: str | None, download: Callable[[], bytes], *, size: int | None = None
    ) -> bytes:
        """Return a payload: a kept one, that of a download under way, or a new one.

        Args:
            reference: The reference.
            digest: What the payload was verified against; one that was verified against another is not used.
            download: Fetches and verifies it.
            size: Likewise, in bytes: what fails for one that another record tells is not the failure of this one.

        Raises:
            PayloadStoreError: As the download, of which each that waits gets an error of its own.
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
                    self._told("miss")
                    mine.payload = data = download()
                    self._keep(key, mine)
                    return data
            except Exception as error:
                mine.error = _own(error)  # without the traceback, which would keep this frame alive, and it that
                raise
            finally:
                # Twice, since Ctrl-C may come in the middle of the first, and others would wait for nothing.
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
            # It was interrupted, or hangs: one of those who wait begins anew.

    def peek(self, reference: str, digest: str | None = None) -> bytes | None:
        """A kept payload; None where it is not kept, or was not verified against this digest."""
        with self._lock:
            kept = self._kept.get(reference)
            if kept is None or (digest is not None and digest != kept.digest):
                return None
            self._kept.move_to_end(reference)
        self._count_hit()
        return kept.payload

    def forget(self, reference: str) -> None:
        """Drop a payload; one that is on its way is not kept, and given to no one who asks from now on."""
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
        self._told("hit")

    def _keep(self, key: _Key, flight: _Flight) -> None:
        reference, digest = key.reference, key.digest
        payload = flight.payload or b""
        if len(payload) > self._max_bytes:
            return
        with self._lock:
            if not flight.is_wanted:
                return
            self._kept.pop(reference, None)
            # Room is made first, so that there is never too much, wherever Ctrl-C may come.
            while self._size() + len(payload) > self._max_bytes:
                self._kept.popitem(last=False)
                self._evictions += 1
            self._kept[reference] = _Kept(payload, digest)

    def _size(self) -> int:
        # Counted anew: a sum that is kept beside them could come apart from them, and this takes less than a download.
        return sum(len(kept.payload) for kept in self._kept.values())

    def _end(self, key: _Key, flight: _Flight) -> None:
        """Let those go on who wait for a download; again without effect."""
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
        flight.ended.set()


class _Key(NamedTuple):
    """What downloads with equal results have in common: what is asked for, and what it is verified against."""

    reference: str
    digest: str | None
    size: int | None


@dataclass(frozen=True, slots=True)
class _Kept:
    """A payload, and what it was verified against."""

    payload: bytes
    digest: str | None


class _Flight:
    """A download under way.

    Attributes:
        began: When.
        ended: Set when it is over.
        payload: Its result.
        error: Why there is none.
        is_wanted: Whether its result may be kept.
    """

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.ended = threading.Event()
        self.payload: bytes | None = None
        self.error: Exception | None = None
        self.is_wanted = True


def _own(error: Exception) -> Exception:
    """An error for one who waited: a traceback that several threads raise grows with each of them."""
    if isinstance(error, ContextualError):
        return copy.copy(error)
    return PayloadStoreError(f"the download that this one waited for failed: {type(error).__name__}: {error}")


class Cache(Middleware):
    """Keeps downloaded payloads in memory; readers that ask for one payload at a time share one download.

    A payload is kept under its reference, with the digest against which it was verified
    (:meth:`PayloadStore.download_verified`): a record that names another digest has it downloaded, and verified, anew.
    What fails is not kept. A payload that is larger than the whole cache passes by, as do files that are opened, and
    whole records (``SupportsRecords``). What is deleted or published again by this store is dropped; what others
    delete stays until it has to make room.

    Args:
        store: The inner store.
        max_bytes: Most bytes of all payloads together.
        payloads: What another cache of the same configuration holds, to share it.

    Example:
        >>> from payload_stores import open_store
        >>> store = Cache(open_store("memory", {}), max_bytes=64 << 20)
        >>> reference = store.publish("alerts", b"payload")
        >>> store.download(reference), store.download(reference), store.figures().misses
        (b'payload', b'payload', 1)
    """

    def __init__(self, store: PayloadStore, max_bytes: int, *, payloads: CachedPayloads | None = None) -> None:
        super().__init__(store)
        self.payloads = CachedPayloads(max_bytes) if payloads is None else payloads

    def figures(self) -> CacheFigures:
        """What the cache has done until now; of all that share it."""
        return self.payloads.figures()

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Publish; nothing is kept of it, since few writers read. See :meth:`PayloadStore.publish`."""
        return self._published(super().publish(topic, data, context))

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Publish a stream. See :class:`~payload_stores.SupportsStreaming`."""
        return self._published(super().publish_stream(topic, reader, context))

    def download(self, reference: str) -> bytes:
        """Return a kept payload, verified or not, or download it. See :meth:`PayloadStore.download`."""
        return self._get(reference, None, lambda: self.store.download(reference))

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Return a payload that was verified, or download it. See :meth:`PayloadStore.download_verified`."""
        payload = self._get(
            reference, digest, lambda: self.store.download_verified(reference, size=size, digest=digest), size
        )
        # Another record may have told another size of it; the digest is that of the payload which is kept.
        self.verify(payload, reference, size=size)
        return payload

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Cut a part out of a kept payload, or fetch it. See :class:`~payload_stores.SupportsRanges`."""
        part = checked_range(start, length)
        kept = self.payloads.peek(reference)
        return super().read_range(reference, start, length) if kept is None else kept[part]

    def delete(self, reference: str) -> None:
        """Delete a payload, here too. See :class:`~payload_stores.SupportsDelete`."""
        self.payloads.forget(reference)
        try:
            super().delete(reference)
        finally:
            self.payloads.forget(reference)  # what was fetched meanwhile

    def _get(self, reference: str, digest: str | None, download: Callable[[], bytes], size: int | None = None) -> bytes:
        payload = self.payloads.get(reference, digest, download, size=size)
        self.check_size(len(payload), reference)
        return payload

    def _published(self, reference: str) -> str:
        # An id of the user's own may have stood for another payload.
        self.payloads.forget(reference)
        return reference
