"""Transactions of a producer with payloads: an abort deletes the payloads of the transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeAlias

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from serde_chain.clients.confluent.outbox import NotSentError, Outbox, purged
from serde_chain.clients.sender import Sender
from serde_chain.clients.timeouts import deadline, seconds_left

if TYPE_CHECKING:
    from serde_chain.clients.confluent.payload_writer import PayloadWriter  # imports the store kafka

# For how long the log is read after a commit by a fenced producer.
_LOOK_SECONDS: Final = 10.0


class _NoPayloads:
    """Stands for a :class:`PayloadWriter` in a producer whose payloads are in no transaction."""

    is_waiting = False

    def begin(self) -> None:
        """A transaction has begun."""

    def end(self) -> None:
        """The transaction is over: no more writes for it."""

    def settle(self, seconds: float) -> None:
        """Wait up to ``seconds`` until all records are reported, before an abort; -1 waits forever."""


TransactionPayloads: TypeAlias = "PayloadWriter | _NoPayloads"
NO_PAYLOADS: Final[TransactionPayloads] = _NoPayloads()


class Fatal:
    """Suppresses the client's fatal error, if another call raises it.

    Not an ``except`` clause, since confluent_kafka sometimes raises a bare KafkaError, which is no exception.

    Attributes:
        error: The error, if there was one.
    """

    error: KafkaError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        reason = error.args[0] if isinstance(error, KafkaException) else error
        self.error = reason if isinstance(reason, KafkaError) and reason.fatal() else None
        if self.error is not None and isinstance(error, KafkaException):
            error.__traceback__ = None  # see reraise
        return self.error is not None


def reraise(error: KafkaException) -> NoReturn:
    """Raise an error of a call of the client.

    The client keeps exceptions of callbacks forever, with all their frames and the objects in these. Callbacks also
    raise the client's fatal error (:func:`payload_stores.callbacks.shielded`). So a new exception replaces it.
    """
    reason = error.args[0] if error.args else None
    if isinstance(reason, KafkaError) and reason.fatal():
        error.__traceback__ = None
        raise KafkaException(reason) from None
    raise error


class Transactions:
    """Begins, commits and aborts, and deletes payloads that certainly no record refers to.

    Args:
        producer: confluent_kafka's producer.
        sender: The sender in front of it.
        outbox: The link between both; notes the positions of a transaction's records.
        client: Settings of the producer that apply to readers too.
        wait: Waits briefly, up to a number of seconds, for progress of the sender.
        payloads: Payloads that belong to a transaction.

    Attributes:
        has_ended: Whether a commit or an abort has raised the client's fatal error.
    """

    has_ended: bool = False

    def __init__(
        self,
        producer: confluent_kafka.Producer,
        sender: Sender,
        outbox: Outbox,
        client: Mapping[str, Any],
        wait: Callable[[float], None],
        *,
        payloads: TransactionPayloads = NO_PAYLOADS,
    ) -> None:
        self._producer = producer
        self._sender = sender
        self._outbox = outbox
        self._client = client
        self._wait = wait
        self._payloads = payloads
        self._was_requested = False

    @property
    def _may_be_committed(self) -> bool:
        """Whether the broker may have been asked for a commit, which librdkafka never does after a failed record."""
        return self._was_requested and not self._outbox.has_failed

    def begin(self) -> None:
        """Begin a transaction. See ``Producer.begin_transaction``."""
        self._producer.begin_transaction()
        # Not earlier: if it cannot begin, the previous one is not over.
        self._sender.begin_transaction()
        self._payloads.begin()
        self._outbox.recover()
        self._outbox.position = None
        self._outbox.failure = None
        self._outbox.has_failed = False
        self._was_requested = False

    def commit(self, timeout: float) -> None:
        """Commit it. See ``Producer.commit_transaction``."""
        until = deadline(timeout)
        if not self._send_all(until):
            reason = f"records of the transaction were not uploaded within {timeout:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason, False, True))  # noqa: SLF001
        failure = self._sender.failure
        if failure is not None and not self._is_fenced():
            raise KafkaException(NotSentError.of(failure, txn_requires_abort=True)) from failure
        with Fatal():
            self._producer.flush(seconds_left(until))
        self._outbox.recover()
        if (unknown := self._outbox.failure) is not None:
            raise KafkaException(unknown)
        self._sender.commit()
        self._was_requested = True
        try:
            self._producer.commit_transaction(seconds_left(until))
        except KafkaException as error:
            # If an abort is required, the broker has refused the commit. Otherwise it may have committed.
            self._was_requested = not error.args[0].txn_requires_abort()
            if error.args[0].fatal():
                self.has_ended = True
                self._sender.end(delete=not self._may_be_committed or self._was_aborted())
            reraise(error)
        self._payloads.end()
        self._sender.end(delete=False)

    def abort(self, timeout: float) -> None:
        """Abort it. See ``Producer.abort_transaction``."""
        until = deadline(timeout)
        self._sender.purge(purged())
        self._payloads.end()
        self._send_all(until)
        self._settle_payloads(until)
        try:
            self._producer.abort_transaction(seconds_left(until))
        except KafkaException as error:
            # A fenced producer cannot abort and need not: the fencing producer has aborted.
            if error.args[0].fatal():
                self.has_ended = True
                self._sender.end(delete=not self._may_be_committed)
            reraise(error)
        self._sender.end(delete=not self._may_be_committed)

    def _settle_payloads(self, until: float) -> None:
        """Wait for uploads of dropped records: their writes must be in this transaction, not in the next."""
        if self._payloads is NO_PAYLOADS:
            return
        while self._sender.is_cleaning and time.monotonic() < until:
            with Fatal():
                self._wait(until - time.monotonic())
        with Fatal():
            self._payloads.settle(seconds_left(until))

    def _was_aborted(self) -> bool:
        """Whether the fencing producer has aborted the transaction, by the log; False if that is not known."""
        from serde_chain.clients.confluent.transaction_outcome import was_aborted  # after a commit by a fenced producer

        position = self._outbox.position
        return position is not None and was_aborted(self._client, position, _LOOK_SECONDS)

    def _is_fenced(self) -> bool:
        """Whether the client has a fatal error, which the commit will raise."""
        try:
            self._producer.begin_transaction()  # refused within a transaction; the error tells
        except KafkaException as error:
            return bool(error.args[0].fatal())
        return False

    def _send_all(self, until: float) -> bool:
        while not self._sender.is_idle:
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._sender.wake()
            with Fatal():  # the client's own commit or abort raises it too
                self._wait(left)
        return True
