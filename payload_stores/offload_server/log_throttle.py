"""Lines of the log that clients could cause without end are written once in a while: a log belongs to its operator."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["SECONDS", "LogThrottle", "ThrottleFilter"]

SECONDS: Final = 60.0
"""One line per occasion and so many seconds."""
_MOST: Final = 10_000


class LogThrottle:
    """Remembers what was logged lately; bounded, the oldest is forgotten first. For one thread.

    Args:
        seconds: How long the same line is not logged again.
        clock: Seconds that never go back; for tests.
    """

    def __init__(self, seconds: float = SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._said: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, occasion: Hashable) -> int | None:
        """Whether to log it now.

        Returns:
            How often it was left out since it was logged last; None if it is to be left out now.
        """
        now = self._clock()
        until, omitted = self._said.get(occasion, (now, 0))
        if now < until:
            self._said[occasion] = until, omitted + 1
            return None
        self._said.pop(occasion, None)
        while len(self._said) >= _MOST:
            self._said.popitem(last=False)
        self._said[occasion] = now + self._seconds, 0
        return omitted


class ThrottleFilter(logging.Filter):
    """Lets each message of a library through once in a while."""

    def __init__(self) -> None:
        super().__init__()
        self._rarely = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        return record.levelno >= logging.ERROR or self._rarely.due(record.msg) is not None
