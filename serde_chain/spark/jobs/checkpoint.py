"""A job's progress, stored where Spark can write."""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from serde_chain.errors import JobError
from serde_chain.jobs.migrating import State
from serde_chain.spark.jobs.topic_records import spark_errors

__all__ = ["SparkCheckpoint"]

_SCHEMA: Final = "version long, state string"


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
