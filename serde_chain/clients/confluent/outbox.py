"""Passes a sender's records to confluent_kafka's producer, and handles the delivery reports."""

from __future__ import annotations

import logging
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FrameType, NoneType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from payload_stores.callbacks import shielded, take_exception
from payload_stores.errors import ContextualError, text_of
from serde_chain.clients.client_chains import delete_payload
from serde_chain.clients.confluent.delivery_reports import (
    CHECKED_REPORT,
    CheckedReports,
    failure_of,
    interrupted_report,
)
from serde_chain.clients.outgoing import Attempt, Outgoing
from serde_chain.clients.sender import Sender
from serde_chain.errors import SerializationError
from serde_chain.record import Headers
from serde_chain.telemetry import client_telemetry

if TYPE_CHECKING:
    from serde_chain.base import SupportsUploads
    from serde_chain.clients.negotiation import Negotiation

_log = logging.getLogger("serde_chain")

OnDelivery: TypeAlias = Callable[[KafkaError | None, Any], Any]

_TOO_LARGE: Final = (
    "Unable to produce message: it exceeds the client's message.max.bytes, and is not known to fit the topic's limit"
)
# After these reports a record is in no log: it never left the client, or the broker refused it. Errors after which an
# earlier attempt may have written it, such as NOT_ENOUGH_REPLICAS, are not among them.
_NEVER_WRITTEN: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001, its documented name, as the others
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_RECORD,
    }
)


class NotSentError(KafkaError):
    """The error of a record that did not reach confluent_kafka, for example because its upload failed.

    Attributes:
        __cause__: The store's or chain's own error.
    """

    __cause__: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException, *, txn_requires_abort: bool = False) -> KafkaError:
        """The error for a delivery report; for confluent_kafka's own exceptions, the error inside."""
        reason = error.args[0] if isinstance(error, KafkaException) and error.args else None
        if isinstance(reason, KafkaError) and not txn_requires_abort:
            return reason
        code = KafkaError._FAIL  # noqa: SLF001, its documented name, as the others
        if isinstance(error, BufferError):
            code = KafkaError._QUEUE_FULL  # noqa: SLF001
        elif isinstance(error, SerializationError) and error.about_record:  # not an unavailable store
            code = KafkaError._KEY_SERIALIZATION if error.field == "key" else KafkaError._VALUE_SERIALIZATION  # noqa: SLF001
        is_transient = isinstance(error, ContextualError) and error.transient
        report = cls(code, f"{type(error).__name__}: {text_of(error)}", False, is_transient, txn_requires_abort)
        report.__cause__ = error
        return report


def purged() -> KafkaException:
    """The error of records dropped before they are sent, as in librdkafka."""
    return KafkaException(KafkaError(KafkaError._PURGE_QUEUE))  # noqa: SLF001, its documented name


def check_arguments(topic: str, key: object, partition: int, timestamp: int, headers: Headers | None) -> None:
    """Refuse arguments that confluent_kafka's ``produce`` would refuse later, maybe only after an upload.

    Args:
        topic: As for ``produce``.
        key: The key for the client.
        partition: As for ``produce``.
        timestamp: Likewise.
        headers: Likewise.

    Raises:
        TypeError: One of them has another type.
        OverflowError: A number is too large.

    Example:
        >>> check_arguments("images", {"id": 1}, -1, 0, None)
        Traceback (most recent call last):
        TypeError: a key is bytes or str, not dict: other objects need a key.serializer
    """
    if not isinstance(headers, (dict, list, NoneType)):
        raise TypeError(f"headers are a dict, or a list of tuples of name and value, not {type(headers).__name__}")
    if not isinstance(topic, str):
        raise TypeError(f"a topic is a str, not {type(topic).__name__}")
    if not (key is None or isinstance(key, (bytes, str))):
        raise TypeError(f"a key is bytes or str, not {type(key).__name__}: other objects need a key.serializer")
    for name, number, bits in (("partition", partition, 31), ("timestamp", timestamp, 63)):
        if operator.index(number).bit_length() > bits:
            raise OverflowError(f"the {name} is too large: {number}")
    given: Iterable[Any] = headers.items() if isinstance(headers, dict) else headers or ()
    for header in given:
        if not (isinstance(header, tuple) and len(header) == 2 and isinstance(header[0], (str, bytes))):
            raise TypeError("headers are a dict, or a list of tuples of name and value")
        if not (header[1] is None or isinstance(header[1], (bytes, str))):
            raise TypeError(f"the header {header[0]!r} is {type(header[1]).__name__}, and not bytes, str or None")


