"""Payloads as files."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from payload_stores.buffers import payload_buffer
from payload_stores.multipart.sizes import PART_BYTES


def open_ranges(size: int, fill: Callable[[memoryview, int], object], *, block_bytes: int = 1) -> BinaryIO:
    """Open a payload for reading and seeking; about one part is held in memory.

    Args:
        size: Size of the payload in bytes.
        fill: Downloads the range at a position into a buffer.
        block_bytes: Size of the blocks that are transferred as a whole: a range ends with one, so that the next range
            does not transfer it again.
    """
    return cast("BinaryIO", io.BufferedReader(_RangedFile(size, fill, block_bytes), PART_BYTES))


class PayloadFile(io.RawIOBase):
    """A payload as a seekable file of known size; subclasses read from ``_at``.

    Args:
        size: Size of the payload in bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be sought."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("negative position")
        self._at = start + offset
        return self._at


class _RangedFile(PayloadFile):
    """A payload as a file: each read requests a range."""

    def __init__(self, size: int, fill: Callable[[memoryview, int], object], block_bytes: int) -> None:
        super().__init__(size)
        self._fill = fill
        self._block_bytes = block_bytes

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or read up to the end of the payload.

        Raises:
            PayloadStoreError: As for a download.
        """
        with memoryview(buffer).cast("B") as view:
            count = min(len(view), self._size - self._at)
            if count <= 0:
                return 0
            end = self._at + count
            beyond = end % self._block_bytes if end < self._size else 0
            count -= beyond if beyond < count else 0
            with view[:count] as part:
                self._fill(part, self._at)
        self._at += count
        return count

    def readall(self) -> bytes:
        """Read up to the end of the payload, in parts: the inherited method requests 8 KiB at a time.

        Raises:
            PayloadStoreError: As for a download.
        """
        start, done = self._at, 0
        rest = payload_buffer(max(0, self._size - start))
        try:
            with rest.getbuffer() as view:
                while done < len(view):
                    with view[done : done + PART_BYTES] as part:
                        done += self.readinto(part)
        except BaseException:
            self._at = start  # nothing was returned: the next call begins here
            raise
        return rest.getvalue()
