"""Records between the threads that produce them and the driver: a queue, bounded by the bytes that they hold."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from serde_chain.clients.outgoing import Outgoing


class Buffer:
    """Unsent records. Any thread adds to the queue; the driver takes from it and reports changes of size.

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
