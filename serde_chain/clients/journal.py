"""The crash journal: what was uploaded for records that were not sent yet.

A process that is killed between an upload and its record leaves a payload to which nothing refers. It writes down each
upload before it begins, and that it is settled before its record is sent; the next start deletes what is not settled.

Deleting the payload of a record that was sent is loss of data, an orphan is not. So whatever is in doubt stays: of a
file that was not forced to disk, nothing counts once the machine was started anew, since what was settled last may
be missing in it.

The file: lines of a CRC-32 (8 hexadecimal digits), a space and JSON, of which the first says what it is. A line that
was cut at the end was never acknowledged, and is dropped; any other damage is an error.
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
from types import TracebackType
from typing import Any, Final, Self
from zlib import crc32

from serde_chain.errors import ConfigError, JournalError
from serde_chain.stages.large_message.options import JOURNAL_FSYNC, JOURNAL_PATH

__all__ = ["Journal"]

_log = logging.getLogger("serde_chain")

_TITLE: Final = "serde-chain journal"
_VERSION: Final = 1
_INTEND: Final = "intend"
_SETTLE: Final = "settle"
# A file is not written anew before it has grown to this; in bytes.
_ROOM: Final = 1 << 18
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_OTHER: Final = (
    f"Set {JOURNAL_PATH.name} to another file; if this one is a journal that was damaged, its payloads then stay until "
    "a sweep"
)
# Of file systems that cannot force a folder's entries to disk; their server keeps the order.
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP})
# In place of a file; the system closes it twice without harm, as it does all of them.
_NO_FILE: Final = io.FileIO(os.devnull)
_NO_FILE.close()


class Journal:
    """A file of uploads that are not settled yet. It belongs to one producer at a time.

    Safe in several threads. After a fork, the child has nothing to do with it.

    Args:
        path: The file, on a local disk; made if it is missing. Only its owner may read it.
        fsync: Force each line to disk before a call returns.

    Raises:
        ConfigError: Another producer has it, it cannot be opened, belongs to another user or may be written by others,
            or it is damaged or something else; its content is left alone.

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
        except (OSError, RuntimeError, ValueError) as error:  # a ring of links, or a name that no file can have
            raise _unusable(path, str(error)) from error
        self._temporary = self._path.with_name(f".{self._path.name}.new")
        self._fsync = fsync
        self._lock = threading.Lock()
        # What the file has as unsettled; in it no longer than here. A dictionary keeps the order.
        self._unsettled: dict[str, None] = {}
        # The file that takes the place of the present one, while it is made; see _start_anew.
        self._next = self._file = _NO_FILE
        # Whether the file's place in its folder was forced to disk, and whether there may be half a line at its end.
        self._is_listed = True
        self._is_torn = False
        self._size, self._room = 0, _ROOM
        _journals.add(self)
        try:
            self._take()
            self._unsettled.update(dict.fromkeys(_read(self._file, self._path)))
            self._left = set(self._unsettled)
            self._start_anew()
            self._sync_entry()
        except OSError as error:
            self._close_files()
            raise _unusable(self._path, error.strerror) from error
        except BaseException:
            self._close_files()
            raise

    @property
    def unsettled(self) -> tuple[str, ...]:
        """References of uploads that were intended and are not settled, the oldest first."""
        with self._lock:
            return tuple(self._unsettled)

    @property
    def left(self) -> tuple[str, ...]:
        """Those among them that the journal's last owner has left: it was killed."""
        with self._lock:
            return tuple(reference for reference in self._unsettled if reference in self._left)

    def intend(self, reference: str) -> None:
        """Note an upload, before it begins.

        Args:
            reference: The reference that it will have.

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
                if not was_noted:  # the file may have it nevertheless, for an upload that never begins
                    del self._unsettled[reference]
                raise

    def settle(self, reference: str) -> None:
        """Note that the record is about to be sent, or that the payload was deleted.

        Args:
            reference: What was intended; anything else has no effect.

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
        """Leave the file to another producer. Calling it again does nothing."""
        with self._lock:
            self._close_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> None:
        """Open and lock the file; it may be replaced by its present owner meanwhile."""
        while True:
            self._file = _opened(self._path, os.O_NONBLOCK)
            status = os.fstat(self._file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _unusable(self._path, "it is not a file")
            if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise _unusable(self._path, "other users may write to it, and what it names is deleted")
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(
                    f"another producer{_owner(self._file)} has the journal {self._path}",
                    hint=f"Set {JOURNAL_PATH.name} to a file of its own for each producer",
                    key=JOURNAL_PATH.name,
                ) from None
            there = _status(self._path)
            if there is not None and os.path.samestat(there, status):
                return
            self._file.close()

    def _append(self, *entry: str) -> None:
        if self._file.closed:
            closed = JournalError(
                "the journal is closed, or was opened before a fork", hint="Make a producer in each process"
            )
            closed.transient = False
            raise closed
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
        """See to it that the open file is the one that the next start will read, and is not too large."""
        self._end_replacement()
        there = _status(self._path)
        if there is not None and not os.path.samestat(there, os.fstat(self._file.fileno())):
            raise OSError(errno.ESTALE, "another file has taken its place")
        was_removed = there is None
        if was_removed or self._size > self._room:
            try:
                self._start_anew()
            except OSError:
                self._end_replacement()
                if was_removed:
                    raise
                self._room = 2 * self._size  # there is no space for another file now, but there may be for a line
        self._sync_entry()

    def _start_anew(self) -> None:
        """Put a file that has only what is not settled in place of the present one, in one step."""
        title = {_TITLE: _VERSION, "boot": _boot(), "fsync": self._fsync, "pid": os.getpid()}
        content = b"".join([_line(title), *(_line((_INTEND, reference)) for reference in self._unsettled)])
        self._next = _opened(self._temporary, os.O_TRUNC | os.O_NOFOLLOW)
        # Before it has the name, so that there is no moment in which another producer could take it.
        fcntl.flock(self._next, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _write_all(self._next, content)
        if self._fsync:
            os.fsync(self._next.fileno())
        self._is_listed = False
        self._temporary.replace(self._path)
        self._end_replacement()

    def _end_replacement(self) -> None:
        """Go on with the new file if it has taken the place of the present one, and otherwise drop it.

        Called again where :meth:`_start_anew` was interrupted.
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
        """Force the file's place in its folder to disk, where that is still to do."""
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
        """In the child of a fork: closing does not release the lock, which goes with the parent's open file."""
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
    """Open a file for reading and appending; made if it is missing, for its owner alone."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | more
    return io.FileIO(path, "a+", opener=lambda name, _flags: os.open(name, flags, 0o600))


def _status(path: Path) -> os.stat_result | None:
    """What the system says of the file that has a name; None if there is none."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _owner(file: io.FileIO) -> str:
    """The process of the producer that has a journal, for a message."""
    title = _parse(os.pread(file.fileno(), 1000, 0).partition(b"\n")[0])
    pid = title.get("pid") if isinstance(title, dict) else None
    return f" (process {pid})" if isinstance(pid, int) else ""


def _read(file: io.FileIO, path: Path) -> Iterable[str]:
    """The references in an open journal that are not settled, as far as that can be trusted."""
    content = b""
    while part := os.pread(file.fileno(), _ROOM, len(content)):
        content += part
    # Where power was lost, a file may be longer than what was written to it.
    *lines, cut = content.rstrip(b"\0").split(b"\n")
    if not lines and not cut:
        return ()
    title = _parse(lines[0]) if lines else None
    if not isinstance(title, dict) or _TITLE not in title:
        raise _unusable(path, "it is not a journal", hint=_OTHER)
    if title[_TITLE] != _VERSION:
        raise _unusable(path, f"it is of version {title[_TITLE]}, and this is {_VERSION}", hint=_OTHER)
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
            "%d payloads of the journal %s are left to a sweep: the machine was started anew since, and without %s "
            "it is not known which of them were sent",
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
    """What tells one start of the machine from another; None where the system does not say."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return None


def _write_all(file: io.FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file.fileno(), view) :]


def _unusable(
    path: Path, why: str | None, hint: str = "Name a file in a folder that the producer may write"
) -> ConfigError:
    return ConfigError(f"the journal {path} cannot be used: {why}", hint=hint, key=JOURNAL_PATH.name)
