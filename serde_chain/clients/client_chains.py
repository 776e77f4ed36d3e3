"""The common part of producers and consumers: chains and client settings from one configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from payload_stores.errors import PayloadStoreError
from payload_stores.options import Option, integer
from serde_chain import base
from serde_chain import config as configuration
from serde_chain.base import Serializer
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, Side
from serde_chain.clients.limits import KEY_ROOM
from serde_chain.config import Config, Resolved
from serde_chain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from payload_stores.base import RecordWriter
    from serde_chain.chain import DeserializerChain, SerializerChain
    from serde_chain.clients.journal import Journal

_log = logging.getLogger("serde_chain")

# Java's key; unknown to librdkafka, so it is not passed on.
MAX_BLOCK: Final = Option("max.block.ms", integer(1), 60_000, doc="longest time that produce() may block")
MAX_POLL_INTERVAL: Final = Option("max.poll.interval.ms", integer(1), 300_000, doc="longest time between two polls")
# A setting of the group in the broker, which no client is told.
LOCK: Final = Option(
    "share.record.lock.duration.ms",
    integer(1000),
    30_000,
    doc="for ShareConsumer: how long the broker locks a record for a member of the group, as configured there",
)
_DEFAULT_TIMEOUT_MS: Final = 60_000
# The same as a producer's buffer. Spark uses less, since each task has its own.
DOWNLOADS_BYTES_OF_CONSUMERS: Final = 256 << 20

# Keys of one kind of client, of which librdkafka warns in the other: one configuration serves both.
_CONSUMERS_ONLY: Final = frozenset({
    "allow.auto.create.topics", "auto.commit.enable", "auto.commit.interval.ms", "auto.offset.reset", "check.crcs",
    "consume.callback.max.messages", "coordinator.query.interval.ms", "enable.auto.commit",
    "enable.auto.offset.store", "enable.partition.eof", "fetch.error.backoff.ms", "fetch.max.bytes",
    "fetch.message.max.bytes", "fetch.min.bytes", "fetch.queue.backoff.ms", "fetch.wait.max.ms", "group.id",
    "group.instance.id", "group.protocol", "group.protocol.type", "group.remote.assignor", "heartbeat.interval.ms",
    "isolation.level", "max.partition.fetch.bytes", "max.poll.interval.ms", "max.poll.records",
    "offset.store.method", "offset.store.path", "offset.store.sync.interval.ms", "on_commit",
    "partition.assignment.strategy", "queued.max.messages.kbytes", "queued.min.messages", "session.timeout.ms",
    "share.acknowledgement.mode",
})  # fmt: skip
_PRODUCERS_ONLY: Final = frozenset({
    "acks", "batch.num.messages", "batch.size", "compression.codec", "compression.level", "compression.type",
    "delivery.report.only.error", "delivery.timeout.ms", "enable.gapless.guarantee", "enable.idempotence",
    "linger.ms", "message.send.max.retries", "message.timeout.ms", "on_delivery", "partitioner",
    "produce.offset.report", "queue.buffering.backpressure.threshold", "queue.buffering.max.kbytes",
    "queue.buffering.max.messages", "queue.buffering.max.ms", "queuing.strategy", "request.required.acks",
    "request.timeout.ms", "retries", "sticky.partitioning.linger.ms", "transaction.timeout.ms", "transactional.id",
})  # fmt: skip

ChainT = TypeVar("ChainT", "SerializerChain", "DeserializerChain")


class ClientChains(Generic[ChainT]):
    """Chains and settings of one client.

    Attributes:
        key: Chain of keys; None if the configuration names none, so that the client's default applies.
        value: Chain of values, likewise.
        resolved: The whole configuration.
        client: The remaining settings for confluent_kafka.
        limit_ms: The time limit of store calls.
    """

    def __init__(
        self, key: ChainT | None, value: ChainT | None, resolved: Resolved, client: dict[str, Any], limit_ms: int
    ) -> None:
        self.key: ChainT | None = key
        self.value: ChainT | None = value
        self.resolved, self.client, self.limit_ms = resolved, client, limit_ms

    @staticmethod
    def of_writer(source: Config | Resolved | str | Path) -> ClientChains[SerializerChain]:
        """Read a producer's configuration.

        Store calls must end within the client's own time limit (KIP-1159, "Timeouts").

        Args:
            source: As for :func:`serde_chain.config.checked`.

        Raises:
            ConfigError: The configuration is wrong.
            MissingDependencyError: The extra of a stage or store is not installed.
        """
        from serde_chain.chain import SerializerChain  # a process that makes no client needs none

        return ClientChains._of(source, SerializerChain, MAX_BLOCK)

    @staticmethod
    def of_reader(source: Config | Resolved | str | Path) -> ClientChains[DeserializerChain]:
        """Read a consumer's configuration; see :meth:`of_writer`."""
        from serde_chain.chain import DeserializerChain

        return ClientChains._of(source, DeserializerChain, MAX_POLL_INTERVAL)

    @classmethod
    def _of(
        cls, source: Config | Resolved | str | Path, chain: type[ChainT], limit: Option[int]
    ) -> ClientChains[ChainT]:
        resolved = configuration.checked(source)
        limit_ms = limit.read(resolved.settings)
        moving = _moving_stages(resolved, chain.side)
        if moving:
            from serde_chain.stages.large_message.options import DOWNLOADS_BYTES, TIMEOUT

            time_ms = min(_DEFAULT_TIMEOUT_MS, limit_ms) // moving
            resolved = resolved.with_defaults(
                {DOWNLOADS_BYTES.name: DOWNLOADS_BYTES_OF_CONSUMERS, TIMEOUT.name: time_ms}
            )
        key = chain.from_config(resolved, is_key=True)
        try:
            value = chain.from_config(resolved)
        except BaseException:
            key.close()
            raise
        others = _not_passed(chain.side)
        client = {name: setting for name, setting in resolved.client.items() if name not in others}
        setup = cls(key if key.stages else None, value if value.stages else None, resolved, client, limit_ms)
        try:
            setup.check_times(limit)
        except BaseException:
            setup.close()
            raise
        return setup

    @property
    def config(self) -> Config:
        """The whole configuration, flat."""
        return self.resolved.settings

    @property
    def moves_payloads(self) -> bool:
        """Whether a stage replaces payloads by references."""
        return bool(self._moving)

    @property
    def for_readers(self) -> dict[str, Any]:
        """The client's settings that also apply to consumers."""
        return {name: setting for name, setting in self.client.items() if name not in _PRODUCERS_ONLY}

    @property
    def for_search(self) -> dict[str, Any]:
        """The settings of a consumer that its search for records needs: broker, login and isolation level."""
        own = for_producer(self.client)
        return {**own, **{name: self.client[name] for name in ("isolation.level",) if name in self.client}}

    @property
    def offloading(self) -> list[base.SupportsUploads]:
        """The stages that offload payloads."""
        return [stage for stage in self._moving if isinstance(stage, base.SupportsUploads)]

    @property
    def upload_bounds(self) -> tuple[int, int]:
        """Most uploads at a time, and most bytes that wait for them."""
        if not self.moves_payloads:
            return 1, 1
        from serde_chain.stages.large_message.options import BUFFER_BYTES, UPLOADS_IN_FLIGHT

        return UPLOADS_IN_FLIGHT.read(self.config), BUFFER_BYTES.read(self.config)

    def open_journal(self) -> Journal | None:
        """The crash journal, if one is configured.

        Raises:
            ConfigError: The journal cannot be used.
        """
        if not self.moves_payloads:
            return None
        from serde_chain.stages.large_message.options import JOURNAL_FSYNC, JOURNAL_PATH

        path = JOURNAL_PATH.read(self.config)
        if path is None:
            return None
        from serde_chain.clients.journal import Journal

        return Journal(path, fsync=JOURNAL_FSYNC.read(self.config))

    def with_limits(
        self: ClientChains[SerializerChain], limits: Callable[[base.SupportsUploads, int, bool], base.RecordLimits]
    ) -> ClientChains[SerializerChain]:
        """The setup with a client's limits: its chains also offload payloads that the client would refuse.

        Args:
            limits: Makes the limits for a stage, from the bytes that later stages add, and whether it is for keys.
        """
        return self._changed(lambda chain, is_key: limited_chain(chain, limits, is_key=is_key))

    @property
    def joins_transactions(self) -> bool:
        """Whether payloads can belong to a client's transactions."""
        return any(stage.joins_transactions for stage in self.offloading)

    def within(self: ClientChains[SerializerChain], writer: RecordWriter) -> ClientChains[SerializerChain]:
        """The setup with payloads in a client's transactions, if their store supports that.

        Args:
            writer: The client's transactional producer.
        """
        return self._changed(lambda chain, _: chain.within(writer))

    def _changed(self, change: Callable[[ChainT, bool], ChainT]) -> ClientChains[ChainT]:
        """The setup with each chain replaced; ``change`` also gets whether the chain is for keys."""
        key = None if self.key is None else change(self.key, True)
        value = None if self.value is None else change(self.value, False)
        return ClientChains(key, value, self.resolved, self.client, self.limit_ms)

    @property
    def _moving(self) -> list[base.SupportsUploads | base.SupportsFetch]:
        stages = [stage for chain in (self.key, self.value) if chain for stage in chain.stages]
        return [stage for stage in stages if isinstance(stage, (base.SupportsUploads, base.SupportsFetch))]

    def check_times(self, limit: Option[int]) -> None:
        """Refuse store settings that let one record block for longer than the client's limit.

        Raises:
            ConfigError: They do; names both figures.
        """
        moving = self._moving
        if not moving:
            return
        from serde_chain.stages.large_message.options import TIMEOUT

        # Key and value are stored in sequence, each within its own deadline.
        for what, time_ms, cure in (
            (TIMEOUT.name, sum(stage.timeout_ms for stage in moving), f"Lower {TIMEOUT.name}"),
            (
                "the worst case of the payload store's own timeouts and retries",
                max((stage.worst_case_ms for stage in moving), default=0),
                "Lower the store's timeouts or retries",
            ),
        ):
            if time_ms > self.limit_ms:
                raise ConfigError(
                    f"{what} ({time_ms} ms) is longer than {limit.name} ({self.limit_ms} ms)",
                    hint=f"{cure}, or raise {limit.name}",
                    key=limit.name,
                )

    def set_cluster(self, cluster_id: Callable[[float], str]) -> None:
        """Pass a resolver of the cluster id to the stages that need one, as Confluent's clients do.

        Args:
            cluster_id: Returns the id within a number of seconds.
        """
        for chain in (self.key, self.value):
            if chain is not None:
                chain.set_cluster_id_resolver(lambda: cluster_id(min(_DEFAULT_TIMEOUT_MS, self.limit_ms) / 1000))

    def close(self) -> None:
        """Close both chains."""
        for chain in (self.key, self.value):
            if chain is not None:
                chain.close()


