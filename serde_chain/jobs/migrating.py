"""The rules of a migration, which moves a topic's records, with their payloads, to another topic, store or format.

Each partition is copied by Kafka transactions that commit records and position together, so written records are never
written again. The checkpoint names the groups with these positions, and keeps the positions if the broker forgets
inactive groups (``offsets.retention.minutes``).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol

from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.errors import ConfigError, JobError
from serde_chain.jobs.copying import Copied, CopyError
from serde_chain.jobs.migration_plan import Done, MigratePlan

_log = logging.getLogger("serde_chain")

_GROUP: Final = "serde-chain-migrate"


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


class Checkpoint(Protocol):
    """States in a folder: the last one counts, so a crash keeps the one before.

    Each is a line of JSON in a file, ``version`` and ``state``, whatever engine wrote it.
    """

    def read(self) -> State | None:
        """The last state; None if there is none.

        Raises:
            JobError: The folder is unreadable.
        """

    def write(self, state: State) -> None:
        """Add a state.

        Raises:
            JobError: The folder is unwritable.
        """


def run_migration(
    plan: MigratePlan,
    states: Checkpoint,
    copy: Callable[[MigratePlan, Mapping[int, int]], Iterable[Copied]],
    progress: Callable[[str, int], None] | None,
) -> MigrateReport:
    """Migrate with an engine.

    Args:
        plan: The plan.
        states: The checkpoint.
        copy: Copies partitions for a while, at most up to their ends.
        progress: Called regularly with the current activity and a number.

    Raises:
        ConfigError: The checkpoint belongs to another migration.
        JobError: As in :func:`serde_chain.jobs.migrate`.
    """
    ends, plan = _ends(plan)
    state = _begun(states, plan, ends)
    plan = replace(plan, name=state.name)
    tell = progress or _no_progress
    tell("records to migrate", sum(max(end - state.done[at].position, 0) for at, (_, end) in ends.items()))
    before = _total(state.done)
    while left := {at: end for at, (_, end) in ends.items() if state.done[at].position < end}:
        copied = list(copy(plan, left))
        done = {each.partition: each.done for each in copied if each.done is not None}
        state = replace(state, done={**state.done, **done})
        states.write(state)
        tell("records migrated", _total(state.done).records - before.records)
        for each in copied:
            if each.error is not None:
                raise _failure(plan, each.partition, each.error)
    states.write(replace(state, under_way=False))
    after = _total(state.done)
    return MigrateReport(
        after.records - before.records, after.payloads - before.payloads, after.skipped - before.skipped
    )


def _no_progress(_what: str, _count: int) -> None:
    return


def _total(done: Mapping[int, Done]) -> MigrateReport:
    """What all runs of a migration have done."""
    parts = done.values()
    return MigrateReport(
        sum(each.records for each in parts), sum(each.payloads for each in parts), sum(each.skipped for each in parts)
    )


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
    # A killed copy may have left its transaction open. The next one ends it; until then, this is the only way to get
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


def _failure(plan: MigratePlan, partition: int, error: CopyError) -> JobError:
    where = {"topic": plan.topic, "partition": partition, "offset": error.offset}
    return JobError(error.message, hint=error.hint, **where).marked(transient=error.transient)
