"""Values that are read while they are uploaded: the file at a path, or an open binary file.

A file is looked at when its record is encoded, for as many bytes as may stay in the record, and read when the payload
is uploaded. Digest and size are computed on the way. What goes wrong with a file is an
:class:`~serde_chain.errors.EncodeError`, also while a store reads it: stores would take errors of the system for their
own.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast
from weakref import WeakValueDictionary

from payload_stores.ids import DIGEST_PREFIX
from serde_chain.base import SupportsRead
from serde_chain.errors import EncodeError

__all__ = ["HELD_BYTES", "Reading", "Source", "source_of"]

HELD_BYTES: Final = 32 << 20
"""The most memory that an upload of a stream takes, in bytes: a store holds a few parts at a time."""

_READ_BYTES: Final = 1 << 20

# The last source of each open file, by the file's identity: two that read one file would each get a part of it.
_last_sources: Final[WeakValueDictionary[int, _OpenFile]] = WeakValueDictionary()
_lock: Final = threading.Lock()

# What shows that a regular file was written to, or is another one by now.
_State: TypeAlias = tuple[int, int, int, int]


def source_of(value: Path | SupportsRead) -> Source:
    """The source of a value that :func:`serde_chain.base.is_stream` recognises."""
    return _AtPath(Path(value)) if isinstance(value, os.PathLike) else _OpenFile(value)


class Source(ABC):
    """A value that is read as it is uploaded.

    Attributes:
        name: What it is, for messages.
    """

    name: str

    @abstractmethod
    def peek(self, most: int) -> bytes | None:
        """Read the value if it is small. Where the file can be sought, it stays where it was.

        Args:
            most: The most bytes that it may have.

        Returns:
            The value; None if it is larger.

        Raises:
            EncodeError: The file cannot be read.
        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[Reading]:
        """Read the value from its beginning, for the time of a ``with`` block.

        Raises:
            EncodeError: The file cannot be read, or not once more.
        """


class Reading:
    """A value as a store reads it; like a pipe, so that no store reads it twice.

    Args:
        source: For messages.
        file: Where it comes from.
        head: What was read of it already.
        before: The file's state when it was looked at, if it has one.

    Attributes:
        size: Bytes that were read.
        expected: The digest that it is to have in the end, if that is known.
    """

    def __init__(self, source: Source, file: SupportsRead, head: bytes = b"", before: _State | None = None) -> None:
        self._source = source
        self._file = file
        self._head = head
        self._before = before
        self._digest = hashlib.sha256()
        self.size = 0
        self.expected: str | None = None

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of what was read."""
        return DIGEST_PREFIX + self._digest.hexdigest()

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes, or all that is left.

        Raises:
            EncodeError: The file cannot be read, or has changed since it was looked at.
        """
        if size < 0:
            return b"".join(iter(lambda: self.read(_READ_BYTES), b""))
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
        else:
            block = _read(self._source, self._file, size)
        if not block and size and self._has_changed():
            # Before the store can finish what it has got of it.
            raise _changed(self._source)
        self._digest.update(block)
        self.size += len(block)
        return block

    def seekable(self) -> bool:
        """It can be read once."""
        return False

    def _has_changed(self) -> bool:
        if self._before is not None and _state(self._file) != self._before:
            return True
        return self.expected not in {None, self.digest}


