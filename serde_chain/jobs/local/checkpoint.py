"""A job's progress, in a local folder."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from serde_chain.errors import JobError
from serde_chain.jobs.migrating import State

__all__ = ["LocalCheckpoint"]


class LocalCheckpoint:
    """States in a local folder: a :class:`~serde_chain.jobs.migrating.Checkpoint`.

    Args:
        path: The folder; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = 0

    def read(self) -> State | None:
        """The last state; None if there is none.

        Raises:
            JobError: The folder is unreadable.
        """
        try:
            self._version, state = max(self._states(), default=(0, None))
            return None if state is None else State.from_json(state)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JobError(f"the checkpoint {self._path} cannot be read: {error!r}") from error

    def _states(self) -> Iterator[tuple[int, str]]:
        # Spark writes several files at once, and files of other names beside them.
        for file in self._path.glob("[!._]*.json") if self._path.exists() else ():
            for line in file.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                yield entry["version"], entry["state"]

    def write(self, state: State) -> None:
        """Add a state; it is on the disk before the call returns.

        Raises:
            JobError: The folder is unwritable.
        """
        self._version += 1
        name = f"part-{self._version:05d}-{uuid.uuid4()}.json"
        line = json.dumps({"version": self._version, "state": state.to_json()})
        hidden = self._path / f".{name}"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            with hidden.open("x", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(self._path / name)
        except OSError as error:
            raise JobError(
                f"the checkpoint {self._path} cannot be written: {error.strerror or error}",
                hint="Make it writable for this user, or, before the first run, name another one with --checkpoint "
                "(checkpoint= in Python)",
            ) from error
