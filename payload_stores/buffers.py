"""Payloads in memory: their type, and ranges."""

from __future__ import annotations

import io
from typing import TypeAlias

from payload_stores.errors import PayloadTooLargeError

__all__ = ["Buffer", "checked_range", "payload_buffer"]

Buffer: TypeAlias = bytes | bytearray | memoryview


def payload_buffer(size: int) -> io.BytesIO:
    """A file of zeros to fill with a payload; ``getvalue`` then returns its bytes without a copy.

    A file that grows is copied repeatedly, into memory of ever other sizes, which the allocator reuses less. The system
    provides the memory as it is filled.

    Args:
        size: Size of the payload in bytes, which its writer may have forged.

    Raises:
        PayloadTooLargeError: The process cannot have so much memory.

    Example:
        >>> file = payload_buffer(4)
        >>> file.write(b"abcd"), file.getvalue()
        (4, b'abcd')
    """
    # Without huge pages: filling them takes a sixth of the time, but twice the time once the system has to make room
    # for them, as it has after some hours.
    # In CPython, BytesIO accepts and returns its bytes without a copy if nothing else holds them.
    try:
        return io.BytesIO(bytes(size))
    except MemoryError:
        raise PayloadTooLargeError(
            f"a payload of {size:,} bytes does not fit into the memory of this process",
            hint="Lower large.message.max.payload.bytes to what fits, or read it as a stream",
        ) from None


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