def limited_chain(
    chain: SerializerChain, limits: Callable[[base.SupportsUploads, int, bool], base.RecordLimits], *, is_key: bool
) -> SerializerChain:
    """A chain with a client's limits; see :meth:`ClientChains.with_limits`."""
    for at, stage in enumerate(chain.stages):
        if isinstance(stage, base.SupportsUploads):
            later = [other for other in chain.stages[at + 1 :] if isinstance(other, Serializer)]
            chain = chain.with_limits(limits(stage, sum(other.max_overhead or 0 for other in later), is_key))
    return chain


def single_serializer(
    config: Config | Resolved | str | Path,
    limits: Callable[[base.SupportsUploads, int, bool], base.RecordLimits],
    *,
    is_key: bool,
) -> SerializerChain:
    """The chain of a client that calls its serializers itself, for keys or values alone.

    It offloads payloads that the client would refuse to send.

    Args:
        config: As for :func:`serde_chain.config.resolve`.
        limits: As for :meth:`ClientChains.with_limits`.
        is_key: Whether the chain is for keys.

    Raises:
        ConfigError: The configuration of chains, stages or stores is wrong, or a threshold is above the client's limit.
        MissingDependencyError: An extra is not installed.
    """
    from serde_chain.chain import SerializerChain

    chain = SerializerChain.from_config(config, is_key=is_key)
    try:
        return limited_chain(chain, limits, is_key=is_key)
    except BaseException:
        chain.close()
        raise


