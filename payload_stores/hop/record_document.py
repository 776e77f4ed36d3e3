"""Records as BSON documents, written around the payload and read as they arrive, without copying the payload.

An uploaded document has the keys ``message`` (binary), ``headers`` (an array of ``[name, binary]`` arrays) and, if
there is a key, ``key`` (binary). A downloaded one has these, or ``headers``, ``key`` and ``timestamp`` (ms) inside
``metadata``, or both; other keys are ignored.

pymongo's ``bson`` handles everything but the payload, which it would copy once or twice each way. So it writes the
document with an empty payload, into which the real one is inserted. Received documents are parsed element by element up
to the payload (format: https://bsonspec.org); ``bson`` decodes the few elements that describe the record.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from payload_stores.base import StoredRecord
from payload_stores.plugins import require

require("bson", "hop")

import bson  # noqa: E402  after the check that it is there
from bson.codec_options import CodecOptions, DatetimeConversion  # noqa: E402
from bson.datetime_ms import DatetimeMS  # noqa: E402
from bson.errors import BSONError  # noqa: E402

__all__ = ["MAX_BYTES", "MAX_METADATA_BYTES", "Frame", "around", "frame", "holds", "open_message", "read"]

T = TypeVar("T")

MAX_BYTES: Final = (1 << 31) - 1
"""A BSON document's length is a signed int32."""
MAX_METADATA_BYTES: Final = 4 << 20
"""Maximum bytes of a document besides the message: as Python objects, they take up to twenty times as much."""

_FIELDS: Final = frozenset({"headers", "key", "metadata", "timestamp"})
# Dates of any year, in ms.
_CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
# Position of the message's length, if the message comes first: after the document's length, its type and name.
_LENGTH_AT: Final = 4 + 1 + len(b"message\0")

_STRING: Final = 0x02
_BINARY: Final = 0x05
_REGEX: Final = 0x0B
_DB_POINTER: Final = 0x0C
# Types of fixed size: double, undefined, ObjectId, boolean, date, null, int32, timestamp, int64, decimal128, the
# smallest and largest key.
_SIZES: Final = {
    0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0,
}  # fmt: skip
# Types that begin with an int32: its minimum, and the number of bytes that follow beyond it. Strings, code and symbols
# end with a zero byte; documents and arrays count their length, and code with a scope has two more; binary does not
# count its subtype.
_LENGTHS: Final = {
    _STRING: (1, 0), 0x0D: (1, 0), 0x0E: (1, 0), _BINARY: (0, 1), 0x03: (5, -4), 0x04: (5, -4), 0x0F: (14, -4),
}  # fmt: skip
_OLD_BINARY: Final = 0x02  # a subtype with its length twice
_NO_MESSAGE: Final = "it has no message, or one that is not binary"
_MAX_NAME: Final = 1024
_MAX_ELEMENTS: Final = 100_000
_CHUNK_BYTES: Final = 256 << 10


class Frame(NamedTuple):
    """A document in three parts.

    Attributes:
        before: The bytes before the payload.
        payload: The payload itself, not a copy.
        after: The bytes after it.
    """

    before: bytes
    payload: memoryview
    after: bytes

    @property
    def size(self) -> int:
        """Size of the whole document in bytes."""
        return len(self.before) + len(self.payload) + len(self.after)

    def chunks(self, size: int = _CHUNK_BYTES) -> Iterator[bytes | memoryview]:
        """The document in pieces; those of the payload are views."""
        yield self.before
        for start in range(0, len(self.payload), size):
            yield self.payload[start : start + size]
        yield self.after


def frame(record: StoredRecord) -> Frame:
    """Write a record as a document for upload.

    Args:
        record: The record; headers without a value get an empty one, since hop's servers accept only bytes. The
            server sets the timestamp.

    Raises:
        ValueError: The document would be larger than BSON allows, or a header's name is not Unicode text.
    """
    payload = memoryview(record.value).cast("B")
    fields: dict[str, object] = {"headers": [[name, value or b""] for name, value in record.headers]}
    if record.key is not None:
        fields["key"] = record.key
    before, after = around(len(payload), fields)
    return Frame(before, payload, after)


