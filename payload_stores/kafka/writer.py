"""Writes records to one partition and waits for delivery, with the store's own producer or a given one.

Payloads for one partition are handed to the producer one after the other: mixed with seven others, each would be read
through the chunks of all eight. The next one does not wait for the delivery of the one before, and goes on beside one
that takes longer than two seconds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from payload_stores import forks
from payload_stores.callbacks import shielded
from payload_stores.errors import PayloadStoreError
from payload_stores.kafka.broker import Broker
from payload_stores.kafka.chunks import Record
from payload_stores.kafka.errors import translated, unavailable
from payload_stores.plugins import require
from payload_stores.threads import run_in_daemon_thread

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

# Records of one payload in flight at once, up to 1 MiB each; a producer has five requests in flight.
_AHEAD: Final = 6
# Less than a store's deadline: a source that is slow delays other uploads, but does not fail them.
_TURN_SECONDS: Final = 2.0
_TURN_SHARE: Final = 0.25
_POLL_SECONDS: Final = 0.1
_CLOSE_SECONDS: Final = 5.0
_FULL_SECONDS: Final = 0.05
_PURGED: Final = frozenset({"_PURGE_QUEUE", "_PURGE_INFLIGHT"})
_PRODUCER: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    # One chunk per batch: librdkafka does not split a batch larger than a topic's max.message.bytes, which is at least
    # twice as much.
    "batch.size": 16_384,
    "message.max.bytes": 1 << 20,
}


class Writer:
    """A :class:`~payload_stores.RecordWriter` around a confluent_kafka producer.

    Args:
        produce: The producer's ``produce``.
        max_record_bytes: Its ``message.max.bytes``.
        timeout_s: Maximum time in seconds until the next record is written.
    """

    def __init__(self, produce: Callable[..., None], max_record_bytes: int, timeout_s: float) -> None:
        self._produce = produce
        self.max_record_bytes = max_record_bytes
        self._timeout_s = timeout_s
        self._turns = _Turns()

    def write(self, topic: str, partition: int, records: Iterable[Record]) -> tuple[int, ...]:
        """Send records to one partition. See :meth:`payload_stores.RecordWriter.write`.

        Each value is copied when sent, since confluent_kafka accepts only ``bytes``; a few at a time.
        """
        turn = self._turns.turn((topic, partition), min(self._timeout_s * _TURN_SHARE, _TURN_SECONDS))
        return self._write(topic, partition, records, turn)

    def write_beside(self, topic: str, partition: int, records: Iterable[Record]) -> tuple[int, ...]:
        """As :meth:`write`, but without a turn: for tombstones, whose order does not matter."""
        return self._write(topic, partition, records, nullcontext())

    def _write(
        self, topic: str, partition: int, records: Iterable[Record], turn: AbstractContextManager[None]
    ) -> tuple[int, ...]:
        admission = self.admission()
        running: deque[Future[int]] = deque()
        offsets: list[int] = []
        with turn:
            for record in records:
                if len(running) >= _AHEAD:
                    offsets.append(self.wait(running.popleft(), topic))
                running.append(self._send(admission, topic, partition, record))
        while running:
            offsets.append(self.wait(running.popleft(), topic))
        if -1 in offsets or any(after <= before for before, after in pairwise(offsets)):
            raise unavailable(f"Kafka has written to {topic}, without reporting the offset", topic=topic)
        return tuple(offsets)

    def admission(self) -> AbstractContextManager[object]:
        """A context held by :meth:`write` while it produces a record; raises if writing is no longer possible."""
        return nullcontext()

    def failed(self, error: KafkaError) -> KafkaError:
        """Inspect a producer's error; return its origin, if known."""
        return error

    def wait(self, report: Future[int], topic: str) -> int:
        """Wait for a record's offset.

        Args:
            report: Contains it after the delivery report.
            topic: The topic, for errors.

        Raises:
            PayloadStoreError: The record was not written in time, or not at all.
        """
        try:
            return report.result(self._timeout_s)
        except TimeoutError:
            self.give_up()
            raise unavailable(f"nothing was written to {topic} within {self._timeout_s:g} s", topic=topic) from None

    def give_up(self) -> None:
        """Called when the producer has not written in time."""

    def _send(
        self, admission: AbstractContextManager[object], topic: str, partition: int, record: Record
    ) -> Future[int]:
        kafka = require("confluent_kafka", "kafka")
        key, value, headers = record
        report: Future[int] = Future()
        arguments = (
            *(topic, None if value is None else bytes(value), key, partition),
            *(partial(self._reported, report, topic), None, 0, list(headers)),
        )
        until = time.monotonic() + self._timeout_s
        while True:
            try:
                with admission:
                    self._produce(*arguments)
            except BufferError:
                if time.monotonic() >= until:
                    raise unavailable(f"the producer has had no room for {self._timeout_s:g} s", topic=topic) from None
                time.sleep(_FULL_SECONDS)  # until deliveries have made room
            except kafka.KafkaException as error:
                raise translated(self.failed(error.args[0]), f"write to the topic {topic}", topic=topic) from None
            else:
                return report

    @shielded
    def _reported(self, report: Future[int], topic: str, error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            report.set_result(-1 if offset is None or offset < 0 else offset)
        else:
            report.set_exception(translated(self.failed(error), f"write to the topic {topic}", topic=topic))


class _Turns:
    """Turns of those who write to a partition, in the order of their arrival.

    Plain locks, as in :mod:`payload_stores.kafka.readers`: an interrupt must leave nothing locked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, int], threading.Lock] = {}

    @contextmanager
    def turn(self, place: tuple[str, int], seconds: float) -> Iterator[None]:
        """Wait for the one that came before; after ``seconds``, go on beside it.

        Args:
            place: Topic and partition.
            seconds: The longest wait.
        """
        own = threading.Lock()
        with own:
            try:
                with self._lock:
                    before, self._last[place] = self._last.get(place), own
                if before is not None and before.acquire(timeout=seconds):
                    before.release()
                yield
            finally:
                with self._lock:
                    if self._last.get(place) is own:
                        del self._last[place]


class OwnWriter(Writer):
    """Writes with its own idempotent producer, created on first use.

    A thread serves the producer's reports while any are pending.

    Args:
        broker: Creates clients.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(self._produce_own, _PRODUCER["message.max.bytes"], broker.timeout_s)
        self._broker = broker
        self._is_closed = False
        self._begin()
        forks.watch(self, OwnWriter._leave_to_parent)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._turns = _Turns()
        self._producer: Any = None
        self._fatal: KafkaError | None = None
        # Producers served by a thread, and whether there are none.
        self._served: list[Any] = []
        self._is_quiet = threading.Event()
        self._is_quiet.set()

    def _leave_to_parent(self) -> list[object]:
        left = [self._producer, *self._served]
        self._begin()
        return left

    def _produce_own(self, *arguments: Any) -> None:
        kafka = require("confluent_kafka", "kafka")
        with self._lock:
            producer = self._living()
            try:
                producer.produce(*arguments)
            except kafka.KafkaException as error:
                # librdkafka caches the broker's denial of a topic until its next metadata request.
                lasting = (kafka.KafkaError._FATAL, kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED)  # noqa: SLF001, documented
                if error.args[0].code() not in lasting:
                    raise
                # Earlier errors may be over; otherwise a new producer reports them again.
                self.give_up()
                producer = self._living()
                producer.produce(*arguments)
            if producer in self._served:
                return
            self._served.append(producer)
            self._is_quiet.clear()
        try:
            run_in_daemon_thread(partial(self._serve, producer))
        except BaseException:  # the system refuses to start threads, for now
            with self._lock:
                self._is_unserved(producer)
            raise

    def _living(self) -> Any:
        """The producer; a new one, if the old one was dropped."""
        if self._producer is None:
            if self._is_closed:
                raise PayloadStoreError("the store is closed", store="kafka")
            self._producer, self._fatal = self._make(), None
        return self._producer

    def _make(self) -> Any:
        timeout_ms = int(self._broker.timeout_s * 1000)
        own = {**_PRODUCER, "delivery.timeout.ms": timeout_ms, "request.timeout.ms": min(timeout_ms, 30_000)}
        with self._broker.errors("connect"):
            return require("confluent_kafka", "kafka").Producer(self._broker.settings(own))

    def _serve(self, producer: Any) -> None:
        """Serve a producer's reports while any are pending."""
        kafka = require("confluent_kafka", "kafka")
        while True:
            try:
                producer.poll(_POLL_SECONDS)
            except kafka.KafkaException as error:  # it has failed fatally
                self._fatal = self.failed(error.args[0])
                producer.purge()
            with self._lock:
                if not len(producer):
                    self._is_unserved(producer)
                    return

    def _is_unserved(self, producer: Any) -> None:
        self._served.remove(producer)
        if not self._served:
            self._is_quiet.set()

    def failed(self, error: KafkaError) -> KafkaError:
        """Drop this producer if it cannot recover from an error."""
        if error.name() in _PURGED and self._fatal is not None:
            return self._fatal
        if error.fatal() or error.name() in {"_FATAL", "_MSG_TIMED_OUT"}:
            self.give_up()
        return error

    def give_up(self) -> None:
        """Drop this producer: it may have a hanging connection."""
        self._producer = None

    def close(self) -> None:
        """Drop records in flight, and close the producer."""
        self._is_closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(Exception):  # it has failed fatally, and says so once more
                producer.purge()
            # A thread still serving it must not find it closed.
            if self._is_quiet.wait(_CLOSE_SECONDS):
                producer.close()
