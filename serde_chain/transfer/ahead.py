"""Transfers that run ahead of their reader: in parallel, within bounds, and once for equal keys.

One implementation serves the windows of consumers, which read record by record, and batches (Arrow, Spark).

Only worker threads change the counts here, under a lock. The reader is usually the main thread, where Ctrl-C may come
between any two steps. So it only appends to queues, and abandons a transfer by dropping the last reference to it. No
interrupt corrupts a count or leaks a payload.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Any, Final, Self

from payload_stores.errors import PayloadStoreUnavailableError, release
from payload_stores.records import StoredRecord
from payload_stores.threads import run_in_daemon_thread
from serde_chain.transfer.step import Transfer

_TICK_S: Final = 1.0


class Prefetched:
    """A transfer that runs ahead. When its last holder drops it, it is not started, or its result is discarded.

    Attributes:
        transfer: The transfer.
        is_taken: Whether its result was taken, so that others hold it too.
    """

    __slots__ = ("__weakref__", "context", "is_taken", "job", "transfer")

    def __init__(self, transfer: Transfer[Any]) -> None:
        self.transfer = transfer
        self.is_taken = False
        self.context = contextvars.copy_context()  # so that traces continue in the other thread
        self.job: _Job | None = None

    @property
    def is_done(self) -> bool:
        """Whether there is a result, or an error."""
        job = self.job
        return job is not None and job.is_done

    @property
    def error(self) -> BaseException | None:
        """The error, once the transfer has failed."""
        return None if self.job is None else self.job.error

    @property
    def held_bytes(self) -> int:
        """Bytes of its result; 0 without one."""
        return self.job.measure() if self.job is not None and self.job.is_done else 0

    def take(self) -> Any:
        """The result of a finished transfer.

        Raises:
            Exception: The transfer's error; a copy for each caller, since each adds its own place.
        """
        job = self.job
        if job is None or not job.is_done:
            raise RuntimeError("the transfer is not done")
        if job.error is not None:
            raise copy.copy(job.error)
        self.is_taken = True
        return job.result


class Prefetch:
    """Runs transfers in the order of their addition, while their reader is busy with earlier ones.

    For one reader; results come in any order. Threads are daemon threads: neither the reader nor the interpreter's exit
    waits for a transfer that hangs.

    Args:
        call: Runs a transfer: calls its ``run``, or its ``work`` for a reader with its own deadline.
        in_flight: Most transfers at a time.
        max_bytes: Most bytes in flight or held, though one result is always accepted. None if the reader holds all
            results to the end anyway.

    Attributes:
        in_flight: As given.
        max_bytes: As given.
        notify: Called by a worker thread when a transfer is done; must neither block nor raise.

    Example:
        >>> from operator import methodcaller
        >>> from serde_chain import DeserializerChain, RecordContext, SerializerChain
        >>> config = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 0}
        >>> headers = []
        >>> with SerializerChain.from_config({**config, "value.serializers": "large-message"}) as writer:
        ...     reference = writer(b"payload", RecordContext("images", "value", headers))
        >>> with DeserializerChain.from_config({**config, "value.deserializers": "large-message"}) as reader:
        ...     prefetch = Prefetch(methodcaller("run"), in_flight=8)
        ...     [ahead] = prefetch.add([reader.begin(reference, RecordContext("images", "value", headers))])
        ...     prefetch.wait(ahead, seconds=60)
        ...     ahead.transfer.resume(ahead.take())
        True
        b'payload'
    """

    def __init__(self, call: Callable[[Transfer[Any]], Any], *, in_flight: int, max_bytes: int | None = None) -> None:
        self.notify: Callable[[], None] = _nothing
        self._call = call
        self.in_flight = in_flight
        self.max_bytes = max_bytes
        self._news = threading.Event()
        # Appended to by the reader and the garbage collector.
        self._added: Final[deque[weakref.ref[Prefetched]]] = deque()
        self._urgent: Final[deque[weakref.ref[Prefetched]]] = deque()
        self._gone: Final[deque[_Holder]] = deque()
        # Only under the lock.
        self._lock = threading.Lock()
        self._waiting: Final[deque[weakref.ref[Prefetched]]] = deque()
        self._jobs: Final[dict[Hashable, _Job]] = {}
        self._running = 0
        self._bytes = 0
        # The assumed size of a transfer of unknown size; grows with larger results.
        self._assumed = max((max_bytes or 0) // in_flight, 1)

    def add(self, transfers: Iterable[Transfer[Any]]) -> list[Prefetched]:
        """Queue transfers.

        Args:
            transfers: In the order of need.
        """
        added = [Prefetched(transfer) for transfer in transfers]
        if added:
            self._added.extend(map(weakref.ref, added))
            self.go_on()
        return added

    def wait(self, ahead: Prefetched, seconds: float) -> bool:
        """Wait for a transfer, which starts at once, regardless of bounds.

        Args:
            ahead: The transfer.
            seconds: The longest wait.

        Returns:
            Whether it is done.

        Raises:
            PayloadStoreUnavailableError: The system cannot start a thread.
        """
        until = time.monotonic() + seconds
        while True:
            self._news.clear()
            if ahead.is_done:
                return True
            self.hurry(ahead)
            if not self._news.wait(max(until - time.monotonic(), 0)):
                return ahead.is_done

    def finish(self, ahead: Prefetched) -> Any:
        """Wait for a transfer, and for those to which it leads; each has its own deadline.

        Returns:
            The data.

        Raises:
            Exception: As in the transfer.
        """
        while True:
            while not self.wait(ahead, _TICK_S):
                pass
            step = ahead.transfer.resume(ahead.take())
            if not isinstance(step, Transfer):
                return step
            [ahead] = self.add([step])

    def hurry(self, ahead: Prefetched) -> None:
        """Start a transfer now unless it has started: its result is needed next.

        Raises:
            PayloadStoreUnavailableError: The system cannot start a thread.
        """
        if ahead.job is None:
            self._urgent.append(weakref.ref(ahead))
            run_in_daemon_thread(partial(self._work, []))

    def go_on(self) -> None:
        """Start transfers for which there is room; called after others were dropped."""
        with contextlib.suppress(PayloadStoreUnavailableError):  # raised to a caller that waits
            run_in_daemon_thread(partial(self._work, []))

    def _work(self, first: list[_Job]) -> None:
        """Run transfers until none is left to start, in a new thread.

        Args:
            first: One started transfer, or none. Removed from the list, which would keep its result alive.
        """
        job = first.pop() if first else None
        while True:
            if job is not None:
                job.run(self._call)
            begun = self._next(job)
            if job is not None:
                self._tell()
            if not begun:
                return
            job = begun.pop(0)
            self._spread(begun)

    def _spread(self, begun: list[_Job]) -> None:
        """Run transfers in other threads."""
        for job in begun:  # grows where no thread can be started
            try:
                run_in_daemon_thread(partial(self._work, [job]))
            except PayloadStoreUnavailableError as error:
                job.fail(error)
                begun += self._next(job)
                self._tell()

    def _tell(self) -> None:
        self._news.set()
        self.notify()

    def _next(self, ended: _Job | None) -> list[_Job]:
        """Record the end of a transfer, and start others."""
        with self._lock:
            if ended is not None and not ended.is_left:
                ended.has_ended = True
                self._running -= 1
                self._charge(ended, ended.measure())
                self._assumed = max(self._assumed, ended.charged)
                if ended.error is not None:
                    del self._jobs[ended.key]  # the next request tries again
            while self._gone:
                holder = self._gone.popleft()
                holder.job.holders.discard(holder)
                if not holder.job.holders:
                    self._leave(holder.job)
            while self._added:
                self._waiting.append(self._added.popleft())
            return [*self._begin_waiting(), *self._begin_urgent()]

    def _begin_waiting(self) -> Iterator[_Job]:
        while self._waiting and self._running < self.in_flight:
            ahead = self._waiting[0]()
            if ahead is not None and ahead.job is None:
                if ahead.transfer.key not in self._jobs and not self._has_room(ahead.transfer):
                    return
                yield from self._begin(ahead)
            self._waiting.popleft()

    def _begin_urgent(self) -> Iterator[_Job]:
        while self._urgent:
            ahead = self._urgent.popleft()()
            if ahead is not None and ahead.job is None:
                if ahead.transfer.key not in self._jobs:
                    self._make_room(ahead.transfer)
                yield from self._begin(ahead)

    def _begin(self, ahead: Prefetched) -> Iterator[_Job]:
        """Start a transfer, unless an equal one is running or done."""
        key = ahead.transfer.key
        job = None if key is None else self._jobs.get(key)
        if job is None:
            job = _Job(object() if key is None else key, ahead)
            self._jobs[job.key] = job
            self._running += 1
            self._charge(job, self.size_of(job.transfer))
            yield job
        job.holders.add(_Holder.of(ahead, job, self._gone))
        ahead.job = job
        if job.is_done:
            self._tell()  # its own end was told before

    def _has_room(self, transfer: Transfer[Any]) -> bool:
        return self.max_bytes is None or not self._bytes or self._bytes + self.size_of(transfer) <= self.max_bytes

    def size_of(self, transfer: Transfer[Any]) -> int:
        """Bytes that a transfer will hold, or an assumption if its record does not name the size."""
        return self._assumed if transfer.size is None else transfer.size

    def _make_room(self, transfer: Transfer[Any]) -> None:
        """Drop results that are not needed yet, the youngest first; they are fetched again in their turn."""
        for job in reversed(list(self._jobs.values())):
            if self._has_room(transfer):
                return
            holders = [ahead for holder in job.holders if (ahead := holder()) is not None]
            if job.has_ended and not any(ahead.is_taken for ahead in holders):
                for ahead in holders:
                    ahead.job = None
                self._leave(job)

    def _leave(self, job: _Job) -> None:
        """Forget a transfer; if it is running, its result is discarded."""
        if not job.has_ended:
            self._running -= 1
        job.is_left = job.has_ended = True
        job.holders.clear()
        self._charge(job, 0)
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]

    def _charge(self, job: _Job, size: int) -> None:
        self._bytes += size - job.charged
        job.charged = size


class _Job:
    """One run for all transfers of a key.

    Attributes:
        charged: Bytes counted for it.
        holders: References to those that need its result.
        is_done: Whether there is a result or an error; set last.
        has_ended: Whether its end was recorded; under the lock.
        is_left: Whether its result is no longer needed; under the lock.
    """

    def __init__(self, key: Hashable, ahead: Prefetched) -> None:
        self.key = key
        self.transfer = ahead.transfer
        self.result: Any = None
        self.error: BaseException | None = None
        self.charged = 0
        self.holders: set[_Holder] = set()
        self.is_done = self.has_ended = self.is_left = False
        self._context = ahead.context

    def run(self, call: Callable[[Transfer[Any]], Any]) -> None:
        try:
            self.result = self._context.run(call, self.transfer)
        except BaseException as error:  # noqa: BLE001  raised where the result is taken
            self.error = error
            release(error)  # the error would keep the payload in memory
        self.is_done = True

    def fail(self, error: BaseException) -> None:
        self.error = error
        self.is_done = True

    def measure(self) -> int:
        """Bytes that it holds."""
        if self.error is not None:
            return 0
        data = self.result.value if isinstance(self.result, StoredRecord) else self.result
        return len(data) if isinstance(data, (bytes, bytearray, memoryview)) else self.transfer.size or 0


class _Holder(weakref.ref[Prefetched]):
    """A reference to a holder of a job's result. When the holder is dropped, C code appends this to a queue."""

    __slots__ = ("job",)
    job: _Job

    @classmethod
    def of(cls, ahead: Prefetched, job: _Job, gone: deque[_Holder]) -> Self:
        holder = cls(ahead, gone.append)  # which gets this very reference
        holder.job = job
        return holder


def _nothing() -> None:
    """No callback."""
