"""Large values in pieces: files that are read while they are uploaded, arrays whose bytes are uploaded in place."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeGuard, TypeVar, runtime_checkable

from payload_stores.buffers import Buffer
from serde_chain.base.plain import PlainSerializer
from serde_chain.base.stage import Serializer

if TYPE_CHECKING:
    from pathlib import Path

In = TypeVar("In", contravariant=True)

STREAMED_BYTES: Final = 32 << 20
"""Size in bytes from which a value is streamed: smaller ones are copied, for less than the buffers of an upload."""


@runtime_checkable
class SupportsRead(Protocol):
    """An open binary file or file-like object as a record's value: read while it is uploaded."""

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes, or all that remain; empty at the end."""


def is_stream(data: object) -> TypeGuard[Path | SupportsRead]:
    """Whether a value is a file, for stages with ``takes_streams``.

    Example:
        >>> import io, pathlib
        >>> is_stream(pathlib.Path("image.fits")), is_stream(io.BytesIO()), is_stream(b"data")
        (True, True, False)
    """
    return isinstance(data, (os.PathLike, SupportsRead))


class BufferReader(io.RawIOBase):
    """Several buffers, read as one file without joining them in memory.

    The buffers must not change before the record's delivery.

    Args:
        parts: The buffers.

    Example:
        >>> reader = BufferReader([b"head", memoryview(b"pixels")])
        >>> reader.read(6), reader.read(), reader.join()
        (b'headpi', b'xels', b'headpixels')
    """

    def __init__(self, parts: Iterable[Buffer]) -> None:
        self._parts = [memoryview(part).cast("B") for part in parts]
        self._size = sum(map(len, self._parts))
        self._at = 0

    def __len__(self) -> int:
        return self._size

    def join(self) -> bytes:
        """All bytes, regardless of the position."""
        return b"".join(self._parts)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes, or all that remain."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        found, begin = [], 0
        for part in self._parts:
            if begin < stop and begin + len(part) > self._at:
                found.append(part[max(0, self._at - begin) : stop - begin])
            begin += len(part)
        self._at = max(self._at, stop)
        return b"".join(found)

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The position in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position in bytes."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"{start + offset} is before the beginning")
        self._at = start + offset
        return self._at


class PartsSerializer(PlainSerializer[In]):
    """A serializer whose output is in several buffers.

    Before a stage with ``takes_streams``, values of at least :data:`STREAMED_BYTES` become a :class:`BufferReader`;
    all others are joined.
    """

    plain: Callable[[Any], Any]
    _parts: Callable[[Any], Sequence[Buffer]]

    def give_parts(self, parts: Callable[[Any], Sequence[Buffer]]) -> None:
        """Set the function that makes the buffers of a value; for ``configure``."""
        self._parts = parts
        self.plain = lambda data: b"".join(parts(data))

    def bind(self, before: object | None, after: object | None) -> Self:
        """Note whether the next stage accepts streams."""
        if not isinstance(after, Serializer) or not after.takes_streams:
            return self
        parts = self._parts

        def plain(data: Any) -> Any:
            found = BufferReader(parts(data))
            return found.join() if len(found) < STREAMED_BYTES else found

        return self._with(plain=plain)
