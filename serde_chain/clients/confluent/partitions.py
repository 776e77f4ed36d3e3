"""Reads partitions by position, with a deadline on every wait: for commands and jobs, which join no group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.errors import ConfigError, ContextualError

__all__ = ["TIMEOUT_S", "PartitionReader", "client_settings", "log_error", "make_client"]

_log = logging.getLogger("serde_chain")

TIMEOUT_S: Final = 60.0

# Keys of one kind of client only, which are set here.
_OWN: Final = (
    "group.",
    "enable.auto",
    "auto.",
    "isolation.",
    "transactional.",
    "enable.partition.eof",
    "key.",
    "value.",
)


def client_settings(config: Config | str | Path) -> dict[str, Any]:
    """The part of a configuration that a client of our own needs: where the broker is, and how to log in."""
    loaded = configuration.client_config(configuration.load(config))
    return {key: value for key, value in loaded.items() if not key.startswith(_OWN)}


# The group's coordinator moves, or was asked for the first time.
_SOON: Final = frozenset({"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"})
_SOON_S: Final = 0.1


def make_client(kind: Any, config: Config | str | Path, own: dict[str, Any]) -> Any:
    """Make a consumer or producer with settings of our own above those of the user.

    Raises:
        ConfigError: librdkafka refuses them.
    """
    try:
        return kind({**client_settings(config), **own})
    except Exception as error:  # KafkaException, TypeError or ValueError
        raise ConfigError(f"the Kafka client refuses its configuration: {error}") from error


def log_error(error: Any) -> None:
    """Log what librdkafka reports between calls; without this callback, any call would raise fatal errors."""
    _log.debug("librdkafka: %s", error.str())


class PartitionReader:
    """Reads committed records of topics; it is of a group only where the group's positions are asked for."""

    def __init__(
        self,
        config: Config | str | Path,
        group: str,
        *,
        failure: type[ContextualError],
        timeout_s: float = TIMEOUT_S,
        **settings: Any,
    ) -> None:
        """Make the consumer.

        Args:
            config: Client configuration.
            group: Consumer group, by which positions are kept.
            failure: What to raise where a topic cannot be read; its context has topic, partition and offset.
            timeout_s: The longest wait for the broker, in seconds.
            **settings: More of librdkafka's.

        Raises:
            ConfigError: librdkafka refuses the configuration.
            MissingDependencyError: confluent_kafka is not installed.
        """
        self.kafka: Any = require("confluent_kafka", "kafka")
        self.timeout_s = timeout_s
        self._failure = failure
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # A question about another place waits until the broker has answered the last one.
            "fetch.wait.max.ms": 50,
            "error_cb": self._note_error,
        }
        self._last_error = ""
        self._consumer = make_client(self.kafka.Consumer, config, {**own, **settings})

    def count(self, topic: str) -> int:
        """The number of a topic's partitions.

        Raises:
            ContextualError: The topic is not there, or the broker does not answer.
        """
        metadata = self._ask(topic, self._consumer.list_topics, topic, timeout=self.timeout_s).topics[topic]
        if metadata.error is not None:
            raise self._failure(self._problem("the topic cannot be read", metadata.error), topic=topic)
        return len(metadata.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one behind its last committed record.

        Raises:
            ContextualError: The broker does not answer.
        """
        place = self.kafka.TopicPartition(topic, partition)
        low, high = self._ask(topic, self._consumer.get_watermark_offsets, place, timeout=self.timeout_s)
        return int(low), int(high)

    def committed(self, topic: str, count: int) -> list[Any]:
        """The group's positions in a topic's partitions, with their metadata.

        Raises:
            ContextualError: The broker does not answer.
        """
        places = [self.kafka.TopicPartition(topic, partition) for partition in range(count)]
        return list(self._ask(topic, self._consumer.committed, places, timeout=self.timeout_s))

    def commit(self, topic: str, partition: int, offset: int) -> None:
        """Commit the group's position in a partition; returns when the broker has it.

        Raises:
            ContextualError: The broker does not answer.
        """
        places = [self.kafka.TopicPartition(topic, partition, offset)]
        self._ask(topic, self._consumer.commit, offsets=places, asynchronous=False)

    def group(self) -> Any:
        """The group's metadata, for transactions that commit its positions."""
        return self._consumer.consumer_group_metadata()

    def assign(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Go to an offset in each of some partitions, for :meth:`take`."""
        places = [self.kafka.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        self._consumer.assign(places)

    def take(self, count: int, wait_s: float) -> tuple[list[Any], set[int]]:
        """The next records of the assigned partitions, as many as come in time.

        Args:
            count: The most records.
            wait_s: The longest wait, in seconds.

        Returns:
            The records, and the partitions that have ended for now.

        Raises:
            ContextualError: A partition cannot be read.
        """
        messages = self._consumer.consume(count, wait_s)
        ended = {message.partition() for message in messages if self._is_end(message)}
        return [message for message in messages if message.error() is None], ended

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Any]:
        """The records of a partition from one offset to another, which is not read.

        Raises:
            ContextualError: A record did not come in time, or the partition cannot be read.
        """
        if start >= end:
            return
        self.assign(topic, {partition: start})
        deadline = time.monotonic() + self.timeout_s
        while (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is None:
                continue
            if self._is_end(message) or message.offset() >= end:
                return
            yield message
            if message.offset() >= end - 1:
                return
            start = message.offset() + 1
            deadline = time.monotonic() + self.timeout_s
        raise self._failure(
            f"no record came within {self.timeout_s:g} s", topic=topic, partition=partition, offset=start
        )

    def _is_end(self, message: Any) -> bool:
        """Whether a message marks the present end of its partition."""
        error = message.error()
        if error is None:
            return False
        if error.code() == self.kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001, its documented name
            return True
        raise self._failure(
            f"the partition cannot be read: {error.str()}", topic=message.topic(), partition=message.partition()
        )

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_error(self, error: Any) -> None:
        log_error(error)
        self._last_error = error.str()

    def _problem(self, what: str, error: Any) -> str:
        """The text of an error, with the client's reports between calls: a time-out does not know its reason."""
        known = f" ({self._last_error})" if self._last_error and self._last_error != error.str() else ""
        return f"{what}: {error.str()}{known}"

    def _ask(self, topic: str, method: Any, *arguments: object, **options: object) -> Any:
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return method(*arguments, **options)
            except self.kafka.KafkaException as error:
                if error.args[0].name() in _SOON and time.monotonic() < deadline:
                    time.sleep(_SOON_S)
                    continue
                self._consumer.poll(0)  # lets the client report what it has noted between calls
                raise self._failure(
                    self._problem("the broker did not answer", error.args[0]),
                    hint="Check bootstrap.servers and that the broker runs",
                    topic=topic,
                ) from error
