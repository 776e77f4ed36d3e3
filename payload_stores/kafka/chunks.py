"""The layout of a payload in its topic: one record per chunk.

====== ================================================================================================
key    ``<topic>/<id>/<publication>/<index>``; a publication has 16 random hexadecimal digits
value  the bytes; all chunks but the last have the same size; an empty payload has one empty chunk
header ``payload-chunk-bytes``: size of all chunks but the last
header ``payload-chunks``, ``payload-size``: number and total bytes; for a stream, in its last chunk only
header ``payload-digest``: ``sha256:<hex>``, in the last chunk, if known before reading the payload
====== ================================================================================================

Two publications of the same id have different keys, so that the compaction of one never removes chunks of the other. A
tombstone of each key removes a payload.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from payload_stores.buffers import Buffer
from payload_stores.message_headers import headers_of

if TYPE_CHECKING:
    from confluent_kafka import Message

Record: TypeAlias = tuple[bytes, Buffer | None, tuple[tuple[str, bytes], ...]]

MOST_PATH_BYTES: Final = 1024
"""Longest path of a payload: topic and id."""
LEAST_BLOCK_BYTES: Final = 100
"""Minimum size of all chunks but the last; their number determines the reading time."""
ROOM: Final = 4096
"""Overhead of a chunk within a topic's ``max.message.bytes`` and a client's ``message.max.bytes``.

The key has at most 1052 bytes, the headers at most 200, and the framing of a batch of one record less than 100. The
rest would be 0.2 % of a chunk.
"""

_BLOCK: Final = "payload-chunk-bytes"
_COUNT: Final = "payload-chunks"
_SIZE: Final = "payload-size"
_DIGEST: Final = "payload-digest"
_KEY: Final = re.compile(rb"(.+)/([0-9a-f]{16})/(0|[1-9]\d{0,9})", re.DOTALL)
_MOST_TAIL: Final = len("/0123456789abcdef/") + 10
_NUMBER: Final = re.compile(rb"\d{1,18}")


@dataclass(frozen=True, slots=True)
class Chunk:
    """The metadata in a record of a payload topic; not to be trusted.

    Attributes:
        path: Topic and id of the payload.
        publication: Distinguishes publications of the same id.
        index: Position in the payload, from 0.
        block_bytes: Size of all chunks but the last.
        count: Number of chunks; None if the writer did not know it yet.
        size: Size of the payload in bytes; None if the writer did not know it yet.
    """

    path: str
    publication: str
    index: int
    block_bytes: int
    count: int | None
    size: int | None

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """Read a record's key and headers; None if it is not a chunk."""
        key = message.key() or b""
        # Checked before anything is kept: a listing has an entry per payload.
        match = _KEY.fullmatch(key) if len(key) <= MOST_PATH_BYTES + _MOST_TAIL else None
        if match is None:
            return None
        path, publication, index = match.groups()
        headers = dict(headers_of(message) or ())  # of several with one name, the last
        numbers = {name: int(value) for name, value in headers.items() if value and _NUMBER.fullmatch(value)}
        try:
            return cls(
                path.decode(), publication.decode(), int(index), numbers.get(_BLOCK, 0), numbers.get(_COUNT),
                numbers.get(_SIZE),
            )  # fmt: skip
        except UnicodeDecodeError:
            return None

    @property
    def is_last(self) -> bool:
        """Whether this is the last chunk of its payload."""
        return self.count is not None and self.index == self.count - 1

    def fits(self, length: int) -> bool:
        """Whether its metadata is consistent, also with its number of bytes."""
        if self.count is None or self.size is None:
            return self.count is self.size and length == self.block_bytes > 0
        if not (0 <= self.index < self.count and self.block_bytes > 0):
            return False
        end = self.size - self.block_bytes * (self.count - 1)  # bytes of the last chunk
        return (0 < end <= self.block_bytes or end == self.size == 0) and length == (
            end if self.is_last else self.block_bytes
        )


@dataclass
class Publication:
    """Creates the records of one payload.

    Attributes:
        path: Topic and id of the payload.
        block_bytes: Size of its chunks.
        name: Distinguishes it from other publications of the same id.
        begun: Number of chunks with a record.
    """

    path: str
    block_bytes: int
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    begun: int = 0

    def key(self, index: int) -> bytes:
        """The key of a chunk."""
        return f"{self.path}/{self.name}/{index}".encode()

    def records(self, blocks: Iterable[Buffer], size: int | None = None, digest: str | None = None) -> Iterator[Record]:
        """The records of the chunks, one at a time.

        Args:
            blocks: The payload in at least one block of the chunk size; only the last may be shorter.
            size: Size of the payload in bytes, if known.
            digest: ``sha256:<hex>`` of the payload, if known.
        """
        total = 0
        count = None if size is None else max(1, -(-size // self.block_bytes))
        for block, after in pairwise(chain(blocks, (None,))):
            assert block is not None  # noqa: S101  None is behind the last
            total += len(block)
            index, self.begun = self.begun, self.begun + 1
            facts: list[tuple[str, object]] = [(_BLOCK, self.block_bytes)]
            if after is None:
                count, size = self.begun, total
            if count is not None:
                facts += [(_COUNT, count), (_SIZE, size)]
            if after is None and digest is not None:
                facts.append((_DIGEST, digest))
            yield self.key(index), block, tuple((name, str(value).encode()) for name, value in facts)

    def tombstones(self, indexes: Iterable[int]) -> Iterator[Record]:
        """The tombstones for the chunks; the first chunk's comes last: while it exists, deleting can be repeated."""
        return ((self.key(index), None, ()) for index in sorted(indexes, reverse=True))


def cut(view: memoryview, block_bytes: int) -> Iterator[memoryview]:
    """Cut a payload into blocks without copying; an empty payload is one empty block.

    Example:
        >>> [bytes(block) for block in cut(memoryview(b"12345"), 2)]
        [b'12', b'34', b'5']
        >>> [bytes(block) for block in cut(memoryview(b""), 2)]
        [b'']
    """
    return (view[at : at + block_bytes] for at in range(0, max(1, len(view)), block_bytes))
