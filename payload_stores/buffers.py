"""Payloads in memory: their type, and ranges."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Buffer", "checked_range"]

Buffer: TypeAlias = bytes | bytearray | memoryview


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
