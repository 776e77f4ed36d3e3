"""Delivery reports of idempotent producers, which have false positives.

A broker accepts any sequence number from a producer without records in the partition (KIP-98). So if it refuses the
first batch, for instance because it is not the partition's leader yet, it accepts the second one, which is in flight
already. librdkafka then reports the first batch as "implicitly" delivered too, and never sends it again. This happens
in the first moments of a topic. Such a report has no offset.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError

from payload_stores.signals import let_through

_UNKNOWN: Final = (
    "the broker has acknowledged later records of this producer, and not this one, which may be in no log: "
    "send it again; in a transaction, abort, and send all of it again"
)
_INTERRUPTED: Final = (
    "An interrupt swallowed the report: it is not known whether the record was delivered; in a transaction, abort, and "
    "send all of it again"
)
# Unlike a method call, it notices an exception that the client has set: see payload_stores.callbacks.
_offset_of: Final = methodcaller("offset")


def failure_of(error: KafkaError | None, message: Any) -> KafkaError | None:
    """The error of a delivery report, if there is one; also of a report without an offset.

    Only for producers with ``acks=all`` that prefer a duplicate record to a lost one: the offset is also missing if a
    broker's response was lost.

    Args:
        error: The report's own error.
        message: Its message.

    Returns:
        The error, which requires an abort of the transaction.
    """
    if error is not None or message.offset() is not None:
        return error
    return KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, _UNKNOWN, False, False, True)


def interrupted_report() -> KafkaError:
    """The error of a record whose delivery report an interrupt swallowed."""
    return KafkaError(KafkaError._INTR, _INTERRUPTED, False, False, True)  # noqa: SLF001, its documented name


class _Listed:
    """A record with a callback, and the client's callback in one.

    Two objects per record would double the work of the garbage collector, which is most of the cost. It has no
    constructor, and checks its report itself: a call more would cost a tenth of a record.

    Attributes:
        reports: Lists the record until its callback was called.
    """

    __slots__ = ("callback", "key", "partition", "reports", "topic", "value")
    reports: CheckedReports
    callback: Callable[..., Any]
    topic: str
    partition: int
    key: Any
    value: Any

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        """The delivery report."""
        taken = None
        try:
            is_delivered = _offset_of(message) is not None and error is None
        except SystemError as caught:
            is_delivered, taken = False, caught.__cause__
        if not is_delivered:
            error = self.reports.examine(error, message)
        callback = self.callback
        try:
            # No call may come between: the callback would be called twice, or never.
            del self.reports.listed[self]
        except KeyError:
            pass  # it was called
        else:
            callback(error, message)
        if taken is not None:
            raise taken


CHECKED_REPORT: Final = _Listed.__call__.__code__
"""The code of a delivery report that calls a callback."""


class CheckedReports:
    """Sends records that need nothing but a check of their delivery reports, in half a microsecond each.

    A signal handler may raise at any call in a delivery callback, and the process may continue. So a record with a
    callback is listed until the callback was called. Other records are counted, when they are sent and when their
    reports are checked: the difference, once the client has no records left, is the number of swallowed reports, any
    of which may have been a false positive. Steps that belong together have no call between them.

    Args:
        client: confluent_kafka's producer.
        produce: Its ``produce``, with positional arguments.
        on_delivery: The callback of records without one.
        failed: Called with a topic and the error of a record that may be lost; the topic of a counted record whose
            report was swallowed is not known.

    Attributes:
        listed: Records with a callback, in the order in which they were sent.
    """

    def __init__(
        self,
        client: Any,
        produce: Callable[..., None],
        on_delivery: Callable[..., Any] | None,
        failed: Callable[[str | None, KafkaError], None],
    ) -> None:
        self._client = client
        self._produce = produce
        self._on_delivery = on_delivery
        self._failed = failed
        self._sent = self._checked = 0
        self.listed: dict[_Listed, None] = {}
        # One object for all records.
        self._check_report = self._check
        # Calls of the client's ``produce`` that have not returned.
        self._producing = 0

    def produce(  # noqa: PLR0917, the original's signature
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Send a record, as confluent_kafka's ``produce`` does."""
        callback = on_delivery if callback is None else callback
        callback = self._on_delivery if callback is None else callback
        if callback is None:
            self._producing += 1
            try:
                self._sent += 1
                self._produce(topic, value, key, partition, self._check_report, None, timestamp, headers)
            except Exception as error:
                let_through(error)  # from a signal handler: the client may have the record
                self._sent -= 1
                raise
            finally:
                self._producing -= 1
            return
        record = _Listed()
        record.reports = self
        record.callback = callback
        record.topic = topic
        record.partition = partition
        record.key = key
        record.value = value
        self._producing += 1
        try:
            self.listed[record] = None
            self._produce(topic, value, key, partition, record, None, timestamp, headers)
        except Exception as error:
            let_through(error)
            self.listed.pop(record, None)
            raise
        finally:
            self._producing -= 1

    def _check(self, error: KafkaError | None, message: Any) -> None:
        """The callback of all records without one."""
        taken = None
        try:
            if _offset_of(message) is not None and error is None:
                self._checked += 1
                return
        except SystemError as caught:
            taken = caught.__cause__
        self.examine(error, message)
        self._checked += 1
        if taken is not None:
            raise taken

    def examine(self, error: KafkaError | None, message: Any) -> KafkaError | None:
        """The error of a report, if there is one; noted if it is not the report's own."""
        failure = failure_of(error, message)
        if failure is not None and failure is not error:
            self._failed(message.topic(), failure)
        return failure

    def recover(self) -> None:
        """Settle swallowed reports, once the client has no records left."""
        sent = self._sent
        if (self._checked == sent and not self.listed) or len(self._client):
            return
        listed = list(self.listed)
        if self._producing or len(self._client):
            return
        for record in listed:
            if record in self.listed:
                error = interrupted_report()
                self._failed(record.topic, error)
                message: Any = confluent_kafka.Message(
                    topic=record.topic, partition=record.partition, key=record.key, value=record.value
                )
                record(error, message)
        if self._sent == sent != self._checked:
            self._failed(None, interrupted_report())
            self._checked = sent