class _AtPath(Source):
    """The file at a path; open only while it is read, so that any number of them may wait."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._before: _State | None = None

    def peek(self, most: int) -> bytes | None:
        with self._opened() as file:
            self._before = _state(file)
            size = os.fstat(file.fileno()).st_size
            return _exactly(self, file, most) if size <= most else None

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        with self._opened() as file:
            if _state(file) != self._before:
                raise _changed(self)
            yield Reading(self, file, before=self._before)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the name
            failure = _unreadable(self, error)
            if self._before is None and isinstance(error, FileNotFoundError):  # it was never there
                failure.hint = "See that the path is right"
                if not self._path.is_absolute():
                    failure.hint += f": it is looked for in {Path.cwd()}"
            raise failure from error
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            if stat.S_ISDIR(mode):
                raise EncodeError(f"{self.name} is a folder", hint="Pass the path of a file")
            raise EncodeError(
                f"{self.name} is not a regular file", hint="Open a pipe or device yourself, and pass the open file"
            )
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            yield cast("BinaryIO", file)


class _OpenFile(Source):
    """An open binary file, from its position on. It belongs to the record until that is delivered.

    Where it is given to another record before it is read, it belongs to that one.

    Attributes:
        is_being_read: Whether :meth:`reading` is under way.
    """

    def __init__(self, file: SupportsRead) -> None:
        self.name = f"the {type(file).__name__}"
        self._file = file
        self._start: int | None = None
        self._head = b""
        self._before: _State | None = None
        self._was_read = self.is_being_read = False

    def peek(self, most: int) -> bytes | None:
        file = self._file
        with _lock:
            last = _last_sources.get(id(file))
            if last is not None and last.is_being_read:
                raise self._shared()
            _last_sources[id(file)] = self
        if isinstance(file, io.IOBase):
            with self._explained():
                self._start = file.tell() if file.seekable() else None
        self._before = _state(file)
        if self._start is None:
            # What is read of a pipe is kept: it cannot be read again.
            self._head = _exactly(self, file, most + 1)
            return self._head if len(self._head) <= most else None
        try:
            head = _exactly(self, file, most + 1)
        finally:
            self._rewind()
        return head if len(head) <= most else None

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        with _lock:
            if _last_sources.get(id(self._file)) is not self:
                raise self._shared()
            self.is_being_read = True
        try:
            if self._start is not None:
                self._rewind()
            elif self._was_read:
                raise EncodeError(
                    f"{self.name} can be read only once, and has been read",
                    hint="Ids of the content need it twice: use large.message.id = random, or pass a path",
                )
            self._was_read = True
            yield Reading(self, self._file, self._head, self._before)
        finally:
            self.is_being_read = False

    def _shared(self) -> EncodeError:
        return EncodeError(
            f"{self.name} was given to two records, which cannot both read it",
            hint="Open it once for each record, or pass its path",
        )

    def _rewind(self) -> None:
        with self._explained():
            cast("BinaryIO", self._file).seek(cast("int", self._start))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise _unreadable(self, error) from error


def _exactly(source: Source, file: SupportsRead, size: int) -> bytes:
    """Read a number of bytes, or fewer if the file has no more."""
    blocks = []
    while size > 0 and (block := _read(source, file, min(size, _READ_BYTES))):
        blocks.append(block)
        size -= len(block)
    return b"".join(blocks)


def _read(source: Source, file: SupportsRead, size: int) -> bytes:
    try:
        block: object = file.read(size)
    except (OSError, ValueError) as error:  # ValueError: it is closed
        raise _unreadable(source, error) from error
    if isinstance(block, bytes):
        return block
    if isinstance(block, str):
        raise EncodeError(f"{source.name} is open in text mode", hint='Open it in binary mode ("rb")')
    raise EncodeError(
        f"{source.name} returned {type(block).__name__} instead of bytes",
        hint="Pass a file that waits for its data: None means that there is none yet",
    )


def _state(file: object) -> _State | None:
    """The state of a regular file; None for all others."""
    if not isinstance(file, io.IOBase):
        return None
    with suppress(OSError, ValueError):  # not a file of the system, or closed, which reading tells
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _changed(source: Source) -> EncodeError:
    return EncodeError(
        f"{source.name} has changed since its record was produced",
        hint="Leave a file as it is until its delivery is reported",
    )


def _unreadable(source: Source, error: Exception) -> EncodeError:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return EncodeError(
        f"{source.name} cannot be read: {told}",
        hint="Leave a file where it is, and open, until its delivery is reported",
    )
