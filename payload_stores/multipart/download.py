"""Downloads in ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from payload_stores.buffers import payload_buffer
from payload_stores.multipart.sizes import PART_BYTES
from payload_stores.threads import settle


def download_ranges(
    threads: Executor,
    size: int,
    fill: Callable[[memoryview, int], object],
    *,
    first: Callable[[memoryview], object] | None = None,
    first_bytes: int = 0,
    part_bytes: int = PART_BYTES,
) -> bytes:
    """Download a payload into one object, in parallel ranges; if this raises, none is still in flight.

    Args:
        threads: The threads that download the ranges.
        size: Size of the payload in bytes.
        fill: Downloads the range at a position into its part of the buffer.
        first: Reads the first range in the caller's thread, from the answer that contained the size.
        first_bytes: Size of that range.
        part_bytes: Size of the other ranges, except the last.
    """
    buffer = payload_buffer(size)
    with buffer.getbuffer() as view:

        def fill_part(start: int, end: int) -> None:
            # Released before the result is set: while a view exists, the buffer cannot be taken over.
            with view[start:end] as part:
                fill(part, start)

        rest = [
            threads.submit(fill_part, start, min(start + part_bytes, size))
            for start in range(first_bytes, size, part_bytes)
        ]
        try:
            if first is not None:
                with view[:first_bytes] as part:
                    first(part)
            for future in rest:
                future.result()
        except BaseException:
            settle(rest)  # they write to the buffer
            raise
    return buffer.getvalue()


class TransferCount:
    """Counts the transfers in flight: a single one may use resources that several must share."""

    def __init__(self) -> None:
        # Adding and discarding are atomic, so Ctrl-C in between leaves nothing behind.
        self._running: set[object] = set()

    @contextmanager
    def one_more(self) -> Iterator[int]:
        """Count a transfer during a ``with`` block, which gets the count including this one."""
        one = object()
        try:
            self._running.add(one)
            yield len(self._running)
        finally:
            self._running.discard(one)
