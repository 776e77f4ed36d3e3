"""A cache folder outside any project for files fetched or built once: jars, archives, programs."""

import fcntl
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serde_chain.testing.services.errors import ServiceError

_PROGRESS_SECONDS = 5.0


def cache_folder() -> Path:
    """The cache: ``$SERDE_CHAIN_CACHE``, or ``~/.cache/serde-chain``."""
    configured = os.environ.get("SERDE_CHAIN_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "serde-chain"


def cached(name: str, fill: Callable[[Path], None], *, what: str) -> Path:
    """A folder of the cache, filled on first use.

    It appears under its name only when complete, so an interrupted fetch leaves nothing that looks complete. Of several
    concurrent processes, one fills it and the others wait.

    Args:
        name: The folder's name. It includes the version of the contents, since an existing folder is never
            filled again.
        fill: Fills an empty folder.
        what: The contents, for the progress line on stderr.

    Returns:
        The complete folder.

    Raises:
        ServiceError: The cache folder is not writable. Errors of `fill` are passed on.
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
    # The lock is held, so only an interrupted process can have left this.
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    started = time.monotonic()
    sys.stderr.write(f"serde-chain: getting {what}, once ...\n")
    sys.stderr.flush()
    try:
        with _progress(what, started):
            fill(partial)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    sys.stderr.write(f"serde-chain: got {what} in {time.monotonic() - started:.0f} s\n")


@contextmanager
def _progress(what: str, started: float) -> Iterator[None]:
    """Print a line every few seconds, since a fetch can take minutes."""
    done = threading.Event()

    def show() -> None:
        while not done.wait(_PROGRESS_SECONDS):
            sys.stderr.write(f"serde-chain: getting {what} ... {time.monotonic() - started:.0f} s\n")
            sys.stderr.flush()

    thread = threading.Thread(target=show, name="progress of a fetch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file; the system releases it even if the process is killed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w")
    except OSError as error:
        message = f"cannot write to the cache: {error}; set SERDE_CHAIN_CACHE to a writable folder"
        raise ServiceError(message) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
