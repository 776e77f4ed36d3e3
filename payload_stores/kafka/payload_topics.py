"""Creates payload topics, with limits and retention matching those of the records' topics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple

from payload_stores.errors import PayloadAccessDeniedError, PayloadStoreError
from payload_stores.kafka.broker import Broker
from payload_stores.kafka.chunks import ROOM
from payload_stores.kafka.errors import STORE, denied, missing_topic, translated, unavailable
from payload_stores.plugins import require

_log = logging.getLogger("payload_stores.kafka")

_MARGIN: Final = 1.2
_MOST_BLOCK: Final = 1 << 20
# A batch of several chunks, limited by the producer's batch.size, must fit into the topic's limit.
_LEAST_LIMIT: Final = 32_768
_DEFAULT_LIMIT: Final = 1_048_588
_KNOWN_S: Final = 300.0
_RETRY_S: Final = 0.05
_DAY_MS: Final = 86_400_000
_DURABILITY: Final = ("min.insync.replicas", "unclean.leader.election.enable")
_EXPECTED: Final = object()  # in place of an answer
_UNKNOWN: Final = "UNKNOWN_TOPIC_OR_PART"
_EXISTS: Final = "TOPIC_ALREADY_EXISTS"
_DENIED: Final = frozenset({"TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED"})
_OF_TOPIC: Final = 1  # confluent_kafka.admin.ConfigSource.DYNAMIC_TOPIC_CONFIG


class PayloadTopic(NamedTuple):
    """A payload topic, for writers.

    Attributes:
        name: Its name.
        cluster: Id of the cluster.
        partitions: Number of partitions.
        block_bytes: Maximum payload bytes per record.
    """

    name: str
    cluster: str
    partitions: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class _Settings:
    """Effective settings of a topic.

    Attributes:
        max_bytes: ``max.message.bytes``.
        retention_ms: Age at which records are deleted; None if they are kept.
        compacted: Whether it is compacted.
        retention_bytes: Size of a partition above which records are deleted; None if there is none.
        durability: The topic's own settings, not its brokers', of when a record counts as written.
    """

    max_bytes: int
    retention_ms: int | None
    compacted: bool
    retention_bytes: int | None
    durability: Mapping[str, str]

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> _Settings:
        policy = str(entries["cleanup.policy"].value)
        deletes = "delete" in policy
        age, size = (int(entries[name].value) for name in ("retention.ms", "retention.bytes"))
        return cls(
            int(entries["max.message.bytes"].value),
            age if deletes and age >= 0 else None,
            "compact" in policy,
            size if deletes and size >= 0 else None,
            {name: str(entries[name].value) for name in _DURABILITY if entries[name].source == _OF_TOPIC},
        )


class PayloadTopics:
    """Finds, creates, checks and caches payload topics.

    Args:
        broker: The store's clients.
        retention_ms: Age at which payloads are deleted, if set; -1 keeps them.
    """

    def __init__(self, broker: Broker, retention_ms: int | None) -> None:
        self._broker = broker
        self._retention_ms = retention_ms
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[PayloadTopic, float]] = {}

    def prepare(self, topic: str, name: str) -> PayloadTopic:
        """Ensure that payloads can be written: create the topic if missing, and warn of too short a retention.

        Args:
            topic: The data topic.
            name: Its payload topic.

        Raises:
            PayloadAccessDeniedError: The topic is missing and this user may not create it, or may not see it.
            PayloadStoreError: The topic cannot be created or described, or its limit is too small for chunks.
        """
        known = self._known.get((topic, name))
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        if not self._lock.acquire(timeout=self._broker.timeout_s):
            raise unavailable(f"the payload topic {name} was not described in time", topic=topic)
        try:
            known = self._known.get((topic, name))
            if known is not None and time.monotonic() < known[1]:
                return known[0]
            found = self._look(topic, name, is_first=known is None)
            self._known[topic, name] = found, time.monotonic() + _KNOWN_S
            return found
        finally:
            self._lock.release()

    def forget(self) -> None:
        """Drop the cached topic after a failed write: it may have changed."""
        self._known.clear()

    def expiration(self, topic: str, name: str) -> timedelta | None:
        """The age at which payloads are deleted; None if they are kept."""
        settings = self._describe(name, topic)
        if settings is None:
            raise missing_topic(name, topic=topic)
        return None if settings.retention_ms is None else timedelta(milliseconds=settings.retention_ms)

    def set_expiration(self, topic: str, name: str, age: timedelta | None) -> None:
        """Set the age at which payloads are deleted; creates the topic if it is missing."""
        self.prepare(topic, name)
        settings = self._describe(name, topic)
        compacted = settings is not None and settings.compacted
        retention_ms = -1 if age is None else -(-age // timedelta(milliseconds=1))
        policy = "delete" if not compacted else "compact" if age is None else "compact,delete"
        self._alter(name, topic, {"retention.ms": retention_ms, "cleanup.policy": policy})

    def _look(self, topic: str, name: str, *, is_first: bool) -> PayloadTopic:
        until = time.monotonic() + self._broker.timeout_s
        self._broker.forget(name)
        described = self._broker.topic(name, topic=topic)
        data = self._describe_data(topic)
        if not described.partitions:
            self._create(topic, name, data)
            # A new topic is not known to all brokers at once.
            while not (described := self._broker.topic(name, topic=topic)).partitions:
                if time.monotonic() >= until:
                    raise unavailable(f"the payload topic {name} was created, but is not visible yet", topic=topic)
                time.sleep(_RETRY_S)
        if is_first:
            self._wait_for_leaders(topic, name, described.partitions, until)
        settings = self._described(name, topic, until)
        if settings is not None and is_first:
            self._check_retention(topic, name, data, settings)
        limit = _DEFAULT_LIMIT if settings is None else settings.max_bytes
        if limit < _LEAST_LIMIT:
            raise PayloadStoreError(
                f"max.message.bytes of the payload topic {name} is {limit}, less than the {_LEAST_LIMIT} that chunks "
                "need",
                hint=f"Raise it: kafka-configs.sh --alter --topic {name} --add-config max.message.bytes=1048588",
                store=STORE,
                topic=topic,
            )
        return PayloadTopic(name, described.cluster, described.partitions, min(limit, _MOST_BLOCK) - ROOM)

    def _wait_for_leaders(self, topic: str, name: str, count: int, until: float) -> None:
        """Wait until all partitions of a possibly new topic have leaders.

        A broker that does not know yet that it leads a partition refuses the first chunk. It may accept the second,
        already in flight, and the producer would never send the first again.
        """
        kafka = require("confluent_kafka", "kafka")
        end: Any = require("confluent_kafka.admin", "kafka").OffsetSpec.latest()
        left = [kafka.TopicPartition(name, partition) for partition in range(count)]
        while left:
            asked = dict.fromkeys(left, end)
            answers = self._broker.admin().list_offsets(asked, request_timeout=self._broker.timeout_s)
            left = []
            for place, future in answers.items():
                try:
                    self._result(future, f"read the end of the topic {name}", topic)
                except PayloadStoreError as error:
                    if not error.transient or time.monotonic() >= until:
                        raise
                    left.append(place)
            if left:
                time.sleep(_RETRY_S)

    def _described(self, name: str, topic: str, until: float) -> _Settings | None:
        """Settings of an existing topic; None if this user may not see them."""
        errors = require("confluent_kafka", "kafka").KafkaError
        while True:
            try:
                settings = self._describe(name, topic)
            except PayloadAccessDeniedError:
                _log.warning(
                    "this user may not see the settings of the payload topic %s (DescribeConfigs): its retention is "
                    "not compared with that of %s, and its max.message.bytes is taken to be %d",
                    *(name, topic, _DEFAULT_LIMIT),
                )
                return None
            if settings is not None:
                return settings
            if time.monotonic() >= until:
                raise translated(errors(errors.UNKNOWN_TOPIC_OR_PART), f"describe {name}", topic=topic)
            time.sleep(_RETRY_S)

    def _describe(self, name: str, topic: str) -> _Settings | None:
        """Effective settings of a topic; None if it does not exist."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        admin = self._broker.admin()
        resource = ConfigResource(ResourceType.TOPIC, name)
        (future,) = admin.describe_configs([resource], request_timeout=self._broker.timeout_s).values()
        right = ("DescribeConfigs", name, "see the settings of")
        entries = self._result(future, f"describe the topic {name}", topic, *right, expected=_UNKNOWN)
        return None if entries is _EXPECTED else _Settings.of(entries)

    def _describe_data(self, topic: str) -> tuple[_Settings, int, int] | None:
        """Settings, partitions and replicas of a data topic; None if it is missing or invisible to this user."""
        kafka = require("confluent_kafka", "kafka")
        try:
            settings = self._describe(topic, topic)
        except PayloadStoreError as error:
            if error.transient:
                raise
            settings = None
        if settings is None:
            return None
        described = self._broker.admin().describe_topics(
            kafka.TopicCollection([topic]), request_timeout=self._broker.timeout_s
        )
        try:
            partitions = self._result(described[topic], f"describe the topic {topic}", topic).partitions
        except PayloadStoreError as error:
            if error.transient:
                raise
            return None
        return settings, len(partitions), min(len(each.replicas) for each in partitions)

    def _create(self, topic: str, name: str, data: tuple[_Settings, int, int] | None) -> None:
        from confluent_kafka.admin import NewTopic

        settings, partitions, replicas = data or (None, -1, -1)  # -1: the broker's default (KIP-464)
        # A size limit would delete payloads too early.
        config = {"retention.bytes": "-1"}
        if settings is not None:
            age = self._retention_ms
            if age is None and settings.retention_ms is not None:
                age = int(settings.retention_ms * _MARGIN)
            policy = ["compact"] if settings.compacted else ["delete"]
            if settings.compacted and age is not None:
                policy.append("delete")
            config |= {"cleanup.policy": ",".join(policy), "retention.ms": str(-1 if age is None else age)}
            config |= settings.durability
        elif self._retention_ms is not None:
            config["retention.ms"] = str(self._retention_ms)
        new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=config)
        (future,) = self._broker.admin().create_topics([new], request_timeout=self._broker.timeout_s).values()
        right = ("Create", name, "create")
        if self._result(future, f"create the topic {name}", topic, *right, expected=_EXISTS) is _EXPECTED:
            return  # another writer was first
        _log.info("the payload topic %s was created: %s", name, config)
        if settings is None and self._retention_ms is None:
            self._outlive(topic, name)

    def _outlive(self, topic: str, name: str) -> None:
        """Set the retention of a new topic from the default it got, which the data topic will get too."""
        until = time.monotonic() + self._broker.timeout_s
        while (settings := self._describe(name, topic)) is None:
            if time.monotonic() >= until:
                return
            time.sleep(_RETRY_S)
        if settings.retention_ms is not None:
            self._alter(name, topic, {"retention.ms": int(settings.retention_ms * _MARGIN)})

    def _alter(self, name: str, topic: str, changes: Mapping[str, object]) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET) for key, value in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        admin = self._broker.admin()
        (future,) = admin.incremental_alter_configs([resource], request_timeout=self._broker.timeout_s).values()
        self._result(future, f"change the topic {name}", topic, "AlterConfigs", name, "change")

    def _result(self, future: Any, doing: str, topic: str, *right: str, expected: str | None = None) -> Any:
        """The answer to a request; ``_EXPECTED`` if it is that error.

        Args:
            future: The answer.
            doing: The attempted action.
            topic: The data topic.
            *right: The required permission, for its lack, as in :func:`~payload_stores.kafka.errors.denied`.
            expected: The name of Kafka's error that is an answer too.
        """
        try:
            return future.result(self._broker.timeout_s + 1)
        except TimeoutError:
            raise unavailable(f"Kafka did not {doing} in time", topic=topic) from None
        except require("confluent_kafka", "kafka").KafkaException as error:
            reason = error.args[0]
            if reason.name() == expected:
                return _EXPECTED
            if right and reason.name() in _DENIED:
                raise denied(topic, *right) from None
            raise translated(reason, doing, topic=topic) from None

    def _check_retention(
        self, topic: str, name: str, data: tuple[_Settings, int, int] | None, settings: _Settings
    ) -> None:
        """Warn if payloads are deleted before their records."""
        if settings.retention_bytes is not None:
            _log.warning(
                "the payload topic %s deletes payloads when a partition has more than %d bytes (retention.bytes): "
                "set it to -1, so that no record outlives its payload",
                *(name, settings.retention_bytes),
            )
        if data is None or settings.retention_ms is None:
            return
        records_ms = data[0].retention_ms
        if records_ms is None or records_ms > settings.retention_ms:
            _log.warning(
                "payloads of %s are deleted after %s (retention.ms of %s), and its records %s: raise it, or readers "
                "will miss payloads",
                topic,
                _age(settings.retention_ms),
                name,
                "never" if records_ms is None else f"after {_age(records_ms)}",
            )


def _age(milliseconds: int) -> str:
    return f"{milliseconds} ms ({milliseconds / _DAY_MS:.3g} days)"
