"""Logs refused logins and slows them down, against password guessing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from payload_stores.offload_server.log_throttle import LogThrottle

_log = logging.getLogger(__name__)

# Wait of the next proof after the first refusal; each further refusal doubles it.
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0
# Proofs that would wait longer, behind others, are refused unchecked.
_LONGEST_QUEUE: Final = 20.0
# Refusals are forgotten this long after the last one.
_FORGOTTEN_SECONDS: Final = 600.0
_MOST: Final = 10_000
_LONGEST_NAME: Final = 200


@dataclass(slots=True)
class _Record:
    count: int
    next: float
    until: float


class Refusals:
    """Recent refusals by user and address. For one event loop.

    Counted per name and address: with the name alone, strangers could slow down its user; with the address alone,
    everyone behind the same proxy.

    Args:
        clock: Monotonic seconds; for tests.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()
        self._rarely = LogThrottle(clock=clock)

    async def turn(self, user: str, address: str) -> bool:
        """Wait for a proof's turn, before it is checked: disconnecting early must not save time.

        Returns:
            Whether to check it; False if too many are waiting.
        """
        record = self._records.get((user, address))
        now = self._clock()
        if record is None or record.until <= now:
            return True
        wait = max(0.0, record.next - now)
        if wait > _LONGEST_QUEUE:
            return False
        record.next = now + wait + self._interval(record)
        await asyncio.sleep(wait)
        return True

    def refused(self, user: str, address: str, reason: str) -> None:
        """Count and log a refusal."""
        now = self._clock()
        record = self._records.pop((user, address), None)
        if record is None or record.until <= now:
            record = _Record(0, now, now)
        record.count += 1
        record.next = max(record.next, now + self._interval(record))
        record.until = now + _FORGOTTEN_SECONDS
        while len(self._records) >= _MOST:
            self._records.popitem(last=False)
        self._records[user, address] = record
        if (omitted := self._rarely.due(address)) is not None:
            more = f"; {omitted} more from there since the last such line" if omitted else ""
            _log.warning("login refused: user %r from %s: %s%s", user[:_LONGEST_NAME], address, reason, more)

    def accepted(self, user: str, address: str) -> None:
        """Forget the refusals of an authenticated user."""
        self._records.pop((user, address), None)

    @staticmethod
    def _interval(record: _Record) -> float:
        return float(min(_FIRST_WAIT * 2 ** min(record.count - 1, 10), _LONGEST_WAIT))
