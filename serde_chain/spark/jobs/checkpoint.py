"""How far a job is, kept where Spark can write."""

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
    """How far a migration is.

    Attributes:
        name: What the names of its transactions and groups begin with.
        topic: The topic that is read.
        target_topic: The topic that is written.
        under_way: Whether a run has begun, and not ended: then the groups know better.
        done: How far each partition is.
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
        """The state out of its text."""
        fields = json.loads(text)
        done = {int(partition): Done(**each) for partition, each in fields.pop("done").items()}
        return cls(**fields, done=done)


class Checkpoint:
    """States in a folder of any file system that Spark writes: the last one counts, so a kill leaves the one before.

    Args:
        spark: The session.
        path: The folder; it need not be there.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._path = spark, path
        self._version = 0

    def read(self) -> State | None:
        """The last state; None if there is none.

        Raises:
            JobError: The folder cannot be read.
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
            JobError: It cannot be written; or the first one is not there afterwards.
        """
        self._version += 1
        with spark_errors(f"the checkpoint {self._path} cannot be written"):
            row = self._spark.createDataFrame([(self._version, state.to_json())], _SCHEMA)
            row.coalesce(1).write.mode("append").json(self._path)
        if self._version == 1 and self.read() != state:
            raise JobError(
                f"the checkpoint {self._path} does not have what was written to it",
                hint="Name a folder that Spark's driver and its executors share",
            )
