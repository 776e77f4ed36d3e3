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
from typing import Any, Final, NamedTuple

from payload_stores.base import StoredRecord
from payload_stores.bson_reader import BINARY, FIXED, REGEX, SIZED, DocumentReader, Steps, int32
from payload_stores.buffers import payload_buffer
from payload_stores.plugins import require

require("bson", "hop")

import bson  # noqa: E402  after the check that it is there
from bson.codec_options import CodecOptions, DatetimeConversion  # noqa: E402
from bson.datetime_ms import DatetimeMS  # noqa: E402
from bson.errors import BSONError  # noqa: E402

MAX_BYTES: Final = (1 << 31) - 1
"""A BSON document's length is a signed int32."""
MAX_METADATA_BYTES: Final = 4 << 20
"""Maximum bytes of a document besides the message: as Python objects, they take up to twenty times as much."""

_FIELDS: Final = frozenset({b"headers", b"key", b"metadata", b"timestamp"})
# Dates of any year, in ms.
_CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
# Position of the message's length, if the message comes first: after the document's length, its type and name.
_LENGTH_AT: Final = 4 + 1 + len(b"message\0")

_OLD_BINARY: Final = 0x02  # a subtype with its length twice
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
    reader = _RecordReader(check)
    payload: io.BytesIO | None = None
    for chunk in chunks:
        pieces = reader.feed(chunk)
        if payload is None and reader.size is not None:
            payload = payload_buffer(reader.size)
        for piece in pieces:
            payload.write(piece)  # type: ignore[union-attr]  # it has begun
    fields = reader.fields()
    return _record(b"" if payload is None else payload.getvalue(), fields)


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
    reader = _RecordReader(check, payload_only=True)
    rest = iter(chunks)
    pieces: list[memoryview] = []
    while reader.size is None:
        pieces = reader.feed(reader.more(rest))
    return reader.size, _payload(reader, reader.size, pieces, rest)


def _payload(
    reader: _RecordReader, left: int, pieces: list[memoryview], chunks: Iterator[bytes]
) -> Iterator[memoryview]:
    """The pieces of a payload that has begun."""
    yield from pieces
    while left := left - sum(map(len, pieces)):
        pieces = reader.feed(reader.more(chunks))
        yield from pieces


def holds(chunks: Iterable[bytes], record: StoredRecord) -> bool:
    """Compare a document with a record as it arrives, without keeping the payload.

    Args:
        chunks: The document's bytes, in pieces of any size.
        record: The record; its timestamp is not compared, since the server sets it.

    Returns:
        Whether the document is readable, with the record's payload, headers and key.
    """
    expected = memoryview(record.value).cast("B")

    def check(size: int) -> None:
        if size != len(expected):
            raise ValueError("the message's size differs")

    at, same = 0, True
    try:
        reader = _RecordReader(check)
        for chunk in chunks:
            for piece in reader.feed(chunk):
                same = same and piece == expected[at : at + len(piece)]
                at += len(piece)
        other = _record(b"", reader.fields())
    except ValueError:
        return False
    return same and other.key == record.key and _written(other.headers) == _written(record.headers)


def _written(headers: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, bytes]]:
    """Headers as written: without a value, an empty one."""
    return [(name, value or b"") for name, value in headers]


class _RecordReader(DocumentReader):
    """Reads a document with a message, and other elements of any kind.

    Args:
        check: Called with the size of the payload; raises if it is too large.
        payload_only: Ignore what follows the payload.
    """

    most_kept = MAX_METADATA_BYTES

    def __init__(self, check: Callable[[int], None], *, payload_only: bool = False) -> None:
        self._check = check
        self._payload_only = payload_only
        self._fields: list[bytes] = []
        self._names = 0
        super().__init__()

    def fields(self) -> dict[str, Any]:
        """The fields that describe the message, at the end of the document."""
        self.finish()
        elements = b"".join(self._fields)
        try:
            return bson.decode(struct.pack("<i", len(elements) + 5) + elements + b"\0", _CODEC)
        except BSONError:
            # Without the cause, which may contain the unreadable data.
            raise ValueError("its fields about the message (headers, key, metadata, timestamp) are malformed") from None

    def elements(self) -> Steps[None]:
        """Read the message, and keep the fields that describe it."""
        while kind := (yield from self.take(1))[0]:
            name = yield from self._name()
            if name != b"message" or kind != BINARY:
                value = yield from self._value(kind)
                if name in _FIELDS:
                    self._fields.append(bytes([kind]) + name + b"\0" + value)
                continue
            if self.size is not None:
                self.wrong("it has two messages")
            size = yield from self._payload_size()
            self._check(size)
            yield from self.payload(size)
            while self._payload_only:
                self._at = len(self._chunk)
                yield

    def _payload_size(self) -> Steps[int]:
        size, subtype = struct.unpack("<iB", (yield from self.take(5)))
        if subtype == _OLD_BINARY:
            inner = int32((yield from self.take(4)))
            if inner != size - 4:
                self.wrong("the message has two lengths that differ")
            size = inner
        if not 0 <= size <= self.left:
            self.wrong(f"it has a message of {size} bytes, and {self.left} are left")
        return int(size)

    def _name(self) -> Steps[bytes]:
        self._names += 1
        if self._names > _MAX_ELEMENTS:
            self.wrong(f"it has more than {_MAX_ELEMENTS} elements in one place")
        name = yield from self.name(_MAX_NAME)
        if len(name) > _MAX_NAME:
            self.wrong(f"it has a name of more than {_MAX_NAME} bytes")
        name.decode()  # raises UnicodeDecodeError, a ValueError
        return name

    def _value(self, kind: int) -> Steps[bytes]:
        """The bytes of a value of some type."""
        if kind in FIXED:
            return (yield from self.take(FIXED[kind]))
        if kind == REGEX:
            return (yield from self._name()) + b"\0" + (yield from self._name()) + b"\0"
        if kind not in SIZED:
            self.wrong(f"it has a value of the unknown type {kind:#x}")
        length = yield from self.take(4)
        least, more = SIZED[kind]
        if int32(length) < least:
            self.wrong(f"it has a value with the impossible length {int32(length)}")
        return length + (yield from self.take(int32(length) + more))


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
