"""A payload store in this process's memory, for tests and experiments."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import BinaryIO, ClassVar, Final

from payload_stores import references
from payload_stores.base import Buffer, PayloadInfo, PublishContext
from payload_stores.buffers import checked_range
from payload_stores.errors import PayloadNotFoundError, PayloadStoreError

__all__ = ["MemoryStore"]

_READ_BYTES: Final = 1 << 20


class MemoryStore(references.RootedStore):
    """Stores payloads in a dict shared by all instances in the process, so that readers find what writers stored.

    References are ``memory:///<topic>/<id>``. Not for production: payloads end with the process, and other processes
    cannot read them.

    Example:
        >>> store = MemoryStore()
        >>> store.download(store.publish("alerts", b"payload"))
        b'payload'
    """

    scheme = "memory"

    _payloads: ClassVar[dict[tuple[str, ...], tuple[bytes, datetime]]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        # The dict contains only the store's own payloads, so there are no other prefixes to trust.
        self.roots = references.Roots(self)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Store a payload; ``bytes`` are kept without a copy. See :meth:`PayloadStore.publish`."""
        path = references.object_path(self, topic, data, context)
        payload = bytes(data)
        with self._lock:
            stored = self._payloads.get(path)
            is_there = stored is not None and len(stored[0]) == len(payload) and not self.is_stale(stored[1])
            if not (is_there and context is not None and context.deterministic):
                self._payloads[path] = (payload, datetime.now(UTC))
        return self.roots.url(path)

    def download(self, reference: str) -> bytes:
        """Fetch a payload, without a copy. See :meth:`PayloadStore.download`."""
        data, _ = self._stored(reference)
        self.check_size(len(data), reference)
        return data

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Fetch a part of a payload. See :class:`~payload_stores.SupportsRanges`."""
        return self.download(reference)[checked_range(start, length)]

    def delete(self, reference: str) -> None:
        """Delete a payload. See :class:`~payload_stores.SupportsDelete`."""
        path = self._path(reference)
        with self._lock:
            self._payloads.pop(path, None)

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete payloads. See :class:`~payload_stores.SupportsDeleteMany`."""
        paths = [self._path(reference) for reference in references]
        with self._lock:
            for path in paths:
                self._payloads.pop(path, None)
        return {}

    def now(self) -> datetime:
        """This machine's time. See :class:`~payload_stores.SupportsClock`."""
        return datetime.now(UTC)

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload. See :class:`~payload_stores.SupportsInfo`."""
        data, modified = self._stored(reference)
        return PayloadInfo(reference, len(data), modified)

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """List the current payloads of a topic. See :class:`~payload_stores.SupportsList`."""
        return self._list(topic, lambda payload_id: payload_id.startswith(prefix), before)

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        """List a range of ids. See :class:`~payload_stores.SupportsListRange`."""
        return self._list(
            topic, lambda payload_id: payload_id > after and (until is None or payload_id <= until), before
        )

    def _list(self, topic: str, is_wanted: Callable[[str], bool], before: datetime | None) -> Iterator[PayloadInfo]:
        self.check_topic(topic)
        with self._lock:
            ids = {"/".join(path[1:]): stored for path, stored in self._payloads.items() if path[0] == topic}
        for payload_id, (data, modified) in sorted(ids.items()):
            if is_wanted(payload_id) and (before is None or modified < before):
                reference = self.roots.listed((topic, *payload_id.split("/")))
                if reference is not None:
                    yield PayloadInfo(reference, len(data), modified)

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Store the contents of a reader, in memory like any other payload."""
        # In blocks: a deadline watches for progress.
        data = b"".join(iter(lambda: reader.read(_READ_BYTES), b""))
        return self.publish(topic, data, context)

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading. See :class:`~payload_stores.SupportsStreaming`."""
        return io.BytesIO(self.download(reference))

    @classmethod
    def clear(cls) -> None:
        """Delete all payloads of the process, for a clean start of a test."""
        with cls._lock:
            cls._payloads.clear()

    def _stored(self, reference: str) -> tuple[bytes, datetime]:
        path = self._path(reference)
        with self._lock:
            stored = self._payloads.get(path)
        if stored is None:
            raise PayloadNotFoundError("the payload is gone", store=self.scheme, reference=reference)
        return stored

    def _path(self, reference: str) -> tuple[str, ...]:
        _root, path = self.roots.locate(reference)
        return path
