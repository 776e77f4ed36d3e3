"""Refused logins: logged, and slowed down, so that passwords cannot be guessed at the speed of the server."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from payload_stores.offload_server.log_throttle import LogThrottle

__all__ = ["Refusals"]

_log = logging.getLogger(__name__)

# After the first refusal the next proof waits this long; each further refusal doubles it.
_FIRST_WAIT: Final = 0.1
_LONGEST_WAIT: Final = 5.0
# Proofs that would wait longer than this, since others wait before them, are refused without a look.
_LONGEST_QUEUE: Final = 20.0
# This long after the last refusal all is forgotten.
_FORGOTTEN_SECONDS: Final = 600.0
_MOST: Final = 10_000
_LONGEST_NAME: Final = 200


@dataclass(slots=True)
class _Record:
    count: int
    next: float
    until: float


class Refusals:
    """The refusals so far, by user and address. Used in one event loop.

    Counted for a name from an address: a name alone would let strangers slow down its user, an address alone
    those behind the same proxy.

    Args:
        clock: Seconds that never go back; for tests.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._records: OrderedDict[tuple[str, str], _Record] = OrderedDict()
        self._rarely = LogThrottle(clock=clock)

    async def turn(self, user: str, address: str) -> bool:
        """Wait for the turn of a proof, before it is checked: leaving without the answer must not pay off.

        Returns:
            Whether it is to be checked; not if too many wait already.
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
        """Forget the refusals of a user who has authenticated."""
        self._records.pop((user, address), None)

    @staticmethod
    def _interval(record: _Record) -> float:
        return float(min(_FIRST_WAIT * 2 ** min(record.count - 1, 10), _LONGEST_WAIT))
