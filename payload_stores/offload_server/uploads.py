"""Parses uploads of hop's offload API as they arrive (BSON 1.1, bsonspec.org).

An upload is ``{message: binary, headers?: [[string, binary]…], key?: binary}`` in any order, with binaries of subtype
0; headers may also be an object of names and binaries. Nothing else is accepted: no other fields, no strings as header
values. Only the key may be a string, meaning its UTF-8 bytes: hop-client writes str keys this way, and sends Kafka the
same bytes.

The payload is passed on as it arrives. The headers are bounded, and pymongo's ``bson`` decodes them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NoReturn
from uuid import UUID, uuid4

from payload_stores.bson_reader import BINARY, DocumentReader, Steps, int32
from payload_stores.offload_server.errors import MalformedUploadError, TooLargeError
from payload_stores.plugins import require

require("bson", "offload-server")

import bson  # noqa: E402  after the check that it is there
from bson.errors import BSONError  # noqa: E402

ID_HEADER: Final = "_id"

# Headers and key together, in bytes; Kafka's own records take a megabyte by default.
_MAX_FIELDS: Final = 1 << 20
_FIELDS: Final = (b"message", b"headers", b"key")
_LONGEST_NAME: Final = max(map(len, _FIELDS))

# Types of BSON's elements.
_STRING, _DOCUMENT, _ARRAY = 0x02, 0x03, 0x04

Headers = list[tuple[str, bytes]]


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


class UploadParser(DocumentReader):
    """Parses an upload as it arrives: passes on the payload, and keeps the rest.

    Args:
        max_bytes: Maximum size of the document.
        length: Size of the body in bytes, if known.
    """

    most_kept = _MAX_FIELDS
    uncounted = _LONGEST_NAME

    def __init__(self, max_bytes: int, length: int | None = None) -> None:
        self._max = max_bytes
        self._length = length
        self._headers: Headers | None = None
        self._key: bytes | None = None
        super().__init__()

    def upload(self) -> Upload:
        """Handle the end of the body.

        Raises:
            MalformedUploadError: The document is incomplete, or a field is missing.
        """
        self.finish()
        headers = self._headers or []
        # hop-client forwards a record with its original id before its own, which the placeholder contains. (The public
        # service uses the first, and such records are lost there.) Without an id, a new one is made.
        given = next((value for name, value in reversed(headers) if name == ID_HEADER and len(value) == 16), None)
        message_id = uuid4() if given is None else UUID(bytes=given)
        return Upload(message_id, headers, self._key, self.size or 0)

    def wrong(self, what: str) -> NoReturn:
        """Refuse the upload."""
        raise MalformedUploadError(f"not an upload of the offload API: {what}")

    def too_large(self) -> NoReturn:
        """Refuse the upload."""
        raise TooLargeError(f"headers and key have more than {_MAX_FIELDS} bytes")

    def elements(self) -> Steps[None]:
        """Read the three fields, once each."""
        if self.total < 5 or self.total != (self._length or self.total):
            self.wrong("the document's length is not that of the body")
        while kind := (yield from self.take(1))[0]:
            name = yield from self.name(_LONGEST_NAME)
            # Only after reading a field: the first bytes of any non-BSON data look like a length too.
            if name in _FIELDS and self.total > self._max:
                raise TooLargeError(f"the document has {self.total} bytes, more than the {self._max} allowed")
            if name == b"message":
                self._once(name, self.size)
                yield from self.payload((yield from self._binary("message", kind)))
            elif name == b"key":
                self._once(name, self._key)
                self._key = yield from self._read_key(kind)
            elif name == b"headers":
                self._once(name, self._headers)
                self._headers = yield from self._read_headers(kind)
            else:
                self.wrong("there is an unknown field; the known ones are message, headers, key")

    def _once(self, name: bytes, found: object) -> None:
        if found is not None:
            self.wrong(f"{name.decode()} occurs twice")

    def _read_key(self, kind: int) -> Steps[bytes]:
        if kind != _STRING:
            return (yield from self.take((yield from self._binary("key", kind))))
        size = int32((yield from self.take(4)))
        text = yield from self.take(self._within("key", size, 1))
        if text[-1] or not _is_utf8(text):
            self.wrong("key is neither a binary nor a string of UTF-8")
        return text[:-1]

    def _read_headers(self, kind: int) -> Steps[Headers]:
        if kind not in {_ARRAY, _DOCUMENT}:
            self.wrong("headers is neither an array of [string, binary] arrays nor an object of binaries")
        size = yield from self.take(4)
        rest = yield from self.take(self._within("headers", int32(size) - 4, 1))
        return _headers_of(kind, size + rest)

    def _binary(self, name: str, kind: int) -> Steps[int]:
        if kind != BINARY:
            self.wrong(f"{name} is not a binary")
        size, subtype = struct.unpack("<iB", (yield from self.take(5)))
        if subtype:
            self.wrong(f"{name} is a binary of subtype {subtype}, not 0")
        return self._within(name, size, 0)

    def _within(self, name: str, size: int, least: int) -> int:
        """A length, if at least the document's last byte fits after it."""
        if not least <= size < self.left:
            self.wrong(f"the length of {name} is impossible")
        return size


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _headers_of(kind: int, data: bytes) -> Headers:
    """Decode an array or object of headers, whose length has been checked against the document."""
    wrapped = struct.pack("<i", len(data) + 8) + bytes([kind]) + b"h\0" + data + b"\0"
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
