"""A sender's way into confluent_kafka's producer, and its delivery reports on the way back."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from payload_stores.callbacks import shielded, take_exception
from payload_stores.errors import ContextualError
from serde_chain.base import SupportsOffload
from serde_chain.clients.client_chains import delete_payload
from serde_chain.clients.confluent.delivery_reports import failure_of
from serde_chain.clients.negotiation import Attempt, Negotiation
from serde_chain.clients.outgoing import Outgoing
from serde_chain.clients.sender import Sender
from serde_chain.errors import SerializationError
from serde_chain.telemetry import client_telemetry

__all__ = ["NotSentError", "OnDelivery", "Outbox", "check_arguments", "produce_of", "purged"]

_log = logging.getLogger("serde_chain")

OnDelivery: TypeAlias = Callable[[KafkaError | None, Any], Any]

# After these reports a record is in no log: it never left the client, or the broker has refused it. Not those after
# which it might have been written by an attempt before the last, such as NOT_ENOUGH_REPLICAS.
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
_INTERRUPTED: Final = "An interrupt swallowed the report: it is not known whether the record was delivered"


class NotSentError(KafkaError):
    """The error of a record that was not handed to confluent_kafka: its payload could not be uploaded, for example.

    Attributes:
        __cause__: The store's or chain's own error.
    """

    __cause__: BaseException | None = None

    @classmethod
    def of(cls, error: BaseException, *, txn_requires_abort: bool = False) -> KafkaError:
        """The error for a delivery report; of confluent_kafka's own exceptions, the error within."""
        reason = error.args[0] if isinstance(error, KafkaException) and error.args else None
        if isinstance(reason, KafkaError) and not txn_requires_abort:
            return reason
        code = KafkaError._FAIL  # noqa: SLF001, its documented name, as the others
        if isinstance(error, BufferError):
            code = KafkaError._QUEUE_FULL  # noqa: SLF001
        elif isinstance(error, SerializationError) and error.about_record:  # and not a store that is down
            code = KafkaError._KEY_SERIALIZATION if error.field == "key" else KafkaError._VALUE_SERIALIZATION  # noqa: SLF001
        is_transient = isinstance(error, ContextualError) and error.transient
        report = cls(code, f"{type(error).__name__}: {error}", False, is_transient, txn_requires_abort)
        report.__cause__ = error
        return report


def purged() -> KafkaException:
    """The error of records that are dropped before they are sent; the same as librdkafka's."""
    return KafkaException(KafkaError(KafkaError._PURGE_QUEUE))  # noqa: SLF001, its documented name


def check_arguments(topic: str, key: object, partition: int, timestamp: int, headers: Sequence[Any]) -> None:
    """Refuse what confluent_kafka's ``produce`` would refuse, which may get a record only when its upload is done.

    Args:
        topic: As for ``produce``.
        key: As it goes to the client.
        partition: As for ``produce``.
        timestamp: Likewise.
        headers: A copy of those that were passed.

    Raises:
        TypeError: One of them has another type.
        OverflowError: A number is too large.

    Example:
        >>> check_arguments("images", {"id": 1}, -1, 0, [])
        Traceback (most recent call last):
        TypeError: a key is bytes or str, not dict: other objects need a key.serializer
    """
    if not isinstance(topic, str):
        raise TypeError(f"a topic is a str, not {type(topic).__name__}")
    if not (key is None or isinstance(key, (bytes, str))):
        raise TypeError(f"a key is bytes or str, not {type(key).__name__}: other objects need a key.serializer")
    for name, number, bits in (("partition", partition, 31), ("timestamp", timestamp, 63)):
        if operator.index(number).bit_length() > bits:
            raise OverflowError(f"the {name} is too large: {number}")
    for header in headers:
        if not (isinstance(header, tuple) and len(header) == 2 and isinstance(header[0], (str, bytes))):
            raise TypeError("headers are a dict, or a list of tuples of name and value")
        if not (header[1] is None or isinstance(header[1], (bytes, str))):
            raise TypeError(f"the header {header[0]!r} is {type(header[1]).__name__}, and not bytes, str or None")


