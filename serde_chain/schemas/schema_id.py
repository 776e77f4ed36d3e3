"""How a record names the schema it was written with.

========================  =============================================================  =======================
framing                   bytes in front of the payload                                  source
========================  =============================================================  =======================
Confluent, id             ``00`` and the id as big-endian int32                          Confluent wire format
Confluent, GUID           ``01`` and the 16 bytes of the schema's GUID                   Confluent wire format
Confluent, header         none; one of the above as the header ``__value_schema_id``     Confluent wire format
Avro single object        ``C3 01`` and the CRC-64-AVRO fingerprint, little-endian       Avro specification 1.12
========================  =============================================================  =======================

Protobuf appends the index path of the message's type within its file to the id or GUID, in the prefix or header: the
number of indexes, and the indexes (a message, a message nested in it, …) as zigzag varints; the common ``[0]`` is one
``00``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias
from uuid import UUID

from serde_chain.base import Buffer
from serde_chain.wire import varint

__all__ = [
    "KEY_HEADER",
    "VALUE_HEADER",
    "SchemaKey",
    "encode_guid",
    "encode_id",
    "encode_indexes",
    "encode_single_object",
    "split_confluent",
    "split_indexes",
    "split_single_object",
]

SchemaKey: TypeAlias = int | UUID

VALUE_HEADER: Final = "__value_schema_id"
KEY_HEADER: Final = "__key_schema_id"

FIRST: Final = (0,)  # the indexes of a file's first message
_MAX_INDEXES: Final = 100  # protobuf's own limit of nesting

_MAX_INDEX_BYTES: Final = 5

_ID: Final = 0
_GUID: Final = 1
_SINGLE_OBJECT: Final = b"\xc3\x01"


def encode_id(schema_id: int) -> bytes:
    """The 5 bytes of a schema id."""
    return b"\x00" + schema_id.to_bytes(4, "big")


def encode_guid(guid: UUID) -> bytes:
    """The 17 bytes of a schema GUID."""
    return b"\x01" + guid.bytes


def split_confluent(data: Buffer) -> tuple[SchemaKey, int]:
    """Read Confluent's framing.

    Args:
        data: A payload, or the value of a schema id header.

    Returns:
        The schema's id or GUID, and the length of the framing in bytes.

    Raises:
        ValueError: The data does not begin with such a framing.
    """
    if len(data) >= 5 and data[0] == _ID:
        return int.from_bytes(data[1:5], "big"), 5
    if len(data) >= 17 and data[0] == _GUID:
        return UUID(bytes=bytes(data[1:17])), 17
    if data and data[0] in {_ID, _GUID}:
        raise ValueError(f"the schema id is truncated after {len(data)} bytes")
    raise ValueError(f"the data begins with {bytes(data[:1]).hex() or 'nothing'} instead of a schema id (00 or 01)")


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """The bytes of an index path in a Protobuf file."""
    if tuple(indexes) == FIRST:
        return b"\x00"
    return b"".join(varint.encode(varint.to_zigzag(number)) for number in (len(indexes), *indexes))


def split_indexes(data: Buffer, at: int) -> tuple[tuple[int, ...], int]:
    """Read the indexes after a schema id.

    Args:
        data: A payload, or the value of a schema id header.
        at: End of the schema id.

    Returns:
        The indexes, and their end.

    Raises:
        ValueError: The indexes are truncated, negative, or more than protobuf's nesting allows.
    """
    if len(data) > at and data[at] == 0:
        return FIRST, at + 1
    count, at = _zigzag(data, at)
    if not 0 < count <= _MAX_INDEXES:
        raise ValueError(f"the data has {count} message indexes, expected 1 to {_MAX_INDEXES}")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise ValueError(f"a message index is {index}")
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(data: Buffer, at: int) -> tuple[int, int]:
    try:
        number, end = varint.read(data, at, _MAX_INDEX_BYTES)
    except ValueError:
        raise ValueError("the message indexes are truncated, or larger than 32 bits") from None
    return varint.from_zigzag(number), end


def encode_single_object(fingerprint: bytes) -> bytes:
    """The 10 bytes of Avro's single-object encoding; the fingerprint has 8 bytes, little-endian."""
    return _SINGLE_OBJECT + fingerprint


def split_single_object(data: Buffer) -> tuple[bytes, int]:
    """Read Avro's single-object framing.

    Returns:
        The fingerprint (8 bytes, little-endian), and the length of the framing in bytes.

    Raises:
        ValueError: The data does not begin with such a framing.
    """
    if len(data) < 10 or bytes(data[:2]) != _SINGLE_OBJECT:
        raise ValueError(f"the data begins with {bytes(data[:2]).hex() or 'nothing'} instead of c301 and a fingerprint")
    return bytes(data[2:10]), 10
