"""Uploads in parts, and the files and digests that they need."""

from __future__ import annotations

import hashlib
import io
import mmap
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import BinaryIO, Final, TypeVar

from payload_stores.errors import PayloadStoreError, PayloadTooLargeError
from payload_stores.ids import DIGEST_PREFIX
from payload_stores.multipart.sizes import PART_BYTES
from payload_stores.threads import DaemonPool

T = TypeVar("T")

_READ_BYTES: Final = 256 << 10
_SEND_BYTES: Final = 256 << 10
_DIGEST_BYTES: Final = 1 << 20


class Blocks:
    """A part of a payload as a file, read in small blocks.

    HTTP clients send bytes in one call, and the socket's timeout then covers all of it: 100 MB within 5 s, for
    instance. A file is sent in blocks, each with the full timeout.

    Args:
        view: The part; not copied.
    """

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def __len__(self) -> int:
        return len(self._view)

    def read(self, size: int | None = -1) -> memoryview:
        """The next block of up to ``size`` bytes, or the rest, without a copy. Blocks are small: see above."""
        end = len(self._view) if size is None or size < 0 else self._at + min(size, _SEND_BYTES)
        block = self._view[self._at : end]
        self._at += len(block)
        return block

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Seek like a file: clients rewind after checksums and before retries."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = min(max(0, start + offset), len(self._view))
        return self._at

    def tell(self) -> int:
        """The position of the next read."""
        return self._at

    def close(self) -> None:
        """Release the payload: requests may hold their bodies in cycles until the garbage collector runs."""
        self._view = memoryview(b"")


def slices(view: memoryview, most_parts: int) -> Iterator[memoryview]:
    """Cut a payload into parts without copying it.

    Args:
        view: The payload.
        most_parts: Maximum parts the store accepts; parts become larger if necessary.
    """
    step = max(PART_BYTES, -(-len(view) // most_parts))
    return (view[start : start + step] for start in range(0, len(view), step))


def read_parts(reader: BinaryIO, most_parts: int, part_bytes: int = PART_BYTES) -> Iterator[memoryview]:
    """Read a file in parts; raw files, sockets and pipes may return fewer bytes than requested.

    Args:
        reader: The file.
        most_parts: Maximum parts the store accepts.
        part_bytes: Size of all parts but the last, in bytes.

    Raises:
        PayloadStoreError: The file is unreadable: not the store's fault, and not transient.
        PayloadTooLargeError: It has more parts than the store accepts.
    """
    for _ in range(most_parts):
        # Allocated at full size, since a growing buffer is copied repeatedly; and in its own pages, which return to the
        # system with it: the allocator would keep holes of this size.
        part, size = mmap.mmap(-1, part_bytes), 0
        try:
            while size < part_bytes and (block := reader.read(min(_READ_BYTES, part_bytes - size))):
                part[size : size + len(block)] = block
                size += len(block)
        except (OSError, ValueError) as error:
            raise _unreadable(error) from error
        if size:
            yield memoryview(part)[:size]
        if size < part_bytes:
            return
    raise PayloadTooLargeError(f"the payload has more than {most_parts} parts of {part_bytes} bytes")


def released(held: list[memoryview], parts: Iterator[memoryview]) -> Iterator[memoryview]:
    """Yield parts already read, then the others, and release each; itertools.chain would hold the first ones."""
    while held:
        yield held.pop(0)
    yield from parts


def put_parts(
    threads: DaemonPool, parts: Iterable[memoryview], put: Callable[[int, memoryview], T], *, ahead: int
) -> list[T]:
    """Upload parts in parallel; if this raises, none is still in flight.

    Args:
        threads: The threads that upload.
        parts: The payload.
        put: Uploads one part, given its number, starting at 1.
        ahead: Maximum parts in flight, and so in memory, at once.

    Returns:
        The results of ``put``, in the order of the parts.
    """
    return threads.all((partial(put, number, part) for number, part in enumerate(parts, start=1)), ahead=ahead)


def stream_digest(reader: BinaryIO) -> str:
    """Digest of a reader's remaining contents; the reader is rewound afterwards.

    Returns:
        ``sha256:<hex>``.

    Raises:
        PayloadStoreError: The reader cannot seek, or cannot be read.
    """
    if not reader.seekable():
        raise PayloadStoreError(
            "an id of the content requires the digest before the upload, and this stream can be read only once",
            hint="Pass the digest in the context, or use random ids",
        )
    digest = hashlib.sha256()
    try:
        start = reader.tell()
        while block := reader.read(_DIGEST_BYTES):
            digest.update(block)
        reader.seek(start)
    except (OSError, ValueError) as error:
        raise _unreadable(error) from error
    return DIGEST_PREFIX + digest.hexdigest()


def _unreadable(error: Exception) -> PayloadStoreError:
    return PayloadStoreError(f"the payload's own stream cannot be read: {error}")
