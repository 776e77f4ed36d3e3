"""Moves a topic's records, with their payloads, to another topic, store or format, with Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, functions
from pyspark.sql.types import StringType

from serde_chain.config import Config
from serde_chain.errors import JobError
from serde_chain.jobs.copying import Copied, CopyError
from serde_chain.jobs.migrating import MigrateReport, State, run_migration
from serde_chain.jobs.migration_plan import Done, MigratePlan, plan_migration
from serde_chain.spark.chains.portable import load
from serde_chain.spark.jobs.plan import CopyPlan
from serde_chain.spark.jobs.topic_records import spark_errors
from serde_chain.spark.prerequisites import check_packages, check_worker_python
from serde_chain.spark.udfs.make import make_udf

_WORK: Final = "serde_chain.spark.jobs.worker:copy_partitions"
_SCHEMA: Final = "version long, state string"


def migrate(
    spark: SparkSession,
    source_config: Config | str | Path,
    target_config: Config | str | Path,
    topic: str,
    target_topic: str,
    *,
    checkpoint: str | Path,
    progress: Callable[[str, int], None] | None = None,
) -> MigrateReport:
    """Copy a topic's records, and move their payloads to another store or format, with Spark.

    Like :func:`serde_chain.jobs.migrate`, with a task for each partition.

    Args:
        spark: A session; its executors need the extras of the stores and ``kafka``.
        source_config: As in :func:`serde_chain.jobs.migrate`, like the other arguments.
        target_config: The configuration of a producer.
        topic: The topic to read.
        target_topic: The topic to write; it must exist.
        checkpoint: A folder for the position, on a file system shared by driver and executors; one per migration.
        progress: Called regularly with the current activity and a number.

    Raises:
        ConfigError: As in :func:`serde_chain.jobs.migrate`.
        JobError: As in :func:`serde_chain.jobs.migrate`; or Spark failed.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = migrate(
        ...     spark, "consumer.toml", "s3.toml", "alerts", "alerts-s3", checkpoint="/srv/migrate-alerts"
        ... )  # doctest: +SKIP
        >>> report  # doctest: +SKIP
        MigrateReport(records=9121, payloads=9120, skipped=0)
    """
    check_packages()
    check_worker_python(spark)
    plan = plan_migration(load(source_config), load(target_config), topic, target_topic)
    return run_migration(plan, SparkCheckpoint(spark, str(checkpoint)), partial(_copy, spark), progress)


def _copy(spark: SparkSession, plan: MigratePlan, left: Mapping[int, int]) -> Iterator[Copied]:
    """Copy each partition by a task."""
    copy = make_udf("migrate", _WORK, CopyPlan(plan), StringType())
    row = (functions.col("id") + 1).cast("int")
    partitions, ends = (
        functions.element_at(functions.array(*map(functions.lit, column)), row)
        for column in zip(*sorted(left.items()), strict=True)
    )
    tasks = spark.range(0, len(left), 1, len(left))  # one task each
    with spark_errors("the records cannot be copied"):
        rows = tasks.select(copy(partitions.cast("int"), ends.cast("long"))).collect()
    for [copied] in rows:
        said = json.loads(copied)
        done, error = said["done"], said["error"]
        yield Copied(
            said["partition"],
            None if done is None else Done(**done),
            None if error is None else CopyError(**error),
        )


class SparkCheckpoint:
    """States in a folder of any file system that Spark can write: a :class:`~serde_chain.jobs.migrating.Checkpoint`.

    Args:
        spark: The session.
        path: The folder; it may not exist yet.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._path = spark, path
        self._version = 0

    def read(self) -> State | None:
        """The last state; None if there is none.

        Raises:
            JobError: The folder is unreadable.
        """
        with spark_errors(f"the checkpoint {self._path} cannot be read"):
            try:
                rows = self._spark.read.schema(_SCHEMA).json(self._path).where("state is not null")
                last = rows.orderBy("version", ascending=False).limit(1).collect()
            except AnalysisException as error:
                if error.getCondition() == "PATH_NOT_FOUND":
                    return None
                raise
        if not last:
            return None
        self._version = last[0]["version"]
        return State.from_json(last[0]["state"])

    def write(self, state: State) -> None:
        """Add a state.

        Raises:
            JobError: The folder is unwritable; or the first state is missing after the write.
        """
        self._version += 1
        with spark_errors(f"the checkpoint {self._path} cannot be written"):
            row = self._spark.createDataFrame([(self._version, state.to_json())], _SCHEMA)
            row.coalesce(1).write.mode("append").json(self._path)
        if self._version == 1 and self.read() != state:
            raise JobError(
                f"the checkpoint {self._path} does not contain what was written to it",
                hint="Name a folder shared by Spark's driver and its executors",
            )
