"""The rules of a sweep, which deletes unreferenced payloads. An engine lists, reads and compares.

The order makes it safe beside producers. The stores are listed first, then the topics are read to their ends, and new
records are read before each page of deletions. A payload that is old enough to be listed, and in no record of the log
by then, belongs to no future record either: a producer sends its record within the grace period, or renews the
object.

With tombstones, the records of a dead key do not count (KIP-1159, clean-up of compacted topics). A key is dead if
its newest record is a tombstone that is committed and older than the grace period. Tombstones are looked for before
the records are read, and among committed records only: an aborted one deletes nothing. Every other record of the key
that is read afterwards, committed or not, revives it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from payload_stores.base import PayloadStore, SupportsClock
from payload_stores.errors import PayloadStoreError
from serde_chain.chain import DeserializerChain
from serde_chain.config import resolve
from serde_chain.errors import ConfigError, JobError
from serde_chain.jobs.deleting import IN_FLIGHT, Deleter
from serde_chain.jobs.manifest import Manifest
from serde_chain.jobs.payload_folders import Folder, ListedPayload, folders_of, stores_of
from serde_chain.jobs.reference_plan import ReferencePlan, open_readers, plan_reading
from serde_chain.jobs.topic_bounds import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Ends,
    TopicBounds,
    compacted_topics,
    named_topics,
)

_log = logging.getLogger("serde_chain")

DAY_MS: Final = 86_400_000
# Answers take time, and have a resolution of seconds.
_SKEW: Final = timedelta(seconds=10)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# librdkafka's defaults, in ms.
_DELIVERY: Final = (("delivery.timeout.ms", "message.timeout.ms"), 300_000)
_TRANSACTION: Final = (("transaction.timeout.ms",), 60_000)

Progress: TypeAlias = Callable[[str, int], None]
"""Called with the current activity and a number."""


@dataclass(frozen=True)
class SweepReport:
    """The result of a sweep.

    Attributes:
        live: Number of payloads that the records refer to.
        listed: Number of the topics' payloads older than the grace period.
        orphans: Number of listed payloads without a record.
        deleted: Number of deleted payloads, without those that were renewed in the meantime.
        bytes: Total size of the deleted payloads; in a dry run, of the orphans.
        manifest: The list of deleted payloads, a file with one JSON object per line; None if nothing was deleted.
        warnings: Messages for the operator: a short grace period, skipped stores, unreadable placeholders, payloads
            that could not be deleted.
        dead_keys: Number of keys whose records do not count, because a tombstone follows them; 0 unless tombstones
            were asked for.
    """

    live: int
    listed: int
    orphans: int
    deleted: int
    bytes: int
    manifest: Path | None
    warnings: tuple[str, ...] = ()
    dead_keys: int = 0


@dataclass(frozen=True)
class Scope:
    """What a sweep is about.

    Attributes:
        config: Flat configuration of a client.
        plan: The plan for reading references.
        readers: Its chains, by field.
        stores: The stores.
        folders: The topics' folders in stores that support listing and deletion.
        before: Only payloads written before this time are listed, and only tombstones written before it count.
        compacted: The topics in which tombstones count.
    """

    config: Mapping[str, object]
    plan: ReferencePlan
    readers: Mapping[str, DeserializerChain]
    stores: Sequence[PayloadStore]
    folders: Sequence[Folder]
    before: datetime
    compacted: frozenset[str] = frozenset()

    @property
    def before_ms(self) -> int:
        """The same time in ms since the epoch."""
        return (self.before - _EPOCH) // timedelta(milliseconds=1)


class Unreadable(NamedTuple):
    """An unreadable placeholder; the smaller one of two is reported.

    Attributes:
        malformed: Whether it is unreadable by itself, to any reader.
        topic: The record's topic.
        partition: Its partition.
        offset: Its offset.
        field: Its field, ``key`` or ``value``.
        kind: The error's class.
        message: Its message.
    """

    malformed: bool
    topic: str
    partition: int
    offset: int
    field: str
    kind: str
    message: str


class ReadResult(NamedTuple):
    """What an engine has read.

    Attributes:
        records: Number of records, by topic.
        placeholders: Number of references and unreadable placeholders in them.
        malformed: Number of those that are unreadable by themselves.
        first_unreadable: The smallest of the unreadable ones.
    """

    records: Mapping[str, int]
    placeholders: int
    malformed: int
    first_unreadable: Unreadable | None


class SweepEngine(Protocol):
    """Lists, reads and compares for one sweep, with bounded memory. Its methods are called in the order below.

    Raises:
        JobError: A part of it failed, from any method.
        PayloadStoreError: A listing is incomplete.
    """

    def list_payloads(self, progress: Progress) -> Counter[int]:
        """List all folders, and keep the payloads.

        Returns:
            The number of payloads by the index of their folder.
        """

    def bury(self, first: Ends, ends: Ends) -> None:
        """Find the dead keys: those whose newest committed record in a partition is a tombstone that is old enough.

        Called only if tombstones count in some topics.

        Args:
            first: Start offsets of these topics' partitions.
            ends: End offsets of their committed records.
        """

    def read(self, first: Ends, ends: Ends) -> ReadResult:
        """Read the records between some offsets, and keep the names of the payloads that they refer to.

        Records removed from a partition's beginning in the meantime are omitted: no reader sees them any more. A dead
        key's records before its tombstone do not count. A later record revives the key, as does one in a partition
        without a tombstone; then all its records count, including those of earlier calls.
        """

    def compare(self) -> Iterator[tuple[int, int]]:
        """Find the orphans: listed payloads of which no record read so far refers to a name. Keeps them.

        Yields:
            Their number and total size so far, after each part.
        """

    def orphans(self) -> Iterator[list[ListedPayload]]:
        """The orphans, page by page."""

    def still_orphans(self, page: list[ListedPayload]) -> list[ListedPayload]:
        """Those of a page to which no record refers that was read since the comparison."""

    def count_live(self) -> int:
        """The number of different references in all records that count."""

    def count_dead(self) -> int:
        """The number of dead keys."""


def run_sweep(
    config: Mapping[str, object],
    topics: str | Sequence[str],
    open_engine: Callable[[Scope], AbstractContextManager[SweepEngine]],
    *,
    grace_ms: int,
    delete: bool,
    manifest: str | Path | None,
    progress: Progress | None,
    deletes_in_flight: int = IN_FLIGHT,
    tombstones: bool = False,
) -> SweepReport:
    """Sweep with an engine.

    Args:
        config: Flat configuration of a client.
        topics: The topics.
        open_engine: Opens the engine.
        grace_ms: Minimum age of deleted payloads, in ms.
        delete: Delete the orphans; otherwise only count them.
        manifest: The file for the list of deleted payloads; None for a new one in the current folder.
        progress: Called with the current activity and a number.
        deletes_in_flight: Most deletions at a time.
        tombstones: Do not count the records of dead keys.

    Raises:
        ConfigError: The configuration is wrong, or none of its stores supports both listing and deletion.
        JobError: As in :func:`serde_chain.jobs.sweep`.
    """
    plan = plan_reading(config, named_topics(topics))
    with ExitStack() as stack:
        readers = open_readers(plan.config)
        for reader in readers.values():
            stack.callback(reader.close)
        stores = stores_of(plan, readers)
        folders, unable = folders_of(stores, plan.topics)
        if not folders:
            raise ConfigError(
                f"the payload stores ({', '.join(store.scheme for store in stores)}) do not support both listing and "
                "deletion, which a sweep requires",
                hint="Use their own retention: an expiration in the store, or its server's",
            )
        now, skew = _now([folder.store for folder in folders])
        bounds = stack.enter_context(TopicBounds(config, plan.topics, READ_UNCOMMITTED))
        compacted = compacted_topics(config, plan.topics) if tombstones else frozenset[str]()
        scope = Scope(config, plan, readers, stores, folders, now - timedelta(milliseconds=grace_ms), compacted)
        engine = stack.enter_context(open_engine(scope))
        run = _Sweep(scope, bounds, engine, progress or _no_progress)
        run.warn(grace_ms, unable, skew)
        if tombstones:
            run.warn_of_others()
        return run.run(Manifest(manifest) if delete else None, deletes_in_flight)


def store_failed(
    what: str, *, message: str, hint: str | None = None, store: object = None, transient: bool = False
) -> JobError:
    """The error of a job that ends because of a store.

    Args:
        what: The failed operation.
        message: The store's error; the following arguments belong to it too.
        hint: Its hint.
        store: The store's scheme.
        transient: Whether a retry may succeed.
    """
    return JobError(f"{what}: {message}", hint=hint or "Run it again", store=store).marked(transient=transient)


def _failed(what: str, error: PayloadStoreError) -> JobError:
    store = error.context.get("store")
    return store_failed(what, message=error.message, hint=error.hint, store=store, transient=error.transient)


def _no_progress(_what: str, _count: int) -> None:
    return


class _Sweep:
    """A running sweep."""

    def __init__(self, scope: Scope, bounds: TopicBounds, engine: SweepEngine, progress: Progress) -> None:
        self._scope, self._bounds, self._engine, self._progress = scope, bounds, engine, progress
        self._ends: Ends = {}
        self._placeholders = self._malformed = 0
        self._warnings: list[str] = []

    def warn(self, grace_ms: int, unable: Sequence[PayloadStore], skew: str | None) -> None:
        """Warn the operator before the sweep.

        Args:
            grace_ms: The grace period.
            unable: The stores that are skipped.
            skew: What is wrong with the clocks.
        """
        if skew is not None:
            self._warn(skew)
        client = resolve(self._scope.config).client
        delivery, transaction = (
            next((int(str(client[key])) for key in keys if key in client), default)
            for keys, default in (_DELIVERY, _TRANSACTION)
        )
        of_producers = max((store.grace_ms for store in self._scope.stores), default=0)
        if grace_ms < delivery + transaction:
            self._warn(
                f"the grace period of {grace_ms} ms is shorter than delivery.timeout.ms ({delivery}) and "
                f"transaction.timeout.ms ({transaction}) together: payloads of records in transit may be deleted"
            )
        if grace_ms < of_producers:
            self._warn(
                f"the grace period of {grace_ms} ms is shorter than large.message.grace.ms ({of_producers}): "
                "producers with content ids rely on payloads of half that age"
            )
        for store in unable:
            self._warn(f"the store {store.scheme} is skipped: it does not support both listing and deletion")

    def warn_of_others(self) -> None:
        """Warn of topics in which tombstones do not count."""
        if others := [topic for topic in self._scope.plan.topics if topic not in self._scope.compacted]:
            self._warn(f"tombstones do not count in topics that are not compacted: {', '.join(others)}")

    def _warn(self, text: str) -> None:
        self._warnings.append(text)
        _log.warning("sweep: %s", text)

    def run(self, manifest: Manifest | None, in_flight: int) -> SweepReport:
        """List, read and compare; delete if there is a manifest."""
        self._bounds.bounds()  # report a missing topic before a long listing
        by_topic = self._list()
        if self._scope.compacted:
            self._bury()
        self._read_all(by_topic)
        dead = self._engine.count_dead()
        orphans, size = self._compare() if by_topic.total() else (0, 0)
        deleted = 0
        if manifest is not None:
            size = 0
            if orphans:
                with Deleter(self._scope.folders, self._scope.before, manifest, in_flight) as deleter:
                    deleted, size = self._delete(deleter)
        return SweepReport(
            self._engine.count_live(),
            by_topic.total(),
            orphans,
            deleted,
            size,
            manifest.path if manifest is not None and deleted else None,
            tuple(self._warnings),
            dead,
        )

    def _list(self) -> Counter[str]:
        """List all folders; returns the number of payloads by topic."""
        by_topic: Counter[str] = Counter()
        try:
            for folder, count in self._engine.list_payloads(self._progress).items():
                by_topic[self._scope.folders[folder].topic] += count
        except PayloadStoreError as error:
            raise _failed("the store cannot be listed", error) from error
        return by_topic

    def _bury(self) -> None:
        """Find the dead keys among the records that are committed by now."""
        # The topics' ids are those of the run's bounds, which were asked for before, and are compared afterwards.
        with TopicBounds(self._scope.config, sorted(self._scope.compacted), READ_COMMITTED) as committed:
            first, ends = committed.bounds()
        places = [place for place in ends if first[place] < ends[place]]
        if places:
            self._progress("records to search for tombstones", sum(ends[place] - first[place] for place in places))
            self._engine.bury(*({place: offsets[place] for place in places} for offsets in (first, ends)))

    def _read_all(self, by_topic: Counter[str]) -> None:
        first, ends = self._bounds.bounds()
        places = [place for place in ends if first[place] < ends[place]]
        filled: set[str] = set()
        if places:
            self._progress("records to read", sum(ends[place] - first[place] for place in places))
            read, left = self._read(places, first, ends)
            filled = {topic for topic in left if read.records.get(topic)}
        self._ends = ends
        empty = next((topic for topic in self._scope.plan.topics if by_topic[topic] and topic not in filled), None)
        if empty is not None:
            raise JobError(
                f"the topic has no records but {by_topic[empty]} payloads: it may have been emptied or recreated by "
                "mistake, so nothing was deleted",
                hint="If its records are gone for good, delete the topic's folder with the store's own tools",
                topic=empty,
            )

    def _read_on(self) -> None:
        """Read the records that are new since the last call."""
        first, ends = self._bounds.check_ends(self._ends)
        begin = {place: max(first[place], self._ends.get(place, 0)) for place in ends}
        places = [place for place in ends if begin[place] < ends[place]]
        if places:
            self._read(places, begin, ends)
        self._ends = ends

    def _read(self, places: Sequence[tuple[str, int]], first: Ends, ends: Ends) -> tuple[ReadResult, set[str]]:
        """Read some partitions; returns also the topics that still have records there."""
        first, ends = ({place: offsets[place] for place in places} for offsets in (first, ends))
        read = self._engine.read(first, ends)
        first, _ = self._bounds.check_ends(ends)
        self._look_at_unreadable(read)
        return read, {topic for topic, partition in ends if first[topic, partition] < ends[topic, partition]}

    def _look_at_unreadable(self, read: ReadResult) -> None:
        """Count unreadable placeholders: they keep the payloads that they name, and any writer can create them.

        Raises:
            JobError: The configuration, rather than the record, seems to be at fault: most are malformed, or a registry
                or key provider does not answer.
        """
        self._placeholders += read.placeholders
        self._malformed += read.malformed
        bad = read.first_unreadable
        if bad is None:
            return
        where = {"topic": bad.topic, "partition": bad.partition, "offset": bad.offset}
        if not bad.malformed or 2 * self._malformed > self._placeholders:
            raise JobError(
                f"the {bad.field} of a record has the mark of a reference but is unreadable, so the payloads that "
                f"it needs are unknown: {bad.kind}: {bad.message}",
                hint="Correct the configuration's stages, schema and large.message.accept, name large-fields if the "
                "record has its header, or wait until the record expires",
                **where,
            )
        self._warn(
            f"{read.malformed} unreadable placeholders keep only the payloads that they name; one is the {bad.field} "
            f"of the record at offset {bad.offset} of {bad.topic}[{bad.partition}]: {bad.message}"
        )

    def _compare(self) -> tuple[int, int]:
        """Find the orphans; returns their number and bytes."""
        found = (0, 0)
        for found in self._engine.compare():
            self._progress("orphans so far", found[0])
        return found

    def _delete(self, deleter: Deleter) -> tuple[int, int]:
        """Delete the orphans; returns the number of deleted payloads, and their bytes."""
        deleted = size = 0
        refused: list[PayloadStoreError] = []
        for page in self._engine.orphans():
            self._read_on()
            try:
                for done in deleter.delete(self._engine.still_orphans(page)):
                    deleted += done.payloads
                    size += done.bytes
                    refused += done.refused
                    if len(refused) > deleted:
                        raise _failed(f"the sweep ended after {deleted} deletions", refused[0]) from refused[0]
                    self._progress("payloads deleted", deleted)
            except PayloadStoreError as error:
                raise _failed(f"the sweep ended after at least {deleted} deletions", error) from error
        if refused:
            self._warn(f"{len(refused)} payloads could not be deleted; one of them: {refused[0]}")
        return deleted, size


def _now(stores: Sequence[PayloadStore]) -> tuple[datetime, str | None]:
    """The time by which ages are measured, and a warning if this machine's clock is not it.

    A store stamps payloads by its own clock. If that of this machine is ahead, payloads look older than they are.
    """
    now, warning = datetime.now(UTC), None
    for store in stores:
        if not isinstance(store, SupportsClock):
            continue
        try:
            store_now = store.now()
        except PayloadStoreError:
            continue  # it is not there yet, or the listing will say what is wrong
        if (ahead := now - store_now) > _SKEW:
            now = store_now
            warning = (
                f"this machine's clock is {ahead.total_seconds():.0f} s ahead of the store {store.scheme}'s, by which "
                "ages are measured"
            )
    return now, warning
