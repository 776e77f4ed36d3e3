"""Records as BSON documents, written around the payload and read as they arrive, so that nothing copies the payload.

A document that is uploaded has the keys ``message`` (binary), ``headers`` (an array of ``[name, binary]`` arrays) and,
where there is a key, ``key`` (binary). One that is downloaded has these, or ``headers``, ``key`` and ``timestamp`` (ms)
inside ``metadata``, or both; other keys are passed over. See https://bsonspec.org for the bytes.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from payload_stores.base import StoredRecord
from payload_stores.hop import bson_write

__all__ = ["MAX_BYTES", "MAX_METADATA_BYTES", "Frame", "frame", "holds", "read"]

T = TypeVar("T")

MAX_BYTES: Final = (1 << 31) - 1
"""A BSON document says its length in a signed int32."""
MAX_METADATA_BYTES: Final = 16 << 20
"""What a document may have beside the message."""

_STRING: Final = bson_write.STRING
_DOCUMENT: Final = bson_write.DOCUMENT
_ARRAY: Final = bson_write.ARRAY
_BINARY: Final = bson_write.BINARY
_DATE: Final = 0x09
_NULL: Final = 0x0A
_REGEX: Final = 0x0B
_DB_POINTER: Final = 0x0C
_INT32: Final = 0x10
_INT64: Final = bson_write.INT64
# Types whose values all have one size (undefined, ObjectId, boolean, timestamp, decimal128, the smallest and largest).
_SIZES: Final = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, _DATE: 8, _NULL: 0, _INT32: 4, 0x11: 8, _INT64: 8, 0x13: 16} | {
    0x7F: 0,
    0xFF: 0,
}
# Types that begin with an int32: the least that it says, and how many more bytes follow than it says. Strings, code and
# symbols end in a zero byte; documents count their length, and code with a scope has two more; binary does not count
# its subtype.
_LENGTHS: Final = {_STRING: (1, 0), 0x0D: (1, 0), 0x0E: (1, 0), _BINARY: (0, 1)} | {
    _DOCUMENT: (5, -4),
    _ARRAY: (5, -4),
    0x0F: (14, -4),
}
_OLD_BINARY: Final = 0x02  # a subtype that has its length twice
_MAX_NAME: Final = 1024
_MAX_ELEMENTS: Final = 100_000
_CHUNK_BYTES: Final = 256 << 10


class Frame(NamedTuple):
    """A document in three parts.

    Attributes:
        before: What stands before the payload.
        payload: The payload itself, not a copy.
        after: What stands behind it.
    """

    before: bytes
    payload: memoryview
    after: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole document."""
        return len(self.before) + len(self.payload) + len(self.after)

    def chunks(self, size: int = _CHUNK_BYTES) -> Iterator[bytes | memoryview]:
        """The document piece by piece; those of the payload are views of it."""
        yield self.before
        for start in range(0, len(self.payload), size):
            yield self.payload[start : start + size]
        yield self.after


def frame(record: StoredRecord) -> Frame:
    """Write a record as a document for upload.

    Args:
        record: The record; headers without a value get an empty one, since hop's servers take nothing but bytes. Its
            timestamp is the server's to set.

    Raises:
        ValueError: The document would be larger than BSON can say, or a header's name is not Unicode text.
    """
    payload = memoryview(record.value).cast("B")
    after = bson_write.element(_ARRAY, "headers", bson_write.headers(record.headers))
    after += bson_write.binary("key", record.key) if record.key is not None else b""
    after += b"\0"
    head = bson_write.binary_head("message", len(payload)) if len(payload) <= MAX_BYTES else b""
    size = 4 + len(head) + len(payload) + len(after)
    if not head or size > MAX_BYTES:
        raise ValueError(f"a BSON document has at most {MAX_BYTES} bytes, this one would have {size}")
    return Frame(struct.pack("<i", size) + head, payload, after)


def read(chunks: Iterable[bytes], check: Callable[[int], None]) -> StoredRecord:
    """Read a document as it arrives.

    Args:
        chunks: Its bytes, in pieces of any size.
        check: Called with the size of the payload before memory is taken for it; raises if it is too large.

    Returns:
        The record; what stands in ``metadata`` comes before the same at the top.

    Raises:
        ValueError: It is not such a document, or cut off.
    """
    message, found = _document(chunks, lambda source: source.payload(check))
    return _record(message, found)


def holds(chunks: Iterable[bytes], record: StoredRecord) -> bool:
    """Compare a document with a record as it arrives, without keeping its payload.

    Args:
        chunks: The document's bytes, in pieces of any size.
        record: The record; its timestamp is not compared, since the server sets it.

    Returns:
        Whether the document can be read, and has the record's payload, headers and key.
    """
    try:
        same, found = _document(chunks, lambda source: source.is_payload(memoryview(record.value).cast("B")))
        other = _record(b"", found)
    except ValueError:
        return False
    return same and other.key == record.key and _written(other.headers) == _written(record.headers)


def _written(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes]]:
    """Headers as they are written: one without a value has an empty one."""
    return [(name, value or b"") for name, value in headers]