def advise(error: KafkaException, topic: str) -> None:
    """Add a note with topic and remedy to the client's error, if it is that a record is too large."""
    if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
        remedy = "let value.serializers end with large-message, or shorten the key"
        error.add_note(f"The record for the topic {topic} is above message.max.bytes: {remedy}")


def produce_of(producer: confluent_kafka.Producer) -> Callable[..., None]:
    """A producer's ``produce``, for calls with positional arguments: keywords cost as much as a small chain.

    Instrumentation replaces confluent_kafka's class by its own, and adds to headers passed by name. It would miss
    positional headers, and the trace of the record would end here.
    """
    produce = _counted(producer.produce)
    if type(producer) is confluent_kafka.cimpl.Producer:
        return produce

    def by_name(  # noqa: PLR0917, the original's signature
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        callback = on_delivery if callback is None else callback
        produce(topic, value, key=key, partition=partition, callback=callback, timestamp=timestamp, headers=headers)

    return by_name


def _counted(produce: Callable[..., None]) -> Callable[..., None]:
    """A ``produce`` that counts its records, if telemetry is on."""
    telemetry = client_telemetry()
    if not telemetry.is_on:
        return produce

    def counted(topic: str, *args: Any, **kwargs: Any) -> None:
        produce(topic, *args, **kwargs)
        telemetry.sent(topic)

    return counted


class Outbox:
    """Passes a sender's records to confluent_kafka's producer, and handles their delivery reports.

    A signal handler may raise at any call in a delivery callback, and the process may continue. So a record that needs
    work here is listed before the client gets it, until its callback was called or it is sent again (:meth:`recover`).

    Args:
        producer: confluent_kafka's producer.
        stages: The stages that offload; the owner of a payload deletes it.
        negotiation: The sender's gate, if topic limits apply.
        on_delivery: The callback of records without one.
        checks_reports: Whether delivery reports are checked: an idempotent producer has false positives
            (:func:`failure_of`).
        errors_only: Whether deliveries are not reported (``delivery.report.only.error``).

    Attributes:
        produce: Sends a record without a sender, as confluent_kafka's ``produce`` does, and checks its report.
        position: Topic, partition and offset of the last delivered record with a payload.
        failure: An error that forbids a commit, although librdkafka would commit.
        has_failed: Whether the client reported a record with a payload as failed: librdkafka refuses to commit its
            transaction.
    """

    position: tuple[str, int, int] | None = None
    failure: KafkaError | None = None
    has_failed: bool = False

    def __init__(
        self,
        producer: confluent_kafka.Producer,
        stages: Sequence[SupportsUploads],
        negotiation: Negotiation | None,
        on_delivery: OnDelivery | None,
        *,
        checks_reports: bool = False,
        errors_only: bool = False,
    ) -> None:
        self._producer = producer
        self._produce = produce_of(producer)
        self._checks_reports = checks_reports
        self._errors_only = errors_only
        self._stages = stages
        self._negotiation = negotiation
        self._on_delivery = on_delivery
        # Records at the client or about to get there that need work when they are reported.
        self._sent: dict[int, Attempt] = {}
        self._sender: Sender | None = None
        self._telemetry = client_telemetry()
        self._reports = CheckedReports(producer, self._produce, on_delivery, self._note)
        self.produce = self._reports.produce if checks_reports else partial(_with_shield, self._produce)

    def attach(self, sender: Sender) -> None:
        """Set the sender that gets the reports; it requires this object first."""
        self._sender = sender

    def send(self, record: Outgoing) -> None:
        """See :class:`~serde_chain.clients.outgoing.Client`."""
        attempt: Attempt | None = record.state
        if attempt is None and (record.made or self._checks_reports):
            attempt = Attempt(record, 1, 0)
        if attempt is not None and attempt.is_too_large:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, _TOO_LARGE, False, False, False))
        callback = record.on_delivery if attempt is None else partial(self._reported, attempt)
        if self._errors_only and attempt is None and callback is not None:
            callback = shielded(callback)
        arguments = (
            *(record.topic, record.step, record.key, record.partition, callback, None),
            *(record.timestamp, record.headers or None),
        )
        if attempt is None:
            record.context.run(self._produce, *arguments)
            record.on_delivery = None
            return
        # For map, which calls produce once, in C: see Window.fetch.
        once = [(argument,) for argument in arguments]
        try:
            self._sent[id(attempt)] = attempt
            # In one step: after any exception, it is known whether the client has the record.
            attempt.accepted.extend(map(partial(record.context.run, self._produce), *once))
        finally:
            if not attempt.accepted:
                self._sent.pop(id(attempt), None)

    def send_now(self, record: Outgoing) -> bool:
        """Send a record without predecessors in its lane, in the producing thread.

        Returns:
            Whether the client has it; otherwise it must wait in its lane.

        Raises:
            BufferError: The client has no room.
            KafkaException: As in ``confluent_kafka.Producer.produce``.
        """
        if self._negotiation is None:
            return False
        try:
            if not self._negotiation.admit_now(record):
                return False
            self.send(record)
        finally:
            attempt: Attempt | None = record.state  # None if it was reported already
            if attempt is not None and not attempt.accepted:
                self._negotiation.withdraw(record)
        return True

    def failed(self, record: Outgoing, error: BaseException) -> tuple[Any, ...] | None:
        """See :class:`~serde_chain.clients.outgoing.Client`. The message has no value: a payload may be large."""
        self._telemetry.failed(record.topic, error)
        callback = self._callback(record)
        attempt: Attempt | None = record.state
        if attempt is not None and attempt.report is not None:
            # Refused for its size: this is the report, regardless of why it was not sent again.
            _log.warning("a record of %s that was too large could not be sent again: %s", record.topic, error)
            return None if callback is None else (callback, *attempt.report)
        reason = NotSentError.of(error)
        if callback is None:
            _log_failure(record.topic, "sent", reason)
            return None
        message: Any = confluent_kafka.Message(
            topic=record.topic,
            partition=record.partition,
            key=record.key,
            headers=record.headers or None,
            timestamp=(confluent_kafka.TIMESTAMP_CREATE_TIME, record.timestamp),
            error=reason,
        )
        return callback, reason, message

    def delete(self, reference: str) -> None:
        """See :class:`~serde_chain.clients.outgoing.Client`."""
        delete_payload(self._stages, reference)

    def recover(self) -> None:
        """Settle interrupted reports, once the client has no records left.

        An interrupt within a callback swallows the client's report. The record's outcome is then unknown, and its
        callback gets an error that says so.
        """
        self._reports.recover()
        if not self._sent or len(self._producer):
            return
        left = [attempt for attempt in list(self._sent.values()) if attempt.accepted]
        if len(self._producer):  # more records were sent meanwhile
            return
        for attempt in left:
            if attempt.report is None:
                record = attempt.record
                message: Any = confluent_kafka.Message(
                    topic=record.topic, partition=record.partition, key=record.key, value=record.step
                )
                error = interrupted_report()
                if self._checks_reports:
                    self._note(record.topic, error)
                attempt.report = None if self._errors_only else error, message
                attempt.is_reported = self._errors_only or attempt.is_reported
            self._finish(attempt)

    def _note(self, topic: str | None, error: KafkaError) -> None:
        """Note a record that may be lost, although librdkafka would commit its transaction."""
        self.failure = error
        _log.error("%s may be lost: %s", "records" if topic is None else f"a record of {topic}", error.str())

    def _log_undelivered(self, record: Outgoing, error: KafkaError, _message: Any) -> None:
        """The callback of a failed record without one: logs it, once, if its payload was uploaded."""
        if error is not self.failure and record.made:
            _log_failure(record.topic, "delivered", error)

    def _callback(self, record: Outgoing) -> OnDelivery | None:
        return self._on_delivery if record.on_delivery is None else record.on_delivery

    def is_calling(self) -> bool:
        """Whether this thread is in a callback of the client, where ``poll`` would end the process.

        Few ask, so the thread's frames answer: to note it in each report would cost a sixth of the report.
        """
        frame: FrameType | None = sys._getframe()  # noqa: SLF001, its documented name
        while frame is not None:
            # Another producer's reports may be around this one's.
            if frame.f_code is CHECKED_REPORT and frame.f_locals["self"].reports is self._reports:
                return True
            if frame.f_code is _REPORT and frame.f_locals["self"] is self:
                return True
            frame = frame.f_back
        return False

    def _reported(self, attempt: Attempt, error: KafkaError | None, message: Any) -> None:
        taken = take_exception()
        attempt.report = error, message
        if error is not None and attempt.record.made:
            self.has_failed = True
        self._finish(attempt)
        if taken is not None:
            raise taken

    def _finish(self, attempt: Attempt) -> None:
        """Handle a report; repeated after an interrupt."""
        error, message = attempt.report
        record = attempt.record
        failure = failure_of(error, message) if self._checks_reports else error
        if failure is not None and failure is not error:
            error = failure
            attempt.report = error, message
            self._note(record.topic, error)
        attempt.is_refused = (
            error is not None
            and error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            and self._negotiation is not None
            and self._negotiation.may_go_again(attempt)
        )
        if attempt.is_refused:
            self._telemetry.retried(record.topic)
        if self._negotiation is not None and self._sender is not None:
            if not attempt.is_refused:
                self._negotiation.count_off(attempt)
            if attempt.is_refused or not self._sender.is_idle:
                self._sender.settle(attempt)
        if not attempt.is_refused and not attempt.is_reported:
            if record.made and error is None:
                self.position = message.topic(), message.partition(), message.offset()
            elif record.made and self._sender is not None and _was_never_written(error, message):
                self._sender.discard(record.made)
            callback = self._callback(record)
            instead = _ignore if error is None else partial(self._log_undelivered, record)
            callback = instead if callback is None else callback
            # No call may come between: the callback would be called twice, or never.
            attempt.is_reported = True
            callback(error, message)
        if not attempt.is_refused:
            # Otherwise they keep each other, the report's message, and the callback's objects alive.
            record.state = record.on_delivery = None
        self._sent.pop(id(attempt), None)


