"""Exact JSON numbers, or an error: orjson alone writes NaN as ``null``, and reads large integers as floats.

RFC 8259 (section 6) does not limit integers and has no NaN. Python's ``json``, used by hop-client, writes ``NaN``,
``Infinity`` and ``-Infinity``; they are read but never written. By far the most documents have none of these, and only
orjson touches them.
"""

from __future__ import annotations

import dataclasses
import json
import math
from enum import Enum
from typing import Any, Final

from serde_chain.base import Buffer

# Digits and signs become 0, so that one search finds all integers that may exceed 64 bits: 20 digits, or 19 after a
# minus. False matches are read correctly, only more slowly.
_SHAPE: Final = bytes(0x30 if byte in b"-0123456789" else byte for byte in range(256))
_LONG: Final = b"0" * 20
_NOT_FINITE: Final = (b"NaN", b"Infinity")


def loads(orjson: Any, data: Buffer) -> Any:
    """Read a document.

    Args:
        orjson: The module.
        data: The document in UTF-8.

    Raises:
        ValueError: The document is not JSON.
        RecursionError: The document nests too deeply.
    """
    shape = (data if type(data) is bytes else bytes(data)).translate(_SHAPE)
    if _LONG in shape:
        return json.loads(str(data, "utf-8"))
    try:
        return orjson.loads(data)
    except ValueError:
        if not any(name in shape for name in _NOT_FINITE):
            raise
    return json.loads(str(data, "utf-8"))


def dumps(orjson: Any, value: Any, options: int | None) -> bytes:
    """Write a document.

    Args:
        orjson: The module.
        value: Anything that orjson accepts.
        options: orjson's options.

    Raises:
        TypeError: The value is not JSON, or contains an integer beyond 64 bits, which many readers would round.
        ValueError: The value contains a number that JSON lacks.
    """
    encoded: bytes = orjson.dumps(value, None, options)
    if b"null" in encoded and (place := _not_finite(value)) is not None:
        raise ValueError(f"${place}, which is not a JSON number")
    return encoded


def _not_finite(value: Any) -> str | None:
    """The path and value of a number that is NaN or infinite; None if there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f" is {value}"
    if isinstance(value, dict):
        parts: Any = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    elif isinstance(value, Enum):
        return _not_finite(value.value)
    elif dataclasses.is_dataclass(value):
        parts = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        return None
    for name, part in parts:
        place = _not_finite(part)
        if place is not None:
            return f"[{name}]{place}" if isinstance(name, int) else f".{name}{place}"
    return None
