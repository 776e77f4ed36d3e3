"""A pipe from the event loop to a thread, with an asynchronous writer and a blocking reader."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import Final

from payload_stores.errors import PayloadStoreError

# Maximum bytes in a pipe; an upload takes these and the store's own memory.
_MOST: Final = 512 << 10
# The reader wakes for this many bytes, or the end: switching threads costs as much as copying them.
_WORTHWHILE: Final = 256 << 10


class PipeClosedError(PayloadStoreError):
    """The reader is gone: its error says why."""


class Pipe:
    """A bounded pipe; its reader sees the end only after :meth:`end`, and an error after :meth:`fail`.

    So a store reading from it never mistakes a partial payload for a whole one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._pieces: deque[memoryview] = deque()
        self._waiting = 0
        self._ended = False
        self._error: BaseException | None = None
        self._closed = False
        self._room = asyncio.Event()
        self._room.set()

    async def write(self, piece: memoryview) -> None:
        """Write a piece; wait while the pipe is full.

        Raises:
            PipeClosedError: The reader is gone.
        """
        with self._changed:
            if not self._closed:
                self._pieces.append(piece)
                self._waiting += len(piece)
                if self._waiting >= _WORTHWHILE:
                    self._changed.notify()
                if self._waiting >= _MOST:
                    self._room.clear()
        await self._room.wait()
        if self._closed:
            raise PipeClosedError("the payload's reader has ended early")

    def end(self) -> None:
        """The payload is complete and correct."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def fail(self, error: BaseException) -> None:
        """The payload must not be stored; the reader gets the error."""
        with self._changed:
            self._error = error
            self._changed.notify()

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes, all for -1, none at the end; called in a thread.

        Raises:
            BaseException: The error passed to :meth:`fail`.
        """
        if size < 0:
            return b"".join(iter(lambda: self.read(_MOST), b""))
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._error or self._waiting >= min(size, _WORTHWHILE))
            if self._error is not None:
                raise self._error
            taken = self._take(size)
            if self._waiting < _MOST:
                self._make_room()
        return b"".join(taken)

    def close(self) -> None:
        """Note that the reader is gone; called in a thread."""
        with self._changed:
            self._closed = True
            self._pieces.clear()
            self._make_room()

    def readable(self) -> bool:
        """As for files."""
        return True

    def seekable(self) -> bool:
        """As for files: a pipe cannot seek."""
        return False

    def _take(self, size: int) -> list[memoryview]:
        taken = []
        while size and self._pieces:
            piece = self._pieces.popleft()
            if len(piece) > size:
                self._pieces.appendleft(piece[size:])
                piece = piece[:size]
            taken.append(piece)
            size -= len(piece)
            self._waiting -= len(piece)
        return taken

    def _make_room(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._room.set)
