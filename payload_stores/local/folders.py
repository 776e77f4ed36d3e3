"""Files and folders below a root, without following links and without leaving half of a file: for the local store.

Everything works on open folders (POSIX ``openat`` and friends), so there is no moment between a check and its use in
which a path could come to mean something else. Errors are OSError, and :class:`NotAFileError` for links and the like.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

__all__ = [
    "MARKER",
    "MOST_FOLDERS",
    "Folder",
    "NotAFileError",
    "copy_all",
    "entered",
    "is_temporary",
    "leads_into_a_store",
    "made",
    "make_root",
    "open_file",
    "remove_temporary",
    "status_of",
    "sync_folder",
    "temporary_file",
    "touch",
    "write_all",
]

Folder: TypeAlias = AbstractContextManager[int]

# Folder in the root of a store, for payloads that are being written. Where it is, there is a store: an empty mount
# point has none. It is a folder, not a file, because `find -type f -mtime … -delete` is a usual way to expire payloads.
MARKER: Final = ".payload-store"

MOST_FOLDERS: Final = 64
"""Folders in folders that are looked into: each is kept open, and what lies deeper was put there by another program."""

_SUFFIX: Final = ".part"
_COPY_BYTES: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NotAFileError(OSError):
    """A symbolic link, named pipe, socket or device stands where a file or folder was expected."""


@contextmanager
def entered(root: Path | int, *names: str) -> Iterator[int]:
    """Open a folder by its path below a root, for the time of a ``with`` block.

    Args:
        root: Path of the root, whose own links are followed, or an open folder.
        *names: The folders below it.

    Yields:
        File descriptor of the last folder.

    Raises:
        NotAFileError: One of the names is a symbolic link.
        OSError: One of them is not there, or is not a folder.
    """
    here = os.dup(root) if isinstance(root, int) else os.open(root, _FOLDER)
    try:
        for name in names:
            below = _open(name, _FOLDER, here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


@contextmanager
def made(root: int, *names: str, durable: bool) -> Iterator[int]:
    """Like :func:`entered`, but make what is missing below the root.

    Args:
        root: An open folder.
        *names: The folders below it.
        durable: Force the new entries to disk.

    Yields:
        File descriptor of the last folder.
    """
    here = os.dup(root)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=here)
            below = _open(name, _FOLDER, here)
            if durable:
                # Even if the folder exists already: its maker may not have got this far.
                sync_folder(here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def check_can_be_made(root: Path) -> None:
    """See that a folder could be made: a temporary one is, in the nearest that is there, and removed.

    Args:
        root: Its path.

    Raises:
        OSError: It could not.
    """
    nearest = next(folder for folder in (root, *root.parents) if folder.exists())
    Path(tempfile.mkdtemp(prefix=f"{MARKER}-", dir=nearest)).rmdir()


def make_root(root: Path, *, durable: bool) -> None:
    """Make a folder and those above it, as far as they are missing.

    Args:
        root: Its path.
        durable: Force the new entries to disk.
    """
    if root.is_dir():
        return
    missing = [folder for folder in (root, *root.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        if durable:
            with entered(folder.parent) as parent:
                sync_folder(parent)


def leads_into_a_store(root: Path, *names: str) -> bool:
    """Whether a path leads into a store that is there, whatever has become of what the path names.

    So it is if one of the folders on the way has the marker, or if all of them are there: folders that were filled
    before there was a marker have none.

    Args:
        root: Path of the root.
        *names: The folders below it.
    """
    try:
        with entered(root) as top:
            here = os.dup(top)
            try:
                for name in names:
                    if _is_folder(MARKER, here):
                        return True
                    below = _open(name, _FOLDER, here)
                    os.close(here)
                    here = below
            finally:
                os.close(here)
    except OSError:
        return False
    return True


def open_file(name: str, folder: int) -> int:
    """Open a regular file for reading; anything but a regular file is refused without waiting for it.

    Args:
        name: Name in the folder.
        folder: An open folder.

    Raises:
        NotAFileError: It is not a regular file.
        OSError: It is not there, or may not be read.
    """
    # Without O_NONBLOCK, opening a named pipe would wait for a writer.
    file = _open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotAFileError(errno.EINVAL, "something that is not a regular file")
    return file


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        # Which error links, sockets and devices raise differs with the flags and between systems, so look.
        if (what := _what_else(name, folder)) is not None:
            raise NotAFileError(errno.ELOOP, what) from error
        raise


def _what_else(name: str, folder: int) -> str | None:
    """What there is in place of a file or a folder; None if it is one of them, or nothing."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return "a symbolic link"
    return None if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else "something that is not a regular file"


def _is_folder(name: str, folder: int) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def status_of(name: str, folder: int) -> os.stat_result | None:
    """Status of a regular file, None if there is none of that name."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def touch(name: str, folder: int) -> bool:
    """Let a file count as written now; returns whether it could be: not if it is gone, or another user's."""
    try:
        os.utime(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, PermissionError):
        return False
    return True


@contextmanager
def temporary_file(folder: int) -> Iterator[tuple[int, str]]:
    """Make a file with a name of its own, which is removed after the ``with`` block unless it was renamed.

    Yields:
        File descriptor, open for writing and reading, and name; the name begins with a dot.
    """
    name = f".{uuid.uuid4()}{_SUFFIX}"
    file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        yield file, name
    finally:
        with suppress(OSError):
            os.close(file)
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)


def is_temporary(name: str) -> bool:
    """Whether a file's name is one of those that :func:`temporary_file` makes."""
    return name.startswith(".") and name.endswith(_SUFFIX)


def remove_temporary(folder: int, older_than_ms: int, *, below: bool) -> int:
    """Remove the temporary files of writers that were killed.

    Args:
        folder: An open folder.
        older_than_ms: Files that were written to more recently stay: their writers may be alive.
        below: Look into the folders below as well, which takes as long as listing them.

    Returns:
        How many files were removed.
    """
    removed = 0
    for parent, name in temporary_files(folder, older_than_ms, below=below):
        with suppress(FileNotFoundError, NotAFileError):  # gone, or replaced, since it was listed
            os.unlink(name, dir_fd=parent)
            removed += 1
    return removed


def temporary_files(folder: int, older_than_ms: int, *, below: bool, depth: int = 0) -> Iterator[tuple[int, str]]:
    """The files that :func:`remove_temporary` removes, each with its open folder."""
    limit = time.time() - older_than_ms / 1000
    with os.scandir(folder) as entries:
        for entry in entries:
            # Gone, or replaced, since it was listed; or another's.
            with suppress(FileNotFoundError, NotAFileError, PermissionError):
                if below and depth < MOST_FOLDERS and entry.is_dir(follow_symlinks=False):
                    with entered(folder, entry.name) as next_folder:
                        yield from temporary_files(next_folder, older_than_ms, below=True, depth=depth + 1)
                elif is_temporary(entry.name) and entry.stat(follow_symlinks=False).st_mtime <= limit:
                    yield folder, entry.name


def write_all(file: int, view: memoryview) -> None:
    """Write a buffer, however many calls the system needs for it (Linux takes 2 GiB at a time)."""
    while view:
        view = view[os.write(file, view) :]


def copy_all(source: int, target: int) -> None:
    """Copy the whole content of an open file into another one."""
    at = 0
    while block := os.pread(source, _COPY_BYTES, at):
        write_all(target, memoryview(block))
        at += len(block)


def sync_folder(folder: int) -> None:
    """Force a folder's entries to disk, where its file system can do that."""
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network file systems do not know it for folders; their server keeps the order.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
