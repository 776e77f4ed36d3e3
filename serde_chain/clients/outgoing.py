"""Records on their way to a client, the buffer between threads, and the interfaces of clients, ledgers and gates."""

from __future__ import annotations

import contextvars
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, Self, TypeAlias

from serde_chain.codec import Encoded, Record
from serde_chain.record import Header
from serde_chain.transfer import Transfer

Report: TypeAlias = tuple[Any, ...]


class Outgoing:
    """A record on its way to a client.

    Attributes:
        number: Its position among all records of the sender.
        topic: Topic.
        key: The encoded key.
        step: The encoded value, or a transfer that leads to it.
        partition: Partition, or -1.
        timestamp: Timestamp in ms, or 0.
        headers: The record's own list of headers; transfers add to it.
        on_delivery: The user's callback, if any, until it was called or passed to the client. The last record of each
            topic is kept; objects held by its callback are not.
        size: Bytes that it holds until it is sent.
        until: Deadline for sending it, on the monotonic clock.
        made: References of payloads that belong to this record alone.
        error: Why it cannot be sent.
        is_gone: Whether it was sent, or never will be.
        state: State of the :class:`Gate`.
        context: Context variables of the producing thread, so that work in other threads belongs to its trace.
    """

    __slots__ = (
        "context",
        "error",
        "headers",
        "is_gone",
        "key",
        "made",
        "number",
        "on_delivery",
        "partition",
        "size",
        "state",
        "step",
        "timestamp",
        "topic",
        "until",
    )

    def __init__(  # noqa: PLR0917  as in the client's produce
        self,
        topic: str,
        key: Any,
        step: Any,
        partition: int = -1,
        timestamp: int = 0,
        headers: list[Header] | None = None,
        on_delivery: Callable[..., Any] | None = None,
    ) -> None:
        self.number = 0
        self.topic = topic
        self.key = key
        self.step = step
        self.partition = partition
        self.timestamp = timestamp
        self.headers = headers
        self.on_delivery = on_delivery
        self.size = size_of(step) + size_of(key)
        self.until = math.inf
        self.made: tuple[str, ...] = ()
        self.error: BaseException | None = None
        self.is_gone = False
        self.state: Any = None
        self.context = contextvars.copy_context()

    @classmethod
    def of(cls, record: Record, encoded: Encoded, on_delivery: Callable[..., Any] | None) -> Self:
        """A record after its chains, whose value may be a transfer."""
        key, step, headers = encoded
        partition = -1 if record.partition is None else record.partition
        return cls(record.topic, key, step, partition, record.timestamp or 0, headers, on_delivery)


class Attempt:
    """An admitted record.

    Attributes:
        record: The record.
        number: Number of the attempt, from 1.
        size: The record's share of a batch, in bytes.
        is_alone: Whether it may be refused, so that no other record of its topic is in flight with it.
        is_under_way: Whether its size counts.
        is_refused: Whether the client reported that it was too large, and it may be sent again. Set before
            :meth:`Gate.settle`.
        is_fitted: Whether it was made to fit since.
        is_too_large: Whether it exceeds the client's own limit, and what its topic is known to accept.
        accepted: Results of the client's ``produce``; not empty once the client has the record.
        is_reported: Whether the user's callback was called.
        report: The client's report, of the client's own type.
    """

    def __init__(self, record: Outgoing, number: int, size: int, *, is_alone: bool = False) -> None:
        self.record = record
        self.number = number
        self.size = size
        self.is_alone = is_alone
        self.is_under_way = False
        self.is_refused = False
        self.is_fitted = False
        self.is_too_large = False
        self.accepted: list[None] = []
        self.is_reported = False
        self.report: Any = None


