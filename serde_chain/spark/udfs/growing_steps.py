"""Growing steps, so that a query that takes few rows fetches few payloads."""

from __future__ import annotations

from collections.abc import Iterator

from serde_chain.arrow.batch import Batch


class Steps:
    """The records of a task in steps: eight with one payload each, then a quarter as many payloads as in all before.

    A step is fetched once the rows before it are on their way to Spark, whose socket holds some megabytes of them. So a
    query that stops early has fetched little more than it used, and one that reads all rows waits for few small steps.

    Args:
        markers: Headers of which every record with a payload has at least one; None if any record may have one.

    Example:
        >>> from serde_chain.arrow.batch import Batch
        >>> [len(step) for step in Steps(None).cut(Batch([b""] * 50, topic="images"))]
        [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 9]
        >>> [len(step) for step in Steps(frozenset({"large-message"})).cut(Batch([b""] * 50, topic="images"))]
        [50]
    """

    def __init__(self, markers: frozenset[str] | None) -> None:
        self._markers = markers
        self._done = 0

    def cut(self, batch: Batch) -> Iterator[Batch]:
        """A batch in steps.

        Args:
            batch: The next records.

        Yields:
            Its parts, in order.
        """
        rows = range(len(batch)) if self._markers is None else batch.rows_with_header(self._markers)
        start = at = 0
        while at < len(rows):
            until = at + max(self._done // 4, 1)
            stop = rows[until] if until < len(rows) else len(batch)
            yield batch.part(start, stop)
            self._done += until - at
            start, at = stop, until
        if start < len(batch):
            yield batch.part(start, len(batch))
