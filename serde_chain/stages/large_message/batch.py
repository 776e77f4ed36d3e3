"""The batch form of ``large-message``: touches marked records only and downloads their payloads in parallel."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from payload_stores.errors import PayloadStoreError
from serde_chain.arrow.batch import Batch, BatchForm
from serde_chain.arrow.columns import cuts, replaced
from serde_chain.arrow.downloads import BatchDownloads, fail
from serde_chain.base import Buffer, SupportsFetch
from serde_chain.errors import SerializationError
from serde_chain.record import Context
from serde_chain.transfer import Transfer


class _Marked(NamedTuple):
    """A record that may carry a format's mark.

    Attributes:
        row: Its row.
        step: The stage's result: the payload, a transfer that leads to it, or None if that failed.
    """

    row: int
    step: Any


class LargeMessageBatch(BatchForm):
    """Resolves a batch's references, each distinct one once, with one deadline for all payloads held together.

    Args:
        stage: The stage.
        begin: Its ``begin``: returns an inline payload, or the transfer that leads to it.
    """

    def __init__(self, stage: SupportsFetch, begin: Callable[[Buffer, Context | None], Any]) -> None:
        self._stage = stage
        self._begin = begin

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
        downloads = BatchDownloads(
            [record.step for record in marked if isinstance(record.step, Transfer)],
            in_flight=self._stage.downloads_in_flight,
            # A single part ends up holding all payloads, so limiting the downloads would save no memory.
            max_bytes=None if most_bytes is None else self._stage.downloads_bytes,
            timeout_ms=self._stage.timeout_ms,
        )
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
                step = self._begin(data, batch.context(row))
            except (SerializationError, PayloadStoreError) as error:
                fail(batch, row, error)
            marked.append(_Marked(row, step))
        return marked


def _finish(batch: Batch, record: _Marked, downloads: BatchDownloads) -> Any:
    """The payload of a record; None if it is unreadable."""
    try:
        return downloads.take() if isinstance(record.step, Transfer) else record.step
    except (SerializationError, PayloadStoreError) as error:
        fail(batch, record.row, error)
    return None


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

    def end(self, downloads: BatchDownloads, stop: int) -> Batch:
        """The records up to a row, with payloads in place of references."""
        part = self._batch.part(self._start, stop)
        part.take(replaced(part.column, self._payloads))
        self._payloads = {}
        downloads.let_go()
        return part
