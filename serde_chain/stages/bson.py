"""BSON 1.1 documents (https://bsonspec.org), by pymongo's ``bson``. ANTARES writes alerts as ``bson, zlib``."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from payload_stores.bson_reader import FIXED, REGEX, SIZED
from payload_stores.errors import drop_data
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.base import Buffer, PlainDeserializer, PlainSerializer
from serde_chain.errors import DecodeError, EncodeError, without_data
from serde_chain.schemas.nesting import MAX_DEPTH, check_depth, in_order
from serde_chain.schemas.part_budget import MAX_PARTS, TOO_MANY, Budget

# Each part takes at least a type and the end of a name.
_PART_BYTES: Final = 2
# Each level takes a type, the end of a name, a size, and an end.
_NESTED_BYTES: Final = 7
_EMBEDDED: Final = frozenset({3, 4})


def _options(bson: Any) -> Any:
    options = bson.codec_options
    return options.CodecOptions(
        tz_aware=True,
        uuid_representation=bson.binary.UuidRepresentation.STANDARD,
        # Years beyond Python's become DatetimeMS.
        datetime_conversion=options.DatetimeConversion.DATETIME_AUTO,
    )


class BsonSerializer(PlainSerializer[Any]):
    r"""Writes mappings as BSON: bytes, datetimes (to the millisecond, UTC) and UUIDs included. Record keys are sorted.

    Refuses integers beyond 64 bits, and documents nested deeper than 200 levels.

    Example:
        >>> from serde_chain import SerializerChain
        >>> SerializerChain.from_config({"value.serializer": "bson"})({"a": 1})
        b'\x0c\x00\x00\x00\x10a\x00\x01\x00\x00\x00\x00'
    """

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package."""
        super().configure(config, is_key)
        bson = require("bson", "bson")
        encode, options = bson.encode, _options(bson)

        def write(data: Any) -> bytes:
            if not isinstance(data, Mapping):
                raise EncodeError(f"a BSON document is a mapping, not {type(data).__name__}")
            try:
                check_depth(data)
            except ValueError as error:
                raise EncodeError(f"the value is not BSON: {error}") from error
            try:
                encoded: bytes = encode(in_order(data) if is_key else data, codec_options=options)
            except Exception as error:  # noqa: BLE001  replaced: it may hold the document
                let_through(error)
                raise EncodeError(f"the value is not BSON: {_reason(error)}") from None
            return encoded

        self.plain = write


class BsonDeserializer(PlainDeserializer[dict[str, Any]]):
    """Reads BSON documents into dictionaries; 64-bit integers are pymongo's ``Int64``, an int."""

    options = (MAX_PARTS,)
    plain: Callable[[Any], dict[str, Any]]

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Load the package, and read ``serde.max.parts``."""
        super().configure(config, is_key)
        bson = require("bson", "bson")
        decode, options, budget = bson.decode, _options(bson), Budget.read(config)

        def read(data: Buffer) -> dict[str, Any]:
            try:
                _check(memoryview(data).cast("B"), budget)
                value: dict[str, Any] = decode(data, codec_options=options)
                if len(data) > _NESTED_BYTES * MAX_DEPTH:
                    check_depth(value)
            except DecodeError:
                raise
            except Exception as error:
                message = str(error)
                drop_data(error)
                raise DecodeError(f"the bytes are not a BSON document: {message[:300]}") from error
            return value

        self.plain = read


def _reason(error: Exception) -> str:
    """What the package says of a value that it refuses, without the value."""
    text, _, kind = str(error).rpartition(", of type: ")
    if text:
        return f"{type(error).__name__}: it cannot encode {kind[:200]}"
    return without_data(error)


def _check(data: memoryview, budget: Budget) -> None:
    """Refuse documents of too many parts; each part costs more memory than bytes."""
    most = budget.of(len(data))
    if len(data) > _PART_BYTES * most and next(islice(_names(bytes(data)), most, None), None) is not None:
        raise DecodeError(str(budget.exceeded(len(data))), hint=TOO_MANY)


def _names(data: bytes) -> Iterator[int]:
    """The positions of all values' names, embedded ones included; nothing is decoded.

    Raises:
        ValueError: The data is not a document.
        IndexError: The document is truncated.
        struct.error: The same.
    """
    size_at = struct.Struct("<i").unpack_from
    at, levels = 4, 1
    while levels:
        kind = data[at]
        at += 1
        if kind == 0:
            levels -= 1
            continue
        yield at
        at = data.index(0, at) + 1
        if kind in _EMBEDDED:
            at += 4
            levels += 1
        elif kind in FIXED:
            at += FIXED[kind]
        elif kind == REGEX:
            at = data.index(0, data.index(0, at) + 1) + 1
        elif kind in SIZED and (size := size_at(data, at)[0]) >= 0:
            at += 4 + size + SIZED[kind][1]
        else:
            raise ValueError(f"a value of the type {kind} has no size")