def produce_of(producer: confluent_kafka.Producer) -> Callable[..., None]:
    """A producer's ``produce``, to be called with all arguments by position: keywords cost as much as a small chain.

    What instruments confluent_kafka puts a class of its own in the place of the original, and adds to headers that are
    passed by name; by position it misses them, and the trace of the record would end here.
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
    """A ``produce`` whose records are counted, where that is wanted."""
    telemetry = client_telemetry()
    if not telemetry.is_on:
        return produce

    def counted(topic: str, *args: Any, **kwargs: Any) -> None:
        produce(topic, *args, **kwargs)
        telemetry.sent(topic)

    return counted


class Outbox:
    """Hands a sender's records to confluent_kafka's producer, and acts on their delivery reports.

    A signal handler may raise at any call of a delivery report's callback, and the process go on. So where something
    has to be done here, a record is listed before the client gets it, until its callback was called or it goes again
    (:meth:`recover`).

    Args:
        producer: confluent_kafka's producer.
        stages: The stages that offload; those that own a payload delete it.
        negotiation: The sender's gate, if topics' limits count.
        on_delivery: The callback of records that have none of their own.
        checks_reports: Whether reports of deliveries are looked at: not all of an idempotent producer's are true
            (:func:`failure_of`).
        errors_only: Whether it reports no deliveries (``delivery.report.only.error``).

    Attributes:
        position: Topic, partition and offset of the last record with a payload that was delivered.
        failure: What keeps a transaction from being committed, though librdkafka would.
    """

    position: tuple[str, int, int] | None = None
    failure: KafkaError | None = None

    def __init__(
        self,
        producer: confluent_kafka.Producer,
        stages: Sequence[SupportsOffload],
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
        # Records that the client has or is about to get, and on which something has to be done when it reports.
        self._sent: dict[int, Attempt] = {}
        # Threads that are in a callback of the client.
        self._calling: set[int] = set()
        self._sender: Sender | None = None
        self._telemetry = client_telemetry()

    def attach(self, sender: Sender) -> None:
        """Take the sender that is told of reports, which needs this object first."""
        self._sender = sender

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
        """Send a record that has no sender, as confluent_kafka's ``produce`` does; its report is looked at."""
        callback = on_delivery if callback is None else callback
        self.send(Outgoing(topic, key, value, partition, timestamp, headers, callback))

    def send(self, record: Outgoing) -> None:
        """See :class:`~serde_chain.clients.outgoing.Client`."""
        attempt: Attempt | None = record.state
        if attempt is None and (record.made or self._checks_reports):
            attempt = Attempt(record, 1, 0)
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
            # In one step: whatever is raised, it is known whether the client has the record.
            attempt.accepted.extend(map(partial(record.context.run, self._produce), *once))
        finally:
            if not attempt.accepted:
                self._sent.pop(id(attempt), None)

    def send_now(self, record: Outgoing) -> bool:
        """Send a record before which none waits, in the thread that produces it.

        Returns:
            Whether the client has it; otherwise it has to wait in its lane.

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
            attempt: Attempt | None = record.state  # none is left where it was reported already
            if attempt is not None and not attempt.accepted:
                self._negotiation.withdraw(record)
        return True

    def failed(self, record: Outgoing, error: BaseException) -> tuple[Any, ...] | None:
        """See :class:`~serde_chain.clients.outgoing.Client`. The message has no value: a payload may be large."""
        self._telemetry.failed(record.topic, error)
        callback = self._callback(record)
        attempt: Attempt | None = record.state
        if attempt is not None and attempt.report is not None:
            # Refused for its size: that is the report, whatever kept it from going again.
            _log.warning("a record of %s that was too large could not be sent again: %s", record.topic, error)
            return None if callback is None else (callback, *attempt.report)
        reason = NotSentError.of(error)
        if callback is None:
            level = logging.INFO if reason.code() == KafkaError._PURGE_QUEUE else logging.ERROR  # noqa: SLF001
            _log.log(level, "a record of %s was not sent: %s", record.topic, reason.str())
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
        """Settle what an interrupt has kept from being settled, if all that the client had is through.

        An interrupt within a callback swallows the client's report. The record's fate is then unknown: its
        callback gets an error that says so.
        """
        if not self._sent or len(self._producer):
            return
        left = [attempt for attempt in list(self._sent.values()) if attempt.accepted]
        if len(self._producer):  # more was sent meanwhile
            return
        for attempt in left:
            if attempt.report is None:
                record = attempt.record
                message: Any = confluent_kafka.Message(
                    topic=record.topic, partition=record.partition, key=record.key, value=record.step
                )
                interrupted = KafkaError(KafkaError._INTR, _INTERRUPTED)  # noqa: SLF001, its documented name
                attempt.report = None if self._errors_only else interrupted, message
                attempt.is_told = self._errors_only or attempt.is_told
            self._finish(attempt)

    def _callback(self, record: Outgoing) -> OnDelivery | None:
        return self._on_delivery if record.on_delivery is None else record.on_delivery

    def is_calling(self) -> bool:
        """Whether this thread is in a callback of the client, whose ``poll`` then would end the process."""
        return threading.get_ident() in self._calling

    def _reported(self, attempt: Attempt, error: KafkaError | None, message: Any) -> None:
        taken = take_exception()
        attempt.report = error, message
        thread = threading.get_ident()
        try:
            self._calling.add(thread)
            self._finish(attempt)
        finally:
            self._calling.discard(thread)
        if taken is not None:
            raise taken

    def _finish(self, attempt: Attempt) -> None:
        """Act on a report; done again where an interrupt came between."""
        error, message = attempt.report
        record = attempt.record
        failure = failure_of(error, message) if self._checks_reports else error
        if failure is not None and failure is not error:
            self.failure = error = failure
            attempt.report = error, message
            _log.error("a record of %s may be lost: %s", record.topic, error.str())
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
        if not attempt.is_refused and not attempt.is_told:
            if record.made and error is None:
                self.position = message.topic(), message.partition(), message.offset()
            elif record.made and self._sender is not None and _was_never_written(error, message):
                self._sender.discard(record.made)
            callback = self._callback(record)
            callback = _ignore if callback is None else callback
            # Nothing may be called in between: the report would be told twice, or not at all.
            attempt.is_told = True
            callback(error, message)
        if not attempt.is_refused:
            # They would keep each other, the report's message, and what the callback holds.
            record.state = record.on_delivery = None
        self._sent.pop(id(attempt), None)


def _was_never_written(error: KafkaError, message: Any) -> bool:
    """Whether a record that was not delivered is certainly in no log."""
    if error.code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001, its documented name
        # One that has a partition may have been written, and wait to be sent again since the answer was lost.
        return message.partition() in {None, -1}
    return error.code() in _NEVER_WRITTEN


def _ignore(_error: KafkaError | None, _message: Any) -> None:
    """The callback of records without one."""
