"""A folder whose data is kept, for one server at a time."""

import fcntl
import time
from pathlib import Path
from typing import IO

from serde_chain.testing.services.errors import ServiceStartError

_POLL_SECONDS = 0.05


def lock_folder(folder: Path, name: str, *, seconds: float) -> IO[bytes]:
    """Create a folder and lock it, for as long as the file, or a copy that a process inherited, is open.

    Args:
        folder: The folder.
        name: The server's name in messages.
        seconds: Longest wait for a server whose program was killed, and which is ending.

    Raises:
        ServiceStartError: The folder cannot be written to, or another server uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{name}.lock").open("ab")
    except OSError as error:
        message = f"the {name} server cannot keep its data in {folder}: {error.strerror}. Choose another folder"
        raise ServiceStartError(message) from error
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.close()
                message = f"the {name} server cannot start: another one uses {folder}. End it, or choose another folder"
                raise ServiceStartError(message) from None
            time.sleep(_POLL_SECONDS)
        else:
            return lock
