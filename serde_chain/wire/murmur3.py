"""MurmurHash3, x64, 128 bits, seed 0: one of the ids of bakdata's large messages."""

from __future__ import annotations

import struct
from typing import Final

from serde_chain.base import Buffer

__all__ = ["murmur3_hex"]

_64: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def murmur3_hex(data: Buffer) -> str:
    """The hash as 32 hexadecimal digits, bytes in the order in which the reference implementation has them in memory.

    Takes about 0.1 s for a megabyte; SHA-256 takes a thousandth of that.
    """
    view = memoryview(data).cast("B")
    whole = len(view) - len(view) % 16
    h1 = h2 = 0
    for k1, k2 in struct.iter_unpack("<QQ", view[:whole]):
        h1 ^= _mix1(k1)
        h1 = ((_rotated(h1, 27) + h2) * 5 + 0x52DCE729) & _64
        h2 ^= _mix2(k2)
        h2 = ((_rotated(h2, 31) + h1) * 5 + 0x38495AB5) & _64
    rest = bytes(view[whole:])
    h1 ^= _mix1(int.from_bytes(rest[:8], "little"))
    h2 ^= _mix2(int.from_bytes(rest[8:], "little"))
    h1 ^= len(view)
    h2 ^= len(view)
    h1 = (h1 + h2) & _64
    h2 = (h2 + h1) & _64
    h1, h2 = _final(h1), _final(h2)
    h1 = (h1 + h2) & _64
    h2 = (h2 + h1) & _64
    return struct.pack("<QQ", h1, h2).hex()


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _64


def _mix1(value: int) -> int:
    return (_rotated((value * _C1) & _64, 31) * _C2) & _64


def _mix2(value: int) -> int:
    return (_rotated((value * _C2) & _64, 33) * _C1) & _64


def _final(value: int) -> int:
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & _64
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & _64
    return value ^ (value >> 33)
