"""Downloads in ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from typing import BinaryIO, Final, Protocol

from payload_stores.buffers import fresh_buffer
from payload_stores.errors import PayloadIntegrityError
from payload_stores.multipart.file import open_ranges
from payload_stores.multipart.sizes import PART_BYTES
from payload_stores.threads import settle

__all__ = ["Answer", "Downloads", "Source", "UnderWay", "download_ranges"]

# Size of a range while other downloads keep the network busy.
_LARGE_PART_BYTES: Final = 64 << 20


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
    buffer = fresh_buffer(size)
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


class Answer(Protocol):
    """A server's answer to a range request: facts about the object, and the range.

    Attributes:
        size: Size of the whole object in bytes.
        version: Identifies the object's state, to request further ranges of the same; None if the server has none.
        length: Size of the range; less than requested if the object ends earlier.
    """

    size: int
    version: str | None
    length: int

    def read(self, part: memoryview) -> None:
        """Read the range into a buffer of its length."""

    def close(self) -> None:
        """Release the connection; always called."""


class Source(Protocol):
    """One object of a store, for :class:`Downloads`; raises the store's own errors."""

    def ask(self, start: int, length: int) -> Answer | None:
        """Request a range.

        Args:
            start: Start of the range, in bytes.
            length: Number of bytes, at least 1.

        Returns:
            The answer; None if the object ends at or before the start of the range.
        """

    def fill(self, part: memoryview, start: int, version: str | None) -> None:
        """Read a range into a buffer.

        Args:
            part: The buffer, with the size of the range.
            start: Start of the range.
            version: The expected state of the object.

        Raises:
            Exception: One for which :meth:`is_replaced` is true, if the object has changed.
        """

    def is_replaced(self, error: Exception) -> bool:
        """Whether an error means that the object has changed."""

    def errors(self) -> AbstractContextManager[None]:
        """Converts the errors of the store's library to those of payload stores."""


class UnderWay:
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


class Downloads:
    """Downloads objects in parallel ranges, never mixing two states of an object.

    Args:
        threads: The threads that download the ranges.
    """

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        self._under_way = UnderWay()

    def get(self, source: Source, check: Callable[[int], None]) -> bytes:
        """Download an object; if larger than a part, in parallel ranges.

        With several downloads in flight, parts are larger, since each request costs milliseconds of CPU.

        Args:
            source: The object.
            check: Called with the size in bytes before memory is allocated; raises if too large.
        """
        with self._under_way.one_more() as count:
            part_bytes = PART_BYTES if count == 1 else _LARGE_PART_BYTES
            return self._get(source, check, 0, None, part_bytes)

    def read_range(self, source: Source, start: int, length: int, check: Callable[[int], None]) -> bytes:
        """Download a range of an object. See :class:`~payload_stores.SupportsRanges`.

        Args:
            source: The object.
            start: Start of the range, in bytes, at least 0.
            length: Number of bytes, at least 0; fewer are returned if the object ends earlier.
            check: Called with the size of the object in bytes.
        """
        return self._get(source, check, start, length, PART_BYTES)

    def open(self, source: Source, check: Callable[[int], None]) -> BinaryIO:
        """Open an object for reading and seeking; about one part is held in memory.

        Args:
            source: The object.
            check: Called with the size in bytes.
        """
        size, version = self._state(source)
        check(size)

        def fill(part: memoryview, start: int) -> None:
            nonlocal version
            with source.errors():
                try:
                    return source.fill(part, start, version)
                except Exception as error:
                    if not source.is_replaced(error):
                        raise
                is_size, version = self._state(source)
                if is_size != size:
                    raise PayloadIntegrityError("the object was replaced while it was read")
                # Renewed by a writer: same size and content.
                return source.fill(part, start, version)

        return open_ranges(size, fill)

    @staticmethod
    def _state(source: Source) -> tuple[int, str | None]:
        """Size of an object in bytes, and its version.

        Not by HEAD: without a body, the answer for a missing payload equals that for a missing bucket.
        """
        answer = source.ask(0, 1)
        if answer is None:
            return 0, None
        try:
            answer.read(memoryview(bytearray(1)))  # so that the connection can be reused
            return answer.size, answer.version
        finally:
            answer.close()

    def _get(
        self, source: Source, check: Callable[[int], None], start: int, length: int | None, part_bytes: int
    ) -> bytes:
        try:
            return self._get_state(source, check, start, length, part_bytes)
        except Exception as error:
            if not source.is_replaced(error):
                raise
        # A writer renewed the object since the first range. Ranges of two states must not be mixed.
        return self._get_state(source, check, start, length, part_bytes)

    def _get_state(
        self, source: Source, check: Callable[[int], None], start: int, length: int | None, part_bytes: int
    ) -> bytes:
        # An empty range requests one byte, to check that the payload exists and is readable.
        answer = source.ask(start, part_bytes if length is None else max(1, min(length, part_bytes)))
        if answer is None:
            return b""
        try:
            check(answer.size)
            if length == 0:
                return b""
            end = answer.size if length is None else min(answer.size, start + length)
            version = answer.version
            return download_ranges(
                self._threads,
                end - start,
                lambda part, at: source.fill(part, start + at, version),
                first=answer.read,
                first_bytes=min(answer.length, end - start),
                part_bytes=part_bytes,
            )
        finally:
            answer.close()
