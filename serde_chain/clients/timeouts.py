"""Timeouts of clients: seconds, of which a negative number means forever."""

from __future__ import annotations

import math
import time


def deadline(timeout: float, began: float | None = None) -> float:
    """The time at which a call ends.

    Args:
        timeout: Its timeout in s; negative for none.
        began: When it began, by ``time.monotonic()``; None for now.

    Returns:
        Seconds of ``time.monotonic()``; infinity without a timeout.

    Example:
        >>> deadline(5, began=100), deadline(-1)
        (105, inf)
    """
    return math.inf if timeout < 0 else timeout + (time.monotonic() if began is None else began)


def client_timeout(seconds: float) -> float:
    """A timeout in s for a call of librdkafka, where -1 means forever.

    Example:
        >>> client_timeout(2.5), client_timeout(math.inf)
        (2.5, -1)
    """
    return -1 if seconds == math.inf else seconds


def seconds_left(until: float) -> float:
    """The timeout for a client's call that ends at a deadline: in s, at least 0, and -1 for none.

    Example:
        >>> seconds_left(deadline(-1))
        -1
    """
    return client_timeout(max(0.0, until - time.monotonic()))
