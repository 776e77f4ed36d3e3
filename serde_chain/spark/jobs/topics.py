"""Topics read to their ends, and the references in their records."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession, functions
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from serde_chain.clients.confluent.partitions import PartitionReader, client_settings
from serde_chain.errors import JobError
from serde_chain.spark.jobs.java_client import java_settings
from serde_chain.spark.plan.references import ReferencePlan
from serde_chain.spark.udfs import make_udf

__all__ = ["Referring", "Topics", "spark_errors"]

Ends: TypeAlias = Mapping[tuple[str, int], int]

_WORK: Final = "serde_chain.spark.worker.references:find_references"
_FOUND: Final = ArrayType(
    StructType(
        [
            StructField("field", StringType()),
            StructField("reference", StringType()),
            StructField("names", ArrayType(LongType())),
            StructField("kind", StringType()),
            StructField("message", StringType()),
            StructField("malformed", BooleanType()),
        ]
    )
)
_TOLD: Final = 300
# Data lost from executors' disks is not recomputed: a listing must be older than the records read after it.
_LOST: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Raise Spark's errors as a job's.

    Args:
        what: The failed operation.

    Raises:
        JobError: Spark raised an error; a retry may succeed.
    """
    try:
        yield
    # Java's errors without a Spark error class are not wrapped.
    except (PySparkException, Py4JError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # The reason of a failed task follows a page about the task.
        causes = [line.strip() for line in lines if line.startswith("Caused by:")]
        reason = (causes or lines)[-1 if causes else 0][:_TOLD]
        if _LOST in reason:
            reason = "an executor that kept a part of the stores' listing has ended"
        failure = JobError(f"{what}: {reason}", hint="See Spark's log; run it again")
        failure.transient = True
        raise failure from error


class Referring(NamedTuple):
    """The references in some records, kept on Spark's disks until released.

    Attributes:
        rows: ``topic``, ``partition``, ``offset``, ``field``, ``reference``, ``names``; ``kind`` and ``message``
            for an unreadable placeholder, or a payload with a problem; whether the placeholder is ``malformed``.
        counts: Number of records read, by topic.
        left: The topics that still had records after the read.
    """

    rows: DataFrame
    counts: Mapping[str, int]
    left: frozenset[str]


class Topics:
    """Reads topics to their ends.

    A job that deletes payloads reads the whole log, including records of open and aborted transactions: an open
    transaction may hide committed records, whose payloads are in use.

    Args:
        spark: The session.
        config: Flat configuration of a client.
        plan: The plan for reading references.
        isolation: ``read_uncommitted`` for the whole log, ``read_committed`` for what readers see.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Mapping[str, object],
        plan: ReferencePlan,
        isolation: str = "read_uncommitted",
    ) -> None:
        self._spark, self._config, self._plan, self._isolation = spark, config, plan, isolation
        self._options = {f"kafka.{key}": value for key, value in java_settings(client_settings(config)).items()}

    def bounds(self) -> tuple[Ends, Ends]:
        """The first offsets of all partitions, and their ends.

        Raises:
            JobError: A topic does not exist, or the broker does not answer.
        """
        first: dict[tuple[str, int], int] = {}
        ends: dict[tuple[str, int], int] = {}
        settings: dict[str, Any] = {"isolation.level": self._isolation}
        with PartitionReader(self._config, "serde-chain-jobs", failure=JobError, **settings) as reader:
            for topic in self._plan.topics:
                for partition, (low, high) in reader.all_bounds(topic, range(reader.count(topic))).items():
                    first[topic, partition], ends[topic, partition] = low, high
        return first, ends

    def read(self, first: Ends, ends: Ends) -> Referring:
        """Read the references in the records between some offsets.

        Records removed from a partition's beginning in the meantime are omitted: no reader sees them any more.

        Args:
            first: Start offsets by partition.
            ends: End offsets by partition.

        Raises:
            JobError: The topics are unreadable, or one was recreated in the meantime.
        """
        observed = Observation()
        counting = [
            functions.count_if(functions.col("topic") == topic).alias(f"n{at}")
            for at, topic in enumerate(self._plan.topics)
        ]
        columns = [functions.col(name) for name in self._plan.columns]
        records = self._records(first, ends).observe(observed, *counting)
        if self._plan.markers is not None:
            names: Any = sorted(self._plan.markers)
            records = records.where(functions.exists("headers", lambda header: header["key"].isin(*names)))
        find = make_udf("references", _WORK, self._plan, StringType())
        rows = (
            records.withColumn("found", find(*columns))
            .where("found is not null")
            .select("topic", "partition", "offset", functions.explode(functions.from_json("found", _FOUND)).alias("f"))
            .select("topic", "partition", "offset", "f.*")
        )
        with spark_errors("the topics cannot be read"):
            rows.persist(StorageLevel.DISK_ONLY)
            rows.count()
            counted = observed.get
        first, ends = self.check_ends(ends)
        left = frozenset(topic for topic, partition in ends if first[topic, partition] < ends[topic, partition])
        return Referring(rows, {topic: int(counted[f"n{at}"]) for at, topic in enumerate(self._plan.topics)}, left)

    def check_ends(self, ends: Ends) -> tuple[Ends, Ends]:
        """Check that partitions still reach their earlier ends.

        Args:
            ends: The earlier ends.

        Returns:
            The current bounds.

        Raises:
            JobError: A partition ends earlier.
        """
        first, now = self.bounds()
        back = next((place for place in ends if now.get(place, -1) < ends[place]), None)
        if back is not None:
            raise JobError(
                "the partition ends earlier than before: its topic was recreated during the read",
                hint="Run it again",
                topic=back[0],
                partition=back[1],
            )
        return first, now

    def _records(self, first: Ends, ends: Ends) -> DataFrame:
        places: dict[str, Sequence[int]] = defaultdict(list)
        for topic, partition in ends:
            places[topic] = [*places[topic], partition]
        return (
            self._spark.read.format("kafka")
            .options(**self._options)
            .option("kafka.isolation.level", self._isolation)
            .option("assign", json.dumps(places))
            .option("startingOffsets", _offsets(first))
            .option("endingOffsets", _offsets(ends))
            # Retention continues while a long topic is read. Other losses show in the ends.
            .option("failOnDataLoss", "false")
            .option("includeHeaders", "true")
            .load()
        )


def _offsets(offsets: Ends) -> str:
    by_topic: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), offset in offsets.items():
        by_topic[topic][str(partition)] = offset
    return json.dumps(by_topic)
