"""Moves a topic's records, with their payloads, to another topic, store or format, in one process."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.errors import ConfigError, JobError
from serde_chain.jobs.copying import Copied, copy_partition
from serde_chain.jobs.migrating import MigrateReport, State, run_migration
from serde_chain.jobs.migration_plan import MigratePlan, plan_migration


def migrate(
    source_config: Config | str | Path,
    target_config: Config | str | Path,
    topic: str,
    target_topic: str,
    *,
    checkpoint: str | Path,
    progress: Callable[[str, int], None] | None = None,
) -> MigrateReport:
    """Copy a topic's records, up to its current end, and move their payloads to another store or format.

    Keys, headers, timestamps, tombstones and records without payloads are kept. So are partitions, if both topics have
    the same number; otherwise keys choose them. Of the chains, only ``large-message`` and the stages applied after it
    are undone and redone: inner stages, such as ``avro`` and ``zstd``, are untouched. If one of the configurations has
    ``large-fields``, values are decoded and encoded again. The target uses content ids unless its configuration says
    otherwise.

    For readers of committed records (librdkafka's default; for Java, ``isolation.level = read_committed``), each record
    is written once, in the order of its partition, regardless of crashes. A repeated run with the same checkpoint
    continues where the last one stopped. :func:`serde_chain.spark.jobs.migrate` does the same with Spark.

    Args:
        source_config: The configuration of a consumer or a producer of the topic. Its ``serde.error.policy``
            decides on undecodable records: ``raise``, the default, ends the migration before such a record;
            ``skip`` and ``dead-letter`` skip it.
        target_config: The configuration of a producer, of the same cluster or another.
        topic: The topic to read.
        target_topic: The topic to write; it must exist.
        checkpoint: A local folder for the progress; one per migration. Each engine continues what the other began.
        progress: Called regularly with the current activity and a number.

    Raises:
        ConfigError: A configuration is wrong, or the checkpoint belongs to another migration.
        JobError: A topic does not exist; a record is unreadable or unwritable; a store or the broker failed. The
            records written so far count; run it again.
        MissingDependencyError: A package is missing.

    Example:
        >>> report = migrate(
        ...     "consumer.toml", "s3.toml", "alerts", "alerts-s3", checkpoint="/srv/migrate-alerts"
        ... )  # doctest: +SKIP
        >>> report  # doctest: +SKIP
        MigrateReport(records=9121, payloads=9120, skipped=0)
    """
    if "://" in str(checkpoint):
        raise ConfigError(
            f"the checkpoint {checkpoint} is not a local folder",
            hint="Name a local folder, or migrate with Spark: serde_chain.spark.jobs.migrate, or --engine spark",
        )
    plan = plan_migration(configuration.load(source_config), configuration.load(target_config), topic, target_topic)
    return run_migration(plan, LocalCheckpoint(Path(checkpoint)), _copy, progress)


def _copy(plan: MigratePlan, left: Mapping[int, int]) -> Iterator[Copied]:
    """Copy one partition after the other, up to the first error."""
    for partition, end in left.items():
        copied = copy_partition(plan, partition, end)
        yield copied
        if copied.error is not None:
            return


class LocalCheckpoint:
    """States in a local folder: a :class:`~serde_chain.jobs.migrating.Checkpoint`.

    Args:
        path: The folder; it may not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = 0

    def read(self) -> State | None:
        """The last state; None if there is none.

        Raises:
            JobError: The folder is unreadable.
        """
        try:
            self._version, state = max(self._states(), default=(0, None))
            return None if state is None else State.from_json(state)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JobError(f"the checkpoint {self._path} cannot be read: {error!r}") from error

    def _states(self) -> Iterator[tuple[int, str]]:
        # Spark writes several files at once, and files of other names beside them.
        for file in self._path.glob("[!._]*.json") if self._path.exists() else ():
            for line in file.read_text(encoding="utf-8").splitlines():
                entry = json.loads(line)
                yield entry["version"], entry["state"]

    def write(self, state: State) -> None:
        """Add a state; it is on the disk before the call returns.

        Raises:
            JobError: The folder is unwritable.
        """
        self._version += 1
        name = f"part-{self._version:05d}-{uuid.uuid4()}.json"
        line = json.dumps({"version": self._version, "state": state.to_json()})
        hidden = self._path / f".{name}"
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            with hidden.open("x", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
            hidden.rename(self._path / name)
        except OSError as error:
            raise JobError(
                f"the checkpoint {self._path} cannot be written: {error.strerror or error}",
                hint="Make it writable for this user, or, before the first run, name another one with --checkpoint "
                "(checkpoint= in Python)",
            ) from error
