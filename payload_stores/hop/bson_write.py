"""BSON's elements as bytes (bsonspec.org, version 1.1): what hop's store and the offload server write."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

__all__ = ["ARRAY", "BINARY", "DOCUMENT", "INT64", "STRING", "binary", "binary_head", "document", "element", "headers"]

STRING: Final = 0x02
DOCUMENT: Final = 0x03
ARRAY: Final = 0x04
BINARY: Final = 0x05
INT64: Final = 0x12


def element(kind: int, name: str, value: bytes) -> bytes:
    """An element of a document, its value encoded already."""
    return bytes([kind]) + name.encode() + b"\0" + value


def document(elements: bytes) -> bytes:
    """A document, or an array, of elements."""
    return struct.pack("<i", len(elements) + 5) + elements + b"\0"


def binary_head(name: str, size: int) -> bytes:
    """What stands before so many bytes as an element of binary data (subtype 0)."""
    return element(BINARY, name, struct.pack("<iB", size, 0))


def binary(name: str, value: bytes) -> bytes:
    """An element of binary data."""
    return binary_head(name, len(value)) + value


def headers(pairs: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Headers as an array of ``[string, binary]`` arrays; null is written as no bytes."""
    items = []
    for at, (name, value) in enumerate(pairs):
        text = name.encode()
        string = element(STRING, "0", struct.pack("<i", len(text) + 1) + text + b"\0")
        items.append(element(ARRAY, str(at), document(string + binary("1", value or b""))))
    return document(b"".join(items))
