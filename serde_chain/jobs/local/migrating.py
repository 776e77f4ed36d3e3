"""Moves a topic's records, with their payloads, to another topic, store or format, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.errors import ConfigError
from serde_chain.jobs.copying import Copied, copy_partition
from serde_chain.jobs.local.checkpoint import LocalCheckpoint
from serde_chain.jobs.migrating import MigrateReport, run_migration
from serde_chain.jobs.migration_plan import MigratePlan, plan_migration

__all__ = ["migrate"]


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
