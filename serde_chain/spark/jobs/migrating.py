"""Moves a topic's records, with their payloads, to another topic, store or format.

Each partition is copied by Kafka transactions that commit records and position together, so written records are never
written again. The checkpoint names the groups with these positions, and keeps the positions if the broker forgets
inactive groups (``offsets.retention.minutes``).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession, functions
from pyspark.sql.types import StringType

from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.config import Config
from serde_chain.errors import ConfigError, JobError
from serde_chain.spark.jobs.checkpoint import Checkpoint, State
from serde_chain.spark.jobs.topics import spark_errors
from serde_chain.spark.plan.migrating import Done, MigratePlan, plan_migration
from serde_chain.spark.plan.portable import load
from serde_chain.spark.plan.prerequisites import check_packages, check_worker_python
from serde_chain.spark.udfs import make_udf

__all__ = ["MigrateReport", "migrate"]

_log = logging.getLogger("serde_chain")

_GROUP: Final = "serde-chain-migrate"
_WORK: Final = "serde_chain.spark.worker.migrate:copy_partitions"


@dataclass(frozen=True)
class MigrateReport:
    """The result of a migration's run.

    Attributes:
        records: Number of records written.
        payloads: Number of records with payloads, of the whole value or of fields, which were moved.
        skipped: Number of undecodable records skipped (``serde.error.policy`` of the source).
    """

    records: int
    payloads: int
    skipped: int


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
    """Copy a topic's records, up to its current end, and move their payloads to another store or format.

    Keys, headers, timestamps, tombstones and records without payloads are kept. So are partitions, if both topics have
    the same number; otherwise keys choose them. Of the chains, only ``large-message`` and the stages applied after it
    are undone and redone: inner stages, such as ``avro`` and ``zstd``, are untouched. If one of the configurations has
    ``large-fields``, values are decoded and encoded again. The target uses content ids unless its configuration says
    otherwise.

    For readers of committed records (librdkafka's default; for Java, ``isolation.level = read_committed``), each record
    is written once, in the order of its partition, regardless of crashes. A repeated run with the same checkpoint
    continues where the last one stopped.

    Args:
        spark: A session; its executors need the extras of the stores and ``kafka``.
        source_config: The configuration of a consumer or a producer of the topic. Its ``serde.error.policy``
            decides on undecodable records: ``raise``, the default, ends the migration before such a record;
            ``skip`` and ``dead-letter`` skip it.
        target_config: The configuration of a producer, of the same cluster or another.
        topic: The topic to read.
        target_topic: The topic to write; it must exist.
        checkpoint: A folder for the position, on a file system shared by driver and executors; one per migration.
        progress: Called regularly with the current activity and a number.

    Raises:
        ConfigError: A configuration is wrong, or the checkpoint belongs to another migration.
        JobError: A topic does not exist; a record is unreadable or unwritable; a store or the broker failed. The
            records written so far count; run it again.
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
    ends, plan = _ends(plan)
    states = Checkpoint(spark, str(checkpoint))
    state = _begun(states, plan, ends)
    plan = replace(plan, name=state.name)
    tell = progress or _no_progress
    tell("records to migrate", sum(max(end - state.done[at].position, 0) for at, (_, end) in ends.items()))
    before = state.done
    while left := {at: end for at, (_, end) in ends.items() if state.done[at].position < end}:
        done, failure = _round(spark, plan, left)
        state = replace(state, done={**state.done, **done})
        states.write(state)
        tell("records migrated", _sum(state.done, "records") - _sum(before, "records"))
        if failure is not None:
            raise failure
    states.write(replace(state, under_way=False))
    return MigrateReport(*(_sum(state.done, each.name) - _sum(before, each.name) for each in fields(MigrateReport)))


def _no_progress(_what: str, _count: int) -> None:
    return


def _sum(done: Mapping[int, Done], name: str) -> int:
    return sum(getattr(each, name) for each in done.values())


def _ends(plan: MigratePlan) -> tuple[dict[int, tuple[int, int]], MigratePlan]:
    """The bounds of the topic's partitions, and the plan with the topics' facts."""
    with PartitionReader(plan.source, _GROUP, failure=JobError) as reader:
        count = reader.count(plan.topic)
        bounds = reader.all_bounds(plan.topic, range(count))
    with PartitionReader(plan.target, _GROUP, failure=JobError) as other:
        targets = other.count(plan.target_topic)
        # Answered by the partitions' leaders: a new topic may have none yet, and refuse its first records.
        other.all_bounds(plan.target_topic, range(targets))
    return bounds, replace(plan, same_partitions=targets == count)


def _begun(states: Checkpoint, plan: MigratePlan, bounds: Mapping[int, tuple[int, int]]) -> State:
    """The state to continue from, in the checkpoint and in the groups.

    Raises:
        ConfigError: The checkpoint belongs to another migration.
        JobError: The position of an earlier run is unknown, or the topic was recreated since.
    """
    state = states.read() or State(f"{_GROUP}-{uuid.uuid4().hex}", plan.topic, plan.target_topic)
    if (state.topic, state.target_topic) != (plan.topic, plan.target_topic):
        raise ConfigError(
            f"the checkpoint belongs to a migration from {state.topic} to {state.target_topic}",
            hint="Use a separate folder for each migration",
        )
    plan = replace(plan, name=state.name)
    done = {partition: _known(plan, state, partition, *places) for partition, places in bounds.items()}
    state = replace(state, under_way=True, done=done)
    states.write(state)
    return state


def _known(plan: MigratePlan, state: State, partition: int, first: int, end: int) -> Done:
    """A partition's state, which its group knows afterwards."""
    # A killed task may have left its transaction open. The next one ends it; until then, this is the only way to get
    # the position without waiting for the transaction's timeout.
    settings: dict[str, Any] = {"isolation.level": "read_uncommitted"}
    with PartitionReader(plan.target, plan.name_of(partition), failure=JobError, **settings) as group:
        known = state.done.get(partition, Done(first))
        [place] = group.committed(plan.target_topic, 1)
        if place.offset >= known.position:
            # Committed with the records; the checkpoint may be outdated, or shared by two concurrent runs.
            known = Done.of(place.offset, place.metadata)
        elif place.offset < 0 and state.under_way and partition in state.done:
            raise JobError(
                "the position of the interrupted run is unknown: the broker has forgotten its group, "
                "after offsets.retention.minutes",
                hint="Migrate into a new topic, with a new checkpoint",
                topic=plan.topic,
                partition=partition,
            )
        else:
            group.commit(plan.target_topic, 0, known.position, known.metadata)
    if known.position > end:
        raise JobError(
            f"the partition ends at offset {end}, but was copied up to {known.position}: its topic was recreated since",
            hint="Migrate it with a new checkpoint",
            topic=plan.topic,
            partition=partition,
        )
    if known.position < first:
        _log.warning(
            "migrate: partition %d of %s begins at offset %d, the records from %d on were removed in the meantime",
            *(partition, plan.topic, first, known.position),
        )
    return known


def _round(spark: SparkSession, plan: MigratePlan, left: Mapping[int, int]) -> tuple[dict[int, Done], JobError | None]:
    """Let each partition's task work for a while; returns their states, and the error that ended one."""
    copy = make_udf("migrate", _WORK, plan, StringType())
    row = (functions.col("id") + 1).cast("int")
    partitions, ends = (
        functions.element_at(functions.array(*map(functions.lit, column)), row)
        for column in zip(*sorted(left.items()), strict=True)
    )
    tasks = spark.range(0, len(left), 1, len(left))  # one task each
    with spark_errors("the records cannot be copied"):
        rows = tasks.select(copy(partitions.cast("int"), ends.cast("long"))).collect()
    copied = [json.loads(row[0]) for row in rows]
    failure = next((_failure(plan, each) for each in copied if each["error"] is not None), None)
    # A task that could not start has no known position.
    return {each["partition"]: Done(**each["done"]) for each in copied if each["done"]["position"] >= 0}, failure


def _failure(plan: MigratePlan, copied: Mapping[str, Any]) -> JobError:
    error = copied["error"]
    offset, partition = error["offset"], copied["partition"]
    failure = JobError(error["message"], hint=error["hint"], topic=plan.topic, partition=partition, offset=offset)
    failure.transient = error["transient"]
    return failure
