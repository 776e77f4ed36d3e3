"""Files and folders below a root for the local store: follows no links and leaves no partial files.

All functions use open folders (POSIX ``openat`` and friends), so a path cannot change its meaning between check and
use. Errors are OSError, and :class:`NotAFileError` for links and other special files.
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

Folder: TypeAlias = AbstractContextManager[int]

# Folder in a store's root for payloads being written. It marks the root as a store: an empty mount point has none. It
# is a folder, not a file, because `find -type f -mtime … -delete` is a common way to expire payloads.
MARKER: Final = ".payload-store"

MOST_FOLDERS: Final = 64
"""Maximum depth of nested folders: each is kept open, and only other programs nest deeper."""

_SUFFIX: Final = ".part"
_COPY_BYTES: Final = 1 << 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class NotAFileError(OSError):
    """A symbolic link, named pipe, socket or device instead of a file or folder."""


@contextmanager
def entered(root: Path | int, *names: str) -> Iterator[int]:
    """Open a folder by its path below a root, during a ``with`` block.

    Args:
        root: Path of the root, which may contain links, or an open folder.
        *names: The folders below it.

    Yields:
        File descriptor of the last folder.

    Raises:
        NotAFileError: A name is a symbolic link.
        OSError: A name does not exist, or is not a folder.
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
    """Like :func:`entered`, but create missing folders below the root.

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
                # Even if the folder exists: its creator may not have synced it yet.
                sync_folder(here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def check_can_be_made(root: Path) -> None:
    """Check that a folder can be created, by creating and removing a temporary one in its nearest existing parent.

    Args:
        root: Its path.

    Raises:
        OSError: It cannot be created.
    """
    nearest = next(folder for folder in (root, *root.parents) if folder.exists())
    Path(tempfile.mkdtemp(prefix=f"{MARKER}-", dir=nearest)).rmdir()


def make_root(root: Path, *, durable: bool) -> None:
    """Create a folder and its missing parents.

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
    """Whether a path leads into an existing store, regardless of whether its target exists.

    True if a folder on the path has the marker, or if all of them exist: stores filled by versions before the marker
    have none.

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
    """Open a regular file for reading; refuse anything else without blocking.

    Args:
        name: Name in the folder.
        folder: An open folder.

    Raises:
        NotAFileError: Not a regular file.
        OSError: The file does not exist, or is not readable.
    """
    # Without O_NONBLOCK, opening a named pipe blocks until there is a writer.
    file = _open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, folder)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise NotAFileError(errno.EINVAL, "something that is not a regular file")
    return file


def _open(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        # The errors for links, sockets and devices depend on flags and systems, so check the type.
        if (what := _what_else(name, folder)) is not None:
            raise NotAFileError(errno.ELOOP, what) from error
        raise


def _what_else(name: str, folder: int) -> str | None:
    """The kind of a special file; None for a file, a folder, or a missing name."""
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
    """Status of a regular file; None if there is none with that name."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def touch(name: str, folder: int) -> bool:
    """Set a file's time to now; returns False if it is gone, or belongs to another user."""
    try:
        os.utime(name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, PermissionError):
        return False
    return True


@contextmanager
def temporary_file(folder: int) -> Iterator[tuple[int, str]]:
    """Create a file with a unique name; the end of the ``with`` block removes it unless it was renamed.

    Yields:
        File descriptor, open for reading and writing, and name; the name begins with a dot.
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
    """Whether a file's name was made by :func:`temporary_file`."""
    return name.startswith(".") and name.endswith(_SUFFIX)


def remove_temporary(folder: int, older_than_ms: int, *, below: bool) -> int:
    """Remove temporary files of killed writers.

    Args:
        folder: An open folder.
        older_than_ms: Files modified more recently stay: their writers may be alive.
        below: Include the folders below, which takes as long as listing them.

    Returns:
        Number of removed files.
    """
    removed = 0
    for parent, name in temporary_files(folder, older_than_ms, below=below):
        with suppress(FileNotFoundError, NotAFileError):  # gone or replaced since it was listed
            os.unlink(name, dir_fd=parent)
            removed += 1
    return removed


def temporary_files(folder: int, older_than_ms: int, *, below: bool, depth: int = 0) -> Iterator[tuple[int, str]]:
    """The files for :func:`remove_temporary`, each with its open folder."""
    limit = time.time() - older_than_ms / 1000
    with os.scandir(folder) as entries:
        for entry in entries:
            # Gone or replaced since it was listed, or another user's.
            with suppress(FileNotFoundError, NotAFileError, PermissionError):
                if below and depth < MOST_FOLDERS and entry.is_dir(follow_symlinks=False):
                    with entered(folder, entry.name) as next_folder:
                        yield from temporary_files(next_folder, older_than_ms, below=True, depth=depth + 1)
                elif is_temporary(entry.name) and entry.stat(follow_symlinks=False).st_mtime <= limit:
                    yield folder, entry.name


def write_all(file: int, view: memoryview) -> None:
    """Write a whole buffer, in several calls if necessary (Linux writes at most 2 GiB per call)."""
    while view:
        view = view[os.write(file, view) :]


def copy_all(source: int, target: int) -> None:
    """Copy an open file into another."""
    at = 0
    while block := os.pread(source, _COPY_BYTES, at):
        write_all(target, memoryview(block))
        at += len(block)


def sync_folder(folder: int) -> None:
    """Force a folder's entries to disk, if its file system supports it."""
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network file systems do not support it for folders; their server keeps the order.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