def around(size: int, fields: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Write the bytes before and after a payload ``message``, the first field of a document.

    Args:
        size: The payload's size in bytes.
        fields: The other fields.

    Raises:
        ValueError: The document would be larger than BSON allows, or a text is not Unicode.
    """
    document = bson.encode({"message": b"", **fields})
    whole = len(document) + size
    if whole > MAX_BYTES:
        raise ValueError(f"a BSON document has at most {MAX_BYTES} bytes, this one would have {whole}")
    name = document[4:_LENGTH_AT]
    behind = document[_LENGTH_AT + 4 :]  # begins with the subtype
    return struct.pack("<i", whole) + name + struct.pack("<i", size) + behind[:1], behind[1:]


def read(chunks: Iterable[bytes], check: Callable[[int], None]) -> StoredRecord:
    """Read a document as it arrives.

    Args:
        chunks: Its bytes, in pieces of any size.
        check: Called with the size of the payload before memory is allocated; raises if it is too large.

    Returns:
        The record; fields in ``metadata`` override those at the top.

    Raises:
        ValueError: It is not such a document, or cut off.
    """
    message, fields = _document(chunks, lambda source: source.payload(check))
    return _record(message, fields)


def open_message(chunks: Iterable[bytes], check: Callable[[int], None]) -> tuple[int, Iterator[memoryview]]:
    """Read a document up to its payload.

    Args:
        chunks: Its bytes, in pieces of any size.
        check: Called with the size of the payload; raises if it is too large.

    Returns:
        The payload's size, and its bytes as they arrive, which raise ValueError if truncated. The rest of the document
        is not checked.

    Raises:
        ValueError: It is not such a document, or cut off.
    """
    source = _Source(chunks)
    while kind := source.take(1)[0]:
        if source.name() == "message" and kind == _BINARY:
            size = source.payload_size()
            check(size)
            return size, source.views(size)
        source.value(kind)
    raise ValueError(_NO_MESSAGE)


def holds(chunks: Iterable[bytes], record: StoredRecord) -> bool:
    """Compare a document with a record as it arrives, without keeping the payload.

    Args:
        chunks: The document's bytes, in pieces of any size.
        record: The record; its timestamp is not compared, since the server sets it.

    Returns:
        Whether the document is readable, with the record's payload, headers and key.
    """
    try:
        same, fields = _document(chunks, lambda source: source.is_payload(memoryview(record.value).cast("B")))
        other = _record(b"", fields)
    except ValueError:
        return False
    return same and other.key == record.key and _written(other.headers) == _written(record.headers)


def _written(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes]]:
    """Headers as written: without a value, an empty one."""
    return [(name, value or b"") for name, value in headers]


def _document(chunks: Iterable[bytes], take_message: Callable[[_Source], T]) -> tuple[T, dict[str, Any]]:
    """Parse a document: return the result for its message, and the fields that describe it."""
    source = _Source(chunks)
    messages: list[T] = []
    fields: list[bytes] = []
    while kind := source.take(1)[0]:
        name = source.name()
        if name == "message" and kind == _BINARY:
            if messages:
                raise ValueError("it has two messages")
            messages.append(take_message(source))
            continue
        value = source.value(kind)
        if name in _FIELDS:
            fields.append(bytes([kind]) + name.encode() + b"\0" + value)
    source.finish()
    if not messages:
        raise ValueError(_NO_MESSAGE)
    elements = b"".join(fields)
    try:
        return messages[0], bson.decode(struct.pack("<i", len(elements) + 5) + elements + b"\0", _CODEC)
    except BSONError:
        # Without the cause, which may contain the unreadable data.
        raise ValueError(f"its fields about the message ({', '.join(sorted(_FIELDS))}) are malformed") from None


class _Source:
    """Bytes arriving in pieces, and the number left in the document."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._chunk = memoryview(b"")
        self._small = 0
        self._elements = 0
        self.left = 4
        self.left = _int32(self.take(4)) - 4  # bytes of the whole document, which begins with its length

    def take(self, size: int) -> bytes:
        """The next bytes; everything but the payload is read here, within a limit."""
        self._small += size
        if self._small > MAX_METADATA_BYTES:
            raise ValueError(f"it has more than {MAX_METADATA_BYTES} bytes beside the message")
        return b"".join(self.views(size))

    def payload(self, check: Callable[[int], None]) -> bytes:
        """A binary value that may be large."""
        size = self.payload_size()
        check(size)
        # In CPython, BytesIO accepts and returns its bytes without a copy if nothing else holds them.
        buffer = io.BytesIO(bytes(size))
        for view in self.views(size):
            buffer.write(view)
        return buffer.getvalue()

    def is_payload(self, expected: memoryview) -> bool:
        """Whether a binary value is the expected one; a value of another size is not read."""
        if self.payload_size() != len(expected):
            raise ValueError("the message's size differs")
        at, same = 0, True
        for view in self.views(len(expected)):
            same = same and view == expected[at : at + len(view)]
            at += len(view)
        return same

    def payload_size(self) -> int:
        """The size of the binary value read next."""
        size, subtype = struct.unpack("<iB", self.take(5))
        if subtype == _OLD_BINARY:
            inner = _int32(self.take(4))
            if inner != size - 4:
                raise ValueError("the message has two lengths that differ")
            size = inner
        self._within(size)
        return int(size)

    def name(self) -> str:
        """The name of an element, up to its zero byte."""
        self._elements += 1
        if self._elements > _MAX_ELEMENTS:
            raise ValueError(f"it has more than {_MAX_ELEMENTS} elements in one place")
        name = bytearray()
        while (byte := self.take(1)) != b"\0":
            name += byte
            if len(name) > _MAX_NAME:
                raise ValueError(f"it has a name of more than {_MAX_NAME} bytes")
        return name.decode("utf-8")

    def value(self, kind: int) -> bytes:
        """The bytes of a value of some type."""
        if kind in _SIZES:
            return self.take(_SIZES[kind])
        if kind == _REGEX:
            return (self.name() + "\0" + self.name()).encode()
        if kind == _DB_POINTER:
            return self.value(_STRING) + self.take(12)
        if kind not in _LENGTHS:
            raise ValueError(f"it has a value of the unknown type {kind:#x}")
        length = self.take(4)
        least, more = _LENGTHS[kind]
        if _int32(length) < least:
            raise ValueError(f"it has a value with the impossible length {_int32(length)}")
        return length + self.take(_int32(length) + more)

    def finish(self) -> None:
        """Check that nothing follows."""
        if self.left or self._chunk or any(self._chunks):
            raise ValueError("bytes follow the document, or it is shorter than it declares")

    def _within(self, size: int) -> None:
        if not 0 <= size <= self.left:
            raise ValueError(f"it has a value of {size} bytes, and {self.left} are left")

    def views(self, size: int) -> Iterator[memoryview]:
        """The next bytes, in pieces."""
        self._within(size)
        self.left -= size
        while size:
            if not self._chunk:
                chunk = next(self._chunks, None)
                if chunk is None:
                    raise ValueError("it is cut off")
                self._chunk = memoryview(chunk)
                continue
            view = self._chunk[:size]
            self._chunk = self._chunk[len(view) :]
            size -= len(view)
            yield view


def _int32(data: bytes | memoryview) -> int:
    number: int = struct.unpack_from("<i", data)[0]
    return number


def _record(message: bytes, fields: dict[str, Any]) -> StoredRecord:
    if "metadata" in fields:
        metadata = fields["metadata"]
        if not isinstance(metadata, dict):
            raise ValueError("its metadata is not a document")
        fields = {**fields, **metadata}
    return StoredRecord(
        message, _headers(fields.get("headers")), _bytes("key", fields.get("key")), _moment(fields.get("timestamp"))
    )


def _headers(value: object) -> tuple[tuple[str, bytes | None], ...]:
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((name, _bytes("a header", data)) for name, data in value.items())
    if not isinstance(value, list):
        raise ValueError("its headers are neither pairs nor a document")
    return tuple(map(_pair, value))


def _pair(value: object) -> tuple[str, bytes | None]:
    # Not isinstance: in bson, code is a str too.
    if not isinstance(value, list) or len(value) != 2 or type(value[0]) is not str:
        raise ValueError("it has a header that is not a pair of a name and bytes")
    return value[0], _bytes("a header", value[1])


def _bytes(what: str, value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bytes):
        return bytes(value)  # other subtypes are objects of bson
    if type(value) is str:
        return value.encode()
    raise ValueError(f"{what} is neither bytes nor text")


def _moment(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, (int, DatetimeMS)) and not isinstance(value, bool):
        return int(value)
    raise ValueError("its timestamp is not a whole number")
