"""Payloads as files."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from payload_stores.multipart.sizes import PART_BYTES

__all__ = ["PayloadFile", "open_ranges"]


def open_ranges(size: int, fill: Callable[[memoryview, int], object]) -> BinaryIO:
    """Open a payload for reading and seeking; about one part is held in memory.

    Args:
        size: Size of the payload in bytes.
        fill: Downloads the range at a position into a buffer.
    """
    return cast("BinaryIO", io.BufferedReader(_RangedFile(size, fill), PART_BYTES))


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

    def __init__(self, size: int, fill: Callable[[memoryview, int], object]) -> None:
        super().__init__(size)
        self._fill = fill

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, or read up to the end of the payload.

        Raises:
            PayloadStoreError: As for a download.
        """
        with memoryview(buffer).cast("B") as view:
            count = min(len(view), self._size - self._at)
            if count <= 0:
                return 0
            with view[:count] as part:
                self._fill(part, self._at)
        self._at += count
        return count

    def readall(self) -> bytes:
        """Read up to the end of the payload, in parts: the inherited method requests 8 KiB at a time.

        Raises:
            PayloadStoreError: As for a download.
        """
        # In CPython, BytesIO accepts and returns its bytes without a copy if nothing else holds them.
        rest = io.BytesIO(bytes(max(0, self._size - self._at)))
        with rest.getbuffer() as view:
            for start in range(0, len(view), PART_BYTES):
                with view[start : start + PART_BYTES] as part:
                    self.readinto(part)
        return rest.getvalue()
