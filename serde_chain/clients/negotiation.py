"""Records within what their topics take (PIP-36's idea, for Kafka): who has said nothing gets what the broker allows.

Two things go wrong when only single records are looked at. librdkafka does not split batches, so that small records
fail together where ``batch.size`` is above the topic's limit: here no more is under way than one batch may have. And a
limit can be lowered while a producer runs: what the broker then refuses is sent again, offloaded if it must be.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError

from payload_stores.options import Option, integer
from serde_chain.clients.limits import BATCH_OVERHEAD, TopicLimits, largest_value, record_size
from serde_chain.record import VALUE, Header, RecordContext
from serde_chain.serializers.large_message import LargeMessageSerializer

__all__ = ["Negotiation", "Record"]

_log = logging.getLogger("serde_chain")

_BATCH_SIZE: Final = Option("batch.size", integer(1), 1_000_000)
# Sent again as it is, and then offloaded: a limit may be lowered twice, but not for ever.
_MOST_ATTEMPTS: Final = 3
_POLL_SECONDS: Final = 0.05


@dataclass(slots=True)
class Record:
    """An encoded record on its way.

    Attributes:
        topic: Topic.
        value: Encoded value.
        key: Encoded key.
        partition: Partition, or -1.
        timestamp: Timestamp in ms, or 0.
        headers: Headers; a list of the record's own.
        on_delivery: The user's callback.
        attempts: How often it was sent.
    """

    topic: str
    value: Any
    key: Any
    partition: int
    timestamp: int
    headers: list[Header]
    on_delivery: Callable[..., None] | None
    attempts: int = 0


# The record, and what its callback would have been told.
_Refused: TypeAlias = tuple[Record, KafkaError, Any]


class Negotiation:
    """Sends a producer's records, and those again that turn out too large.

    Args:
        producer: confluent_kafka's producer.
        limits: Limits of the topics.
        stage: The stage that offloads values, where it is the last of its chain; None else.
        config: The client's configuration.
        message_max_bytes: Its ``message.max.bytes``.
        block_ms: Longest time to wait for room, in ms.
    """

    def __init__(
        self,
        producer: confluent_kafka.Producer,
        limits: TopicLimits,
        stage: LargeMessageSerializer | None,
        config: Mapping[str, object],
        *,
        message_max_bytes: int,
        block_ms: int,
    ) -> None:
        self._producer = producer
        self._limits = limits
        self._stage = stage
        self._max_bytes = message_max_bytes
        self._batch_bytes = min(_BATCH_SIZE.read(config), message_max_bytes)
        self._block_s = block_ms / 1000
        self._under_way: dict[str, int] = {}
        self._refused: list[_Refused] = []
        # Whoever polls is told of deliveries, and may be another thread than the one that produces.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._refused)

    def send(self, record: Record) -> None:
        """Hand a record to the client.

        Raises:
            BufferError: There was no room within ``max.block.ms``.
            KafkaException: As of ``confluent_kafka.Producer.produce``.
        """
        if self._refused:
            # Those under way may be refused as well, and come before this one.
            self._settle(record.topic)
            self.send_again()
        size = record_size(record.key, record.value, record.headers)
        self._wait_for_room(record.topic, size)
        self._produce(record, size)

    def send_again(self) -> int:
        """Send what was refused, save for records of topics that others may still join; returns how many records."""
        ready: list[_Refused] = []
        with self._lock:
            left: list[_Refused] = []
            for entry in self._refused:
                (left if self._under_way.get(entry[0].topic) else ready).append(entry)
            self._refused = left
        count, waiting = len(ready), deque(ready)
        try:
            while waiting:
                self._resend(*waiting.popleft())
        finally:
            with self._lock:  # what a callback that raised has left over
                self._refused[:0] = waiting
        return count

    def give_up(self) -> None:
        """Report what was refused instead of sending it again."""
        with self._lock:
            refused, self._refused = self._refused, []
        for record, error, message in refused:
            if record.on_delivery is not None:
                record.on_delivery(error, message)

    def _resend(self, record: Record, error: KafkaError, message: Any) -> None:
        try:
            self._reencode(record)
            size = record_size(record.key, record.value, record.headers)
            self._wait_for_room(record.topic, size)
            self._produce(record, size)
        except Exception as failure:  # noqa: BLE001, told to the callback; without one, it is logged
            _log.warning("a record of %s that was too large could not be sent again: %s", record.topic, failure)
            if record.on_delivery is not None:
                record.on_delivery(error, message)

    def _settle(self, topic: str) -> None:
        until = time.monotonic() + self._block_s
        while self._under_way.get(topic) and any(entry[0].topic == topic for entry in self._refused):
            if time.monotonic() > until:
                raise BufferError(f"records of {topic} were refused, and others are under way still")
            self._producer.poll(_POLL_SECONDS)

    def _produce(self, record: Record, size: int) -> None:
        record.attempts += 1
        options: dict[str, Any] = {"headers": record.headers} if record.headers else {}

        def delivered(error: KafkaError | None, message: Any) -> None:
            again = error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE and self._may_go_again(record)
            with self._lock:
                self._under_way[record.topic] -= size
                if again and error is not None:
                    self._refused.append((record, error, message))
            if again:
                self._limits.forget(record.topic)
            elif record.on_delivery is not None:
                record.on_delivery(error, message)

        with self._lock:
            self._under_way[record.topic] = self._under_way.get(record.topic, 0) + size
        try:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered,
                timestamp=record.timestamp,
                **options,
            )
        except BaseException:
            with self._lock:
                self._under_way[record.topic] -= size
            raise

    def _may_go_again(self, record: Record) -> bool:
        return self._stage is not None and record.value is not None and record.attempts < _MOST_ATTEMPTS

    def _reencode(self, record: Record) -> None:
        """Offload a record that does not fit any more."""
        limit = self._limits.find(record.topic).max_bytes
        largest = largest_value(self._max_bytes, record.key, record.headers, limit)
        last = record.attempts == _MOST_ATTEMPTS - 1
        if self._stage is None or (len(record.value) <= largest and not last):
            return
        ctx = RecordContext(record.topic, VALUE, record.headers, record.key)
        if self._stage.is_inline(record.value, ctx):
            record.value = self._stage.offload(record.value, ctx)

    def _wait_for_room(self, topic: str, size: int) -> None:
        """Wait until no batch of the topic can grow above its limit; nothing to do where batches are smaller anyway."""
        limit = self._limits.find(topic).max_bytes
        if limit is None or limit >= self._batch_bytes:
            return
        until = time.monotonic() + self._block_s
        while (under_way := self._under_way.get(topic, 0)) and BATCH_OVERHEAD + under_way + size > limit:
            if time.monotonic() > until:
                raise BufferError(f"the records of {topic} that are under way fill a batch, and none was delivered")
            self._producer.poll(_POLL_SECONDS)
