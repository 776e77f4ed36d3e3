"""Reads partitions by position, with a deadline on every wait; for commands and jobs, which join no group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from payload_stores.client_log import plain
from payload_stores.message_headers import headers_of
from payload_stores.plugins import require
from serde_chain import config as configuration
from serde_chain.config import Config
from serde_chain.errors import ConfigError, ContextualError

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger("serde_chain")

TIMEOUT_S: Final = 60.0
# The default for the first answer: a wrong address never gives one.
_FIRST_S: Final = 8.0

# Keys of one kind of client, which are set here.
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
    """The settings that our own clients need: the broker's address and the login."""
    return {key: value for key, value in configuration.resolve(config).client.items() if not key.startswith(_OWN)}


# The group's coordinator or a partition's leader is moving, or is not loaded yet.
_SOON: Final = frozenset({
    "NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
    "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE",
})  # fmt: skip
_SOON_S: Final = 0.1
# librdkafka blocks Ctrl-C while it waits.
_TICK_S: Final = 0.5
_BATCH: Final = 100


def make_client(kind: Any, config: Config | str | Path, own: dict[str, Any]) -> Any:
    """Make a consumer or producer whose own settings override those of the user.

    Raises:
        ConfigError: librdkafka refuses them, or the configuration is wrong elsewhere.
    """
    settings = client_settings(config)  # its errors are not the client's
    for error in configuration.foreign_addresses(settings):
        raise error
    try:
        # Its errors are raised, and keys of another kind of client are expected.
        return kind({"log_level": 0, **settings, **own})
    except Exception as error:  # KafkaException, TypeError or ValueError
        from serde_chain.config_paths import missing_files

        configuration.checked(config)  # whose error names the nearest key
        missing = [f"{key} = {path}" for key, path in missing_files(settings).items()]
        hint = f"There is no such file: {', '.join(missing)}" if missing else None
        raise ConfigError(f"the Kafka client refuses its configuration: {error}", hint=hint) from error


def log_error(error: Any) -> None:
    """Log librdkafka's reports between calls; without this callback, any call would raise fatal errors."""
    _log.debug("librdkafka: %s", error.str())