def room_for_key(*, is_key: bool) -> int:
    """Bytes that a client which calls its serializers itself keeps free in a record.

    The size of the key is unknown while the value is serialized.

    Args:
        is_key: Whether the chain is for keys.
    """
    return 0 if is_key else KEY_ROOM


def single_deserializer(config: Config | Resolved | str | Path, *, is_key: bool) -> DeserializerChain:
    """The chain of a client that calls its deserializers itself; see :func:`single_serializer`."""
    from serde_chain.chain import DeserializerChain

    return DeserializerChain.from_config(config, is_key=is_key)


def warn_of_other_side(setup: ClientChains[Any], side: Side) -> None:
    """Warn of a writer's configuration in a reader, or the reverse: values are passed on unchanged.

    Args:
        setup: The client's setup.
        side: The client's direction.
    """
    other = DESERIALIZE if side is SERIALIZE else SERIALIZE
    if setup.value is None and setup.resolved.of(other, is_key=False):
        _log.warning(
            "the configuration has a chain for value.%ss and none for value.%ss: values are passed on unchanged",
            *(other.word, side.word),
        )


def _not_passed(side: Side) -> frozenset[str]:
    """The keys that librdkafka does not know, or that it knows only for clients of the other kind."""
    return (_CONSUMERS_ONLY if side is SERIALIZE else _PRODUCERS_ONLY) | {MAX_BLOCK.name, LOCK.name}


def _moving_stages(config: Resolved, side: Side) -> int:
    stages = (stage.stage for is_key in (True, False) for stage in config.of(side, is_key=is_key))
    return sum(stage is not None and stage.moves_payloads for stage in stages)


def for_producer(client: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a consumer that its own producer needs: the broker's address and the login."""
    not_its_own = (*_CONSUMERS_ONLY, "stats_cb", "statistics.interval.ms", "throttle_cb")
    return {name: setting for name, setting in client.items() if name not in not_its_own}


def delete_payload(stages: Iterable[base.SupportsUploads], reference: str) -> None:
    """Delete a payload whose record is never sent.

    Args:
        stages: The stages that offload; the one whose store owns the payload deletes it.
        reference: The payload's reference.

    Raises:
        PayloadStoreError: No store owns it, for instance after a change of configuration; or the deletion failed.

    Example:
        >>> try:
        ...     delete_payload([], "s3://payloads/images/1")
        ... except PayloadStoreError as error:
        ...     print(error.message)
        no configured payload store has it
    """
    owner = next((stage for stage in stages if stage.owns(reference)), None)
    if owner is None:
        raise PayloadStoreError(
            "no configured payload store has it",
            hint="Start the producer with the store to which the payload was uploaded",
            reference=reference,
        )
    owner.delete(reference)
