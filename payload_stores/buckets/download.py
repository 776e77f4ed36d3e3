"""Downloads of objects in parallel ranges."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import BinaryIO, Final

from payload_stores.buckets.driver import Driver, Target
from payload_stores.buckets.errors import Refusal
from payload_stores.errors import PayloadIntegrityError
from payload_stores.multipart import PART_BYTES, TransferCount, download_ranges, open_ranges

# Size of a range while other downloads keep the network busy.
_LARGE_PART_BYTES: Final = 64 << 20


class RangedDownloads:
    """Downloads objects in parallel ranges, never mixing two states of an object.

    Args:
        driver: The requests.
        threads: The threads that download the ranges.
        check: Called with the size in bytes and the reference before memory is allocated; raises if too large.
    """

    def __init__(self, driver: Driver, threads: Executor, check: Callable[[int, str], None]) -> None:
        self._driver = driver
        self._threads = threads
        self._check = check
        self._under_way = TransferCount()

    def get(self, target: Target, reference: str) -> bytes:
        """Download an object; if larger than a part, in parallel ranges.

        With several downloads in flight, parts are larger, since each request costs milliseconds of CPU.

        Args:
            target: The object.
            reference: Its reference, for errors.
        """
        with self._driver.errors.translated(reference=reference), self._under_way.one_more() as count:
            return self._get(target, reference, 0, None, PART_BYTES if count == 1 else _LARGE_PART_BYTES)

    def read_range(self, target: Target, reference: str, start: int, length: int) -> bytes:
        """Download a range of an object. See :class:`~payload_stores.SupportsRanges`.

        Args:
            target: The object.
            reference: Its reference, for errors.
            start: Start of the range, in bytes, at least 0.
            length: Number of bytes, at least 0; fewer are returned if the object ends earlier.
        """
        with self._driver.errors.translated(reference=reference):
            return self._get(target, reference, start, length, PART_BYTES)

    def open(self, target: Target, reference: str) -> BinaryIO:
        """Open an object for reading and seeking; about one part is held in memory.

        Args:
            target: The object.
            reference: Its reference, for errors.
        """
        translated = self._driver.errors.translated
        with translated(reference=reference):
            size, version = self._state(target)
            self._check(size, reference)

        def fill(part: memoryview, start: int) -> None:
            nonlocal version
            with translated(reference=reference):
                try:
                    return self._driver.fill(target, part, start, version)
                except Exception as error:
                    if not self._is_replaced(error):
                        raise
                is_size, version = self._state(target)
                if is_size != size:
                    raise PayloadIntegrityError("the object was replaced while it was read")
                # Renewed by a writer: same size and content.
                return self._driver.fill(target, part, start, version)

        return open_ranges(size, fill)

    def _is_replaced(self, error: Exception) -> bool:
        return self._driver.errors.refusal(error) is Refusal.CONDITION

    def _state(self, target: Target) -> tuple[int, str | None]:
        """Size of an object in bytes, and its version.

        Not by HEAD: without a body, the answer for a missing payload equals that for a missing bucket.
        """
        answer = self._driver.ask(target, 0, 1)
        if answer is None:
            return 0, None
        try:
            answer.read(memoryview(bytearray(1)))  # so that the connection can be reused
            return answer.size, answer.version
        finally:
            answer.close()

    def _get(self, target: Target, reference: str, start: int, length: int | None, part_bytes: int) -> bytes:
        try:
            return self._get_state(target, reference, start, length, part_bytes)
        except Exception as error:
            if not self._is_replaced(error):
                raise
        # A writer renewed the object since the first range. Ranges of two states must not be mixed.
        return self._get_state(target, reference, start, length, part_bytes)

    def _get_state(self, target: Target, reference: str, start: int, length: int | None, part_bytes: int) -> bytes:
        # An empty range requests one byte, to check that the payload exists and is readable.
        answer = self._driver.ask(target, start, part_bytes if length is None else max(1, min(length, part_bytes)))
        if answer is None:
            return b""
        try:
            self._check(answer.size, reference)
            if length == 0:
                return b""
            end = answer.size if length is None else min(answer.size, start + length)
            version = answer.version
            return download_ranges(
                self._threads,
                end - start,
                lambda part, at: self._driver.fill(target, part, start + at, version),
                first=answer.read,
                first_bytes=min(answer.length, end - start),
                part_bytes=part_bytes,
            )
        finally:
            answer.close()