# Retriable, although librdkafka does not say so.
_LATER: Final = frozenset({"_TIMED_OUT", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN"})
_MISSING: Final = frozenset({"_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"})


def is_transient(error: Any) -> bool:
    """Whether a call that failed with a Kafka error may work later.

    Args:
        error: A ``confluent_kafka.KafkaError``.
    """
    return bool(error.retriable()) or error.name() in _LATER | _SOON


class PartitionReader:
    """Reads committed records of topics; uses its group only for the group's positions."""

    def __init__(
        self,
        config: Config | str | Path,
        group: str,
        *,
        failure: type[ContextualError],
        timeout_s: float | None = None,
        **settings: Any,
    ) -> None:
        """Make the consumer.

        Args:
            config: Client configuration.
            group: Consumer group, by which positions are kept.
            failure: The error for an unreadable topic; its context has topic, partition and offset.
            timeout_s: The longest wait for the broker, in seconds. By default 60, and 8 for the first answer.
            **settings: More settings of librdkafka.

        Raises:
            ConfigError: librdkafka refuses the configuration.
            MissingDependencyError: confluent_kafka is not installed.
        """
        self.kafka: Any = require("confluent_kafka", "kafka")
        self._given_s = timeout_s
        self.timeout_s = TIMEOUT_S if timeout_s is None else timeout_s
        self.config = config
        self.failure = failure
        self._group, self._settings = group, settings
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # A request for another position waits for the broker's response to the last fetch.
            "fetch.wait.max.ms": 50,
            "error_cb": self._note_error,
        }
        self._last_error = ""
        self._has_answered = False
        self._paused: list[Any] = []
        self._consumer = make_client(self.kafka.Consumer, config, {**own, **settings})

    def another(self, settings: Mapping[str, Any]) -> PartitionReader:
        """Another reader of the same configuration.

        Args:
            settings: Settings of librdkafka that differ.
        """
        return PartitionReader(
            self.config, self._group, failure=self.failure, timeout_s=self._given_s, **{**self._settings, **settings}
        )

    def count(self, topic: str) -> int:
        """The number of a topic's partitions.

        Raises:
            ContextualError: The topic does not exist, or the broker does not answer.
        """
        metadata = self._ask(topic, self._consumer.list_topics, topic, timeout=self.timeout_s).topics[topic]
        if metadata.error is not None:
            is_missing = metadata.error.code() == self.kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
            raise self.failure(
                self._problem("the topic cannot be read", metadata.error),
                hint="Check the topic's name and bootstrap.servers, or create it" if is_missing else None,
                topic=topic,
            )
        return len(metadata.partitions)

    def topics(self) -> dict[str, int]:
        """The topics that this login may describe, with the number of their partitions.

        Raises:
            ContextualError: The broker does not answer.
        """
        metadata = self._ask(None, self._consumer.list_topics, timeout=self.timeout_s)
        return {name: len(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}

    @property
    def client(self) -> Any:
        """The consumer itself, for questions about the cluster."""
        return self._consumer

    def is_there(self, topic: str) -> bool:
        """Whether a topic exists.

        Raises:
            ContextualError: The broker does not answer, or refuses to tell.
        """
        error = self._ask(topic, self._consumer.list_topics, topic, timeout=self.timeout_s).topics[topic].error
        if error is not None and error.code() != self.kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise self.failure(self._problem("the topic cannot be read", error), topic=topic)
        return error is None

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset of a partition, and the one after its last committed record.

        Raises:
            ContextualError: The broker does not answer.
        """
        return self.all_bounds(topic, (partition,))[partition]

    def all_bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The same for several partitions by a single request, since many requests take long.

        Raises:
            ContextualError: The broker does not answer.
        """
        first = self._offsets_at(topic, dict.fromkeys(partitions, self.kafka.OFFSET_BEGINNING))
        ends = self._offsets_at(topic, dict.fromkeys(first, self.kafka.OFFSET_END))
        return {partition: (low, ends[partition]) for partition, low in first.items()}

    def committed(self, topic: str, count: int) -> list[Any]:
        """The group's positions in a topic's partitions, with their metadata.

        Raises:
            ContextualError: The broker does not answer.
        """
        places = [self.kafka.TopicPartition(topic, partition) for partition in range(count)]
        return list(self._ask(topic, self._consumer.committed, places, timeout=self.timeout_s))

    def commit(self, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Commit the group's position in a partition, with metadata; waits for the broker.

        Raises:
            ContextualError: The broker does not answer.
        """
        places = [self.kafka.TopicPartition(topic, partition, offset, metadata)]
        self._ask(topic, self._consumer.commit, offsets=places, asynchronous=False)

    def group(self) -> Any:
        """The group's metadata, for transactions that commit its positions."""
        return self._consumer.consumer_group_metadata()

    def assign(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Go to an offset in each of some partitions, for :meth:`take`."""
        # Before, not after: librdkafka would drop fetched records, and if both cross, all later ones.
        if self._paused:
            self._consumer.resume(self._paused)
            self._paused = []
        places = [self.kafka.TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        self._consumer.assign(places)

    def stop(self) -> None:
        """Stop fetching, until the next :meth:`assign`."""
        self.assign("", {})

    def at_time(self, topic: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
        """The first offset of each partition with a Kafka timestamp of this time or later; the end if there is none.

        :func:`serde_chain.clients.confluent.times.offsets_at` looks at frames, too.

        Args:
            topic: The topic.
            partitions: Its partitions.
            time_ms: The time, in ms since the epoch.

        Raises:
            ContextualError: The broker does not answer.
        """
        offsets = self._offsets_at(topic, dict.fromkeys(partitions, time_ms))
        behind = [partition for partition, offset in offsets.items() if offset < 0]
        return {**offsets, **self._offsets_at(topic, dict.fromkeys(behind, self.kafka.OFFSET_END))}

    def _offsets_at(self, topic: str, times: Mapping[int, int]) -> dict[int, int]:
        """The offsets of times by partition: a time in ms, or the constants for the beginning and the end."""
        if not times:
            return {}
        places = [self.kafka.TopicPartition(topic, partition, time) for partition, time in times.items()]

        def ask(*, timeout: float) -> list[Any]:
            found: list[Any] = self._consumer.offsets_for_times(places, timeout=timeout)
            for place in found:
                if place.error is not None:
                    raise self.kafka.KafkaException(place.error)
            return found

        return {place.partition: int(place.offset) for place in self._ask(topic, ask, timeout=self.timeout_s)}

    def pause(self, topic: str, partition: int) -> None:
        """Pause an assigned partition until the next :meth:`assign`."""
        place = self.kafka.TopicPartition(topic, partition)
        self._consumer.pause([place])
        self._paused.append(place)

    def take(self, count: int, wait_s: float) -> tuple[list[Any], dict[int, int]]:
        """The next records of the assigned partitions that arrive in time.

        Args:
            count: The most records.
            wait_s: The longest wait, in seconds.

        Returns:
            The records, and the partitions that have reached their current end, with the end offsets.

        Raises:
            ContextualError: A partition cannot be read.
        """
        records, ended = [], {}
        for message in self._consumer.consume(count, wait_s):
            if (error := message.error()) is None:
                headers_of(message)  # from now on, its own headers() can be read
                records.append(message)
            elif self._is_end(message, error):
                ended[message.partition()] = message.offset()
        return records, ended

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Any]:
        """The records of a partition from one offset up to another, exclusive.

        Raises:
            ContextualError: A record did not come in time, or the partition cannot be read.
        """
        for batch in self.batches(topic, {partition: (start, end)}):
            yield from batch

    def batches(self, topic: str, where: Mapping[int, tuple[int, int]], *, follow: bool = False) -> Iterator[list[Any]]:
        """The records of some partitions as they arrive, in offset order within each partition.

        No call waits for a second record, so their bytes are at most those of the client's queue, which are
        ``queued.max.messages.kbytes`` and a fetch. Meanwhile the queue is filled again.

        A reader has one position: another call of this, `read` or `assign` ends this one.

        Args:
            topic: The topic.
            where: By partition, the first offset and the end.
            follow: Read on behind the ends, as long as the topic exists.

        Raises:
            ContextualError: A record did not come in time, or a partition cannot be read.
        """
        left = {partition: end for partition, (start, end) in where.items() if follow or start < end}
        if not left:
            return
        next_offsets = {partition: where[partition][0] for partition in left}
        self.assign(topic, next_offsets)
        until = time.monotonic() + self.timeout_s
        while left:
            messages, ended = self.take(_BATCH, 0)
            if not messages and not ended:
                messages, ended = self.take(1, min(_TICK_S, max(0.0, until - time.monotonic())))
            if messages or ended:
                until = time.monotonic() + self.timeout_s
            elif time.monotonic() >= until:
                self._check_awaited(topic, min(left), next_offsets, follow=follow)
                until = time.monotonic() + self.timeout_s
            chosen = [message for message in messages if follow or message.offset() < left.get(message.partition(), 0)]
            if chosen:
                yield chosen
            if follow:
                continue
            next_offsets |= {message.partition(): message.offset() + 1 for message in messages}
            for partition, end in ended.items():  # behind the last record, if markers follow it; or before a new one
                next_offsets[partition] = max(next_offsets.get(partition, 0), end)
            for partition in [partition for partition, end in left.items() if next_offsets[partition] >= end]:
                del left[partition]
                self.pause(topic, partition)

    def _check_awaited(self, topic: str, partition: int, offsets: Mapping[int, int], *, follow: bool) -> None:
        """After a long wait: the client does not report that a topic is gone."""
        if not follow:
            raise self.failure(
                f"no record came within {self.timeout_s:g} s",
                topic=topic,
                partition=partition,
                offset=offsets[partition],
            )
        try:
            self.count(topic)
        except self.failure as error:
            if not error.transient:  # otherwise the broker may return
                raise

    def _is_end(self, message: Any, error: Any) -> bool:
        """Whether an error marks the current end of its message's partition."""
        if error.code() == self.kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:
            return False  # readers of the topic need no permission for a group that they do not join
        if error.code() == self.kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001, its documented name
            return True
        raise self.failure(
            f"the partition cannot be read: {error.str()}", topic=message.topic(), partition=message.partition()
        )

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_error(self, error: Any) -> None:
        log_error(error)
        if not (self._last_error and error.name() == "_ALL_BROKERS_DOWN"):  # less specific than the known error
            self._last_error = error.str()

    def _problem(self, what: str, error: Any) -> str:
        """The text of an error with the client's last report, since a timeout does not know its reason."""
        known = f" ({plain(self._last_error)})" if self._last_error and self._last_error != error.str() else ""
        return f"{what}: {error.str()}{known}"

    def _deadline(self, began: float) -> float:
        is_first = self._given_s is None and not self._has_answered
        return began + (_FIRST_S if is_first else self.timeout_s)

    def _ask(self, topic: str | None, method: Any, *arguments: object, **options: object) -> Any:
        began = time.monotonic()
        wait_s = _TICK_S
        while True:
            if "timeout" in options:
                options["timeout"] = max(0.0, min(wait_s, self._deadline(began) - time.monotonic()))
            try:
                answer = method(*arguments, **options)
            except self.kafka.KafkaException as error:
                name = error.args[0].name()
                # The broker's own error, of a group that is being loaded, for example, is an answer.
                self._has_answered = self._has_answered or name in _SOON
                is_soon = name in _SOON or (name in _LATER and "timeout" in options)
                if is_soon and time.monotonic() < self._deadline(began):
                    # A connected broker may be slow; the wait for a disconnected one is in ticks.
                    wait_s *= 2 if name == "_TIMED_OUT" else 1
                    time.sleep(_SOON_S)
                    continue
                self._consumer.poll(0)  # lets the client report its errors
                what = "the broker did not answer"
                hint = "Check bootstrap.servers, security.protocol with its login, and that the broker runs"
                if name in _MISSING:
                    what, hint = "the partition cannot be read", "Check topic and partition, and bootstrap.servers"
                raise self.failure(self._problem(what, error.args[0]), hint=hint, topic=topic).marked(
                    transient=is_transient(error.args[0])
                ) from error
            self._has_answered = True
            return answer
