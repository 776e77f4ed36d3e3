"""The dead keys of compacted topics, on Spark's disks."""

from __future__ import annotations

from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, functions

from serde_chain.jobs.sweeping import Scope
from serde_chain.jobs.topic_bounds import READ_COMMITTED, READ_UNCOMMITTED, Ends
from serde_chain.spark.jobs.topic_records import TopicReader, spark_errors

_KEY: Final = ["topic", "owner"]
_PART: Final = [*_KEY, "partition"]


class DeadKeys:
    """Keys whose newest record is a tombstone; known by topic and the digest of their bytes in the log.

    Args:
        spark: The session.
        scope: What the sweep is about.
    """

    def __init__(self, spark: SparkSession, scope: Scope) -> None:
        self._compacted, self._before_ms = scope.compacted, scope.before_ms
        self._committed, self._all = (
            TopicReader(spark, scope.config, scope.plan, isolation, scope.compacted)
            for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
        )
        self._buried: DataFrame | None = None
        self._kept: list[DataFrame] = []

    def bury(self, first: Ends, ends: Ends) -> None:
        """Find the dead keys among committed records.

        Args:
            first: Start offsets of the partitions in which tombstones count.
            ends: End offsets of their committed records.

        Raises:
            JobError: The topics are unreadable.
        """
        time_ms = functions.col("time_ms")
        is_old = functions.col("is_tombstone") & (time_ms >= 0) & (time_ms < self._before_ms)
        newest = (functions.max("offset").alias("until"), functions.max_by(is_old, "offset").alias("is_dead"))
        rows = self._committed.keys(first, ends).groupBy(*_PART).agg(*newest).where("is_dead")
        self._buried = self._keep(rows.select(*_PART, "until"))

    def revive(self, first: Ends, ends: Ends) -> DataFrame | None:
        """Take back the keys with a record that no tombstone follows.

        Args:
            first: Start offsets of the records.
            ends: End offsets; those of topics in which tombstones do not count are ignored.

        Returns:
            ``topic`` and ``owner`` of these keys; None if there are none.

        Raises:
            JobError: The topics are unreadable.
        """
        places = [place for place in ends if place[0] in self._compacted]
        if self._buried is None or not places:
            return None
        first, ends = ({place: offsets[place] for place in places} for offsets in (first, ends))
        dead = self._buried.select(*_KEY).distinct()
        rows = self._all.keys(first, ends).select(*_PART, "offset").join(dead, _KEY, "left_semi")
        revived = self._keep(
            rows.join(self._buried, _PART, "left").where("until is null or offset > until").select(*_KEY).distinct()
        )
        if revived is not None:
            self._buried = self._keep(self._buried.join(revived, _KEY, "left_anti"))
        return revived

    def _keep(self, rows: DataFrame) -> DataFrame | None:
        """Keep rows on Spark's disks; None if there are none."""
        with spark_errors("the keys of the topics cannot be read"):
            rows.persist(StorageLevel.DISK_ONLY)
            self._kept.append(rows)
            return rows if rows.count() else None

    def without(self, rows: DataFrame) -> DataFrame:
        """The rows of :class:`~serde_chain.spark.jobs.topic_records.Referring` that count.

        A dead key's records before its tombstone do not; an unreadable placeholder counts all the same.
        """
        if self._buried is None:
            return rows
        joined = rows.join(self._buried, _PART, "left")
        return joined.where("until is null or offset >= until or kind is not null").select(*rows.columns)

    def count(self) -> int:
        """The number of dead keys."""
        if self._buried is None:
            return 0
        with spark_errors("the dead keys cannot be counted"):
            return self._buried.select(*_KEY).distinct().count()

    def close(self) -> None:
        """Release Spark's disks."""
        for rows in self._kept:
            rows.unpersist()
