"""A job's progress, stored where Spark can write."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from serde_chain.errors import JobError
from serde_chain.spark.jobs.topics import spark_errors
from serde_chain.spark.plan.migrating import Done

__all__ = ["Checkpoint", "State"]

_SCHEMA: Final = "version long, state string"


@dataclass(frozen=True)
class State:
    """The progress of a migration.

    Attributes:
        name: Prefix of its transactional ids and groups.
        topic: The topic to read.
        target_topic: The topic to write.
        under_way: Whether a run was started and not ended: then the groups have newer positions.
        done: The progress of each partition.
    """

    name: str
    topic: str
    target_topic: str
    under_way: bool = False
    done: dict[int, Done] = field(default_factory=dict)

    def to_json(self) -> str:
        """The state as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> State:
        """Parse a state."""
        fields = json.loads(text)
        done = {int(partition): Done(**each) for partition, each in fields.pop("done").items()}
        return cls(**fields, done=done)


class Checkpoint:
    """States in a folder of any file system that Spark can write: the last one counts, so a crash keeps the one before.

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
