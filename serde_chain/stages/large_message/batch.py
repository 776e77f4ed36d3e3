"""The batch form of ``large-message``: touches marked records only and downloads their payloads in parallel."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from operator import methodcaller
from typing import Any, NamedTuple, Protocol

from payload_stores.errors import PayloadStoreError
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.arrow.columns import cuts, replaced
from serde_chain.base import Buffer
from serde_chain.errors import PayloadStoreUnavailableError, SerializationError, in_chain
from serde_chain.prefetch import Ahead, Prefetch
from serde_chain.record import Context
from serde_chain.stages.large_message.download import Download
from serde_chain.stages.large_message.options import TIMEOUT

__all__ = ["LargeMessageBatch"]


class _Marked(NamedTuple):
    """A record that may carry a format's mark.

    Attributes:
        row: Its row.
        step: The stage's result: the payload, a transfer that leads to it, or None if that failed.
    """

    row: int
    step: Any


class ReadsReferences(Protocol):
    """A deserializer, as its batch form uses it.

    Attributes:
        downloads_in_flight: How many downloads run side by side.
        downloads_bytes: Bytes that they may hold.
    """

    downloads_in_flight: int
    downloads_bytes: int

    @property
    def timeout_ms(self) -> int:
        """Deadline of the downloads that are held at once."""

    def marker_headers(self) -> frozenset[str] | None:
        """Headers of which every placeholder has at least one; None if a placeholder may be marked in its bytes."""

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Return an inline payload, or the transfer that leads to it."""


class LargeMessageBatch(BatchForm):
    """Resolves a batch's references, each distinct one once, with one deadline for all payloads held together.

    Args:
        stage: The stage.
    """

    def __init__(self, stage: ReadsReferences) -> None:
        self._stage = stage

    def __call__(self, batch: Batch, /) -> Any:
        """Read a batch; see :class:`serde_chain.arrow.batch.BatchForm`."""
        (part,) = self.parts(batch, None)
        return part.column

    def parts(self, batch: Batch, most_bytes: int | None) -> Iterator[Batch]:
        """Read a batch in parts, prefetching the payloads of the next parts.

        Args:
            batch: The records.
            most_bytes: Approximate bytes per part; None for one part.
        """
        marked = self._marked(batch)
        stops = deque([len(batch)] if most_bytes is None else cuts(batch.column, most_bytes))
        prefetch = Prefetch(
            methodcaller("work"),
            in_flight=self._stage.downloads_in_flight,
            # A single part ends up holding all payloads, so limiting the downloads would save no memory.
            max_bytes=None if most_bytes is None else self._stage.downloads_bytes,
        )
        downloads = _Downloads(prefetch, [record.step for record in marked], self._stage.timeout_ms)
        part = _Part(batch, 0)
        for record in marked:
            while record.row >= stops[0]:
                yield part.end(downloads, stops[0])
                part = _Part(batch, stops.popleft())
            part.put(record.row, _finish(batch, record, downloads))
            if most_bytes is not None and part.held >= most_bytes and record.row + 1 < stops[0]:
                stops.appendleft(record.row + 1)
        for stop in stops:
            yield part.end(downloads, stop)
            part = _Part(batch, stop)

    def _marked(self, batch: Batch) -> list[_Marked]:
        """The marked records; those with malformed marks have failed."""
        markers = self._stage.marker_headers()
        column = batch.column
        rows: Iterable[int] = range(len(column)) if markers is None else batch.rows_with_header(markers)
        marked = []
        for row in rows:
            data = column[row].as_py()
            if data is None:
                continue
            step = None
            try:
                step = self._stage.begin(data, batch.context(row))
            except (SerializationError, PayloadStoreError) as error:
                _fail(batch, row, error)
            marked.append(_Marked(row, step))
        return marked


class _Downloads:
    """The payloads of a batch in record order; one deadline for all payloads held together.

    Args:
        prefetch: Fetches them.
        steps: The stage's results for the records; their downloads are started.
        timeout_ms: Deadline for all payloads taken before the next :meth:`let_go`, in ms.
    """

    def __init__(self, prefetch: Prefetch, steps: Iterable[Any], timeout_ms: int) -> None:
        self._prefetch = prefetch
        downloads = [step for step in steps if isinstance(step, Download)]
        self._waiting = deque(zip(downloads, prefetch.add(downloads), strict=True))
        self._taken: list[Ahead] = []
        self._timeout_ms = timeout_ms
        self._until: float | None = None

    def take(self) -> Any:
        """The payload of the next record.

        Raises:
            PayloadStoreError: As in the download.
            PayloadStoreUnavailableError: The time is up.
        """
        if self._until is None:
            self._until = time.monotonic() + self._timeout_ms / 1000
        download, ahead = self._waiting.popleft()
        left = self._until - time.monotonic()
        if not ahead.is_done and not (left > 0 and self._prefetch.wait(ahead, left)):
            raise PayloadStoreUnavailableError(
                f"the payloads of the batch did not arrive within {self._timeout_ms} ms",
                hint="Check that the store is up and how fast it answers, read smaller batches, or raise "
                f"{TIMEOUT.name}",
                reference=download.reference.url[:500],
            )
        # An equal reference later in this part may reuse the result.
        self._taken.append(ahead)
        return ahead.take()

    def let_go(self) -> None:
        """Release the payloads taken so far; the deadline restarts with the next one."""
        self._until = None
        if self._taken:
            self._taken.clear()
            self._prefetch.go_on()


def _finish(batch: Batch, record: _Marked, downloads: _Downloads) -> Any:
    """The payload of a record; None if it is unreadable."""
    step = record.step
    try:
        return step.resume(downloads.take()) if isinstance(step, Download) else step
    except (SerializationError, PayloadStoreError) as error:
        _fail(batch, record.row, error)
    return None


def _fail(batch: Batch, row: int, error: SerializationError | PayloadStoreError) -> None:
    batch.fail(row, error if isinstance(error, SerializationError) else in_chain(error))


class _Part:
    """Records passed on together, and their payloads."""

    def __init__(self, batch: Batch, start: int) -> None:
        self._batch = batch
        self._start = start
        self._payloads: dict[int, Any] = {}
        self.held = 0

    def put(self, row: int, payload: Any) -> None:
        self._payloads[row - self._start] = payload
        self.held += len(payload or b"")

    def end(self, downloads: _Downloads, stop: int) -> Batch:
        """The records up to a row, with payloads in place of references."""
        part = self._batch.part(self._start, stop)
        part.take(replaced(part.column, self._payloads))
        self._payloads = {}
        downloads.let_go()
        return part
