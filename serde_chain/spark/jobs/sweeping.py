"""Deletes payloads that no record refers to.

The order is what makes it safe beside producers: the stores are listed first, then the topics are read to their ends,
and before each page of deletions what has come to the topics meanwhile. A payload that is old enough to be listed, and
in no record of the log by then, belongs to none that is still to come: a producer sends its record within the grace
period, or renews the object.
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
    """What a sweep saw and did.

    Attributes:
        live: How many payloads the records refer to.
        listed: How many payloads of the topics are older than the grace period.
        orphans: How many of these no record refers to.
        deleted: How many were deleted; those that were renewed or deleted meanwhile are not.
        bytes: The bytes of what was deleted; in a dry run, of the orphans.
        manifest: The file that lists what was deleted, a JSON object a line; None if nothing was.
        warnings: What the operator should know: a short grace period, stores that were left out, placeholders that
            cannot be read, payloads that could not be deleted.
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

    Producers that were killed leave such, and records whose retention is over.

    Safe beside producers and readers. All records that are in the log count, those of open and of aborted transactions
    too, and all named topics count for all of them: name every topic that may refer to these payloads, as mirrors and
    dead-letter topics do.

    Args:
        spark: A session with Spark's Kafka connector (:func:`serde_chain.spark.packages`).
        config: The configuration of a consumer or a producer with ``large-message``: a mapping, or a file's path.
        topics: The topics. Only payloads in their own folders are looked at, below the stores' own prefixes.
        grace_ms: Younger payloads stay: their records may still come. In ms; longer than a record may take from the
            upload to the topic, and not shorter than the producers' ``large.message.grace.ms``.
        delete: Delete them; otherwise only count.
        manifest: The file for the list of what is deleted; it is appended to. By default a new one in the current
            folder.
        progress: Called with what is going on and a number.

    Raises:
        ConfigError: The configuration is wrong, or none of its stores can list and delete.
        JobError: A topic is not there, cannot be read to its end, or is empty although it has payloads; most
            placeholders cannot be read; a store failed. Nothing is deleted after that; run it again.
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
        raise ConfigError("no topic is named")
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
    """A sweep under way."""

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
                f"none of the payload stores ({', '.join(store.scheme for store in stores)}) can be listed and deleted "
                "from, so that it cannot be swept",
                hint="Their own retention ends what is in them: an expiration in the store, or its server's",
            )
        self._listed, self._orphans = Pages(folder / "listed"), Pages(folder / "orphans")
        self._before = datetime.now(UTC) - timedelta(milliseconds=grace_ms)
        self._listed_apart: DataFrame | None = None
        self._read: list[Referring] = []
        self._ends: Ends = {}
        self._placeholders = self._malformed = 0
        self.warnings: list[str] = []

    def warn(self, config: Mapping[str, object]) -> None:
        """Say what the operator should know beforehand."""
        client = client_config(config)
        delivery, transaction = (
            next((int(str(client[key])) for key in keys if key in client), default)
            for keys, default in (_DELIVERY, _TRANSACTION)
        )
        of_producers = max((store.grace_ms for store in self._stores), default=0)
        if self._grace_ms < delivery + transaction:
            self._warn(
                f"the grace period of {self._grace_ms} ms is shorter than delivery.timeout.ms ({delivery}) and "
                f"transaction.timeout.ms ({transaction}) together: payloads may be deleted whose records are on the way"
            )
        if self._grace_ms < of_producers:
            self._warn(
                f"the grace period of {self._grace_ms} ms is shorter than large.message.grace.ms ({of_producers}): "
                "producers with ids of the content rely on payloads that are half as old"
            )
        for store in self._unable:
            self._warn(f"the store {store.scheme} is left out: it cannot be listed, or not be deleted from")

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        _log.warning("sweep: %s", text)

    def run(self, manifest: Manifest | None) -> SweepReport:
        """List, read, compare, and delete if there is a manifest to note it in."""
        self._topics.bounds()  # what is not there is said before a long listing
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
        """Release what Spark keeps; not at Ctrl-C, when pyspark still waits for another answer."""
        for referring in self._read if kind is not KeyboardInterrupt else ():
            referring.rows.unpersist()

    def _list(self) -> Counter[str]:
        """List all folders; returns the number of payloads by topic.

        The driver lists those that several readers cannot share, such as a disk's, into a file.
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
                f"the topic has no records, and {by_topic[empty]} payloads: it may have been emptied or made anew by "
                "mistake, and nothing was deleted",
                hint="If its records are gone for good, delete the topic's folder by the store's own means",
                topic=empty,
            )

    def _read_on(self) -> None:
        """Read what has come since the last time."""
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
        """Count placeholders that no reader can read: they keep nothing alive, and any writer can make them.

        Raises:
            JobError: The configuration, and not the record, seems to be why: most are malformed, or a registry or a key
                provider does not answer.
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
                f"the {row['field']} of a record has the mark of a placeholder and cannot be read, so it is not known "
                f"which payload it needs: {row['kind']}: {row['message']}",
                hint="Correct the configuration's stages and large.message.accept, or let the record go",
                **where,
            )
        self._warn(f"{malformed} placeholders cannot be read, and keep no payload; one is at {where}: {row['message']}")

    def _in_use(self, read: Sequence[Referring]) -> DataFrame:
        """The names of payloads in use."""
        rows = reduce(DataFrame.unionAll, (referring.rows.select("names") for referring in read))
        return rows.select(functions.explode("names").alias("name"))

    def _without(self, listed: DataFrame, read: Sequence[Referring]) -> DataFrame:
        """Of what is listed, what is not in use."""
        # Spark would push an anti-join below the union of pages, and compare each of them with all records.
        in_use = self._in_use(read).withColumn("in_use", functions.lit(1))
        return listed.join(in_use, "name", "left").where("in_use is null").select(*listed.columns)

    def _all_listed(self) -> DataFrame:
        """The listing, on Spark's disks.

        So the records are read once, where comparing page by page would read all of them for each page. A checkpoint
        lets go of the page in the driver's memory, which a cached DataFrame would keep for its plan.
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
        """Write the orphans into a file; returns their number and bytes."""
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
        """Delete the orphans; returns how many, and their bytes."""
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
        """The rows of a page, a ``pyarrow.Table``, that are not in use by what came since they were compared."""
        if came:
            with spark_errors("the listing cannot be compared with the records"):
                page = self._without(self._spark.createDataFrame(page), came).toArrow()
        rows: list[dict[str, Any]] = page.to_pylist()
        return rows

    def _delete_one(self, manifest: Manifest, row: Mapping[str, Any]) -> bool | PayloadStoreError:
        """Whether it was deleted; the error where this one is refused, since another writer may have put it there."""
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
