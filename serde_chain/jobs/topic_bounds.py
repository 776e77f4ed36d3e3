"""The bounds of topics, which jobs read to their ends."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeAlias

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from serde_chain import config as configuration
from serde_chain.clients.confluent.partitions import (
    TIMEOUT_S,
    PartitionReader,
    client_settings,
    log_error,
    make_client,
)
from serde_chain.clients.confluent.topic_admin import ConfluentAdmin
from serde_chain.config import Config
from serde_chain.errors import ConfigError, JobError

_log = logging.getLogger("serde_chain")

GROUP: Final = "serde-chain-jobs"
"""The group in the names of clients; none joins it."""

READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"

Ends: TypeAlias = Mapping[tuple[str, int], int]
"""Offsets by topic and partition."""


def named_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """One topic or several, each once.

    Raises:
        ConfigError: There is none.

    Example:
        >>> named_topics("alerts"), named_topics(["a", "b", "a"])
        (('alerts',), ('a', 'b'))
    """
    named = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if not named:
        raise ConfigError("no topic is given")
    return named


class TopicBounds:
    """Asks for the bounds of topics, by one consumer and one admin client; a context manager.

    A job that deletes payloads reads the whole log, including records of open and aborted transactions: an open
    transaction may hide committed records, whose payloads are in use.

    Args:
        config: Flat configuration of a client.
        topics: The topics.
        isolation: ``read_uncommitted`` for the whole log, ``read_committed`` for what readers see.

    Raises:
        ConfigError: librdkafka refuses the configuration.
    """

    def __init__(self, config: Mapping[str, object], topics: Sequence[str], isolation: str) -> None:
        self._topics = topics
        self._ids: dict[str, str] = {}
        self._admin: AdminClient = make_client(AdminClient, config, {"error_cb": log_error})
        settings: dict[str, Any] = {"isolation.level": isolation}
        self._reader = PartitionReader(config, GROUP, failure=JobError, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def bounds(self) -> tuple[Ends, Ends]:
        """The first offsets of all partitions, and their ends.

        Raises:
            JobError: A topic does not exist, or was created anew since the last call; or the broker does not answer.
        """
        first: dict[tuple[str, int], int] = {}
        ends: dict[tuple[str, int], int] = {}
        for topic in self._topics:
            partitions = range(self._reader.count(topic))
            for partition, (low, high) in self._reader.all_bounds(topic, partitions).items():
                first[topic, partition], ends[topic, partition] = low, high
        self._check_ids()
        return first, ends

    def _check_ids(self) -> None:
        """Compare the topics' ids (KIP-516) with those of the last call: a name may be that of another topic by now."""
        for topic, topic_id in self._current_ids().items():
            if self._ids.setdefault(topic, topic_id) != topic_id:
                raise JobError(
                    "the topic was deleted and created anew since the job began", hint="Run it again", topic=topic
                )

    def _current_ids(self) -> dict[str, str]:
        """The ids of the topics; without those that the broker does not tell, as before Kafka 2.8."""
        described = self._admin.describe_topics(TopicCollection([*self._topics]), request_timeout=TIMEOUT_S)
        ids: dict[str, str] = {}
        for topic, answer in described.items():
            try:
                ids[topic] = str(answer.result(TIMEOUT_S).topic_id)
            except (KafkaException, TimeoutError) as error:
                _log.debug("the id of the topic %s is unknown: %s", topic, error)
        return {topic: topic_id for topic, topic_id in ids.items() if topic_id.strip("A=")}

    def check_ends(self, ends: Ends) -> tuple[Ends, Ends]:
        """Check that partitions still reach their earlier ends.

        Args:
            ends: The earlier ends.

        Returns:
            The current bounds.

        Raises:
            JobError: A partition ends earlier.
        """
        first, now = self.bounds()
        back = next((place for place in ends if now.get(place, -1) < ends[place]), None)
        if back is not None:
            raise JobError(
                "the partition ends earlier than before: its topic was recreated during the read",
                hint="Run it again",
                topic=back[0],
                partition=back[1],
            )
        return first, now


def compacted_topics(config: Mapping[str, object], topics: Sequence[str]) -> frozenset[str]:
    """The compacted ones of some topics, in which a null value is a tombstone.

    Args:
        config: Flat configuration of a client.
        topics: The topics.

    Raises:
        JobError: None is compacted, one does not exist, or the broker does not say whether one is compacted.
    """
    admin = ConfluentAdmin({"log_level": 0, **client_settings(config)})
    compacted: set[str] = set()
    try:
        for topic in topics:
            try:
                found = admin.describe(topic, TIMEOUT_S)
            except (KafkaException, TimeoutError) as error:
                reason = error.args[0] if error.args else "no answer"
                failure = JobError(f"the broker did not say whether the topic is compacted: {reason}", topic=topic)
                failure.transient = True
                raise failure from error
            if found.denied:
                raise JobError(
                    "whether the topic is compacted is unknown: this user may not see its settings",
                    hint="Grant DESCRIBE_CONFIGS on the topic, or sweep without tombstones",
                    topic=topic,
                )
            if found.compacted is None:
                raise JobError(
                    "the topic cannot be read: it does not exist",
                    hint="Check the topic's name and bootstrap.servers, or create it",
                    topic=topic,
                )
            if found.compacted:
                compacted.add(topic)
    finally:
        admin.close()
    if not compacted:
        raise JobError(
            f"none of the topics is compacted ({', '.join(topics)}), so a null value is no tombstone: readers still "
            "need the payloads of the records before it",
            hint="Sweep without tombstones, or set cleanup.policy = compact",
        )
    return frozenset(compacted)


def count_records(config: Config | str | Path, topics: str | Sequence[str]) -> int:
    """The number of records in topics, by their offsets: removed ones between others count.

    Args:
        config: The configuration of a client: a mapping, or a file's path.
        topics: The topics.

    Raises:
        ConfigError: The configuration is wrong, or no topic is given.
        JobError: A topic does not exist, or the broker does not answer.
    """
    with TopicBounds(configuration.load(config), named_topics(topics), READ_UNCOMMITTED) as bounds:
        first, ends = bounds.bounds()
    return sum(ends[place] - first[place] for place in ends)