class Buffer:
    """Unsent records, bounded by the bytes that they hold.

    Any thread adds to the queue; the driver takes from it and reports changes of size.

    Args:
        max_bytes: Most bytes that unsent records hold. One record is always accepted, however large.
        last: Gets the last record of each topic.

    Attributes:
        queue: Records that the driver has not seen yet.
        numbers: Numbers records in the order in which they come; also those that bypass the queue.
        last_number: Number of the last record that was accepted.
    """

    def __init__(self, max_bytes: int, last: dict[str, Outgoing]) -> None:
        self.queue: Final[deque[Outgoing]] = deque()
        self.numbers: Final = itertools.count(1)
        self.last_number = 0
        self._max_bytes = max_bytes
        self._last = last
        self._lock = threading.Lock()  # keeps threads that add records apart
        self._held = 0
        self._waiters: deque[Callable[[], object]] = deque()

    def has_room(self, size: int) -> bool:
        """Whether a record of a size, in bytes, would be accepted now."""
        return not self._held or self._held + size <= self._max_bytes

    def offer(self, record: Outgoing) -> bool:
        """Add a record if there is room for it; returns whether it was added."""
        with self._lock:
            if not self.has_room(record.size):
                return False
            self._held += record.size
            self.last_number = record.number = next(self.numbers)
            self._last[record.topic] = record
            self.queue.append(record)
        return True

    def resize(self, record: Outgoing, size: int) -> None:
        """Note how many bytes a record holds from now on; 0 once it has left."""
        with self._lock:
            self._held += size - record.size
        record.size = size
        self.notify()

    def forget_lost(self) -> None:
        """Drop the bytes of interrupted calls, which count a record and never add it; while no record is unsent."""
        with self._lock:
            if not self.queue:
                self._held = 0

    def call_on_change(self, callback: Callable[[], object]) -> None:
        """Call back once, at the next change. In a daemon thread; it must not block."""
        self._waiters.append(callback)

    def forget(self, callback: Callable[[], object]) -> None:
        """Do not call back any more; without effect once it was called."""
        with suppress(ValueError):
            self._waiters.remove(callback)

    def notify(self) -> None:
        """Call those that wait for a change."""
        with suppress(IndexError):  # a thread that waits may remove its own at any moment
            while self._waiters:
                self._waiters.popleft()()


class Client(Protocol):
    """A Kafka client, as used by a sender. Called in daemon threads."""

    def send(self, record: Outgoing) -> None:
        """Pass a record to the client; its ``step`` is the encoded value.

        Raises:
            BufferError: The client has no room at present.
            Exception: The client refuses the record.
        """

    def failed(self, record: Outgoing, error: BaseException) -> Report | None:
        """The user's callback and its arguments, to report an unsent record; None without a callback."""

    def delete(self, reference: str) -> None:
        """Delete a payload. Raises PayloadStoreError."""


class Ledger(Protocol):
    """Lists payloads in flight, so that the next process can delete them if this one is killed."""

    def intend(self, reference: str) -> None:
        """List a payload before its upload. Raises PayloadStoreError if that fails."""

    def settle(self, reference: str) -> None:
        """Remove a payload whose record is about to be sent, or that was deleted."""


class Gate:
    """Decides when records may be sent, and which are sent again: this one lets all pass. Called by the driver only."""

    def admit(self, record: Outgoing) -> Transfer[Any] | bool | None:
        """Whether the next record of its topic may be sent now; or a transfer to run first.

        A refused record is offered again after the next :meth:`settle` of its topic; with None, in a moment too.
        """
        return True

    def withdraw(self, record: Outgoing) -> None:
        """Note that a record is not sent, admitted or not."""

    def settle(self, report: Any) -> tuple[str, Outgoing | None]:
        """Note the client's report on an admitted record. Idempotent.

        Args:
            report: A report of the gate's own type.

        Returns:
            The topic, and the record if it must be sent again.
        """
        return "", None


def size_of(step: Any) -> int:
    """Bytes held by a step of a record."""
    if isinstance(step, Transfer):
        return step.size or 0
    return 0 if step is None else len(step)
