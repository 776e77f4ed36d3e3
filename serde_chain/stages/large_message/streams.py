"""Values streamed during the upload: the file at a path, or an open binary file.

Encoding a record peeks at its file, for as many bytes as may stay in the record; the upload reads the file and computes
digest and size on the way. Failures of a file are an :class:`~serde_chain.errors.EncodeError`, also during the upload:
a store would take system errors for its own.
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

HELD_BYTES: Final = 32 << 20
"""Maximum memory of a streamed upload, in bytes: a store holds a few parts at a time."""

_READ_BYTES: Final = 1 << 20

# The last source of each open file, by the file's identity: two sources of one file would each get a part of it.
_last_sources: Final[WeakValueDictionary[int, _OpenFile]] = WeakValueDictionary()
_lock: Final = threading.Lock()

# Detects that a regular file was modified or replaced.
_State: TypeAlias = tuple[int, int, int, int]


def source_of(value: Path | SupportsRead) -> Source:
    """The source of a value that :func:`serde_chain.base.is_stream` recognises."""
    return _AtPath(Path(value)) if isinstance(value, os.PathLike) else _OpenFile(value)


class Source(ABC):
    """A value streamed during the upload.

    Attributes:
        name: Its name in messages.
    """

    name: str

    @abstractmethod
    def peek(self, most: int) -> bytes | None:
        """Read the value if it is small. The position of a seekable file is kept.

        Args:
            most: Maximum size in bytes.

        Returns:
            The value; None if it is larger.

        Raises:
            EncodeError: The file is unreadable.
        """

    @property
    @abstractmethod
    def is_repeatable(self) -> bool:
        """Whether the value can be read twice, which content ids require. Known after :meth:`peek`."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[ValueStream]:
        """Read the value from its beginning, within a ``with`` block.

        Raises:
            EncodeError: The file is unreadable, or cannot be read again.
        """


class ValueStream:
    """A value as a store reads it; not seekable, so that no store reads it twice.

    Args:
        source: For messages.
        file: The open file.
        head: The bytes already read from it.
        before: The file's state at the peek, if it has one.

    Attributes:
        size: Bytes that were read.
        expected: The digest expected at the end, if known.
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
        """``sha256:<hex>`` of the bytes read."""
        return DIGEST_PREFIX + self._digest.hexdigest()

    def read(self, size: int = -1, /) -> bytes:
        """Read up to ``size`` bytes, or everything that remains.

        Raises:
            EncodeError: The file is unreadable, or was modified since the peek.
        """
        if size < 0:
            return b"".join(iter(lambda: self.read(_READ_BYTES), b""))
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
        else:
            block = _read(self._source, self._file, size)
        if not block and size and self._has_changed():
            # Before the store can complete the upload.
            raise _changed(self._source)
        self._digest.update(block)
        self.size += len(block)
        return block

    def seekable(self) -> bool:
        """Never: it is readable only once."""
        return False

    def _has_changed(self) -> bool:
        if self._before is not None and _state(self._file) != self._before:
            return True
        return self.expected not in {None, self.digest}


class _AtPath(Source):
    """The file at a path, opened only for reading, so that any number of sources may wait."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._before: _State | None = None

    def peek(self, most: int) -> bytes | None:
        with self._opened() as file:
            self._before = _state(file)
            size = os.fstat(file.fileno()).st_size
            return _exactly(self, file, most) if size <= most else None

    @property
    def is_repeatable(self) -> bool:
        return True

    @contextmanager
    def reading(self) -> Iterator[ValueStream]:
        with self._opened() as file:
            if _state(file) != self._before:
                raise _changed(self)
            yield ValueStream(self, file, before=self._before)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError) as error:  # ValueError: a null byte in the name
            hint = None
            if self._before is None and isinstance(error, FileNotFoundError):  # it never existed
                hint = "Check the path" + ("" if self._path.is_absolute() else f", relative to {Path.cwd()}")
            raise _unreadable(self, error, hint) from error
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
    """An open binary file, from its position on. It belongs to the record until delivery.

    If another record gets it before it is read, it belongs to that record.

    Attributes:
        is_being_read: Whether :meth:`reading` is in progress.
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
            # Bytes read from a pipe are kept: they cannot be read again.
            self._head = _exactly(self, file, most + 1)
            return self._head if len(self._head) <= most else None
        try:
            head = _exactly(self, file, most + 1)
        finally:
            self._rewind()
        return head if len(head) <= most else None

    @property
    def is_repeatable(self) -> bool:
        return self._start is not None

    @contextmanager
    def reading(self) -> Iterator[ValueStream]:
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
                    hint="Content ids require reading it twice: use large.message.id = random, or pass a path",
                )
            self._was_read = True
            yield ValueStream(self, self._file, self._head, self._before)
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
    """Read a number of bytes, or fewer at the end of the file."""
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
        hint="Pass a blocking file: None means that no data is available yet",
    )


def _state(file: object) -> _State | None:
    """The state of a regular file; None for all other files."""
    if not isinstance(file, io.IOBase):
        return None
    with suppress(OSError, ValueError):  # no system file; a closed file fails when it is read
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode):
            return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _changed(source: Source) -> EncodeError:
    return EncodeError(
        f"{source.name} was modified after its record was produced",
        hint="Do not modify a file before its delivery is reported",
    )


def _unreadable(source: Source, error: Exception, hint: str | None = None) -> EncodeError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return EncodeError(
        f"{source.name} cannot be read: {reason}",
        hint=hint or "Keep a file open and in place until its delivery is reported",
    )
