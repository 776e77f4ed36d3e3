"""Moves a topic's records, with their payloads, to another topic, store or format.

Each partition is copied by Kafka transactions that commit records and position together, so that what was written is
never written again. The checkpoint says which groups have these positions, and keeps them when the broker forgets
groups that rest (``offsets.retention.minutes``).
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
    """What a run of a migration wrote.

    Attributes:
        records: How many records were written.
        payloads: How many payloads were moved for them.
        skipped: How many records were left out, as they cannot be read (``serde.error.policy`` of the source).
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
    """Copy a topic's records, up to its present end, and move their payloads to another store or format.

    Keys, headers, timestamps, tombstones and records without payloads are kept; and partitions, where both topics have
    the same number, otherwise keys choose them. Of the chains, only ``large-message`` and what is applied after it are
    undone and done again: what is inside, such as ``avro`` and ``zstd``, stays as it is. The target's ids are of the
    content unless its configuration says otherwise.

    Each record is written once, in the order of its partition, whatever is killed and when, as readers see it that
    read what is committed (librdkafka's default; for Java, ``isolation.level = read_committed``). Run again, with the
    same checkpoint, it goes on where it stopped.

    Args:
        spark: A session; its executors need the extras of the stores and ``kafka``.
        source_config: The configuration of a consumer or a producer of the topic. Its ``serde.error.policy`` says what
            becomes of a record that cannot be read: ``raise``, the default, ends the migration in front of it;
            ``skip`` and ``dead-letter`` leave it out.
        target_config: The configuration of a producer, of the same cluster or of another one.
        topic: The topic to read.
        target_topic: The topic to write; it is there already.
        checkpoint: A folder for the position, on a file system that driver and executors share; one for each migration.
        progress: Called now and then with what is going on and a number.

    Raises:
        ConfigError: A configuration is wrong, or the checkpoint is of another migration.
        JobError: A topic is not there; a record cannot be read or written; a store or the broker failed. What was
            written before counts; run it again.
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
    """The bounds of the topic's partitions, and the plan with what the topics say."""
    with PartitionReader(plan.source, _GROUP, failure=JobError) as reader:
        count = reader.count(plan.topic)
        bounds = reader.all_bounds(plan.topic, range(count))
    with PartitionReader(plan.target, _GROUP, failure=JobError) as other:
        targets = other.count(plan.target_topic)
        # Answered by the partitions' leaders: a topic that is new may have none yet, and refuse its first records.
        other.all_bounds(plan.target_topic, range(targets))
    return bounds, replace(plan, same_partitions=targets == count)


def _begun(states: Checkpoint, plan: MigratePlan, bounds: Mapping[int, tuple[int, int]]) -> State:
    """The state to go on from, in the checkpoint and in the groups.

    Raises:
        ConfigError: The checkpoint is of another migration.
        JobError: It is not known how far an earlier run came, or the topic was made anew since.
    """
    state = states.read() or State(f"{_GROUP}-{uuid.uuid4().hex}", plan.topic, plan.target_topic)
    if (state.topic, state.target_topic) != (plan.topic, plan.target_topic):
        raise ConfigError(
            f"the checkpoint is of a migration from {state.topic} to {state.target_topic}",
            hint="Name a folder of its own for each migration",
        )
    plan = replace(plan, name=state.name)
    done = {partition: _known(plan, state, partition, *places) for partition, places in bounds.items()}
    state = replace(state, under_way=True, done=done)
    states.write(state)
    return state


def _known(plan: MigratePlan, state: State, partition: int, first: int, end: int) -> Done:
    """How far a partition is, which its group knows afterwards."""
    # A task that was killed may have left its transaction open. The next one ends it: until then nothing else tells the
    # position without waiting for the transaction's time-out.
    settings: dict[str, Any] = {"isolation.level": "read_uncommitted"}
    with PartitionReader(plan.target, plan.name_of(partition), failure=JobError, **settings) as group:
        known = state.done.get(partition, Done(first))
        [place] = group.committed(plan.target_topic, 1)
        if place.offset >= known.position:
            # It was committed with the records; the checkpoint may be an old one, or of two runs at once.
            known = Done.of(place.offset, place.metadata)
        elif place.offset < 0 and state.under_way and partition in state.done:
            raise JobError(
                "it is not known how far the run came that was interrupted: the broker has forgotten its group, "
                "after offsets.retention.minutes",
                hint="Migrate into a new topic, with a new checkpoint",
                topic=plan.topic,
                partition=partition,
            )
        else:
            group.commit(plan.target_topic, 0, known.position, known.metadata)
    if known.position > end:
        raise JobError(
            f"the partition ends at offset {end}, and was copied up to {known.position}: its topic was made anew since",
            hint="Migrate it with a new checkpoint",
            topic=plan.topic,
            partition=partition,
        )
    if known.position < first:
        _log.warning(
            "migrate: partition %d of %s begins at offset %d, the records from %d on were removed from it meanwhile",
            *(partition, plan.topic, first, known.position),
        )
    return known


def _round(spark: SparkSession, plan: MigratePlan, left: Mapping[int, int]) -> tuple[dict[int, Done], JobError | None]:
    """Let each partition's task work for a while; returns how far they are, and what has ended one."""
    copy = make_udf("migrate", _WORK, plan, StringType())
    row = (functions.col("id") + 1).cast("int")
    partitions, ends = (
        functions.element_at(functions.array(*map(functions.lit, column)), row)
        for column in zip(*sorted(left.items()), strict=True)
    )
    tasks = spark.range(0, len(left), 1, len(left))  # a task for each
    with spark_errors("the records cannot be copied"):
        rows = tasks.select(copy(partitions.cast("int"), ends.cast("long"))).collect()
    copied = [json.loads(row[0]) for row in rows]
    failure = next((_failure(plan, each) for each in copied if each["error"] is not None), None)
    # Of a task that could not begin, the position is not known.
    return {each["partition"]: Done(**each["done"]) for each in copied if each["done"]["position"] >= 0}, failure


def _failure(plan: MigratePlan, copied: Mapping[str, Any]) -> JobError:
    error = copied["error"]
    offset, partition = error["offset"], copied["partition"]
    failure = JobError(error["message"], hint=error["hint"], topic=plan.topic, partition=partition, offset=offset)
    failure.transient = error["transient"]
    return failure
