"""The dead keys of compacted topics, and what their records refer to, in a temporary file."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from serde_chain.codec import Record
from serde_chain.jobs.scratch import Scratch

TABLES: Final = (
    "CREATE TABLE buried (owner BLOB, part INTEGER, until INTEGER, PRIMARY KEY (owner, part)) WITHOUT ROWID",
    "CREATE TABLE held (owner BLOB, digest BLOB, name INTEGER, PRIMARY KEY (owner, digest, name)) WITHOUT ROWID",
)
"""The tables: tombstones by key and partition; the names of payloads that only records before a tombstone refer to."""

_PAGE: Final = 20_000


class DeadKeys:
    """Keys whose newest record is a tombstone, with bounded memory.

    A key is known by its topic and its bytes in the log, as the log cleaner knows it.

    Args:
        scratch: A file with the :data:`TABLES`.
        topics: The topics in which tombstones count.
        before_ms: Tombstones count if they were written before this time, in ms since the epoch.
    """

    def __init__(self, scratch: Scratch, topics: frozenset[str], before_ms: int) -> None:
        self._scratch, self._topics, self._before_ms = scratch, topics, before_ms
        self._is_empty = True
        self._held: list[tuple[bytes, bytes, int]] = []

    def bury(self, records: Iterable[Record]) -> None:
        """Find the dead keys.

        Args:
            records: The committed records of these topics, by partition in their order.
        """
        newest: dict[tuple[bytes, int], int | None] = {}
        for record in records:
            if record.key is not None:
                newest[self._owner(record), record.partition or 0] = record.offset if self._is_old(record) else None
                if len(newest) >= _PAGE:
                    self._keep(newest)
        self._keep(newest)
        self._is_empty = not self.count()

    def _keep(self, newest: dict[tuple[bytes, int], int | None]) -> None:
        """Keep the tombstones of a batch, in sorted order, which is faster; only they need space."""
        rows = sorted(newest)
        later = (place for place in rows if newest[place] is None)
        self._scratch.add("DELETE FROM buried WHERE owner = ? AND part = ?", later)
        dead = ((*place, until) for place in rows if (until := newest[place]) is not None)
        self._scratch.add("INSERT OR REPLACE INTO buried VALUES (?, ?, ?)", dead)
        newest.clear()

    def _is_old(self, record: Record) -> bool:
        """Whether a record is a tombstone that counts; one without a timestamp may be new."""
        return record.value is None and record.timestamp is not None and record.timestamp < self._before_ms

    def dead_key_of(self, record: Record) -> bytes | None:
        """The dead key of a record before its tombstone; None if the record counts. A later record revives its key."""
        if self._is_empty or record.key is None or record.topic not in self._topics:
            return None
        owner = self._owner(record)
        tombstones = dict(self._scratch.rows("SELECT part, until FROM buried WHERE owner = ?", owner))
        if not tombstones:
            return None
        until, offset = tombstones.get(record.partition or 0, -1), record.offset or 0
        if offset > until:
            self._revive(owner)
        return owner if offset < until else None

    def hold(self, owner: bytes, digest: bytes, names: Iterable[int]) -> None:
        """Keep what a dead key's record refers to, in case the key revives.

        Args:
            owner: The key.
            digest: The digest of the reference.
            names: The names of its payload.
        """
        self._held += ((owner, digest, name) for name in names)
        if len(self._held) >= _PAGE:
            self._flush()

    def _flush(self) -> None:
        self._scratch.add("INSERT OR IGNORE INTO held VALUES (?, ?, ?)", sorted(self._held))
        self._held.clear()

    def _revive(self, owner: bytes) -> None:
        """Count all records of a key."""
        self._flush()
        for statement in (
            "INSERT OR IGNORE INTO used SELECT name FROM held WHERE owner = ?",
            "INSERT OR IGNORE INTO live SELECT DISTINCT digest FROM held WHERE owner = ?",
            "DELETE FROM buried WHERE owner = ?",
        ):
            self._scratch.add(statement, [(owner,)])

    def count(self) -> int:
        """The number of dead keys."""
        return int(self._scratch.value("SELECT count(DISTINCT owner) FROM buried"))

    @staticmethod
    def _owner(record: Record) -> bytes:
        return blake2b(b"%s/%s" % (record.topic.encode(), record.key), digest_size=16).digest()
