"""How long payloads must outlive the records that refer to them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

_DAY_MS: Final = 86_400_000


def propose_expiration(retention_ms: int) -> timedelta | None:
    """The age at which a server may delete a topic's payloads: its retention plus a fifth, in whole days.

    The fifth covers records that outlive the retention: Kafka deletes whole segments, whose age is that of their last
    record (``segment.ms``), and readers may lag. A topic that is compacted, or limited by bytes alone, may keep records
    forever; its payloads must not expire.

    Args:
        retention_ms: The topic's ``retention.ms``; negative means unlimited.

    Returns:
        The age; None if payloads must be kept.

    Example:
        >>> propose_expiration(7 * 86_400_000)
        datetime.timedelta(days=9)
        >>> propose_expiration(-1) is None
        True
    """
    if retention_ms < 0:
        return None
    # Integer arithmetic: rounding must not add a day.
    return timedelta(days=max(1, -(-retention_ms * 6 // (5 * _DAY_MS))))
