"""What librdkafka still sends, in bytes (measured on librdkafka 2.16; the formula is in ``docs/limits.md``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from serde_chain.record import Headers

__all__ = ["MESSAGE_MAX_BYTES", "largest_key", "largest_value"]

MESSAGE_MAX_BYTES: Final = 1_000_000  # librdkafka's default for message.max.bytes
RECORD_OVERHEAD: Final = 36

# Kept free when the limit of a key is computed: its value may still become a reference with its headers.
_ROOM_FOR_VALUE: Final = 16_384


def largest_value(message_max_bytes: int, key: bytes | None, headers: Headers | None) -> int:
    """The largest value that ``produce`` takes.

    Args:
        message_max_bytes: The client's ``message.max.bytes``.
        key: The encoded key.
        headers: The record's headers.

    Returns:
        Size in bytes, at least 0.
    """
    return max(0, message_max_bytes - RECORD_OVERHEAD - len(key or b"") - _headers_size(headers))


def largest_key(message_max_bytes: int, headers: Headers | None) -> int:
    """The largest key with which ``produce`` still takes a value that was offloaded; in bytes, at least 0."""
    return max(0, message_max_bytes - RECORD_OVERHEAD - _ROOM_FOR_VALUE - _headers_size(headers))


def _headers_size(headers: Headers | None) -> int:
    if not headers:
        return 0
    pairs: Iterable[tuple[str, bytes | str | None]] = headers.items() if isinstance(headers, dict) else headers
    return sum(_with_length(name) + _with_length(value) for name, value in pairs)


def _with_length(data: bytes | str | None) -> int:
    """Size of a string with its length as a zigzag varint in front; -1 stands for null."""
    size = len(data.encode() if isinstance(data, str) else data or b"")
    return size + 1 + sum(size > limit for limit in (63, 8191, 1048575, 134217727))
