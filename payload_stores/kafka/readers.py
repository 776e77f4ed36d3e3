"""Idle consumers: connected and, for a second, still positioned after the last payload.

Payloads are mostly read in the order of their offsets: the next one begins where the last one ended, and its first
chunks are prefetched. Assigning the partition again would discard them. The price: a payload just deleted by retention
may remain readable for a second.

A signal handler may raise in a download, and the process may continue. So the locks here are plain ones, which are
entered and left in C: a Condition would stay locked after an exception within its own Python code.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_MOST: Final = 8
# Seconds at a position: at the end of a partition, a consumer fetches every few milliseconds.
_WAIT_S: Final = 1.0
# Between two payloads of transactional producers are the markers of their commits.
_MOST_BETWEEN: Final = 4


class Position(NamedTuple):
    """The next record that a consumer returns."""

    topic: str
    partition: int
    offset: int

    def leads_to(self, wanted: Position) -> bool:
        """Whether a consumer at this position soon returns the wanted record."""
        return self[:2] == wanted[:2] and 0 <= wanted.offset - self.offset <= _MOST_BETWEEN


@dataclass(eq=False)  # equal to no other, so that sets can have it
class Reader:
    """A consumer.

    Attributes:
        consumer: The client's.
        position: The record that it returns next; None without an assignment, or at an end.
        since: When it became idle, by the monotonic clock, in seconds.
    """

    consumer: Consumer
    position: Position | None = None
    since: float = 0.0


class _Coming(NamedTuple):
    """A consumer in use.

    Attributes:
        position: The position after reading.
        reading: Held until then.
    """

    position: Position
    reading: threading.Lock


class IdleReaders:
    """The idle consumers of one store, and how many are in use. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Weak: one whose user was interrupted before it gave it back is not counted for ever.
        self._lent: WeakSet[Reader] = WeakSet()
        self._idle: list[Reader] = []
        self._coming: list[_Coming] = []
        self._timer: threading.Timer | None = None
        self._is_closed = False

    @contextmanager
    def turn(self, wanted: Position, end: Position | None, seconds: float) -> Iterator[None]:
        """Wait while a consumer in use is about to arrive at the wanted record.

        Several at a time would read the same partition at several places, each discarding what the others fetch.

        Args:
            wanted: The first record to read.
            end: The position after reading, if the caller gets there without a pause.
            seconds: The longest wait; then several consumers read the partition.
        """
        if end is None:
            self._await(wanted, seconds)
            yield
            return
        coming = _Coming(end, threading.Lock())
        with coming.reading:
            try:
                with self._lock:
                    self._coming.append(coming)  # before waiting: the next one waits for this one
                self._await(wanted, seconds)
                yield
            finally:
                self._forget(coming)

    def _await(self, wanted: Position, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                before = next((each for each in self._coming if each.position.leads_to(wanted)), None)
            if before is None:
                return
            has_arrived = before.reading.acquire(timeout=max(0.0, until - time.monotonic()))
            if has_arrived:
                before.reading.release()
            self._forget(before)  # slow, or interrupted before it could do so itself
            if not has_arrived:
                return

    def _forget(self, coming: _Coming) -> None:
        with self._lock:
            if coming in self._coming:
                self._coming.remove(coming)

    def take(self, wanted: Position | None) -> Reader | None:
        """Take a consumer.

        Args:
            wanted: The first record to read; None for requests of metadata.

        Returns:
            The consumer, at the wanted record already, or without an assignment. None if a new one is better: each
            partition is read in its own order.
        """
        with self._lock:
            if not self._idle:
                return None
            at = max(range(len(self._idle)), key=lambda at: _fitness(self._idle[at], wanted))
            is_there, is_free = _fitness(self._idle[at], wanted)[:2]
            if not (is_there or is_free) and len(self._idle) + len(self._lent) < _MOST:
                return None
            reader = self._idle.pop(at)
            self._lent.add(reader)
        if is_there:
            reader.position = wanted
        elif reader.position is not None:
            reader.position = None
            reader.consumer.unassign()
        return reader

    def new(self, consumer: Consumer) -> Reader:
        """A new consumer, in use."""
        reader = Reader(consumer)
        with self._lock:
            self._lent.add(reader)
        return reader

    def give(self, reader: Reader) -> None:
        """Return a consumer; without a position, it is unassigned.

        Of too many, one without a position is closed, otherwise the one that is idle for the longest time.
        """
        if reader.position is None:
            reader.consumer.unassign()
        excess = None
        with self._lock:
            self._lent.discard(reader)
            reader.since = time.monotonic()
            self._idle.append(reader)
            if self._is_closed or len(self._idle) > _MOST:
                excess = min(self._idle, key=lambda each: (each.position is not None, each.since))
                self._idle.remove(excess)
            if reader.position is not None and not self._is_closed:
                self._wait()
        if excess is not None:
            excess.consumer.close()

    def drop(self, reader: Reader) -> None:
        """Close a consumer that failed, or that reads committed records, instead of returning it."""
        with self._lock:
            self._lent.discard(reader)
        reader.consumer.close()

    def consumers(self) -> list[Consumer]:
        """The idle consumers, without the lock, which another thread may have held at a fork."""
        return [each.consumer for each in self._idle]

    def close(self) -> None:
        """Close the consumers, and each one that is returned later."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for each in idle:
            each.consumer.close()

    def _wait(self) -> None:
        if self._timer is None:
            timer = threading.Timer(_WAIT_S, self._expire)
            timer.daemon = True
            # After an interrupt here, the next one to wait starts another.
            with suppress(RuntimeError):  # the system refuses a thread: they keep their positions
                timer.start()
                self._timer = timer

    def _expire(self) -> None:
        """Unassign the consumers that were idle for too long."""
        oldest = time.monotonic() - _WAIT_S
        with self._lock:
            self._timer = None
            expired = [each for each in self._idle if each.position is not None and each.since <= oldest]
            self._idle = [each for each in self._idle if each not in expired]
            if any(each.position is not None for each in self._idle):
                self._wait()
        for each in expired:
            each.position = None
            self.give(each)


def _fitness(idle: Reader, wanted: Position | None) -> tuple[bool, bool, float]:
    """The best one is at the wanted record, or closest before it; the next best has no position; then the oldest.

    Several that follow each other through a partition would each fetch all of it.
    """
    position = idle.position
    if position is not None and wanted is not None and position.leads_to(wanted):
        return True, False, position.offset
    return False, position is None, -idle.since
