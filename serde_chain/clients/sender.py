"""Records on their way to a client: their transfers run in parallel, and they leave in the order in which they came.

A record whose chain has to publish something first waits in the lane of its topic, and those that come later to that
topic wait behind it. One driver moves all lanes. It runs in a daemon thread while there is work, and in none otherwise;
the transfers run in further ones. So nothing of it can be interrupted: a signal handler only ever runs in the threads
that put records in and that are told what became of them. What these do to the shared state is one call each.

The end of the interpreter waits for none of the threads. What they have not sent by then is told in the log.
"""

from __future__ import annotations

import atexit
import contextvars
import itertools
import logging
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from operator import call
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol, TypeAlias

from payload_stores.daemon_threads import run_elsewhere
from payload_stores.errors import PayloadStoreError, release
from serde_chain.record import Header
from serde_chain.transfer import Transfer

__all__ = ["Client", "Gate", "Ledger", "OpenGate", "Outgoing", "Sender"]

_log = logging.getLogger("serde_chain")

# Seconds until a full client, or a call that was interrupted before it told the driver, is looked at again.
_RETRY_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 1.0

Report: TypeAlias = tuple[Any, ...]


class Outgoing:
    """A record on its way.

    Attributes:
        number: Its place among all records of the sender.
        topic: Topic.
        key: The encoded key.
        step: The encoded value, or a transfer that leads to it.
        partition: Partition, or -1.
        timestamp: Timestamp in ms, or 0.
        headers: Headers; a list of the record's own, which transfers add to.
        on_delivery: The user's callback, if there is one; until it was called, or given to the client. The last
            record of each topic is kept, and what the callback holds is not.
        size: Bytes that it holds until it is sent.
        until: When it is too late to send it, on the monotonic clock.
        made: References of payloads that belong to this record alone.
        error: Why it cannot be sent.
        is_gone: Whether it was sent, or will not be.
        state: Of the :class:`Gate`.
        context: The context variables of the thread that made it: what is done for it elsewhere belongs to its trace.
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
        self.size = _size_of(step) + _size_of(key)
        self.until = math.inf
        self.made: tuple[str, ...] = ()
        self.error: BaseException | None = None
        self.is_gone = False
        self.state: Any = None
        self.context = contextvars.copy_context()


class Client(Protocol):
    """What a sender needs of a Kafka client. Called in daemon threads."""

    def send(self, record: Outgoing) -> None:
        """Hand a record to the client; its ``step`` is the encoded value.

        Raises:
            BufferError: The client has no room for now.
            Exception: It does not take the record.
        """

    def failed(self, record: Outgoing, error: BaseException) -> Report | None:
        """The user's callback and its arguments, to tell that a record was not sent; None if there is no callback."""

    def delete(self, reference: str) -> None:
        """Delete a payload. Raises PayloadStoreError."""


class Ledger(Protocol):
    """Notes which payloads are on their way, for the next process to delete if this one is killed."""

    def intend(self, reference: str) -> None:
        """Note that a payload is about to be uploaded. Raises PayloadStoreError if that cannot be noted."""

    def settle(self, reference: str) -> None:
        """Note that its record is about to be sent, or that it was deleted."""


class Gate(Protocol):
    """Decides when records may be sent, and which ones go again. Called by the driver alone."""

    def admit(self, record: Outgoing) -> Transfer[Any] | bool:
        """Whether the next record of its topic may be sent now; or what has to be done first.

        A record that may not is asked for again after the next :meth:`settle` of its topic.
        """

    def withdraw(self, record: Outgoing) -> None:
        """Note that a record is not sent after all, admitted or not."""

    def settle(self, report: Any) -> tuple[str, Outgoing | None]:
        """Note the client's report on a record that was admitted. Called again with the same one, it changes nothing.

        Args:
            report: Of the gate's own kind.

        Returns:
            The topic, and the record if it has to be sent again.
        """


