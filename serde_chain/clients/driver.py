"""The daemon threads of a sender: transfers run in parallel, and records leave in the order of their topics.

A record whose chain has to publish something first waits in the lane of its topic, and later records of that topic
wait behind it. One driver moves all lanes. It runs in a daemon thread while there is work, and in none otherwise; the
transfers run in further daemon threads. So nothing here can be interrupted: signal handlers run in the threads that
call the methods above :meth:`Driver._drive` only, and each of these changes the shared state by one call.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from payload_stores.errors import PayloadStoreError, release
from payload_stores.threads import Empty, SimpleQueue, run_in_daemon_thread
from serde_chain.clients.outgoing import Buffer, Client, Gate, Ledger, Outgoing, Report, size_of
from serde_chain.transfer import Transfer

_log = logging.getLogger("serde_chain")

# Seconds until a full client, or a call that was interrupted before it woke the driver, is looked at again.
RETRY_SECONDS: Final = 0.02
_IDLE_SECONDS: Final = 1.0


class _NoLedger:
    """Notes nothing."""

    def intend(self, reference: str) -> None:
        pass

    def settle(self, reference: str) -> None:
        pass


class Driver:
    """Moves records from a buffer to a client.

    Args:
        client: The client.
        buffer: Where records come from.
        in_flight: Most transfers at a time.
        block_ms: Time in ms for which a record waits for room in the client.
        gate: Decides when records may be sent.
        ledger: Lists payloads in flight.

    Attributes:
        reports: Of records that were not sent, by their numbers, for callers to take out. By numbers, since a
            dictionary gives one up in one step of C, also where another thread has taken it.
        failure: Why a record of the transaction was not sent, if one was not.
    """

    def __init__(
        self, client: Client, buffer: Buffer, *, in_flight: int, block_ms: int, gate: Gate | None, ledger: Ledger | None
    ) -> None:
        self.reports: Final[dict[int, Report]] = {}
        self.failure: BaseException | None = None
        self._client = client
        self._buffer = buffer
        self._in_flight = in_flight
        self._block_s = block_ms / 1000
        self._gate = gate or Gate()
        self._has_ledger = ledger is not None
        self._ledger: Ledger = ledger or _NoLedger()
        # Shared by all threads.
        self._events: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._settling: deque[Any] = deque()
        self._garbage: deque[str] = deque()
        self._transaction: list[str] | None = None
        self._driving = threading.Lock()
        # The driver thread's own.
        self._lanes: dict[str, deque[Outgoing]] = {}
        self._unstarted: deque[Outgoing] = deque()
        self._stuck: set[str] = set()
        self._count = 0
        self._running = 0

    def __len__(self) -> int:
        """Unsent records."""
        return len(self._buffer.queue) + self._count

    @property
    def is_idle(self) -> bool:
        """Whether all records are sent, and none is about to go again."""
        return not (self._buffer.queue or self._count or self._settling)

    @property
    def is_cleaning(self) -> bool:
        """Whether payloads of unsent records are being deleted, or still uploaded."""
        return bool(self._garbage or (self._running and self.is_idle))

    def has_waiting(self, topic: str) -> bool:
        """Whether records of a topic wait here, or any record may go again."""
        return bool(self._settling or self._lanes.get(topic))

    def wake(self) -> None:
        """Look for work, in case a call was interrupted before it could announce its own."""
        self._tell(_nothing)

    def settle(self, report: Any) -> None:
        """Pass a client's report on a record to the gate. May be called again for the same report."""
        self._settling.append(report)
        self.wake()

    def discard(self, references: Iterable[str]) -> None:
        """Delete payloads."""
        self._garbage.extend(references)
        self.wake()

    def purge(self, last: int, error: Exception) -> None:
        """Drop the unsent records up to a number: they are reported with an error, and their payloads deleted."""
        self._tell(partial(self._drop_all, last, error))

    def begin_transaction(self) -> None:
        """Keep the payloads of the records sent from now on together, until the transaction ends."""
        self.failure = None
        self._transaction = []

    def commit(self) -> None:
        """Note that the transaction may be committed from now on: nothing of it is left for the next process."""
        for reference in self._transaction or ():
            self._ledger.settle(reference)

    def end_transaction(self, *, delete: bool) -> None:
        """End the transaction; delete its payloads if it was aborted."""
        references, self._transaction = self._transaction, None
        self.failure = None
        if delete and references:
            self.discard(references)

    def _tell(self, event: Callable[[], object]) -> None:
        """Pass something to the driver."""
        self._events.put(event)
        if not self._driving.locked():
            try:
                run_in_daemon_thread(self._drive)
            except PayloadStoreError as error:
                _log.warning("records wait: %s", error)  # the next call tries it again

    # From here on, everything runs in daemon threads.

    def _drive(self) -> None:
        # A second driver thread has nothing to do. A thread that stops checks for work again, in case an event came
        # from a thread that saw it running.
        while self._driving.acquire(blocking=False):
            try:
                while self._has_work():
                    self._turn()
                if not self._count:
                    self._buffer.forget_lost()
                self._buffer.notify()
            finally:
                self._driving.release()
            if not self._has_work():
                return

    def _has_work(self) -> bool:
        return bool(not self.is_idle or self._garbage or self._running or not self._events.empty())

    def _turn(self) -> None:
        """Do all pending work, then wait for events."""
        # First: records added since a refusal come after the record that is sent again.
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
            self._garbage.popleft()  # not earlier: the driver must never look idle in between
        if not self._has_work():
            return
        try:
            event = self._events.get(timeout=RETRY_SECONDS if self._stuck else _IDLE_SECONDS)
        except Empty:
            return
        while True:
            try:
                event()
            except Exception:  # noqa: BLE001  our own bug; the other records continue
                _log.exception("the sender failed")
            try:
                event = self._events.get_nowait()
            except Empty:
                return

    def _take(self) -> None:
        """Move records from the buffer to their lanes."""
        queue = self._buffer.queue
        while queue:
            record = queue[0]
            self._count += 1
            lane = self._lanes.setdefault(record.topic, deque())
            lane.append(record)
            if isinstance(record.step, Transfer):
                self._unstarted.append(record)
            queue.popleft()
            if lane[0] is record:
                self._advance(record.topic)

    def _start(self, record: Outgoing) -> None:
        if not record.is_gone:
            self._run(partial(self._transfer, record), partial(self._not_run, record))

    def _run(self, job: Callable[[], None], otherwise: Callable[[Exception], object] | None = None) -> None:
        self._running += 1
        try:
            run_in_daemon_thread(job)
        except PayloadStoreError as error:
            self._running -= 1
            if otherwise is not None:
                otherwise(error)

    def _not_run(self, record: Outgoing, error: Exception) -> None:
        record.error = error
        self._stuck.add(record.topic)

    def _transfer(self, record: Outgoing) -> None:
        """Run a record's transfers, and continue its chain."""
        step = record.step
        error: BaseException | None = None
        made: list[str] = []
        try:
            while isinstance(step, Transfer):
                if self._has_ledger:
                    for place in step.places():
                        self._ledger.intend(place)
                result = record.context.run(step.run)
                made += step.made(result)
                step = step.resume(result)
        except BaseException as failure:  # noqa: BLE001  reported
            release(failure)
            error = failure
        self._events.put(partial(self._transferred, record, None if error else step, made, error))

    def _transferred(self, record: Outgoing, step: Any, made: Sequence[str], error: BaseException | None) -> None:
        if record.is_gone:  # dropped meanwhile
            self._garbage.extend(made)
            self._running -= 1
            self._buffer.notify()
            return
        self._running -= 1
        record.made += tuple(made)
        record.error = error
        record.step = step
        self._buffer.resize(record, size_of(step) + size_of(record.key))
        if self._lanes[record.topic][0] is record:
            self._advance(record.topic)

    def _advance(self, topic: str) -> None:
        """Send the first records of a lane, up to one that must wait."""
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
                if first is None:
                    self._stuck.add(topic)
                return
            if not self._send(record):
                self._stuck.add(topic)
                return
            lane.popleft()

    def _send(self, record: Outgoing) -> bool:
        """Pass a record to the client; returns False if the client has no room."""
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
        self._buffer.resize(record, 0)
        self._count -= 1
        self._buffer.notify()

    def _drop(self, record: Outgoing, error: BaseException) -> None:
        """Report an unsent record, and delete its payloads."""
        self._gate.withdraw(record)
        self.failure = self.failure or error
        self._garbage.extend(record.made)
        record.made = ()
        try:
            report = self._client.failed(record, error)
        except Exception:  # noqa: BLE001  as above
            _log.exception("a record of %s was not sent, and reporting it failed", record.topic)
            report = None
        if report is not None:
            self.reports[record.number] = report
        record.step = record.on_delivery = None
        self._leave(record)

    def _drop_all(self, last: int, error: Exception) -> None:
        """Drop all records up to a number; later ones may have been added since the request."""
        self._take()
        for topic, lane in self._lanes.items():
            while lane and lane[0].number <= last:
                record = lane.popleft()
                self._drop(record, record.error or error)
            self._advance(topic)

    def _settled(self, report: Any) -> None:
        """See :meth:`settle`."""
        topic, again = self._gate.settle(report)
        if again is not None:
            # Before all later records, and after earlier ones that are sent again too. It may be the first one here.
            lane = self._lanes.setdefault(topic, deque())
            at = next((at for at, other in enumerate(lane) if other.number > again.number), len(lane))
            lane.insert(at, again)
            again.is_gone = False
            self._count += 1
        if topic in self._lanes:
            self._advance(topic)

    def _clean(self, reference: str) -> None:
        try:
            self._client.delete(reference)
            self._ledger.settle(reference)
        except Exception as error:  # noqa: BLE001  the sweep or the next process finds the rest
            release(error)
            _log.warning("a payload whose record was not sent could not be deleted: %s", error)
        self._events.put(self._cleaned)

    def _not_cleaned(self, error: Exception) -> None:
        _log.warning("a payload whose record was not sent could not be deleted: %s", error)

    def _cleaned(self) -> None:
        self._running -= 1
        self._buffer.notify()


def _nothing() -> None:
    """An event that only wakes the driver."""
