"""How a record names the schema it was written with.

========================  =============================================================  =======================
framing                   bytes in front of the payload                                  source
========================  =============================================================  =======================
Confluent, id             ``00`` and the id as big-endian int32                          Confluent wire format
Confluent, GUID           ``01`` and the 16 bytes of the schema's GUID                   Confluent wire format
Confluent, header         none; one of the above as the header ``__value_schema_id``     Confluent wire format
AWS Glue                  ``03``, ``00`` or ``05`` (zlib), and the schema version's UUID    Glue's Java serde 1.1
Apicurio                  ``00`` and the contentId (or globalId) as big-endian int32     Apicurio's serde 3.1
Apicurio, legacy          ``00`` and the same as big-endian int64                        its Legacy8ByteIdHandler
Apicurio, header          none; int64 in ``apicurio.value.contentId`` or ``.globalId``   its DefaultHeadersHandler
Avro single object        ``C3 01`` and the CRC-64-AVRO fingerprint, little-endian       Avro specification 1.12
========================  =============================================================  =======================

Protobuf also names the message's type within its file:

- Confluent, after the id or GUID, in the prefix or header: the number of indexes, and the indexes (a message, a message
  nested in it, …) as zigzag varints; the common ``[0]`` is one ``00``;
- Glue, before the message: the position of its full name among all of the file's, in order, as an unsigned varint;
- Apicurio, before the message: the size of a message ``Ref``, and the ``Ref``, whose field 1 is the type's simple name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from serde_chain.base import Buffer
from serde_chain.wire import varint


class GlobalId(NamedTuple):
    """Apicurio's globalId: of a version, where the contentId is of its content; both are numbers.

    Attributes:
        number: The id.
    """

    number: int

    def __str__(self) -> str:
        return f"with the globalId {self.number}"


SchemaKey: TypeAlias = int | UUID | GlobalId

VALUE_HEADER: Final = "__value_schema_id"
KEY_HEADER: Final = "__key_schema_id"

FIRST: Final = (0,)  # the indexes of a file's first message
_MAX_INDEXES: Final = 100  # protobuf's own limit of nesting

_MAX_INDEX_BYTES: Final = 5

_ID: Final = 0
_GUID: Final = 1
_SINGLE_OBJECT: Final = b"\xc3\x01"

GLUE_BYTES: Final = 18
_GLUE: Final = 3
_UNCOMPRESSED: Final = 0
_ZLIB: Final = 5

_MAGIC: Final = 0
_SHORT_ID: Final = 4
_LONG_ID: Final = 8
# A message with one field of text, number 1.
_REF_NAME: Final = 0x0A
_MAX_NAME: Final = 1000


def framing_of_bytes(data: Buffer) -> str | None:
    r"""Whose framing data begin like, for advice; None if like no registry's.

    Args:
        data: Data that are read with another framing, or without one.

    Returns:
        The name of a framing, ``confluent`` (also Apicurio's default) or ``glue``.

    Example:
        >>> framing_of_bytes(b'\x00\x00\x00\x00\x07{}'), framing_of_bytes(b'{}')
        ('confluent', None)
    """
    head = bytes(memoryview(data)[:2])
    if len(data) >= GLUE_BYTES and head in {bytes([_GLUE, _UNCOMPRESSED]), bytes([_GLUE, _ZLIB])}:
        return "glue"
    return "confluent" if len(data) > _SHORT_ID and head[:1] == bytes([_ID]) else None


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


def encode_glue(version: UUID, *, compressed: bool = False) -> bytes:
    """The 18 bytes of a schema version in AWS Glue's framing."""
    return bytes((_GLUE, _ZLIB if compressed else _UNCOMPRESSED)) + version.bytes


def split_glue(data: Buffer) -> UUID:
    """Read AWS Glue's framing, which has :data:`GLUE_BYTES` bytes.

    Raises:
        ValueError: The data does not begin with such a framing.
    """
    if len(data) < GLUE_BYTES or data[0] != _GLUE:
        raise ValueError(f"the data begins with {bytes(data[:1]).hex() or 'nothing'} instead of 03 and 17 more bytes")
    if data[1] not in {_UNCOMPRESSED, _ZLIB}:
        raise ValueError(f"the compression byte is {data[1]:02x}, expected 00 or 05 (zlib)")
    return UUID(bytes=bytes(data[2:GLUE_BYTES]))


def is_compressed(data: Buffer) -> bool:
    """Whether AWS Glue's framing says that the rest of the data is compressed by zlib."""
    return len(data) >= GLUE_BYTES and data[0] == _GLUE and data[1] == _ZLIB


def encode_apicurio(number: int, size: int = _SHORT_ID) -> bytes:
    """The bytes of an Apicurio id.

    Args:
        number: A contentId or globalId.
        size: Its bytes: 4, or 8 as in older releases.
    """
    return bytes((_MAGIC,)) + number.to_bytes(size, "big")


def split_apicurio(data: Buffer) -> tuple[int, int]:
    """Read Apicurio's framing: ids begin at 1, so four zero bytes are half of a legacy id.

    Returns:
        The id, and the length of the framing in bytes.

    Raises:
        ValueError: The data does not begin with such a framing.
    """
    if not data or data[0] != _MAGIC:
        raise ValueError(f"the data begins with {bytes(data[:1]).hex() or 'nothing'} instead of a schema id (00)")
    size = _LONG_ID if bytes(data[1:5]) == bytes(_SHORT_ID) else _SHORT_ID
    if len(data) <= size:
        raise ValueError(f"the schema id is truncated after {len(data)} bytes")
    return int.from_bytes(data[1 : size + 1], "big"), size + 1


def encode_rank(rank: int) -> bytes:
    """The bytes of a message's position among the names of its file, in AWS Glue's Protobuf."""
    return varint.encode(rank)


def split_rank(data: Buffer, at: int) -> tuple[int, int]:
    """Read the position of a message's name in AWS Glue's Protobuf.

    Returns:
        The position, and the start of the message.

    Raises:
        ValueError: It is truncated, or larger than 32 bits.
    """
    try:
        return varint.read(data, at, _MAX_INDEX_BYTES)
    except ValueError:
        raise ValueError("the message index is truncated, or larger than 32 bits") from None


def encode_ref(name: str) -> bytes:
    """The bytes with which Apicurio's Protobuf names a message by its simple name."""
    encoded = name.encode()
    ref = bytes((_REF_NAME,)) + varint.encode(len(encoded)) + encoded
    return varint.encode(len(ref)) + ref


def split_ref(data: Buffer, at: int) -> tuple[str, int]:
    """Read the name of the message in Apicurio's Protobuf.

    Returns:
        The message's simple name, and the start of the message.

    Raises:
        ValueError: There is no such name.
    """
    try:
        size, begin = varint.read(data, at, _MAX_INDEX_BYTES)
        end = begin + size
        length, start = varint.read(data, begin + 1, _MAX_INDEX_BYTES)
        if data[begin] != _REF_NAME or start + length != end or end > len(data) or length > _MAX_NAME:
            raise ValueError
        return str(bytes(data[start:end]), "utf-8"), end
    except (ValueError, IndexError):
        raise ValueError("the data does not name its message as Apicurio does") from None
