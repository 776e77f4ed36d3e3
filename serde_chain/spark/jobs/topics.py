"""Topics read to their ends, and what their records refer to."""

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
# What is on the disks of executors cannot be made anew: a listing has to be older than what is read afterwards.
_LOST: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Raise Spark's errors as those of a job.

    Args:
        what: What cannot be done.

    Raises:
        JobError: Spark raised something; the same call may work later.
    """
    try:
        yield
    # Java's errors that have no class of Spark's come as they are.
    except (PySparkException, Py4JError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # Of a failed task, the reason stands behind a page about the task.
        causes = [line.strip() for line in lines if line.startswith("Caused by:")]
        reason = (causes or lines)[-1 if causes else 0][:_TOLD]
        if _LOST in reason:
            reason = "an executor has ended that kept a part of the stores' listing"
        failure = JobError(f"{what}: {reason}", hint="See Spark's log; run it again")
        failure.transient = True
        raise failure from error


class Referring(NamedTuple):
    """What some records refer to, kept on Spark's disks until it is released.

    Attributes:
        rows: ``topic``, ``partition``, ``offset``, ``field``, ``reference``, ``names``; ``kind`` and ``message``
            of a placeholder that cannot be read, or of a payload with a problem; whether the placeholder is
            ``malformed``.
        counts: How many records were read, by topic.
        left: The topics that had records when all was read.
    """

    rows: DataFrame
    counts: Mapping[str, int]
    left: frozenset[str]


class Topics:
    """Reads topics to their ends.

    A job that deletes payloads reads all that is in the log, records of open and of aborted transactions too: behind
    an open transaction are committed records, whose payloads are in use, and which others do not see yet.

    Args:
        spark: The session.
        config: Flat configuration of a client.
        plan: How references are read.
        isolation: ``read_uncommitted`` for all that is in the log, ``read_committed`` for what readers see.
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
        """The first offsets of all partitions, and the ones behind the last.

        Raises:
            JobError: A topic is not there, or the broker does not answer.
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
        """Read what the records between some offsets refer to.

        Those that go meanwhile, at the beginning of a partition, are left out: a reader has them no more.

        Args:
            first: Where to begin, in each partition.
            ends: Where to end.

        Raises:
            JobError: They cannot be read, or a topic was made anew meanwhile.
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
        """See that partitions still reach as far as they did.

        Args:
            ends: The offsets behind what was last in them.

        Returns:
            The bounds as they are now.

        Raises:
            JobError: One ends earlier.
        """
        first, now = self.bounds()
        back = next((place for place in ends if now.get(place, -1) < ends[place]), None)
        if back is not None:
            raise JobError(
                "the partition ends earlier than before: its topic was made anew while it was read",
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
            # Retention goes on while a long topic is read. What else could be missing is seen from the ends.
            .option("failOnDataLoss", "false")
            .option("includeHeaders", "true")
            .load()
        )


def _offsets(offsets: Ends) -> str:
    by_topic: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), offset in offsets.items():
        by_topic[topic][str(partition)] = offset
    return json.dumps(by_topic)
