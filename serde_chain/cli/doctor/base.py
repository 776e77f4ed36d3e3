"""The data shared by all checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreError
from serde_chain.cli.findings import Finding
from serde_chain.cli.records import RecordUnavailableError, open_reader
from serde_chain.cli.routed import config_of, large_fields_config, large_message_config
from serde_chain.clients.confluent.partitions import PartitionReader, client_settings
from serde_chain.config import Resolved

TIMEOUT_S: Final = 10.0
_CENTURY_MS: Final = 36_525 * 86_400_000


def change_for(error: PayloadStoreError, permit: str, *, otherwise: str | None = None) -> str:
    """The remedy: a missing bucket or a server that is down does not need a permission.

    Args:
        error: What the store raised.
        permit: The remedy if the store denies access.
        otherwise: The remedy for other errors without a hint.
    """
    if isinstance(error, PayloadAccessDeniedError):
        return f"{error.hint}. If they are right: {permit[0].lower()}{permit[1:]}" if error.hint else permit
    return error.hint or otherwise or permit


@dataclass(frozen=True)
class TopicSettings:
    """The broker's settings of a topic.

    Attributes:
        retention_ms: Its ``retention.ms``; -1 is unlimited.
        compacted: Whether its ``cleanup.policy`` has ``compact``.
        deletes: Whether its ``cleanup.policy`` has ``delete``.
        max_bytes: Its ``max.message.bytes``, the largest batch.
        segment_ms: Its ``segment.ms``, the time covered by a segment of its log.
    """

    retention_ms: int
    compacted: bool
    deletes: bool
    max_bytes: int
    segment_ms: int

    @property
    def longest_ms(self) -> int | None:
        """The maximum lifetime of a record in ms; None if unlimited. Some set the largest long for that."""
        return self.retention_ms if self.deletes and 0 <= self.retention_ms < _CENTURY_MS else None

    @property
    def latest_ms(self) -> int | None:
        """The age in ms at which Kafka has certainly deleted a record: its segment is rolled after ``segment.ms``."""
        return None if self.longest_ms is None else self.longest_ms + min(self.segment_ms, _CENTURY_MS)


class CheckContext:
    """The configuration and its cluster, for all checks.

    Args:
        config: The configuration, without mistakes.
        topics: The topics to check.
        timeout_s: Maximum wait for one answer of the broker, in seconds.
        missing: Topics that do not exist; their stores are checked all the same.
        tries: Whether payloads may be written and deleted, and compatibility of schemas requested.
    """

    def __init__(
        self,
        config: Resolved,
        topics: tuple[str, ...],
        timeout_s: float = TIMEOUT_S,
        missing: tuple[str, ...] = (),
        *,
        tries: bool = False,
    ) -> None:
        self.config, self.topics, self.timeout_s, self.missing = config, topics, timeout_s, missing
        self.tries = tries
        self._facts: dict[str, TopicSettings | None] = {}

    @cached_property
    def large_messages(self) -> Mapping[str, object] | None:
        """The configuration of ``large-message``; None without that stage."""
        return large_message_config(self.config)

    def large_messages_of(self, topic: str) -> Mapping[str, object] | None:
        """The same for one topic."""
        return None if self.large_messages is None else config_of(self.large_messages, topic)

    @cached_property
    def stores(self) -> list[Mapping[str, object]]:
        """The configurations of ``large-message`` and of ``large-fields``, whose stores may differ."""
        fields = large_fields_config(self.config)
        return [config for config in (self.large_messages, fields) if config is not None]

    def stores_of(self, topic: str) -> list[Mapping[str, object]]:
        """The same for one topic."""
        return [config_of(config, topic) for config in self.stores]

    @property
    def writes(self) -> bool:
        """Whether the configuration names a chain of serializers."""
        return any(chain for key, chain in self.config.chains.items() if key.endswith(".serializer"))

    @property
    def reads(self) -> bool:
        """Whether the configuration names a chain of deserializers."""
        return any(chain for key, chain in self.config.chains.items() if key.endswith(".deserializer"))

    def reader(self) -> PartitionReader:
        """A reader of the topics, without a group."""
        return open_reader(self.config.settings, self.timeout_s)

    @cached_property
    def admin(self) -> Any:
        """An admin client."""
        from confluent_kafka.admin import AdminClient

        from serde_chain.clients.confluent.partitions import log_error

        settings: dict[str, Any] = {**client_settings(self.config.settings), "log_level": 0, "error_cb": log_error}
        return AdminClient(settings)

    def facts(self, topic: str) -> TopicSettings | None:
        """The broker's settings of a topic; None if this user may not read them.

        Raises:
            RecordUnavailableError: The broker does not answer.
        """
        if topic not in self._facts:
            self._facts[topic] = self._ask(topic)
        return self._facts[topic]

    def _ask(self, topic: str) -> TopicSettings | None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        future: Any
        (future,) = self.admin.describe_configs([resource], request_timeout=self.timeout_s).values()
        try:
            entries = future.result(self.timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            reason = error.args[0] if isinstance(error, KafkaException) else None
            if reason is not None and reason.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return None
            raise RecordUnavailableError(
                f"the broker did not return its configuration: {reason or 'no answer'}", topic=topic
            ) from error
        value = {name: entry.value for name, entry in entries.items()}
        policy = value["cleanup.policy"]
        return TopicSettings(
            int(value["retention.ms"]),
            "compact" in policy,
            "delete" in policy,
            int(value["max.message.bytes"]),
            int(value["segment.ms"]),
        )


Checks: TypeAlias = Callable[[CheckContext], Iterator[Finding]]
"""A group of checks: its results are printed in this order."""
