"""A folder outside any project for what is fetched or built once: jars, archives, programs."""

import fcntl
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serde_chain.testing.services.errors import ServiceError


def cache_folder() -> Path:
    """The cache: ``$SERDE_CHAIN_CACHE``, or ``~/.cache/serde-chain``."""
    configured = os.environ.get("SERDE_CHAIN_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "serde-chain"


def cached(name: str, fill: Callable[[Path], None], *, what: str) -> Path:
    """A folder of the cache, filled the first time it is asked for.

    It appears under its name only when it is complete, so an interrupted fetch leaves nothing that
    looks whole; of several processes that ask at once, one fills it and the others wait.

    Args:
        name: The folder's name. It carries the version of its contents, since a folder that is
            there is never filled again.
        fill: Called with an empty folder to put the contents into.
        what: What is being fetched, for the line of progress on stderr.

    Returns:
        The complete folder.

    Raises:
        ServiceError: The cache folder cannot be written. What `fill` raises is passed on.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    with _locked(folder.with_name(folder.name + ".lock")):
        if not folder.is_dir():
            _fill(folder, fill, what)
    return folder


def _fill(folder: Path, fill: Callable[[Path], None], what: str) -> None:
    partial = folder.with_name(folder.name + ".partial")
    # The lock is held, so this can only be what an interrupted process left.
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    started = time.monotonic()
    sys.stderr.write(f"serde-chain: getting {what}, once ...\n")
    sys.stderr.flush()
    try:
        fill(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sys.stderr.write(f"serde-chain: got {what} in {time.monotonic() - started:.0f} s\n")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the system releases it even if the process is killed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        message = f"cannot write to the cache: {error}; set SERDE_CHAIN_CACHE to a folder that can be written"
        raise ServiceError(message) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
