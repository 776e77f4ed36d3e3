"""Records within what their topics take (PIP-36's idea, for Kafka): by default, as large as the broker allows.

Two problems appear when only single records are checked. librdkafka does not split batches, so that small records
fail together where ``batch.size`` is above the topic's limit: here no more is under way than one batch may have. And a
limit can be lowered while a producer runs: what the broker then refuses is sent again, offloaded if it must be.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError

from payload_stores.options import Option, integer
from serde_chain.base import SupportsOffload
from serde_chain.clients.confluent.topic_limits import TopicLimits
from serde_chain.clients.limits import BATCH_OVERHEAD, largest_value, record_size
from serde_chain.record import VALUE, Header, RecordContext
from serde_chain.transfer import finish

__all__ = ["Negotiation", "Record"]

_log = logging.getLogger("serde_chain")

_BATCH_SIZE: Final = Option("batch.size", integer(1), 1_000_000)
# Sent again unchanged, and then offloaded: a limit may be lowered twice, but not forever.
_MOST_ATTEMPTS: Final = 3
_POLL_SECONDS: Final = 0.05
_INTERRUPTED: Final = "An interrupt swallowed the report: it is not known whether the record was delivered"


# The arguments of a callback.
Report: TypeAlias = tuple[KafkaError | None, Any]


@dataclass(slots=True, eq=False)
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
        size: Its part of a batch, in bytes.
        accepted: The results of the client's ``produce``; not empty once the client has the record.
        counted: Whether its size counts as under way.
        report: The client's delivery report, since it was sent last.
        refusal: Its report that the record was too large.
        told: Whether the user's callback was called.
    """

    topic: str
    value: Any
    key: Any
    partition: int
    timestamp: int
    headers: list[Header]
    on_delivery: Callable[..., None] | None
    attempts: int = 0
    size: int = 0
    accepted: list[None] = field(default_factory=list)
    counted: bool = False
    report: Report | None = None
    refusal: Report | None = None
    told: bool = False

    def tell(self, report: Report | None) -> None:
        """Call the user's callback with a report, once."""
        if self.told or report is None:
            return
        self.told = True
        if self.on_delivery is not None:
            self.on_delivery(*report)