def _document(chunks: Iterable[bytes], take_message: Callable[[_Source], T]) -> tuple[T, dict[str, tuple[int, bytes]]]:
    """Go through a document: what was made of its message, and type and bytes of what describes it."""
    source = _Source(chunks)
    source.left = 4
    source.left = _int32(source.take(4)) - 4
    messages: list[T] = []
    found: dict[str, tuple[int, bytes]] = {}
    while kind := source.take(1)[0]:
        name = source.name()
        if name == "message" and kind == _BINARY:
            if messages:
                raise ValueError("it has two messages")
            messages.append(take_message(source))
        elif name in {"message", "headers", "key", "metadata", "timestamp"}:
            found[name] = kind, source.value(kind)
        else:
            source.value(kind)
    source.finish()
    if not messages:
        raise ValueError("it has no message, or one that is not binary")
    return messages[0], found


class _Source:
    """Bytes that arrive in pieces, and how many are left of the document."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._chunk = memoryview(b"")
        self._small = 0
        self._elements = 0
        self.left = 0

    def take(self, size: int) -> bytes:
        """The next bytes; what is not the payload goes through here, and is bounded."""
        self._small += size
        if self._small > MAX_METADATA_BYTES:
            raise ValueError(f"it has more than {MAX_METADATA_BYTES} bytes beside the message")
        return b"".join(self._views(size))

    def payload(self, check: Callable[[int], None]) -> bytes:
        """A binary value that may be large."""
        size = self._payload_size()
        check(size)
        # In CPython, BytesIO takes and gives its bytes without a copy while nothing else holds them.
        buffer = io.BytesIO(bytes(size))
        for view in self._views(size):
            buffer.write(view)
        return buffer.getvalue()

    def is_payload(self, expected: memoryview) -> bool:
        """Whether a binary value is the one that is expected; one of another size is not read."""
        if self._payload_size() != len(expected):
            raise ValueError("the message has another size")
        at, same = 0, True
        for view in self._views(len(expected)):
            same = same and view == expected[at : at + len(view)]
            at += len(view)
        return same

    def _payload_size(self) -> int:
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
            raise ValueError(f"it has a value that says to have {_int32(length)} bytes")
        return length + self.take(_int32(length) + more)

    def finish(self) -> None:
        """Nothing may follow."""
        if self.left or self._chunk or any(self._chunks):
            raise ValueError("bytes follow the document, or it is shorter than it says")

    def _within(self, size: int) -> None:
        if not 0 <= size <= self.left:
            raise ValueError(f"it has a value of {size} bytes, and {self.left} are left")

    def _views(self, size: int) -> Iterator[memoryview]:
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
    found: int = struct.unpack_from("<i", data)[0]
    return found


def _record(message: bytes, found: dict[str, tuple[int, bytes]]) -> StoredRecord:
    if "metadata" in found:
        kind, data = found["metadata"]
        if kind != _DOCUMENT:
            raise ValueError("its metadata is not a document")
        found |= {name: (kind, value) for kind, name, value in _elements(data)}
    headers = _headers(*found["headers"]) if "headers" in found else ()
    key = _bytes("key", *found["key"]) if "key" in found else None
    timestamp = _moment(*found["timestamp"]) if "timestamp" in found else None
    return StoredRecord(message, headers, key, timestamp)


def _headers(kind: int, data: bytes) -> tuple[tuple[str, bytes | None], ...]:
    if kind == _DOCUMENT:
        return tuple((name, _bytes(name, kind, value)) for kind, name, value in _elements(data))
    if kind == _NULL:
        return ()
    if kind != _ARRAY:
        raise ValueError("its headers are neither pairs nor a document")
    return tuple(_pair(kind, value) for kind, _, value in _elements(data))


def _pair(kind: int, data: bytes) -> tuple[str, bytes | None]:
    parts = list(_elements(data)) if kind == _ARRAY else []
    if len(parts) != 2 or parts[0][0] != _STRING:
        raise ValueError("it has a header that is not a pair of a name and bytes")
    return _string(parts[0][2]), _bytes("a header", parts[1][0], parts[1][2])


def _elements(data: bytes) -> Iterator[tuple[int, str, bytes]]:
    """Type, name and bytes of the elements of an embedded document or array. What is in them is not looked at."""
    source = _Source([data])
    source.left = len(data)
    if _int32(source.take(4)) != len(data):
        raise ValueError("it has a document of another length than it says")
    while kind := source.take(1)[0]:
        name = source.name()
        yield kind, name, source.value(kind)
    source.finish()


def _string(data: bytes) -> str:
    size = _int32(data)
    if size < 1 or data[-1]:
        raise ValueError("it has a text without an end")
    return data[4:-1].decode("utf-8")


def _bytes(what: str, kind: int, data: bytes) -> bytes | None:
    if kind == _BINARY:
        inner = 4 if data[4] == _OLD_BINARY else 0
        if inner and (len(data) < 9 or _int32(data[5:9]) != len(data) - 9):
            raise ValueError(f"{what} has two lengths that differ")
        return data[5 + inner :]
    if kind == _STRING:
        return _string(data).encode()
    if kind == _NULL:
        return None
    raise ValueError(f"{what} is neither bytes nor text")


def _moment(kind: int, data: bytes) -> int | None:
    formats: dict[int, Any] = {_INT32: "<i", _INT64: "<q", _DATE: "<q"}
    if kind == _NULL:
        return None
    if kind not in formats:
        raise ValueError("its timestamp is not a whole number")
    moment: int = struct.unpack(formats[kind], data)[0]
    return moment
