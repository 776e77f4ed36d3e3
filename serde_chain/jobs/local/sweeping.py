"""Deletes unreferenced payloads, in one process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, Self

from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.jobs.deleting import IN_FLIGHT
from serde_chain.jobs.finding import ReferenceFinder
from serde_chain.jobs.local import dead_keys
from serde_chain.jobs.local.dead_keys import DeadKeys
from serde_chain.jobs.local.topic_records import is_marked, read_records
from serde_chain.jobs.payload_folders import IdRange, ListedPayload, list_folders, pages_of
from serde_chain.jobs.scratch import Scratch
from serde_chain.jobs.sweeping import DAY_MS, Progress, ReadResult, Scope, SweepReport, Unreadable, run_sweep
from serde_chain.jobs.topic_bounds import READ_COMMITTED, READ_UNCOMMITTED, Ends

_PAGE: Final = 20_000
_PAYLOADS: Final = "name INTEGER, reference TEXT, size INTEGER, modified INTEGER, folder INTEGER"
_TABLES: Final = (
    f"CREATE TABLE listed (at INTEGER PRIMARY KEY, {_PAYLOADS})",
    f"CREATE TABLE orphans (at INTEGER PRIMARY KEY, {_PAYLOADS})",
    "CREATE TABLE used (name INTEGER PRIMARY KEY)",
    "CREATE TABLE live (digest BLOB PRIMARY KEY) WITHOUT ROWID",
    *dead_keys.TABLES,
)
_COLUMNS: Final = ", ".join(ListedPayload._fields)
_INSERT: Final = f"({_COLUMNS}) VALUES ({', '.join('?' * len(ListedPayload._fields))})"


def sweep(
    config: Config | str | Path,
    topics: str | Sequence[str],
    *,
    grace_ms: int = DAY_MS,
    delete: bool = False,
    manifest: str | Path | None = None,
    progress: Callable[[str, int], None] | None = None,
    deletes_in_flight: int = IN_FLIGHT,
    tombstones: bool = False,
) -> SweepReport:
    """Delete the payloads of some topics that no record in them refers to.

    These are left behind by killed producers and by expired records. The topics are read by this process, with bounded
    memory: names of payloads are in a temporary file, of about 200 bytes for each listed payload and 50 for each
    reference. :func:`serde_chain.spark.jobs.sweep` does the same with Spark.

    Safe beside producers and readers. All records in the log count, including those of open and aborted transactions,
    and the records of all named topics count together: name every topic that may refer to these payloads, including
    mirrors and dead-letter topics.

    With ``tombstones``, the records of a dead key do not count, though compaction has not removed them yet (KIP-1159,
    clean-up of compacted topics): a key whose newest record is a committed tombstone, older than the grace period. In
    a topic where the key has records in several partitions, that is required of each. Tombstones count in compacted
    topics only.

    Args:
        config: The configuration of a consumer or a producer with ``large-message`` or ``large-fields``: a mapping, or
            a file's path. Records with fields in the store are decoded, which requires their schema.
        topics: The topics. Only payloads in their own folders, below the stores' own prefixes, are considered.
        grace_ms: Minimum age of deleted payloads in ms: the records of younger ones may still come. Must exceed the
            time from an upload to its record in the topic, and the producers' ``large.message.grace.ms``.
        delete: Delete the payloads; otherwise only count them.
        manifest: The file for the list of deleted payloads; it is appended to. By default a new one in the
            current folder.
        progress: Called with the current activity and a number.
        deletes_in_flight: Most deletions at a time. One deletes up to a thousand payloads if their ids are random (the
            default) and the store can.
        tombstones: Do not count the records of dead keys. Their age is that of the tombstone's timestamp, which is the
            producer's unless the topic has ``message.timestamp.type = LogAppendTime``. The topics are read twice.

    Raises:
        ConfigError: The configuration is wrong, or none of its stores supports both listing and deletion.
        JobError: A topic does not exist, is not readable to its end, or is empty although it has payloads; most
            placeholders are unreadable; a record with fields in the store is undecodable; a store, or the temporary
            file, failed; with ``tombstones``, no topic is compacted. Nothing is deleted after that; run it again.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = sweep("consumer.toml", ["alerts", "alerts-dead"])  # doctest: +SKIP
        >>> report.orphans, report.bytes  # doctest: +SKIP
        (12, 40960000)
    """
    return run_sweep(
        configuration.load(config),
        topics,
        LocalSweep,
        grace_ms=grace_ms,
        delete=delete,
        manifest=manifest,
        progress=progress,
        deletes_in_flight=deletes_in_flight,
        tombstones=tombstones,
    )


class LocalSweep:
    """The local engine of a sweep: a :class:`~serde_chain.jobs.sweeping.SweepEngine`.

    Args:
        scope: What the sweep is about.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._finder = ReferenceFinder(scope.plan, scope.readers)
        self._scratch = Scratch(*_TABLES)
        self._dead = DeadKeys(self._scratch, scope.compacted, scope.before_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.close()

    def list_payloads(self, progress: Progress) -> Counter[int]:
        """List all folders, one after the other."""
        scope = self._scope
        by_folder: Counter[int] = Counter()
        listed = list_folders(scope.folders, map(IdRange, range(len(scope.folders))), scope.stores, scope.before)
        for page in pages_of(listed, _PAGE):
            self._scratch.add(f"INSERT INTO listed {_INSERT}", page)
            by_folder.update(payload.folder for payload in page)
            progress("payloads listed", by_folder.total())
        return by_folder

    def bury(self, first: Ends, ends: Ends) -> None:
        """Read committed records with one consumer."""
        self._dead.bury(read_records(self._scope.config, first, ends, READ_COMMITTED))

    def read(self, first: Ends, ends: Ends) -> ReadResult:
        """Read records with one consumer."""
        records: Counter[str] = Counter()
        placeholders = malformed = 0
        unreadable: Unreadable | None = None
        kept = _Kept(self._scratch)
        for record in read_records(self._scope.config, first, ends, READ_UNCOMMITTED):
            records[record.topic] += 1
            owner = self._dead.dead_key_of(record)
            if not is_marked(record, self._scope.plan.markers):
                continue
            for found in self._finder.find([record])[0]:
                placeholders += 1
                malformed += found.malformed
                if found.reference is not None:
                    digest = _digest(found.reference.url)
                    if owner is None or found.kind is not None:
                        kept.keep(digest, found.names)
                    else:
                        self._dead.hold(owner, digest, found.names)
                else:
                    kept.keep_names(found.names)
                if found.kind is not None:
                    place = (record.topic, record.partition or 0, record.offset or 0, found.field)
                    bad = Unreadable(found.malformed, *place, found.kind, found.message or "")
                    unreadable = bad if unreadable is None else min(unreadable, bad)
        kept.flush()
        return ReadResult(records, placeholders, malformed, unreadable)

    def compare(self) -> Iterator[tuple[int, int]]:
        """Look up the listed payloads, page by page: a query for all could not be interrupted."""
        count = size = 0
        for page in self._pages("listed", "AND NOT EXISTS (SELECT 1 FROM used WHERE used.name = listed.name)"):
            self._scratch.add(f"INSERT INTO orphans {_INSERT}", page)
            count += len(page)
            size += sum(payload.size for payload in page)
            yield count, size

    def orphans(self) -> Iterator[list[ListedPayload]]:
        """The orphans in the table."""
        return self._pages("orphans")

    def still_orphans(self, page: list[ListedPayload]) -> list[ListedPayload]:
        """Look up the payloads of a page again."""
        is_used = "SELECT EXISTS (SELECT 1 FROM used WHERE name = ?)"
        return [payload for payload in page if not self._scratch.value(is_used, payload.name)]

    def count_live(self) -> int:
        """Count the references."""
        return int(self._scratch.value("SELECT count(*) FROM live"))

    def count_dead(self) -> int:
        """Count the keys."""
        return self._dead.count()

    def _pages(self, table: str, where: str = "") -> Iterator[list[ListedPayload]]:
        last = self._scratch.value(f"SELECT coalesce(max(at), 0) FROM {table}")  # noqa: S608, fixed names
        query = f"SELECT {_COLUMNS} FROM {table} WHERE at > ? AND at <= ? {where}"  # noqa: S608, fixed names
        for at in range(0, last, _PAGE):
            yield [ListedPayload(*row) for row in self._scratch.rows(query, at, at + _PAGE)]


def _digest(reference: str) -> bytes:
    return blake2b(reference.encode(errors="surrogatepass"), digest_size=16).digest()


class _Kept:
    """Names and references on their way into the tables: in sorted batches, which is faster."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._names: set[int] = set()
        self._digests: set[bytes] = set()

    def keep(self, digest: bytes, names: Sequence[int]) -> None:
        self._digests.add(digest)
        self.keep_names(names)

    def keep_names(self, names: Sequence[int]) -> None:
        """Keep what an unreadable placeholder may refer to, which is no live reference."""
        self._names.update(names)
        if len(self._names) >= _PAGE:
            self.flush()

    def flush(self) -> None:
        self._scratch.add("INSERT OR IGNORE INTO used VALUES (?)", ((name,) for name in sorted(self._names)))
        self._scratch.add("INSERT OR IGNORE INTO live VALUES (?)", ((digest,) for digest in sorted(self._digests)))
        self._names.clear()
        self._digests.clear()