class Negotiation:
    """Sends a producer's records, and those again that turn out too large.

    A signal handler may raise at any call that is made here, and the process go on. So a record is listed before the
    client gets it, until its callback was called or it is listed as refused; what must not come apart is done without
    a call in between.

    Args:
        producer: confluent_kafka's producer.
        limits: Limits of the topics.
        stage: The stage that offloads values, where it is the last of its chain; None otherwise.
        config: The client's configuration.
        message_max_bytes: Its ``message.max.bytes``.
        block_ms: Longest time to wait for room, in ms.
    """

    def __init__(
        self,
        producer: confluent_kafka.Producer,
        limits: TopicLimits,
        stage: SupportsOffload | None,
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
        self._under_way: defaultdict[str, int] = defaultdict(int)
        # By identity, in the order in which they were sent or refused.
        self._sent: dict[int, Record] = {}
        self._refused: dict[int, Record] = {}
        self._is_sending_again = False
        # The thread that polls gets the deliveries, and may be another than the one that produces.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._refused)

    def send(self, *parts: Any) -> None:
        """Hand a record to the client.

        Args:
            *parts: The first attributes of a :class:`Record`, up to the callback.

        Raises:
            BufferError: There was no room within ``max.block.ms``.
            KafkaException: As in ``confluent_kafka.Producer.produce``.
        """
        record = Record(*parts)
        if self._refused:
            # Those under way may be refused as well, and come before this one.
            self._settle(record.topic)
            self.send_again()
        self._wait_and_produce(record)

    def send_again(self) -> int:
        """Send what was refused, save for records of topics that others may still join; returns how many records."""
        count = 0
        mine = False
        try:
            with self._lock:
                if not self._is_sending_again:
                    self._is_sending_again = mine = True
            waiting = list(self._refused.items()) if mine else []
            for key, record in [entry for entry in waiting if not self._under_way[entry[1].topic]]:
                count += self._resend(key, record)
        finally:
            if mine:
                self._is_sending_again = False
        return count

    def give_up(self) -> None:
        """Report what was refused instead of sending it again."""
        for key, record in list(self._refused.items()):
            record.tell(record.refusal)
            self._refused.pop(key, None)

    def recover(self) -> None:
        """Settle what an interrupt has kept from being settled, if all that the client had is through.

        An interrupt within a callback swallows the client's report. The record's fate is then unknown: its
        callback gets an error that says so.
        """
        if not self._sent or len(self._producer):
            return
        left = [(key, record) for key, record in list(self._sent.items()) if record.accepted]
        if len(self._producer):  # another thread has sent more meanwhile
            return
        for key, record in left:
            if record.report is None:
                message: Any = confluent_kafka.Message(
                    topic=record.topic, partition=record.partition, key=record.key, value=record.value
                )
                record.report = KafkaError(KafkaError._INTR, _INTERRUPTED), message  # noqa: SLF001, its documented name
            self._finish(key, record)

    def _resend(self, key: int, record: Record) -> int:
        """Send a refused record, and take it off the list once the client has it.

        Returns:
            1, or 0 if it was sent before an interrupt, and only had to be taken off the list.
        """
        done = 0
        try:
            if not record.accepted:
                self._reencode(record)
                self._wait_and_produce(record)
                done = 1
        except Exception as failure:  # noqa: BLE001, told to the callback; without one, it is logged
            _log.warning("a record of %s that was too large could not be sent again: %s", record.topic, failure)
            record.tell(record.refusal)
            self._refused.pop(key, None)
            return 1
        with self._lock:
            if record.accepted and key in self._refused:  # another thread may know that it was refused again
                del self._refused[key]
        return done

    def _settle(self, topic: str) -> None:
        until = time.monotonic() + self._block_s
        while self._under_way[topic] and any(record.topic == topic for record in list(self._refused.values())):
            if time.monotonic() > until:
                raise BufferError(f"records of {topic} were refused, and others are still under way")
            self._producer.poll(_POLL_SECONDS)
            self.recover()

    def _wait_and_produce(self, record: Record) -> None:
        record.size = record_size(record.key, record.value, record.headers)
        self._wait_for_room(record.topic, record.size)
        record.attempts += 1
        key = id(record)

        def delivered(error: KafkaError | None, message: Any) -> None:
            record.report = error, message
            self._finish(key, record)

        arguments = (
            *(record.topic, record.value, record.key, record.partition, delivered, None),
            *(record.timestamp, record.headers or None),
        )
        # For map, which calls produce once, in C: see Window.fetch.
        once = [(argument,) for argument in arguments]
        try:
            with self._lock:
                record.report = None
                self._sent[key] = record
                self._under_way[record.topic] += record.size
                record.counted = True
            # In one step: whatever is raised, it is known whether the client has the record.
            record.accepted.extend(map(self._producer.produce, *once))
        finally:
            if not record.accepted:
                self._count_off(record)
                self._sent.pop(key, None)

    def _count_off(self, record: Record) -> None:
        with self._lock:
            if record.counted:
                record.counted = False
                self._under_way[record.topic] -= record.size

    def _finish(self, key: int, record: Record) -> None:
        """Act on a report; done again where an interrupt came between."""
        error = None if record.report is None else record.report[0]
        self._count_off(record)
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE and self._may_go_again(record):
            self._limits.forget(record.topic)
            nothing: list[None] = []
            with self._lock:
                record.refusal = record.report
                record.accepted = nothing
                self._refused[key] = record
        else:
            record.tell(record.report)
        self._sent.pop(key, None)

    def _may_go_again(self, record: Record) -> bool:
        return self._stage is not None and record.value is not None and record.attempts < _MOST_ATTEMPTS

    def _reencode(self, record: Record) -> None:
        """Offload a record that does not fit any more."""
        limit = self._limits.find(record.topic).max_bytes
        largest = largest_value(self._max_bytes, record.key, record.headers, limit)
        last = record.attempts == _MOST_ATTEMPTS - 1
        if self._stage is None or (len(record.value) <= largest and not last):
            return
        headers = list(record.headers)
        ctx = RecordContext(record.topic, VALUE, headers, record.key)
        if self._stage.is_inline(record.value, ctx):
            value = finish(self._stage.offload(record.value, ctx))
            record.value, record.headers = value, headers

    def _wait_for_room(self, topic: str, size: int) -> None:
        """Wait until no batch of the topic can grow above its limit; nothing to do where batches are smaller anyway."""
        limit = self._limits.find(topic).max_bytes
        if limit is None or limit >= self._batch_bytes:
            return
        until = time.monotonic() + self._block_s
        while (under_way := self._under_way[topic]) and BATCH_OVERHEAD + under_way + size > limit:
            if time.monotonic() > until:
                raise BufferError(f"the records of {topic} that are under way fill a batch, and none was delivered")
            self._producer.poll(_POLL_SECONDS)
            self.recover()
