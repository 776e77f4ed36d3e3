"""The index of messages: a SQLite file, so that restarts lose nothing and ids are unique."""

from __future__ import annotations

import os
import sqlite3
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from payload_stores.errors import ConfigError, PayloadStoreUnavailableError

_VERSION: Final = 2
# Wait for another process holding the file, such as a backup.
_WAIT_SECONDS: Final = 10.0

_HOUR_MS: Final = 3_600_000

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS messages (
    id BLOB PRIMARY KEY,
    topic TEXT NOT NULL,
    reference TEXT NOT NULL,
    size INTEGER NOT NULL,
    headers BLOB NOT NULL,
    key BLOB,
    timestamp INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uploads (
    user TEXT NOT NULL,
    hour INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (user, hour)
) WITHOUT ROWID;
PRAGMA user_version = {_VERSION};
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message.

    Attributes:
        id: Its id.
        topic: Its topic.
        reference: The payload's reference.
        size: The payload's size in bytes.
        headers: The headers, written by :func:`~payload_stores.offload_server.responses.stored_headers`.
        key: The record's key.
        timestamp_ms: Upload time, in ms since 1970.
    """

    id: UUID
    topic: str
    reference: str
    size: int
    headers: bytes
    key: bytes | None
    timestamp_ms: int


class Index:
    """The messages by id. Thread-safe; the file is accessible to its owner only.

    Args:
        path: The file; created if missing.

    Raises:
        ConfigError: Not an index, or one of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._make_private(path)
        try:
            self._connection = sqlite3.connect(
                path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                self._prepare(path)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise ConfigError(f"the index {path} cannot be opened: {error}") from error

    def add(self, entry: Entry) -> bool:
        """Add a message durably.

        Returns:
            Whether it was added: False if the id is taken.
        """
        values = (
            entry.id.bytes, entry.topic, entry.reference, entry.size, entry.headers, entry.key, entry.timestamp_ms,
        )  # fmt: skip
        changed = self._run("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", values)
        return changed[0] == 1

    def find(self, message_id: UUID) -> Entry | None:
        """Find a message; None if there is none."""
        _, rows = self._run("SELECT * FROM messages WHERE id = ?", (message_id.bytes,))
        return Entry(message_id, *rows[0][1:]) if rows else None

    def uploaded(self, user: str, since_ms: int) -> int:
        """Number of bytes noted for a user's uploads since the beginning of an hour.

        Args:
            user: The user.
            since_ms: A time in that hour, in ms since 1970.
        """
        statement = "SELECT coalesce(sum(bytes), 0) FROM uploads WHERE user = ? AND hour >= ?"
        _, rows = self._run(statement, (user, since_ms // _HOUR_MS))
        return int(rows[0][0])

    def note_upload(self, user: str, size: int, at_ms: int, *, keep_ms: int) -> None:
        """Note an upload for :meth:`uploaded`, and delete old notes of its user.

        Args:
            user: The user.
            size: The payload's size in bytes.
            at_ms: Upload time, in ms since 1970.
            keep_ms: Age of the deleted notes, in ms.
        """
        added = "INSERT INTO uploads VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET bytes = bytes + excluded.bytes"
        self._run(added, (user, at_ms // _HOUR_MS, size))
        self._run("DELETE FROM uploads WHERE user = ? AND hour < ?", (user, (at_ms - keep_ms) // _HOUR_MS))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @staticmethod
    def _make_private(path: Path) -> None:
        """Set the mode of the index; SQLite copies it to its other files."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            for file in path.parent.glob(f"{path.name}*"):
                file.chmod(0o600)
        except OSError as error:
            raise ConfigError(f"the index {path} cannot be opened: {error.strerror}") from error

    def _prepare(self, path: Path) -> None:
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise ConfigError(f"the index {path} is of version {version}, this program knows {_VERSION}")
        # Readers do not wait for the writer; FULL because a message must not be lost after its 201.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        if version < _VERSION:
            self._connection.executescript(_SCHEMA)

    def _run(self, statement: str, values: tuple[object, ...]) -> tuple[int, list[tuple[Any, ...]]]:
        try:
            with self._lock:
                cursor = self._connection.execute(statement, values)
                return cursor.rowcount, cursor.fetchall()
        except sqlite3.Error as error:
            raise PayloadStoreUnavailableError(f"the index of messages failed: {error}") from error
