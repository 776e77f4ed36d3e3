"""Files reloaded when they change, and files replaced atomically."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import tempfile
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from payload_stores.errors import ConfigError

_log = logging.getLogger(__name__)

T = TypeVar("T")


@runtime_checkable
class SupportsReload(Protocol):
    """Something loaded from a file, and reloadable."""

    def reload(self) -> None:
        """Reload it; if unreadable, log it and keep the previous content."""
        ...


class Watched(Generic[T]):
    """A parsed file. Changes apply to the next request; unreadable ones are logged and ignored.

    Args:
        path: The file.
        parse: Parses its bytes; raises ConfigError.

    Raises:
        ConfigError: The file is unreadable at the start.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self._path = path
        self._parse = parse
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._value = self._read()

    def get(self) -> T:
        """The current content of the file."""
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                # First, so that an unreadable file is reported once.
                self._seen = stamp
                self._read_again("has changed and was read again")
            return self._value

    def reload(self) -> None:
        """Reload the file even if it looks unchanged; see :class:`SupportsReload`."""
        with self._lock:
            self._seen = self._stamp()
            self._read_again("was read again")

    def _read_again(self, what: str) -> None:
        try:
            self._value = self._read()
            _log.info("%s %s", self._path, what)
        except ConfigError as error:
            _log.error("the last good content of %s stays in use: %s", self._path, error)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> T:
        try:
            return self._parse(self._path.read_bytes())
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}") from error
        except ConfigError as error:
            raise ConfigError(f"{self._path}: {error.message}", hint=error.hint) from error


def warn_if_readable(path: Path) -> None:
    """Log a warning if a file of secrets is accessible to others than its owner."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return
    if mode & 0o077:
        _log.warning("%s may be read or changed by others (mode %o): chmod 600 %s", path, mode, path)


class LockedFolder:
    """A folder locked by one process.

    Args:
        folder: The folder; if missing, created for its owner only.

    Attributes:
        was_killed: Whether the previous process did not release it.

    Raises:
        ConfigError: The folder cannot be created, or another process has it.
    """

    def __init__(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(folder / "index.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made: {error.strerror}") from error
        owner = os.pread(self._file, 20, 0).decode("ascii", "replace").strip()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(self._file)
            if not isinstance(error, BlockingIOError):
                raise ConfigError(f"{folder} cannot be locked: {error.strerror}") from error
            raise ConfigError(
                f"another server has the folder {str(folder)!r}" + (f", process {owner}" if owner else ""),
                hint="One server has one folder for its index: stop the other one, or give this one its own",
            ) from None
        self.was_killed = bool(owner)

    def give_back(self) -> None:
        """Release it for another process."""
        if self._file >= 0:
            os.truncate(self._file, 0)
            os.close(self._file)
            self._file = -1


def toml(data: bytes) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ConfigError: Not TOML.
    """
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"not TOML: {error}") from None


def replace(path: Path, text: str) -> None:
    """Replace a file atomically by one readable for its owner only.

    The owner does not change: root may add users to the file of a server that runs as another user.

    Raises:
        ConfigError: The file cannot be written.
    """
    try:
        # mkstemp makes files readable for their owner only.
        file, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(file, "w") as stream:
                owner = path.stat().st_uid if path.exists() else os.geteuid()
                if owner != os.geteuid():
                    os.fchown(file, owner, -1)
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
