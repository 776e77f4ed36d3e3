"""Deletes unreferenced payloads.

The order makes it safe beside producers. The stores are listed first, then the topics are read to their ends, and new
records are read before each page of deletions. A payload that is old enough to be listed, and in no record of the log
by then, belongs to no future record either: a producer sends its record within the grace period, or renews the
object.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions

from payload_stores.base import PayloadInfo, PayloadStore
from payload_stores.errors import PayloadStoreError
from serde_chain.config import Config, client_config
from serde_chain.errors import ConfigError, JobError
from serde_chain.spark.jobs.listing import Pages, list_on_executors, store_failed
from serde_chain.spark.jobs.manifest import Manifest
from serde_chain.spark.jobs.topics import Ends, Referring, Topics, spark_errors
from serde_chain.spark.plan.arguments import as_topics
from serde_chain.spark.plan.folders import Folder, ListingPlan, folders_of, stores_of
from serde_chain.spark.plan.portable import load
from serde_chain.spark.plan.prerequisites import check_packages, check_worker_python
from serde_chain.spark.plan.references import ReferencePlan, open_readers, plan_reading

__all__ = ["SweepReport", "sweep"]

_log = logging.getLogger("serde_chain")

DAY_MS: Final = 86_400_000
_IN_FLIGHT: Final = 8
_AT_ONCE: Final = 1_000
# librdkafka's defaults, in ms.
_DELIVERY: Final = (("delivery.timeout.ms", "message.timeout.ms"), 300_000)
_TRANSACTION: Final = (("transaction.timeout.ms",), 60_000)


@dataclass(frozen=True)
class SweepReport:
    """The result of a sweep.

    Attributes:
        live: Number of payloads that the records refer to.
        listed: Number of the topics' payloads older than the grace period.
        orphans: Number of listed payloads without a record.
        deleted: Number of deleted payloads, without those that were renewed or deleted by others in the meantime.
        bytes: Total size of the deleted payloads; in a dry run, of the orphans.
        manifest: The list of deleted payloads, a file with one JSON object per line; None if nothing was deleted.
        warnings: Messages for the operator: a short grace period, skipped stores, unreadable placeholders, payloads
            that could not be deleted.
    """

    live: int
    listed: int
    orphans: int
    deleted: int
    bytes: int
    manifest: Path | None
    warnings: tuple[str, ...] = ()


def sweep(
    spark: SparkSession,
    config: Config | str | Path,
    topics: str | Sequence[str],
    *,
    grace_ms: int = DAY_MS,
    delete: bool = False,
    manifest: str | Path | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> SweepReport:
    """Delete the payloads of some topics that no record in them refers to.

    These are left behind by killed producers and by expired records.

    Safe beside producers and readers. All records in the log count, including those of open and aborted transactions,
    and the records of all named topics count together: name every topic that may refer to these payloads, including
    mirrors and dead-letter topics.

    Args:
        spark: A session with Spark's Kafka connector (:func:`serde_chain.spark.packages`).
        config: The configuration of a consumer or a producer with ``large-message`` or ``large-fields``: a mapping, or
            a file's path. Records with fields in the store are decoded, which requires their schema.
        topics: The topics. Only payloads in their own folders, below the stores' own prefixes, are considered.
        grace_ms: Minimum age of deleted payloads in ms: the records of younger ones may still come. Must exceed the
            time from an upload to its record in the topic, and the producers' ``large.message.grace.ms``.
        delete: Delete the payloads; otherwise only count them.
        manifest: The file for the list of deleted payloads; it is appended to. By default a new one in the
            current folder.
        progress: Called with the current activity and a number.

    Raises:
        ConfigError: The configuration is wrong, or none of its stores supports both listing and deletion.
        JobError: A topic does not exist, is not readable to its end, or is empty although it has payloads; most
            placeholders are unreadable; a record with fields in the store is undecodable; a store failed. Nothing is
            deleted after that; run it again.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = sweep(spark, "consumer.toml", ["alerts", "alerts-dead"])  # doctest: +SKIP
        >>> report.orphans, report.bytes  # doctest: +SKIP
        (12, 40960000)
    """
    check_packages()
    check_worker_python(spark)
    loaded = load(config)
    named = tuple(dict.fromkeys(as_topics(topics)))
    if not named:
        raise ConfigError("no topic is given")
    plan = plan_reading(loaded, named)
    with ExitStack() as stack:
        readers = open_readers(plan.config)
        for reader in readers.values():
            stack.callback(reader.close)
        stores = stores_of(plan, readers)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serde-chain-sweep-")))
        run = _Sweep(
            spark,
            Topics(spark, loaded, plan),
            stores,
            plan=plan,
            grace_ms=grace_ms,
            folder=folder,
            progress=progress or _no_progress,
        )
        stack.push(run.release)
        run.warn(loaded)
        return run.run(Manifest(manifest) if delete else None)


def _no_progress(_what: str, _count: int) -> None:
    return


class _Sweep:
    """A running sweep."""

    def __init__(
        self,
        spark: SparkSession,
        topics: Topics,
        stores: Sequence[PayloadStore],
        *,
        plan: ReferencePlan,
        grace_ms: int,
        folder: Path,
        progress: Callable[[str, int], None],
    ) -> None:
        self._spark, self._topics, self._stores, self._plan = spark, topics, stores, plan
        self._grace_ms, self._progress = grace_ms, progress
        self._folders, self._unable = folders_of(stores, plan.topics)
        if not self._folders:
            raise ConfigError(
                f"the payload stores ({', '.join(store.scheme for store in stores)}) do not support both listing and "
                "deletion, which a sweep requires",
                hint="Use their own retention: an expiration in the store, or its server's",
            )
        self._listed, self._orphans = Pages(folder / "listed"), Pages(folder / "orphans")
        self._before = datetime.now(UTC) - timedelta(milliseconds=grace_ms)
        self._listed_apart: DataFrame | None = None
        self._read: list[Referring] = []
        self._ends: Ends = {}
        self._placeholders = self._malformed = 0
        self.warnings: list[str] = []

    def warn(self, config: Mapping[str, object]) -> None:
        """Warn the operator before the sweep."""
        client = client_config(config)
        delivery, transaction = (
            next((int(str(client[key])) for key in keys if key in client), default)
            for keys, default in (_DELIVERY, _TRANSACTION)
        )
        of_producers = max((store.grace_ms for store in self._stores), default=0)
        if self._grace_ms < delivery + transaction:
            self._warn(
                f"the grace period of {self._grace_ms} ms is shorter than delivery.timeout.ms ({delivery}) and "
                f"transaction.timeout.ms ({transaction}) together: payloads of records in transit may be deleted"
            )
        if self._grace_ms < of_producers:
            self._warn(
                f"the grace period of {self._grace_ms} ms is shorter than large.message.grace.ms ({of_producers}): "
                "producers with content ids rely on payloads of half that age"
            )
        for store in self._unable:
            self._warn(f"the store {store.scheme} is skipped: it does not support both listing and deletion")

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        _log.warning("sweep: %s", text)

    def run(self, manifest: Manifest | None) -> SweepReport:
        """List, read and compare; delete if there is a manifest."""
        self._topics.bounds()  # report a missing topic before a long listing
        try:
            by_topic = self._list()
        except PayloadStoreError as error:
            raise _failed("the store cannot be listed", error) from error
        self._read_all(by_topic)
        orphans, size = self._compare() if by_topic.total() else (0, 0)
        deleted = 0
        if manifest is not None:
            with manifest:
                deleted, size = self._delete(manifest, orphans)
        return SweepReport(
            self._count_live(),
            by_topic.total(),
            orphans,
            deleted,
            size,
            manifest.path if manifest is not None and deleted else None,
            tuple(self.warnings),
        )

    def release(self, kind: type[BaseException] | None, *_: object) -> None:
        """Release Spark's resources; not at Ctrl-C, while pyspark still waits for another answer."""
        for referring in self._read if kind is not KeyboardInterrupt else ():
            referring.rows.unpersist()

    def _list(self) -> Counter[str]:
        """List all folders; returns the number of payloads by topic.

        The driver lists folders that several readers cannot share, such as local ones, into a file.
        """
        by_topic: Counter[str] = Counter()
        own = [at for at, folder in enumerate(self._folders) if not folder.store.shares_listing]
        apart = tuple(at for at in range(len(self._folders)) if at not in own)

        def listed() -> Iterator[tuple[int, int, PayloadInfo]]:
            for at in own:
                folder = self._folders[at]
                for name, info in folder.list_own(self._before, self._stores):
                    by_topic[folder.topic] += 1
                    yield at, name, info

        for count in self._listed.write(listed()):
            self._progress("payloads listed", count)
        if apart:
            with spark_errors("the store cannot be listed"):
                self._listed_apart = list_on_executors(self._spark, ListingPlan(self._plan, apart, self._before))
                for row in self._listed_apart.groupBy("folder").count().collect():
                    by_topic[self._folders[row["folder"]].topic] += row["count"]
            self._progress("payloads listed", by_topic.total())
        return by_topic

    def _read_all(self, by_topic: Counter[str]) -> None:
        first, ends = self._topics.bounds()
        places = [place for place in ends if first[place] < ends[place]]
        filled: set[str] = set()
        if places:
            self._progress("records to read", sum(ends[place] - first[place] for place in places))
            read = self._keep({place: first[place] for place in places}, {place: ends[place] for place in places})
            filled = {topic for topic in read.left if read.counts.get(topic)}
        self._ends = ends
        empty = next((topic for topic in self._plan.topics if by_topic[topic] and topic not in filled), None)
        if empty is not None:
            raise JobError(
                f"the topic has no records but {by_topic[empty]} payloads: it may have been emptied or recreated by "
                "mistake, so nothing was deleted",
                hint="If its records are gone for good, delete the topic's folder with the store's own tools",
                topic=empty,
            )

    def _read_on(self) -> None:
        """Read the records that are new since the last call."""
        first, ends = self._topics.check_ends(self._ends)
        begin = {place: max(first[place], self._ends.get(place, 0)) for place in ends}
        places = [place for place in ends if begin[place] < ends[place]]
        if places:
            self._keep({place: begin[place] for place in places}, {place: ends[place] for place in places})
        self._ends = ends

    def _keep(self, first: Ends, ends: Ends) -> Referring:
        referring = self._topics.read(first, ends)
        self._read.append(referring)
        self._look_at_malformed(referring.rows)
        return referring

    def _look_at_malformed(self, rows: DataFrame) -> None:
        """Count placeholders that no reader can read: they protect no payload, and any writer can create them.

        Raises:
            JobError: The configuration, rather than the record, seems to be at fault: most are malformed, or a registry
                or key provider does not answer.
        """
        with spark_errors("the topics cannot be read"):
            [(placeholders, malformed)] = rows.agg(functions.count("*"), functions.count_if("malformed")).collect()
            bad = rows.where("kind is not null").orderBy("malformed").limit(1).collect()
        self._placeholders += placeholders
        self._malformed += malformed
        if not bad:
            return
        [row] = bad
        where = {"topic": row["topic"], "partition": row["partition"], "offset": row["offset"]}
        if not row["malformed"] or 2 * self._malformed > self._placeholders:
            raise JobError(
                f"the {row['field']} of a record has the mark of a reference but is unreadable, so the payloads that "
                f"it needs are unknown: {row['kind']}: {row['message']}",
                hint="Correct the configuration's stages, schema and large.message.accept, name large-fields if the "
                "record has its header, or wait until the record expires",
                **where,
            )
        self._warn(f"{malformed} unreadable placeholders protect no payload; one is at {where}: {row['message']}")

    def _in_use(self, read: Sequence[Referring]) -> DataFrame:
        """The names of payloads in use."""
        rows = reduce(DataFrame.unionAll, (referring.rows.select("names") for referring in read))
        return rows.select(functions.explode("names").alias("name"))

    def _without(self, listed: DataFrame, read: Sequence[Referring]) -> DataFrame:
        """The listed payloads that are not in use."""
        # Spark would push an anti-join below the union of pages, and compare each page with all records.
        in_use = self._in_use(read).withColumn("in_use", functions.lit(1))
        return listed.join(in_use, "name", "left").where("in_use is null").select(*listed.columns)

    def _all_listed(self) -> DataFrame:
        """The listing, on Spark's disks.

        This reads the records once; a comparison page by page would read them all for each page. A checkpoint releases
        the page in the driver's memory, which the plan of a cached DataFrame would keep.
        """
        pages = (
            self._spark.createDataFrame(page).localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
            for page in self._listed.read()
        )
        return reduce(DataFrame.unionAll, pages if self._listed_apart is None else (self._listed_apart, *pages))

    def _count_live(self) -> int:
        if not self._read:
            return 0
        rows = reduce(DataFrame.unionAll, (referring.rows.select("reference").dropna() for referring in self._read))
        with spark_errors("the records cannot be counted"):
            return rows.distinct().count()

    def _compare(self) -> tuple[int, int]:
        """Write the orphans to a file; returns their number and bytes."""
        size = 0

        def orphans() -> Iterator[tuple[int, int, PayloadInfo]]:
            nonlocal size
            with spark_errors("the listing cannot be compared with the records"):
                for row in self._without(self._all_listed(), self._read).toLocalIterator():
                    size += row["size"]
                    yield row["folder"], row["name"], PayloadInfo(row["reference"], row["size"], _time(row["modified"]))

        count = 0
        for count in self._orphans.write(orphans()):
            self._progress("orphans so far", count)
        return count, size

    def _delete(self, manifest: Manifest, orphans: int) -> tuple[int, int]:
        """Delete the orphans; returns the number of deleted payloads, and their bytes."""
        deleted = size = 0
        refused: list[PayloadStoreError] = []
        compared = len(self._read)
        with ThreadPoolExecutor(_IN_FLIGHT, "serde-chain-sweep") as pool:
            for page in self._orphans.read() if orphans else ():
                self._read_on()
                rows = self._still_orphans(page, self._read[compared:])
                for part in (rows[at : at + _AT_ONCE] for at in range(0, len(rows), _AT_ONCE)):
                    try:
                        done = list(pool.map(lambda row: self._delete_one(manifest, row), part))
                    except PayloadStoreError as error:
                        raise _failed(f"the sweep ended after at least {deleted} deletions", error) from error
                    deleted += sum(gone is True for gone in done)
                    size += sum(row["size"] for row, gone in zip(part, done, strict=True) if gone is True)
                    refused += [error for error in done if isinstance(error, PayloadStoreError)]
                    if len(refused) > deleted:
                        raise _failed(f"the sweep ended after {deleted} deletions", refused[0]) from refused[0]
                    self._progress("payloads deleted", deleted)
        if refused:
            self._warn(f"{len(refused)} payloads could not be deleted; one of them: {refused[0]}")
        return deleted, size

    def _still_orphans(self, page: Any, came: Sequence[Referring]) -> list[dict[str, Any]]:
        """The rows of a page, a ``pyarrow.Table``, that records read since the comparison do not use."""
        if came:
            with spark_errors("the listing cannot be compared with the records"):
                page = self._without(self._spark.createDataFrame(page), came).toArrow()
        rows: list[dict[str, Any]] = page.to_pylist()
        return rows

    def _delete_one(self, manifest: Manifest, row: Mapping[str, Any]) -> bool | PayloadStoreError:
        """Whether it was deleted; the error if this payload is refused, which another writer may have put there."""
        folder: Folder = self._folders[row["folder"]]
        try:
            if not folder.is_old(row["reference"], self._before):
                return False
            manifest.note(row["reference"], row["size"], _time(row["modified"]))
            folder.delete(row["reference"])
        except PayloadStoreError as error:
            if error.transient:
                raise
            return error
        return True


def _time(micros: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=micros)


def _failed(what: str, error: PayloadStoreError) -> JobError:
    return store_failed(
        what,
        message=error.message,
        hint=error.hint,
        store=error.context.get("store"),
        transient=error.transient,
    )
