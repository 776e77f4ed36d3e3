"""Deletes unreferenced payloads, with Spark."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from typing import Final, Self
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions

from payload_stores.base import SupportsListRange
from payload_stores.plugins import require
from serde_chain.config import Config
from serde_chain.jobs.deleting import IN_FLIGHT
from serde_chain.jobs.payload_folders import IdRange, ListedPayload, list_folders
from serde_chain.jobs.scratch import Scratch
from serde_chain.jobs.shares import parts_of
from serde_chain.jobs.sweeping import DAY_MS, Progress, ReadResult, Scope, SweepReport, Unreadable, run_sweep
from serde_chain.jobs.topic_bounds import READ_UNCOMMITTED, Ends
from serde_chain.spark.chains.portable import load
from serde_chain.spark.jobs.dead_keys import DeadKeys
from serde_chain.spark.jobs.listing import PayloadPages, list_on_executors
from serde_chain.spark.jobs.plan import LISTED, ListingPlan
from serde_chain.spark.jobs.topic_records import Referring, TopicReader, spark_errors
from serde_chain.spark.prerequisites import check_packages, check_worker_python

_PAGES_AT_ONCE: Final = 10


def sweep(
    spark: SparkSession,
    config: Config | str | Path,
    topics: str | Sequence[str],
    *,
    grace_ms: int = DAY_MS,
    delete: bool = False,
    manifest: str | Path | None = None,
    progress: Callable[[str, int], None] | None = None,
    deletes_in_flight: int = IN_FLIGHT,
    checkpoint: str | None = None,
    tombstones: bool = False,
) -> SweepReport:
    """Delete the payloads of some topics that no record in them refers to, with Spark.

    Like :func:`serde_chain.jobs.sweep`, with the same report and manifest, for topics or stores that one machine
    takes too long for.

    Args:
        spark: A session with Spark's Kafka connector (:func:`serde_chain.spark.packages`).
        config: As in :func:`serde_chain.jobs.sweep`, like the other arguments.
        topics: The topics.
        grace_ms: Minimum age of deleted payloads in ms.
        delete: Delete the payloads; otherwise only count them.
        manifest: The file for the list of deleted payloads.
        progress: Called with the current activity and a number.
        deletes_in_flight: Most deletions at a time.
        checkpoint: A folder that the driver and all executors share, for the listing of the stores. Without one, it is
            on the executors' disks, and an executor that ends with its part ends the sweep.
        tombstones: Do not count the records of dead keys. The topics are read twice for it, their keys three times.

    Raises:
        ConfigError: As in :func:`serde_chain.jobs.sweep`.
        JobError: As in :func:`serde_chain.jobs.sweep`; or Spark failed.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = sweep(spark, "consumer.toml", ["alerts", "alerts-dead"])  # doctest: +SKIP
        >>> report.orphans, report.bytes  # doctest: +SKIP
        (12, 40960000)
    """
    check_packages()
    check_worker_python(spark)
    return run_sweep(
        load(config),
        topics,
        partial(SparkSweep, spark, checkpoint),
        grace_ms=grace_ms,
        delete=delete,
        manifest=manifest,
        progress=progress,
        deletes_in_flight=deletes_in_flight,
        tombstones=tombstones,
    )


class SparkSweep:
    """The engine of a sweep in Spark: a :class:`~serde_chain.jobs.sweeping.SweepEngine`.

    Args:
        spark: The session.
        checkpoint: A folder that the driver and all executors share; None if there is none.
        scope: What the sweep is about.
    """

    def __init__(self, spark: SparkSession, checkpoint: str | None, scope: Scope) -> None:
        self._spark, self._checkpoint, self._scope = spark, checkpoint, scope
        self._state: str | None = None
        self._topics = TopicReader(spark, scope.config, scope.plan, READ_UNCOMMITTED, scope.compacted)
        self._dead = DeadKeys(spark, scope)
        self._listed_apart: DataFrame | None = None
        self._read: list[Referring] = []
        self._is_compared = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="serde-chain-sweep-")))
            self._listed, self._orphans = PayloadPages(folder / "listed"), PayloadPages(folder / "orphans")
            self._scratch = Scratch("CREATE TABLE came (name INTEGER PRIMARY KEY)")
            stack.callback(self._scratch.close)
            self._state = self._shared(folder)
            self._opened = stack.pop_all()
        return self

    def _shared(self, folder: Path) -> str | None:
        """A new folder that the driver and all executors share; None if there is none."""
        if self._checkpoint is not None:
            return f"{self._checkpoint.rstrip('/')}/listed-{uuid4()}"
        is_alone = str(self._spark.conf.get("spark.master", "")).startswith("local[")
        return str(folder / "state") if is_alone else None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Release Spark's resources; not at Ctrl-C, while pyspark still waits for another answer."""
        with self._opened:
            if kind is not KeyboardInterrupt:
                self._dead.close()
                for referring in self._read:
                    referring.rows.unpersist()

    def list_payloads(self, progress: Progress) -> Counter[int]:
        """List all folders.

        The driver lists folders that several readers cannot share, such as local ones, into a file. Of others it
        estimates the size.
        """
        scope = self._scope
        by_folder: Counter[int] = Counter()
        own = [at for at, folder in enumerate(scope.folders) if not isinstance(folder.store, SupportsListRange)]
        apart = [at for at in range(len(scope.folders)) if at not in own]

        def listed() -> Iterator[ListedPayload]:
            for payload in list_folders(scope.folders, map(IdRange, own), scope.stores, scope.before):
                by_folder[payload.folder] += 1
                yield payload

        for count in self._listed.write(listed()):
            progress("payloads listed", count)
        if apart:
            parts = tuple(parts_of(scope.folders, apart))
            with spark_errors("the store cannot be listed"):
                plan = ListingPlan(scope.plan, parts, scope.before)
                self._listed_apart = list_on_executors(self._spark, plan, self._state)
                for row in self._listed_apart.groupBy("folder").count().collect():
                    by_folder[row["folder"]] += row["count"]
            progress("payloads listed", by_folder.total())
        return by_folder

    def bury(self, first: Ends, ends: Ends) -> None:
        """Read committed records."""
        self._dead.bury(first, ends)

    def read(self, first: Ends, ends: Ends) -> ReadResult:
        """Read records into Spark's disks."""
        referring = self._topics.read(first, ends)
        self._read.append(referring)
        rows = referring.rows
        revived = self._dead.revive(first, ends)
        with spark_errors("the topics cannot be read"):
            if self._is_compared:
                came = rows.select("names")
                if revived is not None:
                    of_revived = self._all_rows().join(revived, ["topic", "owner"], "left_semi")
                    came = came.unionAll(of_revived.select("names"))
                names = came.select(functions.explode("names").alias("name")).distinct().toLocalIterator()
                self._scratch.add("INSERT OR IGNORE INTO came VALUES (?)", ((row["name"],) for row in names))
            [(placeholders, malformed)] = rows.agg(functions.count("*"), functions.count_if("malformed")).collect()
            bad = rows.where("kind is not null").orderBy(*Unreadable._fields).limit(1).collect()
        return ReadResult(
            referring.counts,
            placeholders,
            malformed,
            Unreadable(*(bad[0][name] for name in Unreadable._fields)) if bad else None,
        )

    def compare(self) -> Iterator[tuple[int, int]]:
        """Join the listing with the records, into a file."""
        size = 0
        self._is_compared = True

        def orphans() -> Iterator[ListedPayload]:
            nonlocal size
            with spark_errors("the listing cannot be compared with the records"):
                for row in self._not_in_use(self._all_listed()).toLocalIterator():
                    size += row["size"]
                    yield ListedPayload(*row)

        for count in self._orphans.write(orphans()):
            yield count, size

    def orphans(self) -> Iterator[list[ListedPayload]]:
        """The orphans in the file."""
        return self._orphans.payloads()

    def still_orphans(self, page: list[ListedPayload]) -> list[ListedPayload]:
        """Look up the payloads of a page in this process: few records come during a sweep."""
        came = "SELECT EXISTS (SELECT 1 FROM came WHERE name = ?)"
        return [payload for payload in page if not self._scratch.value(came, payload.name)]

    def count_live(self) -> int:
        """Count the references."""
        if not self._read:
            return 0
        rows = self._dead.without(self._all_rows()).select("reference").dropna()
        with spark_errors("the records cannot be counted"):
            return rows.distinct().count()

    def count_dead(self) -> int:
        """Count the keys."""
        return self._dead.count()

    def _all_rows(self) -> DataFrame:
        """The references in all records that were read."""
        return reduce(DataFrame.unionAll, (referring.rows for referring in self._read))

    def _not_in_use(self, listed: DataFrame) -> DataFrame:
        """The listed payloads that are not in use."""
        rows = self._dead.without(self._all_rows())
        names = rows.select(functions.explode("names").alias("name"))
        # Spark would push an anti-join below the union of pages, and compare each page with all records.
        in_use = names.withColumn("in_use", functions.lit(1))
        return listed.join(in_use, "name", "left").where("in_use is null").select(*listed.columns)

    def _all_listed(self) -> DataFrame:
        """The listing, in the folder of the state, or on Spark's disks.

        This reads the records once; a comparison page by page would read them all for each page.
        """
        if self._state is None:
            # A checkpoint releases the page in the driver's memory, which the plan of a cached DataFrame would keep.
            frames: Iterator[DataFrame] = (
                self._spark.createDataFrame(page).localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
                for page in self._listed.tables()
            )
            apart = () if self._listed_apart is None else (self._listed_apart,)
            whole: DataFrame = reduce(DataFrame.unionAll, (*apart, *frames))
            return whole
        pages = self._listed.tables()
        while several := list(islice(pages, _PAGES_AT_ONCE)):
            frame = self._spark.createDataFrame(require("pyarrow", "spark").concat_tables(several))
            frame.write.mode("append").parquet(self._state)
        listed: DataFrame = self._spark.read.schema(LISTED).parquet(self._state)
        return listed
