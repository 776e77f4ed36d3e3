"""Payloads of a batch of records, downloaded ahead of their reader: in parallel, each once, within bounds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from payload_stores.errors import PayloadStoreError
from serde_chain.base import Buffer
from serde_chain.batch import header_lists, marked_rows
from serde_chain.errors import DecodeError
from serde_chain.record import KEY, VALUE, Context, RecordContext
from serde_chain.serializers.large_message import LargeMessageDeserializer
from serde_chain.wire.reference_format import Reference

__all__ = ["AheadStage", "Downloads"]


class Downloads:
    """Gives payloads in the order in which they are asked for, and fetches what will be asked next meanwhile.

    A payload that several records refer to is kept for the last of them, unless its room is needed.

    Args:
        download: Fetches and verifies one payload; it has its own deadline.
        references: What will be asked for, in this order.
        pool: Where downloads run.
        in_flight: Most downloads at a time.
        max_bytes: Most bytes that are held or on their way, save that one payload always is.
    """

    def __init__(
        self,
        download: Callable[[Reference], bytes],
        references: Iterable[Reference],
        pool: ThreadPoolExecutor,
        *,
        in_flight: int,
        max_bytes: int,
    ) -> None:
        self._download = download
        self._pool = pool
        self._in_flight = in_flight
        self._max_bytes = max_bytes
        self._uses = Counter(references)
        self._ahead = deque(self._uses)  # distinct, in the order of their first use
        self._started: dict[Reference, Future[bytes]] = {}
        self._bytes: dict[Reference, int] = {}
        # What is assumed of a reference that does not say its size, until larger ones were seen.
        self._assumed = max(max_bytes // in_flight, 1)

    def take(self, reference: Reference) -> bytes:
        """The payload of the next reference.

        Raises:
            PayloadStoreError: As of the download.
        """
        self._fill()
        future = self._started.get(reference)
        if future is None:
            # No room was left for it, or it had to make room for others.
            self._make_room(reference)
            future = self._start(reference)
        try:
            payload = future.result()
        finally:
            self._uses[reference] -= 1
            if self._uses[reference] <= 0:
                self._drop(reference)
        if reference in self._bytes:
            self._bytes[reference] = len(payload)
        self._assumed = max(self._assumed, len(payload))
        return payload

    def cancel(self) -> None:
        """Start no more downloads."""
        self._ahead.clear()
        for future in self._started.values():
            future.cancel()
        self._started.clear()

    def _fill(self) -> None:
        while self._ahead and sum(not future.done() for future in self._started.values()) < self._in_flight:
            reference = self._ahead[0]
            if self._uses[reference] > 0 and reference not in self._started:
                if self._bytes and sum(self._bytes.values()) + self._size(reference) > self._max_bytes:
                    return
                self._start(reference)
            self._ahead.popleft()

    def _size(self, reference: Reference) -> int:
        return self._assumed if reference.size is None else reference.size

    def _start(self, reference: Reference) -> Future[bytes]:
        future = self._started[reference] = self._pool.submit(self._download, reference)
        self._bytes[reference] = self._size(reference)
        return future

    def _make_room(self, reference: Reference) -> None:
        """Let go of what is kept for later records, the youngest first."""
        for kept in reversed(list(self._started)):
            if sum(self._bytes.values()) + self._size(reference) <= self._max_bytes:
                return
            if self._started[kept].done():
                self._drop(kept)

    def _drop(self, reference: Reference) -> None:
        self._started.pop(reference, None)
        self._bytes.pop(reference, None)


class AheadStage:
    """Stands in a chain for ``large-message``, and has the payloads of a batch fetched ahead.

    Args:
        stage: The stage itself.
        is_key: Whether it reads keys.
        first: Whether it is the chain's first stage: else it is not known ahead what it will be given.
    """

    moves_payloads = True

    def __init__(self, stage: LargeMessageDeserializer, *, is_key: bool, first: bool) -> None:
        self._stage = stage
        self._field = KEY if is_key else VALUE
        self._first = first
        self._pool = ThreadPoolExecutor(stage.downloads_in_flight, "payload-download")
        self._downloads: Downloads | None = None

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        """Read one record."""
        downloads = self._downloads
        return self._stage.read(data, ctx, self._stage.download if downloads is None else downloads.take)

    def begin(self, columns: Mapping[str, Any]) -> None:
        """Take a new batch.

        Args:
            columns: Arrow arrays by name.
        """
        self.end()
        self._downloads = Downloads(
            self._stage.download,
            self._references(columns) if self._first else (),
            self._pool,
            in_flight=self._stage.downloads_in_flight,
            max_bytes=self._stage.downloads_bytes,
        )

    def end(self) -> None:
        """Forget the batch."""
        if self._downloads is not None:
            self._downloads.cancel()
            self._downloads = None

    def close(self) -> None:
        """Wait for no download; the stage itself is closed by its owner."""
        self.end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _references(self, columns: Mapping[str, Any]) -> list[Reference]:
        markers = self._stage.marker_headers()
        data, headers = columns[self._field], columns.get("headers")
        if markers is not None:
            if headers is None:
                return []
            rows = marked_rows(headers, markers)
            data, headers = data.take(rows), headers.take(rows)
        found = []
        names = [None] * len(data) if headers is None else header_lists(headers)
        for value, pairs in zip(data, names, strict=True):
            ctx = RecordContext("", self._field, pairs)
            try:
                reference = self._stage.reference(value.as_py(), ctx) if value.is_valid else None
            except (DecodeError, PayloadStoreError):
                continue  # said when the record is read
            if reference is not None:
                found.append(reference)
        return found
