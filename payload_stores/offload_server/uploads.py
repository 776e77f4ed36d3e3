"""Parses uploads of hop's offload API as they arrive (BSON 1.1, bsonspec.org).

An upload is ``{message: binary, headers?: [[string, binary]…], key?: binary}`` in any order, with binaries of subtype
0; headers may also be an object of names and binaries. Nothing else is accepted: no other fields, no strings as header
values. Only the key may be a string, meaning its UTF-8 bytes: hop-client writes str keys this way, and sends Kafka the
same bytes.

The payload is passed on as it arrives, so the fields around it are parsed here; the headers are bounded, and pymongo's
``bson`` decodes them.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar
from uuid import UUID, uuid4

from payload_stores.offload_server.errors import MalformedUploadError, TooLargeError
from payload_stores.plugins import require

require("bson", "offload-server")

import bson  # noqa: E402  after the check that it is there
from bson.errors import BSONError  # noqa: E402

__all__ = ["Upload", "UploadParser"]

ID_HEADER: Final = "_id"

# Headers and key together, in bytes; Kafka's own records take a megabyte by default.
_MAX_FIELDS: Final = 1 << 20
_FIELDS: Final = ("message", "headers", "key")
_LONGEST_NAME: Final = max(map(len, _FIELDS))

# Types of BSON's elements.
_STRING, _DOCUMENT, _ARRAY, _BINARY = 0x02, 0x03, 0x04, 0x05
_INT32: Final = struct.Struct("<i")

Headers = list[tuple[str, bytes]]
T = TypeVar("T")
_Steps = Generator[None, None, T]


@dataclass(frozen=True, slots=True)
class Upload:
    """The fields of an upload besides the payload.

    Attributes:
        id: The message's id: the last header ``_id`` with the 16 bytes of a UUID, otherwise a new one.
        headers: All headers, in order.
        key: The record's key.
        size: The payload's size in bytes.
    """

    id: UUID
    headers: Headers
    key: bytes | None
    size: int


class UploadParser:
    """Parses an upload as it arrives: passes on the payload, and keeps the rest.

    Args:
        max_bytes: Maximum size of the document.
        length: Size of the body in bytes, if known.
    """

    def __init__(self, max_bytes: int, length: int | None = None) -> None:
        self._max = max_bytes
        self._length = length
        self._chunk = memoryview(b"")
        self._at = 0
        self._before = 0  # bytes of earlier chunks
        self._total = 0
        self._pieces: list[memoryview] = []
        self._kept = 0
        self._found: dict[str, Headers | bytes | int] = {}
        self._steps = self._document()
        self._done = False
        next(self._steps)

    @property
    def message_began(self) -> bool:
        """Whether the payload has started."""
        return "message" in self._found

    def feed(self, chunk: bytes) -> list[memoryview]:
        """Parse the next chunk.

        Args:
            chunk: The next bytes of the body.

        Returns:
            Pieces of the payload, in order; they share the chunk's memory.

        Raises:
            MalformedUploadError: Not an upload.
            TooLargeError: The declared size is too large.
        """
        if not chunk:
            return []
        if self._done:
            self._wrong("bytes follow the document's end")
        self._before += len(self._chunk)
        self._chunk, self._at = memoryview(chunk), 0
        self._pieces = []
        try:
            next(self._steps)
        except StopIteration:
            self._done = True
            if self._at < len(chunk):
                self._wrong("bytes follow the document's end")
        return self._pieces

    def finish(self) -> Upload:
        """Handle the end of the body.

        Raises:
            MalformedUploadError: The document is incomplete, or a field is missing.
        """
        if not self._done:
            self._wrong("the document is cut off")
        headers, key, size = self._found.get("headers", []), self._found.get("key"), self._found.get("message")
        if not isinstance(size, int):
            self._wrong("there is no message")
        assert isinstance(headers, list)  # noqa: S101  for mypy
        # hop-client forwards a record with its original id before its own, which the placeholder contains. (The public
        # service uses the first, and such records are lost there.) Without an id, a new one is made.
        given = next((value for name, value in reversed(headers) if name == ID_HEADER and len(value) == 16), None)
        message_id = uuid4() if given is None else UUID(bytes=given)
        return Upload(message_id, headers, key if isinstance(key, bytes) else None, size)

    def _document(self) -> _Steps[None]:
        yield
        self._total = _INT32.unpack((yield from self._take(4)))[0]
        if self._total < 5 or self._total != (self._length or self._total):
            self._wrong("the document's length is not that of the body")
        while kind := (yield from self._take(1))[0]:
            name = yield from self._name()
            # Only after reading a field: the first bytes of any non-BSON data look like a length too.
            if self._total > self._max:
                raise TooLargeError(f"the document has {self._total} bytes, more than the {self._max} allowed")
            if name in self._found:
                self._wrong(f"{name} occurs twice")
            if name == "message":
                yield from self._message(kind)
            elif name == "key":
                self._found[name] = yield from self._key(kind)
            elif name == "headers":
                self._found[name] = yield from self._headers(kind)
        if self._position != self._total:
            self._wrong("the document's length is wrong")

    @property
    def _position(self) -> int:
        return self._before + self._at

    def _name(self) -> _Steps[str]:
        name = bytearray()
        while byte := (yield from self._take(1))[0]:
            name.append(byte)
            if len(name) > _LONGEST_NAME:
                break
        if (text := name.decode("latin-1")) not in _FIELDS:
            self._wrong(f"there is an unknown field; the known ones are {', '.join(_FIELDS)}")
        return text

    def _message(self, kind: int) -> _Steps[None]:
        left = yield from self._binary("message", kind)
        self._found["message"] = left
        while left:
            if self._at == len(self._chunk):
                yield
            piece = self._chunk[self._at : self._at + left]
            self._pieces.append(piece)
            self._at += len(piece)
            left -= len(piece)

    def _key(self, kind: int) -> _Steps[bytes]:
        if kind != _STRING:
            return (yield from self._take((yield from self._binary("key", kind))))
        size = _INT32.unpack((yield from self._take(4)))[0]
        text = yield from self._take(self._within("key", size, 1))
        if text[-1] or not _is_utf8(text):
            self._wrong("key is neither a binary nor a string of UTF-8")
        return text[:-1]

    def _headers(self, kind: int) -> _Steps[Headers]:
        if kind not in {_ARRAY, _DOCUMENT}:
            self._wrong("headers is neither an array of [string, binary] arrays nor an object of binaries")
        size = yield from self._take(4)
        rest = yield from self._take(self._within("headers", _INT32.unpack(size)[0] - 4, 1))
        return _read_headers(kind, size + rest)

    def _binary(self, name: str, kind: int) -> _Steps[int]:
        if kind != _BINARY:
            self._wrong(f"{name} is not a binary")
        size, subtype = struct.unpack("<iB", (yield from self._take(5)))
        if subtype:
            self._wrong(f"{name} is a binary of subtype {subtype}, not 0")
        return self._within(name, size, 0)

    def _within(self, name: str, size: int, least: int) -> int:
        """A length, if at least the document's last byte fits after it."""
        if not least <= size < self._total - self._position:
            self._wrong(f"the length of {name} is impossible")
        return size

    def _take(self, count: int) -> _Steps[bytes]:
        if count > 5:
            self._kept += count
            if self._kept > _MAX_FIELDS:
                raise TooLargeError(f"headers and key have more than {_MAX_FIELDS} bytes")
        taken = bytearray()
        while len(taken) < count:
            if self._at == len(self._chunk):
                yield
            piece = self._chunk[self._at : self._at + count - len(taken)]
            self._at += len(piece)
            taken += piece
        return bytes(taken)

    def _wrong(self, what: str) -> NoReturn:
        raise MalformedUploadError(f"not an upload of the offload API: {what}")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_headers(kind: int, data: bytes) -> Headers:
    """Decode an array or object of headers, whose length has been checked against the document."""
    wrapped = _INT32.pack(len(data) + 8) + bytes([kind]) + b"h\0" + data + b"\0"
    try:
        headers: object = bson.decode(wrapped)["h"]
    except BSONError:
        # Without the cause, which may contain the unreadable data.
        raise MalformedUploadError("the headers are malformed") from None
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(map(_is_pair, pairs)):
        raise MalformedUploadError("a header is not a string and a binary of subtype 0")
    return [(name, value) for name, value in pairs]


def _is_pair(header: object) -> bool:
    # Not isinstance: in bson, code is a str too, and a binary of another subtype is bytes.
    return isinstance(header, (list, tuple)) and [type(part) for part in header] == [str, bytes]
