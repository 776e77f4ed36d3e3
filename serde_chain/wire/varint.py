"""Varints: seven bits per byte, lowest first; the highest bit is set if more follow.

Protobuf, Avro (signed, in zigzag) and Snappy use the same ("Protocol Buffers: Encoding", "Base 128
Varints").
"""

from __future__ import annotations

from serde_chain.base import Buffer


def encode(number: int) -> bytes:
    """The bytes of a nonnegative number."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read(data: Buffer, at: int = 0, most_bytes: int = 10) -> tuple[int, int]:
    r"""Read a number.

    Args:
        data: The bytes.
        at: Start of the number.
        most_bytes: Maximum length in bytes.

    Returns:
        The number, and its end.

    Raises:
        ValueError: The number is truncated, or longer.

    Example:
        >>> read(b"\xac\x02")
        (300, 2)
    """
    number = shift = 0
    for position in range(at, min(at + most_bytes, len(data))):
        byte = data[position]
        if byte < 0x80:
            return number | byte << shift, position + 1
        number |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError(f"a number is truncated, or has more than {most_bytes} bytes")


def from_zigzag(number: int) -> int:
    """The signed number for an unsigned one: 0, -1, 1, -2, …."""
    return (number >> 1) ^ -(number & 1)


def to_zigzag(number: int) -> int:
    """The unsigned number for a signed one of 64 bits."""
    return (number << 1) ^ (number >> 63)
