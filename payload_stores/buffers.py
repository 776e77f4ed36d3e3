"""Payloads in memory: their type, and ranges of them."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Buffer", "checked_range"]

Buffer: TypeAlias = bytes | bytearray | memoryview


def checked_range(start: int, length: int) -> slice:
    """The slice that a range is.

    Args:
        start: Where it begins, in bytes.
        length: How many bytes.

    Raises:
        ValueError: One of them is negative.
    """
    if start < 0 or length < 0:
        raise ValueError(f"a range of {length} bytes from {start} on: both are at least 0")
    return slice(start, start + length)
