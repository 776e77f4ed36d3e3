"""The crash journal: uploads whose records were not sent yet.

A process killed between an upload and its record leaves an orphaned payload. So the producer writes an entry before
each upload, and a second one, which settles it, before sending the record. The next start deletes unsettled payloads.

Deleting the payload of a sent record loses data; an orphan does not. Doubtful payloads stay: after a reboot, a file
without fsync counts for nothing, since its last settling entries may be missing.

Each line of the file is a CRC-32 (8 hexadecimal digits), a space and JSON; the first line is a title. A truncated last
line was never acknowledged and is dropped; any other damage is an error.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import logging
import os
import stat
import threading
import weakref
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final, Self
from zlib import crc32

from serde_chain.errors import ConfigError, JournalError
from serde_chain.stages.large_message.options import JOURNAL_FSYNC, JOURNAL_PATH

_log = logging.getLogger("serde_chain")

_TITLE: Final = "serde-chain journal"
_VERSION: Final = 1
_INTEND: Final = "intend"
_SETTLE: Final = "settle"
# Smallest size in bytes at which the file is compacted.
_ROOM: Final = 1 << 18
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_OTHER: Final = f"Set {JOURNAL_PATH.name} to another file; the payloads of a damaged journal then stay until a sweep"
# Errors of file systems without fsync for folders; their server keeps the order.
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP})
# A null object: closing it again is harmless.
_NO_FILE: Final = io.FileIO(os.devnull)
_NO_FILE.close()


class Journal:
    """A file of unsettled uploads, owned by one producer at a time.

    Thread-safe. After a fork, it belongs to the parent alone.

    Args:
        path: The file, on a local disk; created if missing. Only its owner may read it.
        fsync: Whether to force each line to disk before a call returns.

    Raises:
        ConfigError: Another producer owns it, it cannot be opened, it belongs to another user or is writable by others,
            or it is damaged or no journal; its content is unchanged.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder, Journal(Path(folder, "journal")) as journal:
        ...     journal.intend("s3://payloads/images/1")
        ...     journal.intend("s3://payloads/images/2")
        ...     journal.settle("s3://payloads/images/1")
        ...     journal.unsettled
        ('s3://payloads/images/2',)
    """

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        try:
            self._path = path.resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a symlink loop, or an invalid name
            raise _unusable(path, str(error)) from error
        self._temporary = self._path.with_name(f".{self._path.name}.new")
        self._fsync = fsync
        self._lock = threading.Lock()
        # Unsettled references, in order; removed from the file before they are removed here.
        self._unsettled: dict[str, None] = {}
        # The replacement file, while it is written; see _compact.
        self._next = self._file = _NO_FILE
        # Whether the folder's entry was forced to disk, and whether the file may end with a partial line.
        self._is_listed = True
        self._is_torn = False
        self._size, self._room = 0, _ROOM
        _journals.add(self)
        try:
            self._take()
            self._unsettled.update(dict.fromkeys(_read(self._file, self._path)))
            self._left = set(self._unsettled)
            self._compact()
            self._sync_entry()
        except OSError as error:
            self._close_files()
            raise _unusable(self._path, error.strerror) from error
        except BaseException:
            self._close_files()
            raise

    @property
    def unsettled(self) -> tuple[str, ...]:
        """References of intended, unsettled uploads, oldest first."""
        with self._lock:
            return tuple(self._unsettled)

    @property
    def left(self) -> tuple[str, ...]:
        """Those of them from the journal's previous owner, which was killed."""
        with self._lock:
            return tuple(reference for reference in self._unsettled if reference in self._left)

    def intend(self, reference: str) -> None:
        """Write an entry for an upload, before it begins.

        Args:
            reference: The reference of the payload.

        Raises:
            JournalError: The file could not be written: the upload must not begin.
        """
        with self._lock:
            was_noted = reference in self._unsettled
            self._unsettled[reference] = None
            self._left.discard(reference)
            try:
                self._append(_INTEND, reference)
            except BaseException:
                if not was_noted:  # the file may contain it; the upload never begins
                    del self._unsettled[reference]
                raise

    def settle(self, reference: str) -> None:
        """Settle an upload: its record is about to be sent, or its payload was deleted.

        Args:
            reference: An intended reference; others have no effect.

        Raises:
            JournalError: The file could not be written: the record must not be sent, since the next start would delete
                its payload.
        """
        with self._lock:
            if reference in self._unsettled:
                self._append(_SETTLE, reference)
                self._unsettled.pop(reference, None)
                self._left.discard(reference)

    def close(self) -> None:
        """Release the file for another producer; idempotent."""
        with self._lock:
            self._close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> None:
        """Open and lock the file; its owner may replace it meanwhile."""
        while True:
            self._file = _opened(self._path, os.O_NONBLOCK)
            status = os.fstat(self._file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _unusable(self._path, "it is not a file")
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _unusable(self._path, "other users may write to it, and the payloads that it names are deleted")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another producer{_owner(self._file)} uses the journal {self._path}",
                    hint=f"Give each producer its own {JOURNAL_PATH.name}",
                    key=JOURNAL_PATH.name,
                ) from None
            there = _status(self._path)
            if there is not None and os.path.samestat(there, status):
                return
            self._file.close()

    def _append(self, *entry: str) -> None:
        if self._file.closed:
            raise JournalError(
                "the journal is closed, or was opened before a fork", hint="Create a producer in each process"
            ).marked(transient=False)
        try:
            self._find_place()
            if self._is_torn:
                os.ftruncate(self._file.fileno(), self._size)
            self._is_torn = True
            line = _line(entry)
            _write_all(self._file, line)
            if self._fsync:
                os.fsync(self._file.fileno())
            self._size, self._is_torn = self._size + len(line), False
        except OSError as error:
            raise JournalError(
                f"the journal cannot be written: {error.strerror}",
                hint=f"Check the disk and the folder of {JOURNAL_PATH.name}",
                path=str(self._path),
            ) from error

    def _find_place(self) -> None:
        """Ensure that the open file is the one that the next start will read, and is not too large."""
        self._end_replacement()
        there = _status(self._path)
        if there is not None and not os.path.samestat(there, os.fstat(self._file.fileno())):
            raise OSError(errno.ESTALE, "another file replaced it")
        was_removed = there is None
        if was_removed or self._size > self._room:
            try:
                self._compact()
            except OSError:
                self._end_replacement()
                if was_removed:
                    raise
                self._room = 2 * self._size  # no space for another file, but perhaps for a line
        self._sync_entry()

    def _compact(self) -> None:
        """Replace the file atomically by one with the unsettled references only."""
        title = {_TITLE: _VERSION, "boot": _boot(), "fsync": self._fsync, "pid": os.getpid()}
        content = b"".join([_line(title), *(_line((_INTEND, reference)) for reference in self._unsettled)])
        self._next = _opened(self._temporary, os.O_TRUNC | os.O_NOFOLLOW)
        # Before the renaming, so that no other producer can lock it first.
        fcntl.flock(self._next, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(self._next, content)
        if self._fsync:
            os.fsync(self._next.fileno())
        self._is_listed = False
        self._temporary.replace(self._path)
        self._end_replacement()

    def _end_replacement(self) -> None:
        """Switch to the new file if the renaming succeeded, otherwise drop it.

        Repeated after an interrupted :meth:`_compact`.
        """
        if self._next.closed:
            return
        new = os.fstat(self._next.fileno())
        there = _status(self._path)
        if there is None or not os.path.samestat(there, new):
            self._next.close()
            self._temporary.unlink(missing_ok=True)
            return
        room = max(_ROOM, 2 * new.st_size)
        old, self._file, self._next, self._size, self._room = self._file, self._next, _NO_FILE, new.st_size, room
        self._is_torn = False
        old.close()

    def _sync_entry(self) -> None:
        """Force the folder's entry to disk, if it is not there yet."""
        if not self._fsync or self._is_listed:
            return
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        except OSError as error:
            if error.errno not in _CANNOT_SYNC:
                raise
        finally:
            os.close(folder)
        self._is_listed = True

    def _close_files(self) -> None:
        self._file.close()
        self._next.close()

    def _leave_to_parent(self) -> None:
        """In the child of a fork: closing keeps the lock, which belongs to the parent's open file."""
        self._lock = threading.Lock()
        self._unsettled = {}
        self._left = set()
        self._close_files()


_journals: Final[weakref.WeakSet[Journal]] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    for journal in _journals:
        journal._leave_to_parent()  # noqa: SLF001, of this module


os.register_at_fork(after_in_child=_leave_all_to_parent)


def _opened(path: Path, more: int) -> io.FileIO:
    """Open a file for reading and appending; created for its owner alone if missing."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | more
    return io.FileIO(path, "a+", opener=lambda name, _flags: os.open(name, flags, 0o600))


def _status(path: Path) -> os.stat_result | None:
    """The status of the file with this name; None if there is none."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _owner(file: io.FileIO) -> str:
    """The process of the journal's owner, for a message."""
    title = _parse(os.pread(file.fileno(), 1000, 0).partition(b"\n")[0])
    pid = title.get("pid") if isinstance(title, dict) else None
    return f" (process {pid})" if isinstance(pid, int) else ""


def _read(file: io.FileIO, path: Path) -> Iterable[str]:
    """The unsettled references in an open journal; none if the journal cannot be trusted."""
    content = b""
    while part := os.pread(file.fileno(), _ROOM, len(content)):
        content += part
    # After a power loss, a file may be longer than its content.
    *lines, cut = content.rstrip(b"\0").split(b"\n")
    if not lines and not cut:
        return ()
    title = _parse(lines[0]) if lines else None
    if not isinstance(title, dict) or _TITLE not in title:
        raise _unusable(path, "it is not a journal", hint=_OTHER)
    if title[_TITLE] != _VERSION:
        raise _unusable(path, f"it has version {title[_TITLE]}, expected {_VERSION}", hint=_OTHER)
    boot = _boot()
    is_trusted = title.get("fsync") is True or (boot is not None and title.get("boot") == boot)
    unsettled: dict[str, None] = {}
    for number, line in enumerate(lines[1:], 2):
        match _parse(line):
            case ["intend", str(reference)]:
                unsettled[reference] = None
            case ["settle", str(reference)]:
                unsettled.pop(reference, None)
            case _ if is_trusted:
                raise _unusable(path, f"line {number} is damaged", hint=_OTHER)
    if unsettled and not is_trusted:
        _log.warning(
            "%d payloads of the journal %s are left to a sweep: the machine was rebooted since, and without %s "
            "the journal does not tell which of them were sent",
            *(len(unsettled), path, JOURNAL_FSYNC.name),
        )
        return ()
    return unsettled


def _line(content: Collection[object]) -> bytes:
    body = json.dumps(content).encode()
    return b"%08x %b\n" % (crc32(body), body)


def _parse(line: bytes) -> Any:
    """The content of a line; None if it is damaged."""
    checksum, _, body = line.partition(b" ")
    try:
        return json.loads(body) if checksum == b"%08x" % crc32(body) else None
    except ValueError:
        return None


def _boot() -> str | None:
    """The id of this boot; None if the system has none."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]


def _unusable(
    path: Path, why: str | None, hint: str = "Name a file in a folder writable by the producer"
) -> ConfigError:
    return ConfigError(f"the journal {path} cannot be used: {why}", hint=hint, key=JOURNAL_PATH.name)
