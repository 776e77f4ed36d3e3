"""The list of payloads that a job deletes."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from serde_chain.errors import JobError


class Manifest:
    """The list of deleted payloads: each line is flushed before its payload is deleted.

    Args:
        path: The file; None for a new one in the current folder.

    Raises:
        JobError: The file is unwritable; looked at before a topic is read, which may take hours.
    """

    def __init__(self, path: str | Path | None) -> None:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        self.path = Path(f"serde-chain-sweep-{now}.jsonl").absolute() if path is None else Path(path)
        self._lock = threading.Lock()
        self._file: Any = None
        path = Path(os.path.realpath(self.path))
        if os.access(path, os.F_OK):  # Path.exists raises what it does not know
            is_writable = os.access(path, os.W_OK) and not path.is_dir()
        else:
            is_writable = os.access(f"{path.parent}/.", os.W_OK | os.X_OK)
        if not is_writable:
            raise self._unwritable("a folder, in no folder, or not this user's")

    def note(self, reference: str, size: int, modified: datetime) -> None:
        """Write a line.

        Raises:
            JobError: The file is unwritable.
        """
        line = json.dumps({"reference": reference, "size": size, "modified": modified.isoformat()})
        with self._lock:
            try:
                if self._file is None:
                    self._file = self.path.open("a", encoding="utf-8")
                self._file.write(line + "\n")
                self._file.flush()
            except OSError as error:
                raise self._unwritable(error.strerror or str(error)) from error

    def _unwritable(self, why: str) -> JobError:
        return JobError(
            f"the list of deleted payloads cannot be written to {self.path}: {why}",
            hint="Name a file that this user can write, with --manifest (manifest= in Python)",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):  # each line was flushed, or its error raised, before
                self._file.close()
