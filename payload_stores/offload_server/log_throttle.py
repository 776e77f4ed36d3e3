"""Throttles log lines that clients could cause in any number."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

SECONDS: Final = 60.0
"""One line per occasion and so many seconds."""
_MOST: Final = 10_000


class LogThrottle:
    """Remembers recently logged lines; bounded, the oldest are dropped first. Not thread-safe.

    Args:
        seconds: Minimum time between equal lines.
        clock: Monotonic seconds; for tests.
    """

    def __init__(self, seconds: float = SECONDS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._logged: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def due(self, occasion: Hashable) -> int | None:
        """Whether to log a line now.

        Returns:
            Number of lines omitted since the last one; None to omit this one.
        """
        now = self._clock()
        until, omitted = self._logged.get(occasion, (now, 0))
        if now < until:
            self._logged[occasion] = until, omitted + 1
            return None
        self._logged.pop(occasion, None)
        while len(self._logged) >= _MOST:
            self._logged.popitem(last=False)
        self._logged[occasion] = now + self._seconds, 0
        return omitted


class ThrottleFilter(logging.Filter):
    """Throttles each message of a library."""

    def __init__(self) -> None:
        super().__init__()
        self._rarely = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log a record."""
        return record.levelno >= logging.ERROR or self._rarely.due(record.msg) is not None