_REPORT: Final = Outbox._reported.__code__  # noqa: SLF001, the class's own module
"""The code of reports that call callbacks, as :data:`CHECKED_REPORT`."""


def _with_shield(  # noqa: PLR0917, the original's signature
    produce: Callable[..., None],
    topic: str,
    value: Any = None,
    key: Any = None,
    partition: int = -1,
    callback: Any = None,
    on_delivery: Any = None,
    timestamp: int = 0,
    headers: Any = None,
) -> None:
    """Send a record whose callback also runs after a fatal error."""
    callback = on_delivery if callback is None else callback
    callback = None if callback is None else shielded(callback)
    produce(topic, value, key, partition, callback, None, timestamp, headers)


def _was_never_written(error: KafkaError, message: Any) -> bool:
    """Whether an undelivered record is certainly in no log."""
    if error.code() in {KafkaError._PURGE_QUEUE, KafkaError.UNKNOWN_TOPIC_OR_PART}:  # noqa: SLF001, its documented name
        # With a partition, it may have been written and be waiting for a retry because the response was lost.
        return message.partition() in {None, -1}
    return error.code() in _NEVER_WRITTEN


def _ignore(_error: KafkaError | None, _message: Any) -> None:
    """The callback of delivered records without one."""


def _log_failure(topic: str, what: str, error: KafkaError) -> None:
    purged = KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT  # noqa: SLF001, their documented names
    level = logging.INFO if error.code() in purged else logging.ERROR
    _log.log(level, "a record of %s was not %s: %s", topic, what, error.str())
