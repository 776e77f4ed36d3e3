"""Metadata in front of a payload: the frame of PIP-70, as Apache Pulsar ships it ("broker entry metadata").

=====  ==========================================================================================
bytes  content
=====  ==========================================================================================
2      ``0E 02``, the version of the frame
4      size of the metadata, big-endian int32
≤ 22   protobuf message ``{optional uint64 broker_timestamp = 1; optional uint64 index = 2}``
rest   the payload, untouched
=====  ==========================================================================================

The index of a batch is that of its last message. Reading is stricter than Pulsar's: a size that is negative or exceeds
the data, and metadata that does not end at its size are errors. This module never inspects the payload.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Final, NamedTuple

from serde_chain.base import Buffer
from serde_chain.errors import DecodeError
from serde_chain.wire import varint

__all__ = ["MAGIC", "MAX_OVERHEAD", "EntryMetadata", "EntryMetadataError", "frame", "peek", "strip"]

MAGIC: Final = b"\x0e\x02"
MAX_OVERHEAD: Final = 28

_VERSION: Final = 0x0E02
_TIMESTAMP: Final = 0x08  # tags: field number and wire type 0 (varint)
_INDEX: Final = 0x10
_HEAD: Final = struct.Struct(">Hi")
# Head, tag and 6 bytes of a timestamp, tag and 5 bytes of an index: the start of nearly all frames.
_USUAL: Final = struct.Struct(">Hi13B")
# Sums of the continuation bits (128) of varints of 1 to 6 bytes.
_MARKS: Final = tuple(sum(128 << 7 * at for at in range(size)) for size in range(6))
_LARGEST: Final = (1 << 64) - 1


class EntryMetadata(NamedTuple):
    """The metadata of a frame.

    Attributes:
        broker_timestamp: Time of framing in ms since the epoch; None if the frame has none.
        index: Position of the record in its partition, without gaps, from 0; None if the frame has none.

    Example:
        >>> EntryMetadata(broker_timestamp=1_700_000_000_123).index is None
        True
    """

    broker_timestamp: int | None = None
    index: int | None = None  # type: ignore[assignment]  # PIP-70's name; these tuples are not searched


class EntryMetadataError(DecodeError, ValueError):
    """A frame is truncated or malformed."""


def frame(payload: Buffer, *, broker_timestamp: int | None = None, index: int | None = None) -> bytes:
    """Put metadata in front of a payload.

    Args:
        payload: Any bytes.
        broker_timestamp: Time in ms since the epoch.
        index: Position of the record in its partition.

    Returns:
        A new bytes object, at most 28 bytes longer than the payload.

    Raises:
        ValueError: A number is negative or exceeds 64 bits.

    Example:
        >>> frame(b"payload", broker_timestamp=1_700_000_000_123, index=127).hex(" ", 2)[:20]
        '0e02 0000 0009 08fb '
    """
    fields = b"" if broker_timestamp is None else _field(_TIMESTAMP, broker_timestamp)
    if index is not None:
        fields += _field(_INDEX, index)
    return b"".join((MAGIC, len(fields).to_bytes(4, "big"), fields, payload))


def peek(data: Buffer) -> EntryMetadata | None:
    """Read the metadata, in a time independent of the payload.

    Args:
        data: A record's value as stored in the topic.

    Returns:
        The metadata; None if the data does not begin with ``0E 02``.

    Raises:
        EntryMetadataError: The data begins with ``0E 02``, but the frame is truncated or malformed.

    Example:
        >>> peek(frame(b"payload", index=41)).index
        41
    """
    try:
        version, size, tag, a, b, c, d, e, f, tag2, g, h, i, j, k = _USUAL.unpack_from(data)
    except struct.error:  # shorter
        return _peek_any(data)
    # Varints of 6 bytes are the milliseconds from 1971 to 2109. A loop over the bytes would take four times as long.
    if version == _VERSION and tag == _TIMESTAMP and f < 128 <= a & b & c & d & e:
        timestamp = a + 128 * (b + 128 * (c + 128 * (d + 128 * (e + 128 * f)))) - _MARKS[5]
        if size == 7:
            return tuple.__new__(EntryMetadata, (timestamp, None))
        if tag2 == _INDEX:
            if g < 128:
                used, index = 9, g
            elif h < 128:
                used, index = 10, g + 128 * h - 128
            elif i < 128:
                used, index = 11, g + 128 * (h + 128 * i) - _MARKS[2]
            elif j < 128:
                used, index = 12, g + 128 * (h + 128 * (i + 128 * j)) - _MARKS[3]
            else:
                used, index = 13 if k < 128 else 0, g + 128 * (h + 128 * (i + 128 * (j + 128 * k))) - _MARKS[4]
            if used == size:
                return tuple.__new__(EntryMetadata, (timestamp, index))
    return _peek_any(data)


def strip(data: Buffer) -> memoryview:
    """The payload after the metadata, which is skipped unread.

    Args:
        data: A record's value as stored in the topic.

    Returns:
        A view of the payload, not a copy; a view of all data if it does not begin with ``0E 02``.

    Raises:
        EntryMetadataError: The data begins with ``0E 02``, but the frame is truncated or its size is impossible.

    Example:
        >>> bytes(strip(frame(b"payload", index=41)))
        b'payload'
    """
    return memoryview(data)[_payload_start(data) :]


def _payload_start(data: Buffer) -> int:
    """Start of the payload: 0 if the data has no frame."""
    if data[:2] != MAGIC:
        return 0
    if len(data) < _HEAD.size:
        raise EntryMetadataError(f"the entry metadata is truncated after {len(data)} bytes")
    _, size = _HEAD.unpack_from(data)
    if not 0 <= size <= len(data) - _HEAD.size:
        raise EntryMetadataError(
            f"the entry metadata has a size of {size} bytes, but {len(data) - _HEAD.size} bytes follow"
        )
    return _HEAD.size + int(size)


def _peek_any(data: Buffer) -> EntryMetadata | None:
    start = _payload_start(data)
    return _read_fields(bytes(data[_HEAD.size : start])) if start else None


def _read_fields(fields: bytes) -> EntryMetadata:
    """Read the protobuf message: unknown fields are skipped; the last of repeated fields counts."""
    numbers: dict[int, int] = {}
    at = 0
    while at < len(fields):
        tag, at = _varint(fields, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise EntryMetadataError(f"the entry metadata has a field with the number {number}")
        if kind == 0:
            numbers[tag], at = _varint(fields, at)
        elif kind == 2:
            size, at = _varint(fields, at)
            at += size
        elif kind in {1, 5}:
            at += 8 if kind == 1 else 4
        else:
            raise EntryMetadataError(f"the entry metadata has a field with the wire type {kind}")
    if at > len(fields):
        raise EntryMetadataError("a field of the entry metadata is truncated")
    return EntryMetadata(numbers.get(_TIMESTAMP), numbers.get(_INDEX))


def _varint(fields: bytes, at: int) -> tuple[int, int]:
    """Read a varint of at most 64 bits; returns the number and its end."""
    with contextlib.suppress(ValueError):
        value, end = varint.read(fields, at)
        if value <= _LARGEST:
            return value, end
    raise EntryMetadataError("a number of the entry metadata is truncated, or has more than 64 bits")


def _field(tag: int, value: int) -> bytes:
    if not 0 <= value <= _LARGEST:
        raise ValueError(f"{value} is not an unsigned number of 64 bits")
    return bytes((tag,)) + varint.encode(value)
