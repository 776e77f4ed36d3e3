"""Plans for moving records: by the stages that follow references in one configuration, and create them in another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from serde_chain.base import Data
from serde_chain.catalogue import DESERIALIZE, bare_key
from serde_chain.clients.client_chains import ClientChains
from serde_chain.clients.confluent.producer import limited
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.config import DESCRIBE, ERROR_POLICY
from serde_chain.errors import ConfigError
from serde_chain.jobs.reference_plan import (
    CHAINS,
    FIELDS,
    as_written,
    moves_fields,
    stages_that_read,
    stages_that_write,
)
from serde_chain.record import VALUE
from serde_chain.stages.large_fields.options import FETCH as FIELDS_FETCH
from serde_chain.stages.large_message.options import BUFFER_BYTES, DOWNLOADS_BYTES, FETCH, with_content_ids


@dataclass(frozen=True)
class Done:
    """The progress of a partition. Committed with the records themselves, as the metadata of an offset.

    Attributes:
        position: The offset of the next record.
        records: Number of records written.
        payloads: Number of payloads moved for them.
        skipped: Number of undecodable records skipped.

    Example:
        >>> Done.of(7, Done(7, 5, 2, 0).metadata)
        Done(position=7, records=5, payloads=2, skipped=0)
    """

    position: int
    records: int = 0
    payloads: int = 0
    skipped: int = 0

    @property
    def metadata(self) -> str:
        """The counts, as text."""
        return f"{self.records} {self.payloads} {self.skipped}"

    @classmethod
    def of(cls, position: int, metadata: str) -> Self:
        """Parse a committed position.

        Args:
            position: The offset.
            metadata: Its metadata.
        """
        return cls(position, *map(int, metadata.split()))


@dataclass(frozen=True)
class MigratePlan:
    """The way to copy a partition.

    Attributes:
        source: Flat configuration of a consumer, whose chains end with the stage that follows references.
        target: Flat configuration of a producer, whose chains begin with the stage that creates references.
        topic: The topic to read.
        target_topic: The topic to write.
        policy: The policy for undecodable records.
        name: Prefix of transactional ids and groups; the partition's number follows.
        same_partitions: Whether records keep their partition numbers; otherwise keys choose them.
        seconds: Time after which the copy of a partition pauses for the others, in seconds.
    """

    source: Mapping[str, object] = field(repr=False)
    target: Mapping[str, object] = field(repr=False)
    topic: str
    target_topic: str
    policy: ErrorPolicy
    name: str = ""
    same_partitions: bool = True
    seconds: float = 30.0

    def name_of(self, partition: int) -> str:
        """The name of a partition's transactions, and of the group with its position."""
        return f"{self.name}-{partition}"


def plan_migration(
    source: Mapping[str, object], target: Mapping[str, object], topic: str, target_topic: str
) -> MigratePlan:
    """Plan the migration of a topic.

    Args:
        source: Flat configuration of a consumer or of a producer.
        target: Flat configuration of a producer.
        topic: The topic to read.
        target_topic: The topic to write.

    Raises:
        ConfigError: A configuration is wrong, or moves no payloads; or both topics are the same.
    """
    servers = "bootstrap.servers"
    if topic == target_topic and source.get(servers) == target.get(servers):
        raise ConfigError(f"the topic {topic} cannot be migrated into itself", hint="Name another topic")
    policy = ErrorPolicy.of(source)
    # References in fields are read from objects, and created in objects, on both sides then.
    by_field = _has_fields(source, target)
    reading, writing = _reader(source, by_field=by_field), _writer(target, by_field=by_field)
    reader = ClientChains.of_reader(reading)
    reader.close()
    setup, _ = limited(ClientChains.of_writer(writing))
    setup.close()
    if by_field:
        _check_objects(
            None if reader.value is None else reader.value.gives, None if setup.value is None else setup.value.takes
        )
    return MigratePlan(reading, writing, topic, target_topic, policy)


def _has_fields(source: Mapping[str, object], target: Mapping[str, object]) -> bool:
    reading, writing = stages_that_read(source, is_key=False), stages_that_write(target, is_key=False)
    return moves_fields(reading) or moves_fields(writing)


def _check_objects(read: Data | None, written: Data | None) -> None:
    """Refuse a migration between objects and bytes.

    Raises:
        ConfigError: One of the configurations has fields in a store, and the other one does not lead to objects.
    """
    for side, data in (("value.deserializers of the source", read), ("value.serializers of the target", written)):
        if data is not Data.OBJECT:
            raise ConfigError(
                f"the fields of values cannot be migrated: the {side} do not lead to objects",
                hint="Name the value's own stage in both configurations, such as avro",
                key=side.split(" ", 1)[0],
            )


def _reader(config: Mapping[str, object], *, by_field: bool) -> dict[str, object]:
    heads = {name: stages_that_read(config, is_key=is_key) for name, is_key in FIELDS}
    if by_field and not moves_fields(heads[VALUE]):
        heads[VALUE] = stages_that_read(config, is_key=False, whole=True)
    if any(stage.item.target == "auto" for head in heads.values() for stage in head):
        raise ConfigError(
            "a chain with auto cannot be migrated: only the stages up to large-message may be undone",
            hint="Name these, as in value.deserializers = large-message",
            key="value.deserializers",
        )
    unset = {*CHAINS, DESCRIBE.name, FETCH.name, FIELDS_FETCH.name, ERROR_POLICY.name, "serde.dead.letter.topic"}
    # This applies to each partition that is being copied.
    bound = {DOWNLOADS_BYTES.name: DOWNLOADS_BYTES.default}
    chains = {
        f"{name}.deserializers": [as_written(stage, without=unset) for stage in head] for name, head in heads.items()
    }
    return {**bound, **_reduced(config, unset, chains)}


def _writer(config: Mapping[str, object], *, by_field: bool) -> dict[str, object]:
    tails = {name: stages_that_write(config, is_key=is_key) for name, is_key in FIELDS}
    if by_field and not moves_fields(tails[VALUE]):
        tails[VALUE] = stages_that_write(config, is_key=False, whole=True)
    bound = {BUFFER_BYTES.name: DOWNLOADS_BYTES.default}
    chains = {f"{name}.serializers": [as_written(stage) for stage in tail] for name, tail in tails.items()}
    return {**bound, **with_content_ids(_reduced(config, {*CHAINS, DESCRIBE.name, "transactional.id"}, chains))}


def _reduced(
    config: Mapping[str, object], unset: set[str], chains: Mapping[str, list[dict[str, object]]]
) -> dict[str, object]:
    if not any(chains.values()):
        side = next(iter(chains))
        raise ConfigError(
            f"no stage of the {'source follows' if DESERIALIZE.word in side else 'target creates'} references",
            hint=f"Name large-message or large-fields in {side}",
            key=side,
        )
    reduced = {key: value for key, value in config.items() if bare_key(key) not in unset}
    return {**reduced, **{name: items for name, items in chains.items() if items}}
