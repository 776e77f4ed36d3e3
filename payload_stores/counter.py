"""A thread-safe counter."""

from __future__ import annotations

import threading


class Counter:
    """A thread-safe counter.

    Attributes:
        count: The count.

    Example:
        >>> counter = Counter()
        >>> counter.add()
        >>> counter.count
        1
    """

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self._lock = threading.Lock()

    def add(self) -> None:
        """Add one."""
        with self._lock:
            self.count += 1

    def __reduce__(self) -> tuple[type[Counter], tuple[int]]:
        return type(self), (self.count,)
