"""Payloads in a producer's transactions: written by the producer itself, and visible together with their records."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Final

import confluent_kafka

from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.kafka.chunks import Record
from payload_stores.kafka.writer import Writer
from serde_chain.clients.timeouts import deadline

_LOOK_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.02


class PayloadWriter(Writer):
    """A :class:`~payload_stores.RecordWriter` that writes in a client's transactions.

    Upload threads call it. Delivery reports arrive only in the threads that poll the producer, since the user's
    callbacks must run there. So a payload is written while the user polls, flushes, commits or waits for room.

    Args:
        producer: The client's transactional producer.
        max_record_bytes: Its ``message.max.bytes``.
        timeout_s: Its ``transaction.timeout.ms``, in seconds.
    """

    def __init__(self, producer: confluent_kafka.Producer, max_record_bytes: int, timeout_s: float) -> None:
        super().__init__(producer.produce, max_record_bytes, timeout_s)
        self._producer = producer
        self._lock = threading.Lock()
        self._transaction: object | None = None
        self._writing: list[None] = []

    @property
    def is_waiting(self) -> bool:
        """Whether payloads wait for delivery reports, which require polls of the producer."""
        return bool(self._writing)

    def begin(self) -> None:
        """A transaction has begun."""
        self._transaction = object()

    def end(self) -> None:
        """The transaction is over: no more writes for it."""
        with self._lock:
            self._transaction = None

    def settle(self, seconds: float) -> None:
        """Wait up to ``seconds`` until all records are reported, before an abort; -1 waits forever.

        ``abort_transaction`` waits until all records are reported, and serves no reports: "the event queue must be
        polled". A purge would leave gaps in the sequence, after which the producer starts over.
        """
        until = deadline(seconds)
        while len(self._producer) and time.monotonic() < until:
            self._producer.poll(_POLL_SECONDS)

    def write(self, topic: str, partition: int, records: Iterable[Record]) -> tuple[int, ...]:
        """See :meth:`payload_stores.RecordWriter.write`."""
        self._writing.append(None)
        try:
            return super().write(topic, partition, records)
        finally:
            self._writing.pop()

    def admission(self) -> AbstractContextManager[object]:
        """Admits only records of the current transaction."""
        return _Admission(self, self._transaction)

    def enter(self, transaction: object | None) -> None:
        """Keep a transaction open while a record is passed to the client; must be followed by :meth:`leave`.

        Raises:
            PayloadStoreError: It has ended.
        """
        self._lock.acquire()
        if transaction is None or transaction is not self._transaction:
            self._lock.release()
            raise PayloadStoreError(
                "the transaction is over to which the payload belongs",
                hint="Produce between begin_transaction and commit_transaction",
            )

    def leave(self) -> None:
        """See :meth:`enter`."""
        self._lock.release()

    def wait(self, report: Future[int], topic: str) -> int:
        """Wait for a record's offset, even if an interrupt in the user's thread has swallowed the report."""
        until = time.monotonic() + self._timeout_s
        while True:
            is_over = not len(self._producer)  # all its records are reported
            try:
                return report.result(_LOOK_SECONDS)
            except TimeoutError:
                if is_over:
                    raise PayloadStoreUnavailableError(
                        f"an interrupt swallowed the report of a record of {topic}, which may have been written",
                        hint="Abort the transaction, and do it again",
                        topic=topic,
                    ) from None
                if time.monotonic() >= until:
                    raise PayloadStoreUnavailableError(
                        f"nothing was written to {topic} within {self._timeout_s:g} s",
                        hint="Poll, flush or commit in time: the producer reports while one of them is called",
                        topic=topic,
                    ) from None


class _Admission(AbstractContextManager[object]):
    """Held while a record of one transaction is passed to the client."""

    def __init__(self, writer: PayloadWriter, transaction: object | None) -> None:
        self._writer = writer
        self._transaction = transaction

    def __enter__(self) -> None:
        self._writer.enter(self._transaction)

    def __exit__(self, *_error: object) -> None:
        self._writer.leave()
