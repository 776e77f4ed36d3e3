"""The references in the records of topics, and their keys."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession, functions
from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType

from serde_chain.clients.confluent.partitions import client_settings
from serde_chain.errors import JobError
from serde_chain.jobs.reference_plan import ReferencePlan
from serde_chain.jobs.topic_bounds import Ends
from serde_chain.spark.jobs.java_client import java_settings
from serde_chain.spark.jobs.plan import FindPlan
from serde_chain.spark.udfs.make import make_udf

_WORK: Final = "serde_chain.spark.jobs.worker:find_references"
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
_PLACE: Final = ("topic", "partition", "offset")
_TOLD: Final = 300
_RECORDS_OF_TASK: Final = 500_000
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
        raise JobError(f"{what}: {reason}", hint="See Spark's log; run it again").marked(transient=True) from error


class Referring(NamedTuple):
    """The references in some records, kept on Spark's disks until released.

    Attributes:
        rows: ``topic``, ``partition``, ``offset``, ``owner``, ``field``, ``reference``, ``names``; ``kind`` and
            ``message`` for an unreadable placeholder, or a payload with a problem; whether the placeholder is
            ``malformed``. The owner is the digest of the key, where tombstones count.
        counts: Number of records read, by topic.
    """

    rows: DataFrame
    counts: Mapping[str, int]


class TopicReader:
    """Reads the records of topics.

    Args:
        spark: The session.
        config: Flat configuration of a client.
        plan: The plan for reading references.
        isolation: ``read_uncommitted`` for the whole log, ``read_committed`` for what readers see.
        compacted: The topics in which tombstones count.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Mapping[str, object],
        plan: ReferencePlan,
        isolation: str,
        compacted: frozenset[str] = frozenset(),
    ) -> None:
        self._spark, self._plan, self._isolation = spark, plan, isolation
        is_owned = functions.col("topic").isin(*sorted(compacted)) if compacted else functions.lit(False)
        self._owner = functions.when(is_owned, functions.unhex(functions.sha2("key", 256))).alias("owner")
        self._options = {f"kafka.{key}": value for key, value in java_settings(client_settings(config)).items()}

    def read(self, first: Ends, ends: Ends) -> Referring:
        """Read the references in the records between some offsets.

        Records removed from a partition's beginning in the meantime are omitted: no reader sees them any more.

        Args:
            first: Start offsets by partition.
            ends: End offsets by partition.

        Raises:
            JobError: The topics are unreadable.
        """
        observed = Observation()
        counting = [
            functions.count_if(functions.col("topic") == topic).alias(f"n{at}")
            for at, topic in enumerate(self._plan.topics)
        ]
        plan = FindPlan(self._plan)
        columns = [functions.col(name) for name in plan.columns]
        records = self._records(first, ends).observe(observed, *counting)
        if self._plan.markers is not None:
            names: Any = sorted(self._plan.markers)
            records = records.where(functions.exists("headers", lambda header: header["key"].isin(*names)))
        find = make_udf("references", _WORK, plan, StringType())
        rows = (
            records.withColumn("found", find(*columns))
            .where("found is not null")
            .select(*_PLACE, self._owner, functions.explode(functions.from_json("found", _FOUND)).alias("f"))
            .select(*_PLACE, "owner", "f.*")
        )
        with spark_errors("the topics cannot be read"):
            rows.persist(StorageLevel.DISK_ONLY)
            rows.count()
            counted = observed.get
        return Referring(rows, {topic: int(counted[f"n{at}"]) for at, topic in enumerate(self._plan.topics)})

    def keys(self, first: Ends, ends: Ends) -> DataFrame:
        """The keys of the records between some offsets, without values; of records with keys where tombstones count.

        Args:
            first: Start offsets by partition.
            ends: End offsets by partition.

        Returns:
            ``topic``, ``partition``, ``offset``, ``owner``, whether the record ``is_tombstone``, and its ``time_ms``.
        """
        is_tombstone = functions.col("value").isNull().alias("is_tombstone")
        time_ms = functions.unix_millis("timestamp").alias("time_ms")
        rows = self._records(first, ends).select(*_PLACE, self._owner, is_tombstone, time_ms)
        return rows.where("owner is not null")

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
            # Otherwise a partition is one task, whatever its length.
            .option("minPartitions", str(1 + sum(ends[place] - first[place] for place in ends) // _RECORDS_OF_TASK))
            .option("includeHeaders", "true")
            .load()
        )


def _offsets(offsets: Ends) -> str:
    by_topic: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), offset in offsets.items():
        by_topic[topic][str(partition)] = offset
    return json.dumps(by_topic)
