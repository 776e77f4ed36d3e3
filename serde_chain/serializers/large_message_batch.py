"""The batch form of ``large-message``: only marked records are touched, and their payloads download in parallel."""

from __future__ import annotations

import contextvars
import copy
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from serde_chain.batch import Batch
from serde_chain.errors import SerializationError, in_chain
from serde_chain.serializers.large_message import LargeMessageDeserializer
from serde_chain.wire.reference_format import Reference

__all__ = ["LargeMessageBatch", "download_all"]


class LargeMessageBatch:
    """Resolves the references of a batch, each distinct one once, within one deadline for all.

    Args:
        stage: The stage.
    """

    def __init__(self, stage: LargeMessageDeserializer) -> None:
        self._stage = stage

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.batch.BatchForm`."""
        markers = self._stage.marker_headers()
        column = batch.column
        rows: Iterable[int] = range(len(column)) if markers is None else batch.rows_with_header(markers)
        marked: list[tuple[int, bytes, Reference | None]] = []
        for row in rows:
            data = column[row].as_py()
            if data is None:
                continue
            try:
                marked.append((row, data, self._stage.reference(data, batch.context(row))))
            except SerializationError as error:
                batch.fail(row, error)
        if not marked and not batch.errors:
            return column
        payloads = download_all(
            self._stage.download,
            dict.fromkeys(reference for _, _, reference in marked if reference is not None),
            in_flight=self._stage.downloads_in_flight,
            max_bytes=self._stage.downloads_bytes,
            timeout_ms=self._stage.timeout_ms,
        )
        found: dict[int, Any] = dict.fromkeys(batch.errors)
        for row, data, _ in marked:
            try:
                found[row] = self._stage.read(data, batch.context(row), lambda reference: _taken(payloads[reference]))
            except PayloadStoreError as error:
                found[row] = None
                batch.fail(row, error if isinstance(error, SerializationError) else in_chain(error))
        return _replaced(column, found, batch)


def _taken(outcome: bytes | Exception) -> bytes:
    if isinstance(outcome, Exception):
        raise copy.copy(outcome)  # several records may refer to it, and each error says which one it is about
    return outcome


def _replaced(column: Any, found: dict[int, Any], batch: Batch) -> Any:
    """A column with other bytes in some rows."""
    rows = sorted(row for row, data in found.items() if data is not column[row].as_py())
    arrow = batch.arrow
    size = column.nbytes + sum(len(found[row]) for row in rows if found[row] is not None)
    kind = column.type if size < (1 << 31) - 1 else arrow.large_binary()
    pieces, after = [], 0
    for row in rows:
        pieces += [column.slice(after, row - after).cast(kind), arrow.array([found[row]], kind)]
        after = row + 1
    return arrow.concat_arrays([*pieces, column.slice(after).cast(kind)])


def download_all(
    download: Callable[[Reference], bytes],
    references: Iterable[Reference],
    *,
    in_flight: int,
    max_bytes: int,
    timeout_ms: int,
) -> dict[Reference, bytes | Exception]:
    """Download payloads in parallel.

    Args:
        download: Fetches and verifies one.
        references: What to fetch; distinct.
        in_flight: Most downloads at a time.
        max_bytes: Most bytes on their way at a time, by what references say about their size; one always may.
        timeout_ms: Deadline for all together, in ms.

    Returns:
        For each reference its payload, or why there is none.
    """
    work = _Downloads(download, references, max_bytes)
    return work.run(in_flight, time.monotonic() + timeout_ms / 1000, timeout_ms) if work.waiting else {}


class _Downloads:
    def __init__(self, download: Callable[[Reference], bytes], references: Iterable[Reference], max_bytes: int) -> None:
        self.waiting = deque(references)
        self._download = download
        self._max_bytes = max_bytes
        self._all = tuple(self.waiting)
        self._done: dict[Reference, bytes | Exception] = {}
        self._on_their_way = 0
        self._changed = threading.Condition()

    def run(self, in_flight: int, until: float, timeout_ms: int) -> dict[Reference, bytes | Exception]:
        for _ in range(min(in_flight, len(self._all))):
            # Daemons, for a download that hangs must not keep the process from its end.
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(self._work,), name="payload-download", daemon=True).start()
        with self._changed:
            self._changed.wait_for(lambda: len(self._done) == len(self._all), until - time.monotonic())
            self.waiting.clear()
            done = dict(self._done)
        for reference in self._all:
            if reference not in done:
                done[reference] = PayloadStoreUnavailableError(
                    f"the payloads of the batch were not there within {timeout_ms} ms",
                    hint="Check that the store is there and how fast it is, read smaller batches, or raise "
                    "large.message.store.timeout.ms",
                    reference=reference.url[:500],
                )
        return done

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._may_begin)
                if not self.waiting:
                    return
                reference = self.waiting.popleft()
                size = self._size(reference)
                self._on_their_way += size
            outcome: bytes | Exception
            try:
                outcome = self._download(reference)
            except Exception as error:  # noqa: BLE001, told to whoever asks for the payload
                outcome = error
            with self._changed:
                self._on_their_way -= size
                self._done[reference] = outcome
                self._changed.notify_all()
            del outcome

    def _may_begin(self) -> bool:
        if not self.waiting or not self._on_their_way:
            return True
        return self._on_their_way + self._size(self.waiting[0]) <= self._max_bytes

    def _size(self, reference: Reference) -> int:
        # One that does not say its size may be of any.
        return max(1, self._max_bytes if reference.size is None else reference.size)
