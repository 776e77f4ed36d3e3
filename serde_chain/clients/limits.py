"""Record sizes: the largest record that librdkafka sends, and that a topic accepts (formulas: ``docs/limits.md``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from payload_stores.options import Option, integer
from serde_chain.record import Headers

MESSAGE_MAX: Final = Option("message.max.bytes", integer(1), 1_000_000)  # librdkafka's, with its default
LARGEST_MESSAGE: Final = 1_000_000_000  # the largest message.max.bytes that librdkafka accepts
RECORD_OVERHEAD: Final = 36
# Bytes by which the estimate of a record by Java's producer exceeds librdkafka's at most; aiokafka and kafka-python
# estimate like Java.
JAVA_OVERHEAD: Final = 54
BATCH_OVERHEAD: Final = 61  # of a batch as the broker measures it
_BODY_OVERHEAD: Final = 3

# Kept free in the limit of a key: its value may still become a reference with headers.
_ROOM_FOR_VALUE: Final = 16_384
# Bytes of a key that need no check: see RecordLimits.always.
KEY_ROOM: Final = 4096
# Length of a key that fits into it, also as text, of which a character may have four bytes.
SHORT_KEY: Final = KEY_ROOM // 4
# Bytes of a batch that any topic is presumed to accept before its limit is known: 1/64 of Kafka's default. Services
# that lower the default accept at least 256 KiB.
LEAST_LIMIT: Final = 16_384


def largest_value(
    message_max_bytes: int, key: bytes | None, headers: Headers | None, topic_max_bytes: int | None = None
) -> int:
    """The largest value that ``produce`` and the topic accept.

    Args:
        message_max_bytes: The client's ``message.max.bytes``.
        key: The encoded key.
        headers: The record's headers.
        topic_max_bytes: The topic's ``max.message.bytes``, if it applies.

    Returns:
        Size in bytes, at least 0.
    """
    headers_size = _headers_size(headers)
    sent = message_max_bytes - RECORD_OVERHEAD - len(key or b"") - headers_size
    if topic_max_bytes is None:
        return max(0, sent)
    body = _fit(topic_max_bytes - BATCH_OVERHEAD)
    taken = _fit(body - _BODY_OVERHEAD - _with_length(key) - _varint(len(headers or ())) - headers_size)
    return max(0, min(sent, taken))


def largest_key(message_max_bytes: int, headers: Headers | None, topic_max_bytes: int | None = None) -> int:
    """The largest key of an accepted record with an offloaded value; in bytes, at least 0."""
    return largest_value(message_max_bytes - _ROOM_FOR_VALUE, None, headers, _less(topic_max_bytes))


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """The most bytes that a record adds to its batch."""
    # After other records, offset and time are differences of up to five and ten bytes instead of one each.
    return _alone(key, value, headers) + 13


def batch_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of a record alone in its batch, which a topic's ``max.message.bytes`` limits."""
    return BATCH_OVERHEAD + _alone(key, value, headers)


def sent_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of a record as librdkafka counts it, which ``message.max.bytes`` limits."""
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + _headers_size(headers)


def _alone(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of the first record of a batch."""
    body = _BODY_OVERHEAD + _with_length(key) + _with_length(value) + _varint(len(headers or ()))
    body += _headers_size(headers)
    return _varint(body) + body


def _less(topic_max_bytes: int | None) -> int | None:
    return None if topic_max_bytes is None else max(0, topic_max_bytes - _ROOM_FOR_VALUE)


def _headers_size(headers: Headers | None) -> int:
    if not headers:
        return 0
    pairs: Iterable[tuple[str, bytes | str | None]] = headers.items() if isinstance(headers, dict) else headers
    return sum(_with_length(name) + _with_length(value) for name, value in pairs)


def _with_length(data: bytes | str | None) -> int:
    """Size of a string and its length as a zigzag varint; -1 for null."""
    size = len(data.encode() if isinstance(data, str) else data or b"")
    return size + _varint(size)


def _varint(number: int) -> int:
    """Bytes of a zigzag varint, of seven bits each; zigzag doubles the number."""
    return (number.bit_length() + 7) // 7


def _fit(room: int) -> int:
    """The longest string that fits with its length; negative if not even an empty one does."""
    size = room - 1
    while size + _varint(max(size, 0)) > room:
        size -= 1
    return size
