"""Reads a BSON document with one large binary as it arrives (BSON 1.1, https://bsonspec.org).

hop's store accepts documents of several servers, the offload server only uploads of its API: each reads the elements in
a class of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Final, NoReturn, TypeAlias, TypeVar

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Reads something; yields where it needs more bytes."""

BINARY: Final = 0x05
REGEX: Final = 0x0B

# Double, undefined, ObjectId, boolean, date, null, int32, timestamp, int64, decimal128, the smallest and largest key.
FIXED: Final = {
    0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0,
}  # fmt: skip
"""Sizes of values, by type."""
# Strings, code and symbols end with a zero byte; documents and arrays count their length, and code with a scope has two
# more; binary does not count its subtype; a pointer is a string and an ObjectId.
SIZED: Final = {
    0x02: (1, 0), 0x0D: (1, 0), 0x0E: (1, 0), BINARY: (0, 1), 0x03: (5, -4), 0x04: (5, -4), 0x0F: (14, -4),
    0x0C: (1, 12),
}  # fmt: skip
"""Types that begin with an int32: its minimum, and the number of bytes that follow beyond it. Regexes are two names."""


def int32(data: bytes | memoryview) -> int:
    """The number at the beginning of some bytes."""
    number: int = struct.unpack_from("<i", data)[0]
    return number


class DocumentReader:
    """Reads a document as it arrives: passes on its payload, and keeps the rest. A subclass reads the elements.

    Attributes:
        most_kept: Most bytes that are kept.
        uncounted: Reads of up to so many bytes do not count.
        size: The payload's size in bytes, once it has begun.
        total: Size of the whole document in bytes, as it declares.
    """

    most_kept: int
    uncounted = 0
    size: int | None = None

    def __init__(self) -> None:
        self.total = 4  # the length itself
        self._chunk = memoryview(b"")
        self._at = 0
        self._before = 0  # bytes of earlier chunks
        self._pieces: list[memoryview] = []
        self._kept = 0
        self._is_done = False
        self._steps = self._document()
        next(self._steps)

    def elements(self) -> Steps[None]:
        """Read all elements, and the zero byte behind them."""
        raise NotImplementedError

    def wrong(self, what: str) -> NoReturn:
        """Raise the error of a document that is not as expected."""
        raise ValueError(what)

    def too_large(self) -> NoReturn:
        """Raise the error of a document with too many bytes besides the payload."""
        self.wrong(f"it has more than {self.most_kept} bytes beside the message")

    def feed(self, chunk: bytes) -> list[memoryview]:
        """Read the next chunk.

        Args:
            chunk: The next bytes.

        Returns:
            Pieces of the payload, in order; they share the chunk's memory.
        """
        self._before += len(self._chunk)
        self._chunk, self._at, self._pieces = memoryview(chunk), 0, []
        try:
            next(self._steps)
        except StopIteration:
            self._is_done = True
            if self._at < len(chunk):
                self.wrong("bytes follow the document's end")
        return self._pieces

    def finish(self) -> None:
        """Check that the document is complete, and has a payload."""
        if not self._is_done:
            self.wrong("the document is cut off")
        if self.size is None:
            self.wrong("there is no message, or it is not a binary")

    def more(self, chunks: Iterator[bytes]) -> bytes:
        """The next chunk of a document whose payload is not complete."""
        chunk = next(chunks, None)
        if chunk is None:
            self.wrong("it is cut off, or has no message that is a binary")
        return chunk

    @property
    def left(self) -> int:
        """Bytes of the document that are not read yet."""
        return self.total - self._before - self._at

    def _document(self) -> Steps[None]:
        yield
        self.total = int32((yield from self.take(4)))
        yield from self.elements()
        if self.left:
            self.wrong("the document's length is wrong")

    def take(self, count: int) -> Steps[bytes]:
        """The next bytes."""
        if not 0 <= count <= self.left:
            self.wrong(f"its length or that of a value is wrong: {count} bytes are next, {self.left} are left")
        self._keep(count)
        taken = bytearray()  # bytes would be copied for each piece, and there may be a million
        while len(taken) < count:
            taken += yield from self._piece(count - len(taken))
        return bytes(taken)

    def name(self, longest: int) -> Steps[bytes]:
        """A name; of a longer one, a byte more than the longest."""
        name = b""
        while len(name) <= longest:
            name += yield from self._piece(longest + 1 - len(name))
            if (end := name.find(0)) >= 0:
                self._at -= len(name) - end - 1
                name = name[:end]
                break
        self._keep(len(name))
        return name

    def _keep(self, count: int) -> None:
        if count > self.uncounted:
            self._kept += count
            if self._kept > self.most_kept:
                self.too_large()

    def payload(self, size: int) -> Steps[None]:
        """Pass on a payload, whose size has been checked."""
        self.size = size
        while size:
            piece = yield from self._piece(size)
            self._pieces.append(piece)
            size -= len(piece)

    def _piece(self, most: int) -> Steps[memoryview]:
        """The next bytes of a chunk, at least one."""
        while self._at == len(self._chunk):
            yield
        piece = self._chunk[self._at : self._at + most]
        self._at += len(piece)
        return piece
