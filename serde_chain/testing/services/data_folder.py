"""A folder whose data is kept, for one server at a time."""

import fcntl
import time
from pathlib import Path
from typing import IO

from serde_chain.testing.services.errors import ServiceStartError

# For a server whose program was killed, and which is ending.
WAIT_SECONDS = 25.0
_POLL_SECONDS = 0.05


def lock_folder(folder: Path, name: str, *, waits: bool = True) -> IO[bytes]:
    """Create a folder and lock it, for as long as the file, or a copy that a process inherited, is open.

    Args:
        folder: The folder.
        name: The server's name in messages.
        waits: Whether to wait for another one, which may be ending.

    Raises:
        ServiceStartError: The folder cannot be written to, or another server uses it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f"{name}.lock").open("ab")
    except OSError as error:
        message = f"the {name} server cannot keep its data in {folder}: {error.strerror}. Choose another folder"
        raise ServiceStartError(message) from error
    deadline = time.monotonic() + (WAIT_SECONDS if waits else 0)
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.close()
                message = f"the {name} server cannot start: another one uses {folder}. End it, or choose another folder"
                raise ServiceStartError(message) from None
            time.sleep(_POLL_SECONDS)
        except OSError as error:  # some network file systems have no locks
            lock.close()
            message = f"the {name} server cannot lock {folder}: {error.strerror}. Choose a folder on a local disk"
            raise ServiceStartError(message) from error
        else:
            return lock


def unlock(lock: IO[bytes]) -> None:
    """Release a folder, also where a forked process has a copy of the file.

    Args:
        lock: The locked file; closed.
    """
    fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


def wait_for_folders(folder: Path) -> None:
    """Wait until servers whose program was killed have ended, and their ports are free.

    Args:
        folder: The folder with a folder for each server.

    Raises:
        ServiceStartError: Another server uses one of them.
    """
    for lock in sorted(folder.glob("*/*.lock")):
        unlock(lock_folder(lock.parent, lock.stem))
