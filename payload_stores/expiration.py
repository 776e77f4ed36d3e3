"""How long payloads have to be kept for the records that refer to them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

__all__ = ["propose_expiration"]

_DAY_MS: Final = 86_400_000


def propose_expiration(retention_ms: int) -> timedelta | None:
    """The age at which a server may delete the payloads of a topic: its retention and a fifth more, in whole days.

    The fifth is for records that outlive the retention: Kafka deletes whole segments, which end with their last record
    (``segment.ms``), and readers may lag. A topic that is compacted, or limited by bytes alone, keeps records for
    longer than any time; its payloads are not to expire.

    Args:
        retention_ms: The topic's ``retention.ms``; below 0 is unlimited.

    Returns:
        The age; None if payloads are to be kept.

    Example:
        >>> propose_expiration(7 * 86_400_000)
        datetime.timedelta(days=9)
        >>> propose_expiration(-1) is None
        True
    """
    if retention_ms < 0:
        return None
    # In whole numbers, since a fraction of a millisecond must not make a day of its own.
    return timedelta(days=max(1, -(-retention_ms * 6 // (5 * _DAY_MS))))
