"""Files that are read again when they change, and files that are replaced at once."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from payload_stores.errors import ConfigError

__all__ = ["Watched", "replace", "toml"]

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Watched(Generic[T]):
    """A parsed file. A change counts with the next request; one that cannot be read is logged, and what was stays.

    Args:
        path: The file.
        parse: Makes something of its bytes; raises ConfigError.

    Raises:
        ConfigError: It cannot be read at the start.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T]) -> None:
        self._path = path
        self._parse = parse
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._value = self._read()

    def get(self) -> T:
        """What the file says now."""
        with self._lock:
            try:
                stamp = self._stamp()
                if stamp != self._seen:
                    # First, so that what cannot be read is reported once.
                    self._seen = stamp
                    self._value = self._read()
                    _log.info("%s has changed and was read again", self._path)
            except ConfigError as error:
                _log.error("the last good content of %s stays in use: %s", self._path, error)
            return self._value

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


def toml(data: bytes) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ConfigError: It is something else.
    """
    try:
        return tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"not TOML: {error}") from None


def replace(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in place of what was there; readers see the one or the other.

    Raises:
        ConfigError: It cannot be written.
    """
    try:
        # mkstemp makes files that only their owner may read.
        file, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(file, "w") as stream:
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