class OpenGate:
    """A :class:`Gate` that lets all records pass."""

    def admit(self, _record: Outgoing) -> bool:
        """Yes."""
        return True

    def withdraw(self, _record: Outgoing) -> None:
        """Nothing to note."""

    def settle(self, _report: Any) -> tuple[str, None]:
        """Clients report to no one."""
        return "", None


class _NoLedger:
    """Notes nothing."""

    def intend(self, reference: str) -> None:
        pass

    def settle(self, reference: str) -> None:
        pass


class Sender:
    """Runs the transfers of records, and hands the records to a client in call order per topic.

    Args:
        client: The client.
        in_flight: Most transfers at a time (``large.message.uploads.in.flight``).
        buffer_bytes: Most bytes that records hold which are not sent yet (``large.message.buffer.bytes``). One record
            may always wait, however large.
        block_ms: Time in ms for which a record waits for room in the client (``max.block.ms``).
        gate: Decides when records may be sent.
        ledger: Notes what is on its way.
    """

    def __init__(
        self,
        client: Client,
        *,
        in_flight: int = 8,
        buffer_bytes: int = 256 << 20,
        block_ms: int = 60_000,
        gate: Gate | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._client = client
        self._in_flight = in_flight
        self._buffer_bytes = buffer_bytes
        self._block_s = block_ms / 1000
        self._gate: Gate = gate or OpenGate()
        self._has_ledger = ledger is not None
        self._ledger: Ledger = ledger or _NoLedger()
        # By the records' numbers: a dictionary gives one up in one step of C, also where another thread has taken it.
        self._reports: dict[int, Report] = {}
        self._last: dict[str, Outgoing] = {}
        self._reset()
        _senders.add(self)

    def _reset(self) -> None:
        """Begin with nothing; also in a forked process, whose records are its parent's."""
        # Shared by all threads. The lock keeps threads that put records in apart.
        self._lock = threading.Lock()
        self._put: deque[Outgoing] = deque()
        self._last.clear()
        self._held = 0
        self._waiters: deque[Callable[[], object]] = deque()
        self._events: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._settling: deque[Any] = deque()
        self._garbage: deque[str] = deque()
        self._failure: BaseException | None = None
        self._numbers = itertools.count(1)
        self._number = 0
        # The driver's own.
        self._driving = threading.Lock()
        self._lanes: dict[str, deque[Outgoing]] = {}
        self._unstarted: deque[Outgoing] = deque()
        self._stuck: set[str] = set()
        self._count = 0
        self._running = 0
        self._transaction: list[str] | None = None

    def __len__(self) -> int:
        """Records that are not sent yet."""
        return len(self._put) + self._count

    def __bool__(self) -> bool:
        return True

    @property
    def is_idle(self) -> bool:
        """Whether all records are sent, and none is about to go again; reports may be left to :meth:`serve`."""
        return not (self._put or self._count or self._settling)

    @property
    def is_cleaning(self) -> bool:
        """Whether payloads of records that were not sent are being deleted, or still uploaded."""
        return bool(self._garbage or (self._running and self.is_idle))

    @property
    def last(self) -> dict[str, Outgoing]:
        """The last record of each topic that came here, for those who look before every record. Not to be changed."""
        return self._last

    def is_clear(self, topic: str) -> bool:
        """Whether a record of a topic may go straight to the client: there is none before it."""
        last = self._last.get(topic)
        return last is None or last.is_gone

    def enter(self, record: Outgoing) -> bool:
        """Give a record its number, for a client to which it goes straight.

        Returns:
            Whether it may: nothing of its topic waits here, nor goes again.
        """
        topic = record.topic
        record.number = next(self._numbers)
        return not (self._settling or self._lanes.get(topic)) and self.is_clear(topic)

    def has_room(self, size: int) -> bool:
        """Whether a record of a size, in bytes, would be taken now."""
        return not self._held or self._held + size <= self._buffer_bytes

    def offer(self, record: Outgoing) -> bool:
        """Take a record, if there is room for it.

        Returns:
            Whether it was taken: it will be sent, or reported.
        """
        with self._lock:
            if not self.has_room(record.size):
                return False
            self._held += record.size
            self._number = record.number = next(self._numbers)
            self._last[record.topic] = record
            self._put.append(record)
        self.wake()
        return True

    def put(self, record: Outgoing, *, while_waiting: Callable[[], object] | None = None) -> None:
        """Take a record; wait until there is room for it.

        Args:
            record: The record. If this raises, it may have been taken only where a signal handler has raised.
            while_waiting: Called now and then meanwhile.

        Raises:
            BufferError: There was no room within ``max.block.ms``.
        """
        until = time.monotonic() + self._block_s
        while True:
            turn = threading.Lock()
            turn.acquire()
            self.call_on_change(turn.release)
            if self.offer(record):
                return
            left = until - time.monotonic()
            if left <= 0:
                raise BufferError(
                    f"the payloads that are being uploaded fill large.message.buffer.bytes "
                    f"({self._buffer_bytes}), and none was finished within {self._block_s:g} s"
                )
            self.wake()
            turn.acquire(timeout=left if while_waiting is None else min(left, _RETRY_SECONDS))
            if while_waiting is not None:
                while_waiting()

    def call_on_change(self, callback: Callable[[], object]) -> None:
        """Call back, once, when a record has left, or a report is there. In a daemon thread; it must not block."""
        self._waiters.append(callback)

    def wait(self, seconds: float) -> None:
        """Wait until a record has left, a report is there or a payload was deleted, for a time."""
        turn = threading.Lock()
        turn.acquire()
        self.call_on_change(turn.release)
        if not self._reports and (self.is_cleaning or not self.is_idle):
            turn.acquire(timeout=max(0.0, min(seconds, threading.TIMEOUT_MAX)))
        with suppress(ValueError):
            self._waiters.remove(turn.release)

    def serve(self) -> int:
        """Call the callbacks of records that were not sent, in this thread.

        Returns:
            How many were called. What one of them raises is raised here; the others are called by the next call.
        """
        count = 0
        while self._reports:
            for number in [*self._reports]:
                # In one step of C: what was taken out is called.
                for _ in starmap(call, filter(None, map(self._reports.pop, (number,), (None,)))):
                    count += 1
        return count

    def wake(self) -> None:
        """Let the driver look, in case a call was interrupted before it could tell it."""
        self._tell(_nothing)

    def settle(self, report: Any) -> None:
        """Pass a client's report on a record to the gate. May be called again for the same report."""
        self._settling.append(report)
        self.wake()

    def discard(self, references: Iterable[str]) -> None:
        """Delete payloads of records that were handed to the client and will never be read."""
        self._garbage.extend(references)
        self.wake()

    def purge(self, error: Exception) -> None:
        """Drop all records that are not sent yet: they are reported with an error, and their payloads deleted."""
        if len(self):
            self._tell(partial(self._drop_all, self._number, error))

    def begin_transaction(self) -> None:
        """Begin a transaction, once the client has begun it: payloads belong to it until its end.

        Where the end of the one before was not told, its payloads stay: it may have been committed.
        """
        self._failure = None
        self._transaction = []

    @property
    def failure(self) -> BaseException | None:
        """Why a record of the transaction was not sent, if one was not."""
        return self._failure

    def commit(self) -> None:
        """Note that the transaction may be committed from now on: nothing of it is left for the next process."""
        for reference in self._transaction or ():
            self._ledger.settle(reference)

    def end(self, *, delete: bool) -> None:
        """End the transaction.

        Args:
            delete: Whether it was aborted: its payloads are deleted.
        """
        references, self._transaction = self._transaction, None
        self._failure = None
        if delete and references:
            self.discard(references)

    def _tell(self, event: Callable[[], object]) -> None:
        """Pass something to the driver."""
        self._events.put(event)
        if not self._driving.locked():
            try:
                run_elsewhere(self._drive)
            except PayloadStoreError as error:
                _log.warning("records wait: %s", error)  # the next call tries it again

    # From here on, all is done in daemon threads.

    def _drive(self) -> None:
        # A thread that comes while another one drives has nothing to do. One that stops looks again, in case it was
        # told something by a thread that saw it drive.
        while self._driving.acquire(blocking=False):
            try:
                while self._has_work():
                    self._turn()
                with self._lock:  # a call that was interrupted may have counted a record that never came
                    self._held = 0 if self.is_idle else self._held
                self._notify()
            finally:
                self._driving.release()
            if not self._has_work():
                return

    def _has_work(self) -> bool:
        return bool(not self.is_idle or self._garbage or self._running or not self._events.empty())

    def _turn(self) -> None:
        """Do what there is to do, then wait for news."""
        # First of all: what was put in since a refusal comes behind the record that goes again.
        while self._settling:
            self._settled(self._settling[0])
            self._settling.popleft()
        self._take()
        while self._unstarted and self._running < self._in_flight:
            self._start(self._unstarted.popleft())
        for topic in [*self._stuck]:
            self._advance(topic)
        while self._garbage and self._running < self._in_flight:
            self._run(partial(self._clean, self._garbage[0]), self._not_cleaned)
            self._garbage.popleft()  # not before: there is no moment in which nothing seems to be left to do
        if not self._has_work():
            return
        try:
            event = self._events.get(timeout=_RETRY_SECONDS if self._stuck else _IDLE_SECONDS)
        except Empty:
            return
        while True:
            try:
                event()
            except Exception:  # noqa: BLE001  a fault of ours; the other records go on
                _log.exception("the sender failed")
            try:
                event = self._events.get_nowait()
            except Empty:
                return

    def _take(self) -> None:
        """Move records that were put in into their lanes."""
        while self._put:
            record = self._put[0]
            self._count += 1
            lane = self._lanes.setdefault(record.topic, deque())
            lane.append(record)
            if isinstance(record.step, Transfer):
                self._unstarted.append(record)
            self._put.popleft()
            if lane[0] is record:
                self._advance(record.topic)

    def _start(self, record: Outgoing) -> None:
        if not record.is_gone:
            self._run(partial(self._transfer, record), partial(self._not_run, record))

    def _run(self, job: Callable[[], None], otherwise: Callable[[Exception], object] | None = None) -> None:
        self._running += 1
        try:
            run_elsewhere(job)
        except PayloadStoreError as error:
            self._running -= 1
            if otherwise is not None:
                otherwise(error)

    def _not_run(self, record: Outgoing, error: Exception) -> None:
        record.error = error
        self._stuck.add(record.topic)

    def _transfer(self, record: Outgoing) -> None:
        """Do a record's transfers, and go on with its chain."""
        step = record.step
        error: BaseException | None = None
        made: list[str] = []
        try:
            while isinstance(step, Transfer):
                if self._has_ledger and (place := step.place()) is not None:
                    self._ledger.intend(place)
                result = record.context.run(step.run)
                if (reference := step.made(result)) is not None:
                    made.append(reference)
                step = step.resume(result)
        except BaseException as failure:  # noqa: BLE001  reported
            release(failure)
            error = failure
        self._events.put(partial(self._transferred, record, None if error else step, made, error))

    def _transferred(self, record: Outgoing, step: Any, made: Sequence[str], error: BaseException | None) -> None:
        if record.is_gone:  # dropped meanwhile
            self._garbage.extend(made)
            self._running -= 1
            self._notify()
            return
        self._running -= 1
        record.made += tuple(made)
        record.error = error
        record.step = step
        self._hold(record, _size_of(step) + _size_of(record.key))
        if self._lanes[record.topic][0] is record:
            self._advance(record.topic)

    def _hold(self, record: Outgoing, size: int) -> None:
        with self._lock:
            self._held += size - record.size
        record.size = size
        self._notify()

    def _advance(self, topic: str) -> None:
        """Send the records at the front of a lane, up to one that has to wait."""
        lane = self._lanes[topic]
        self._stuck.discard(topic)
        while lane:
            record = lane[0]
            if record.error is not None:
                lane.popleft()
                self._drop(record, record.error)
                continue
            if isinstance(record.step, Transfer):
                return
            try:
                first = self._gate.admit(record)
            except Exception as error:  # noqa: BLE001  reported
                record.error = error
                continue
            if isinstance(first, Transfer):
                record.step = first
                self._unstarted.append(record)
                self._events.put(_nothing)
                return
            if not first:
                return
            if not self._send(record):
                self._stuck.add(topic)
                return
            lane.popleft()

    def _send(self, record: Outgoing) -> bool:
        """Hand a record to the client; returns False if that has no room."""
        if record.until == math.inf:
            record.until = time.monotonic() + self._block_s
        try:
            if self._transaction is None:
                for reference in record.made:
                    self._ledger.settle(reference)
            self._client.send(record)
        except BufferError as error:
            if time.monotonic() < record.until:
                return False
            self._drop(record, error)
        except Exception as error:  # noqa: BLE001  reported
            self._drop(record, error)
        else:
            if self._transaction is not None:
                self._transaction += record.made
            self._leave(record)
        return True

    def _leave(self, record: Outgoing) -> None:
        record.is_gone = True
        self._hold(record, 0)
        self._count -= 1
        self._notify()

    def _drop(self, record: Outgoing, error: BaseException) -> None:
        """Report that a record is not sent, and delete its payloads."""
        self._gate.withdraw(record)
        self._failure = self._failure or error
        self._garbage.extend(record.made)
        record.made = ()
        try:
            report = self._client.failed(record, error)
        except Exception:  # noqa: BLE001  as above
            _log.exception("a record of %s was not sent, which could not be reported", record.topic)
            report = None
        if report is not None:
            self._reports[record.number] = report
        record.step = record.on_delivery = None
        self._leave(record)

    def _drop_all(self, last: int, error: Exception) -> None:
        """Drop all records up to a number; a thread may have put in further ones since it asked for that."""
        self._take()
        for topic, lane in self._lanes.items():
            while lane and lane[0].number <= last:
                record = lane.popleft()
                self._drop(record, record.error or error)
            self._advance(topic)

    def _settled(self, report: Any) -> None:
        """See :meth:`settle`."""
        topic, again = self._gate.settle(report)
        if topic not in self._lanes:
            return
        if again is not None:
            # In front of all that came later, and behind what came before and has to go again as well.
            lane = self._lanes[topic]
            at = next((at for at, other in enumerate(lane) if other.number > again.number), len(lane))
            lane.insert(at, again)
            again.is_gone = False
            self._count += 1
        self._advance(topic)

    def _clean(self, reference: str) -> None:
        try:
            self._client.delete(reference)
            self._ledger.settle(reference)
        except Exception as error:  # noqa: BLE001  the sweep, or the next process, finds what is left
            release(error)
            _log.warning("a payload whose record was not sent could not be deleted: %s", error)
        self._events.put(self._cleaned)

    def _not_cleaned(self, error: Exception) -> None:
        _log.warning("a payload whose record was not sent could not be deleted: %s", error)

    def _cleaned(self) -> None:
        self._running -= 1
        self._notify()

    def _notify(self) -> None:
        with suppress(IndexError):  # a thread that waits may take its own out at any moment
            while self._waiters:
                self._waiters.popleft()()


def _nothing() -> None:
    """An event that only wakes the driver."""


def _size_of(step: Any) -> int:
    """Bytes that a step of a record holds."""
    if isinstance(step, Transfer):
        return step.size or 0
    return 0 if step is None else len(step)


_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


def _forget_all() -> None:
    for sender in list(_senders):
        sender._reports.clear()  # noqa: SLF001, of this module
        sender._reset()  # noqa: SLF001


def _tell_all() -> None:
    for sender in list(_senders):
        if count := len(sender):
            _log.warning(
                "%d %s not sent: the process ends while payloads are being uploaded; call flush() or close() before",
                count,
                "record was" if count == 1 else "records were",
            )


os.register_at_fork(after_in_child=_forget_all)
atexit.register(_tell_all)
