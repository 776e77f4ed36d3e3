"""Retries of a temporarily unreadable record: a store, registry or key provider is unavailable.

The consumer stays at the record. Meanwhile its client fetches nothing, so that no records pile up, but is polled, so
that it stays in its group.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, Final

from serde_chain.clients.timeouts import deadline
from serde_chain.clients.window import Place, Window

# Seconds until the next attempt, doubled by every failed attempt.
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0


class Backoff:
    """The handling of a window's first record while it is unreadable.

    Attributes:
        record: The record; None if all are readable.
        held: Partitions paused by this object.

    Args:
        client: confluent_kafka's consumer.
        window: Fetched messages.
    """

    def __init__(self, client: Any, window: Window) -> None:
        self._client = client
        self._window = window
        self.record: Any | None = None
        self._tries = 0
        self._next = 0.0
        self.held: set[Place] = set()

    def note(self, record: Any) -> None:
        """Count a failed attempt to read a record."""
        self._tries = self._tries + 1 if record is self.record else 1
        self._next = time.monotonic() + min(_FIRST_WAIT * 2.0 ** min(self._tries - 1, 10), _LONGEST_WAIT)
        self.record = record

    def lasts(self) -> bool:
        """Whether the first record of the window is the failed one; if not, fetching resumes."""
        if self.record is not None and self.record is not self._window.front():
            self.record = None
            self.let_go()
        return self.record is not None

    def wait(self, timeout: float) -> bool:
        """Wait for the time of the next attempt, serving the client's callbacks.

        Args:
            timeout: Longest wait in seconds; negative waits without limit.

        Returns:
            Whether that time has come.
        """
        until = deadline(timeout)
        while True:
            self.hold()
            left = min(self._next, until) - time.monotonic()
            self._window.fetch(self._client.poll, max(0.0, left))
            if not self.lasts() or time.monotonic() >= self._next:
                return True
            if time.monotonic() >= until:
                return False

    def let_go(self, places: Collection[Place] | None = None) -> None:
        """Resume fetching from some partitions; from all if none are named.

        Also before partitions are revoked: librdkafka remembers that they are paused, and would fetch nothing from them
        after a new assignment.
        """
        letting = self.held if places is None else self.held.intersection(places)
        assigned = self._client.assignment() if letting else []
        free = [
            partition
            for partition in assigned
            if (place := (partition.topic, partition.partition)) in letting and place not in self._window.paused
        ]
        if free:
            self._client.resume(free)
        self.held = self.held - letting

    def forget(self, places: Collection[Place] | None = None) -> None:
        """Note that the client has resumed or lost partitions; all if none are named."""
        self.held = set() if places is None else self.held.difference(places)

    def hold(self) -> None:
        """Pause all partitions, so that the client can be polled without fetching."""
        assigned = {(partition.topic, partition.partition): partition for partition in self._client.assignment()}
        if free := [partition for place, partition in assigned.items() if place not in self.held]:
            self.held.update(assigned)
            self._client.pause(free)
