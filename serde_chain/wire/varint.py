"""Varints: seven bits a byte, the lowest first, the highest bit set where more follow.

Those of Protobuf, Avro (with a sign, in zigzag) and Snappy are the same ("Protocol Buffers: Encoding", "Base 128
Varints").
"""

from __future__ import annotations

from serde_chain.base import Buffer

__all__ = ["encode", "from_zigzag", "read", "to_zigzag"]


def encode(number: int) -> bytes:
    """The bytes of a number, which is not negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read(data: Buffer, at: int = 0, most_bytes: int = 10) -> tuple[int, int]:
    r"""Read a number.

    Args:
        data: The bytes in which it is.
        at: Where it begins.
        most_bytes: How many bytes it may have.

    Returns:
        The number, and where it ends.

    Raises:
        ValueError: It is cut off, or longer.

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
    raise ValueError(f"a number is cut off, or has more than {most_bytes} bytes")


def from_zigzag(number: int) -> int:
    """The number with a sign that a number without one stands for: 0, -1, 1, -2, …."""
    return (number >> 1) ^ -(number & 1)


def to_zigzag(number: int) -> int:
    """The number without a sign that stands for one of 64 bits with a sign."""
    return (number << 1) ^ (number >> 63)
