"""Writes undecodable records to a dead-letter topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from payload_stores import forks
from payload_stores.client_log import without_log
from payload_stores.message_headers import headers_of
from serde_chain.clients.client_chains import for_producer
from serde_chain.clients.confluent.partitions import is_transient, log_error
from serde_chain.clients.dead_letters import Letter, Origin, letters, not_taken, taken
from serde_chain.errors import ConfigError, DeadLetterError, SerializationError

_LONGEST_S: Final = 30.0
# Only the broker's limit applies: the record was in a topic before.
_LARGEST: Final = 1_000_000_000


class DeadLetters:
    """A dead-letter topic and its producer, which is made on first use.

    Attributes:
        topic: As given.

    Args:
        consumer: confluent_kafka's consumer; checks that the topic exists, since a producer might create it.
        client: The consumer's settings; the producer shares its connection settings.
        topic: The topic.
        limit_ms: The consumer's ``max.poll.interval.ms``; a dead letter may use half of it.
    """

    def __init__(self, consumer: Any, client: Mapping[str, Any], topic: str, limit_ms: int) -> None:
        self._consumer = consumer
        self._client = client
        self.topic = topic
        self._seconds = min(_LONGEST_S, limit_ms / 2000)
        self._producer: Any = None
        self._partitions = 0
        forks.watch(self, DeadLetters._leave_to_parent)

    def _leave_to_parent(self) -> list[object]:
        left, self._producer = self._producer, None
        return [left]

    def put(self, record: Any, error: SerializationError) -> None:
        """Write a record to the topic, and wait for the broker's acknowledgement.

        Records of one partition go to one partition, in order.

        Args:
            record: The original ``confluent_kafka.Message``.
            error: Its error.

        Raises:
            DeadLetterError: The topic does not exist or refuses it, or the broker did not answer in time.
        """
        kind, moment = record.timestamp()
        timestamp = None if kind == confluent_kafka.TIMESTAMP_NOT_AVAILABLE else moment
        origin = Origin(record.topic(), record.partition(), record.offset(), timestamp)
        whole = Letter(record.key(), record.value(), list(headers_of(record) or ()))
        failure: Exception | None = None
        for letter in letters(whole, error, origin):
            try:
                self._send(letter, origin.partition)
            except (KafkaException, BufferError) as refused:
                self._partitions = 0
                failure = refused
                if not _is_too_large(refused):
                    break
            else:
                taken(letter, origin)
                return
        raise self._error(error, failure) from failure

    def _send(self, letter: Letter, partition: int) -> None:
        """Send a letter, and wait for the broker's acknowledgement.

        Raises:
            KafkaException: The broker refused it, or did not answer in time.
            BufferError: The client's queue is full.
        """
        outcome: list[KafkaError | None] = []
        if not self._partitions:
            self._partitions = self._count()
        if self._producer is None:
            self._producer = self._open()
        self._producer.produce(
            self.topic,
            letter.value,
            letter.key,
            partition=partition % self._partitions,
            headers=letter.headers,
            on_delivery=lambda failure, _message: outcome.append(failure),
        )
        # Longer than the message's own timeout, whose error names the reason.
        self._producer.flush(2 * self._seconds)
        # A comparison of a KafkaError with None leaves a TypeError for the next call of the client.
        if not outcome or outcome[0] is not None:
            self._producer.purge()
            raise KafkaException(outcome[0] if outcome else KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001, its documented name

    def close(self) -> None:
        """Close the producer, if there is one."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _count(self) -> int:
        """The number of the topic's partitions."""
        described = self._consumer.list_topics(self.topic, timeout=self._seconds).topics[self.topic]
        if described.error is not None:
            raise KafkaException(described.error)
        return len(described.partitions)

    def _open(self) -> Any:
        own: dict[str, Any] = {
            "acks": "all",
            "linger.ms": 0,
            "message.max.bytes": _LARGEST,
            "message.timeout.ms": int(self._seconds * 1000),
        }
        try:
            return confluent_kafka.Producer({"error_cb": log_error, **without_log(for_producer(self._client)), **own})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the producer for the dead-letter topic refuses its configuration: {error}") from error

    def _error(self, error: SerializationError, failure: Exception | None) -> DeadLetterError:
        reason = failure.args[0] if failure is not None and failure.args else None
        said = reason.str() if isinstance(reason, KafkaError) else str(failure)
        transient = isinstance(reason, KafkaError) and is_transient(reason)
        return not_taken(error, self.topic, said, transient=transient)


def _is_too_large(failure: Exception) -> bool:
    reason = failure.args[0] if failure.args else None
    return isinstance(reason, KafkaError) and reason.code() == KafkaError.MSG_SIZE_TOO_LARGE
