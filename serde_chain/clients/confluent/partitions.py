"""A consumer that reads partitions by position, with a deadline on every wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.errors import ConfigError, StampError

__all__ = ["TIMEOUT_S", "Partitions", "client_settings", "log_error", "make_client"]

_log = logging.getLogger("serde_chain")

TIMEOUT_S: Final = 60.0

# What belongs to one kind of client only, and is set here.
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
    """What is left of a configuration for a client of our own: where the broker is, and how to log in."""
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
    """What librdkafka tells by the way; without this, it would raise fatal errors out of any call."""
    _log.debug("librdkafka: %s", error.str())


class Partitions:
    """Reads committed records of topics; for a group only where offsets are asked for."""

    def __init__(
        self, config: Config | str | Path, group: str, *, timeout_s: float = TIMEOUT_S, **settings: Any
    ) -> None:
        """Make the consumer.

        Args:
            config: Client configuration.
            group: Consumer group, by which positions are kept.
            timeout_s: The longest wait for the broker, in seconds.
            **settings: More of librdkafka's.

        Raises:
            ConfigError: librdkafka refuses the configuration.
            MissingDependencyError: confluent_kafka is not installed.
        """
        self.kafka: Any = require("confluent_kafka", "kafka")
        self.timeout_s = timeout_s
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # Whoever looks elsewhere waits until the broker has answered the last question.
            "fetch.wait.max.ms": 50,
            "error_cb": self._note_error,
        }
        self._last_error = ""
        self.consumer = make_client(self.kafka.Consumer, config, {**own, **settings})

    def count(self, topic: str) -> int:
        """How many partitions a topic has.

        Raises:
            StampError: The topic is not there, or the broker does not answer.
        """
        found = self._ask(topic, self.consumer.list_topics, topic, timeout=self.timeout_s).topics[topic]
        if found.error is not None:
            raise StampError(self._problem("the topic cannot be read", found.error), topic=topic)
        return len(found.partitions)

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset of a partition, and the one behind its last committed record.

        Raises:
            StampError: The broker does not answer.
        """
        place = self.kafka.TopicPartition(topic, partition)
        low, high = self._ask(topic, self.consumer.get_watermark_offsets, place, timeout=self.timeout_s)
        return int(low), int(high)

    def committed(self, topic: str, count: int) -> list[Any]:
        """The group's positions in a topic's partitions, with their metadata.

        Raises:
            StampError: The broker does not answer.
        """
        places = [self.kafka.TopicPartition(topic, partition) for partition in range(count)]
        return list(self._ask(topic, self.consumer.committed, places, timeout=self.timeout_s))

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Any]:
        """The records of a partition from one offset to another, which is not read.

        Raises:
            StampError: A record did not come in time.
        """
        if start >= end:
            return
        self.consumer.assign([self.kafka.TopicPartition(topic, partition, start)])
        deadline = time.monotonic() + self.timeout_s
        while (left := deadline - time.monotonic()) > 0:
            message = self.consumer.poll(left)
            if message is None:
                continue
            if self.is_end(message) or message.offset() >= end:
                return
            yield message
            if message.offset() >= end - 1:
                return
            deadline = time.monotonic() + self.timeout_s
        raise StampError(f"no record came within {self.timeout_s:g} s", topic=topic, partition=partition, offset=start)

    def is_end(self, message: Any) -> bool:
        """Whether a message says that its partition ends there for now.

        Raises:
            StampError: It says something else went wrong.
        """
        error = message.error()
        if error is None:
            return False
        if error.code() == self.kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001, its documented name
            return True
        raise StampError(
            f"the partition cannot be read: {error.str()}", topic=message.topic(), partition=message.partition()
        )

    def close(self) -> None:
        """Close the consumer."""
        self.consumer.close()

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
        """What went wrong, with what the client told by the way: a call that times out does not know its reason."""
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
                self.consumer.poll(0)  # lets the client tell what it has noted by the way
                raise StampError(
                    self._problem("the broker did not answer", error.args[0]),
                    hint="Check bootstrap.servers and that the broker runs",
                    topic=topic,
                ) from error
