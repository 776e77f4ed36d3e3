"""A count that several threads add to."""

from __future__ import annotations

import threading

__all__ = ["Tally"]


class Tally:
    """Counts, from any thread.

    Attributes:
        count: How often it was added to.

    Example:
        >>> tally = Tally()
        >>> tally.add()
        >>> tally.count
        1
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count one more."""
        with self._lock:
            self.count += 1
