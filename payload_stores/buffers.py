"""Payloads in memory: their type, and ranges."""

from __future__ import annotations

import io
from typing import TypeAlias

__all__ = ["Buffer", "checked_range", "fresh_buffer"]

Buffer: TypeAlias = bytes | bytearray | memoryview


def fresh_buffer(size: int) -> io.BytesIO:
    """A file of zeros to fill with a payload; ``getvalue`` then returns its bytes without a copy.

    A file that grows is copied repeatedly, into memory of ever other sizes, which the allocator reuses less. The system
    provides the memory as it is filled.

    Args:
        size: Size of the payload in bytes.

    Raises:
        MemoryError: The process cannot have so much.

    Example:
        >>> file = fresh_buffer(4)
        >>> file.write(b"abcd"), file.getvalue()
        (4, b'abcd')
    """
    # Without huge pages: filling them takes a sixth of the time, but twice the time once the system has to make room
    # for them, as it has after some hours.
    # In CPython, BytesIO accepts and returns its bytes without a copy if nothing else holds them.
    return io.BytesIO(bytes(size))


def checked_range(start: int, length: int) -> slice:
    """Convert a range to a slice.

    Args:
        start: Start in bytes.
        length: Number of bytes.

    Raises:
        ValueError: A number is negative.
    """
    if start < 0 or length < 0:
        raise ValueError(f"a range of {length} bytes from {start} on: both are at least 0")
    return slice(start, start + length)
