"""MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md), by the package ``msgpack``.

Of the packages for Python, it alone reads extension types and timestamps as other languages write them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from payload_stores.errors import drop_data
from payload_stores.plugins import require
from serde_chain.base import Buffer, PlainDeserializer, PlainSerializer
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.schemas.nesting import MAX_DEPTH, check_depth, in_order
from serde_chain.schemas.part_budget import MAX_PARTS, TOO_MANY, Budget

_EXTRA: Final = "msgpack"
_DATETIME: Final = 3
# Bytes after the first byte of values without members, by that byte.
_FIXED: Final = {
    **dict.fromkeys((0xC0, 0xC2, 0xC3), 0),
    **dict(zip(range(0xCA, 0xD9), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17), strict=True)),
}
# Those that begin with their size: its layout, and the bytes beyond it.
_SIZED: Final = {
    # Bytes, extensions with their type, and text, each with three layouts of the size.
    first + place: (layout, struct.calcsize(layout) + more)
    for first, more in ((0xC4, 0), (0xC7, 1), (0xD9, 0))
    for place, layout in enumerate((">B", ">H", ">I"))
}


class MsgpackSerializer(PlainSerializer[Any]):
    r"""Writes None, booleans, integers, floats, text, bytes, lists, mappings, datetimes with a zone, and ``ExtType``.

    Record keys are sorted. Refuses everything else, tuples included, instead of converting it: a reader would get
    another type. Names of members are text or bytes. The most levels are 200.

    Example:
        >>> from serde_chain import SerializerChain
        >>> SerializerChain.from_config({"value.serializer": "msgpack"})({"a": 1})
        b'\x81\xa1a\x01'
    """

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package."""
        super().configure(config, is_key)
        packb = require("msgpack", _EXTRA).packb

        def write(data: Any) -> bytes:
            try:
                if isinstance(data, (dict, list)):
                    check_depth(data)
                    _check_names(data)
                packed: bytes = packb(in_order(data) if is_key else data, strict_types=True, datetime=True)
            except Exception as error:
                message = str(error)
                drop_data(error)
                raise EncodeError(
                    f"the value does not fit msgpack: {type(error).__name__}: {message[:300]}",
                    hint="Pass dictionaries, lists, text, bytes, numbers of 64 bits, and datetimes with a zone",
                ) from error
            return packed

        self.plain = write


class MsgpackDeserializer(PlainDeserializer[Any]):
    """Reads MessagePack; timestamps become ``datetime`` in UTC, to the microsecond, and extensions ``ExtType``."""

    options = (MAX_PARTS,)
    plain: Callable[[Any], Any]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package, and read ``serde.max.parts``."""
        super().configure(config, is_key)
        unpackb, budget = require("msgpack", _EXTRA).unpackb, Budget.read(config)

        def read(data: Buffer) -> Any:
            size = len(data)
            try:
                # A part has a byte at least.
                most = budget.of(size)
                if size > most and next(islice(_values(bytes(data)), most, None), None) is not None:
                    raise DecodeError(str(budget.exceeded(size)), hint=TOO_MANY)
                value = unpackb(data, timestamp=_DATETIME)
                if size > MAX_DEPTH:
                    check_depth(value)
            except DecodeError:
                raise
            except Exception as error:
                message = str(error) or type(error).__name__
                drop_data(error)
                vars(error).clear()  # ExtraData has the value, and the rest
                raise _refused(error, message) from error
            return value

        self.plain = read


def _refused(error: Exception, message: str) -> DecodeError:
    """The error for data that are not read; some of them are MessagePack."""
    if isinstance(error, OverflowError):
        return DecodeError(
            "a timestamp is outside of the years 1 to 9999, which Python's datetimes have",
            hint="Write such times as numbers, or read bytes and unpack them with timestamp=0",
        )
    if "strict_map_key" in message:
        return DecodeError(
            f"the name of a member is {message.partition(' is not allowed')[0]}, not text or bytes",
            hint="Other names are refused, since some bytes could turn them into minutes of work",
        )
    return DecodeError(f"the bytes are not MessagePack: {message[:300]}")


def _check_names(data: Any) -> None:
    """Refuse names of members that readers refuse."""
    rest = [data]
    while rest:
        whole = rest.pop()
        if isinstance(whole, dict):
            for name in whole:
                if not isinstance(name, (str, bytes)):
                    raise TypeError(f"the name of a member is text or bytes, not {type(name).__name__}")
            whole = whole.values()
        rest += [part for part in whole if isinstance(part, (dict, list))]


def _values(data: bytes) -> Iterator[int]:
    """The positions of all values, names of members included; nothing is decoded.

    Raises:
        ValueError: A first byte is unknown.
        IndexError: The data is truncated.
        struct.error: The same.
    """
    at, left = 0, 1
    while left:
        first = data[at]
        yield at
        at, left = at + 1, left - 1
        if first <= 0x7F or first >= 0xE0 or first in _FIXED:
            at += _FIXED.get(first, 0)
        elif first <= 0x8F:
            left += 2 * (first & 0x0F)
        elif first <= 0x9F:
            left += first & 0x0F
        elif first <= 0xBF:
            at += first & 0x1F
        elif first in _SIZED:
            layout, more = _SIZED[first]
            at += more + struct.unpack_from(layout, data, at)[0]
        elif first in {0xDC, 0xDE}:
            left += struct.unpack_from(">H", data, at)[0] * (first - 0xDC or 1)
            at += 2
        elif first in {0xDD, 0xDF}:
            left += struct.unpack_from(">I", data, at)[0] * (first - 0xDD or 1)
            at += 4
        else:
            raise ValueError(f"no value begins with the byte {first:#04x}")
