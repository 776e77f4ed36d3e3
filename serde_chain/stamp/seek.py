"""Finds a record by its time of entry: the frame's, or Kafka's timestamp where there is no frame."""

from __future__ import annotations

from pathlib import Path

from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.clients.confluent.times import offsets_at
from serde_chain.clients.seek import EntryTimes
from serde_chain.config import Config
from serde_chain.errors import StampError


def offset_at(
    config: Config | str | Path, topic: str, partition: int, timestamp_ms: int, *, timeout_s: float | None = None
) -> int:
    """The first record of a partition that entered at a time or later. Payloads are not decoded.

    The time of a record is that of its frame, or Kafka's timestamp if it has none: a topic may have records from before
    frames were switched on (PIP-70). Reads about twenty records of a million; see :mod:`serde_chain.clients.seek` for
    the order that is assumed.

    Args:
        config: Client configuration: a mapping, or the path of a file. Its chains do not matter.
        topic: The topic.
        partition: The partition.
        timestamp_ms: Time in ms since the epoch, as an ``int``: that of a ``datetime`` is
            ``int(moment.timestamp() * 1000)``.
        timeout_s: Maximum wait for the broker and for each record, in seconds. By default 60, and 8 for the first
            answer.

    Returns:
        Its offset; the partition's end if there is none.

    Raises:
        StampError: The topic is unreadable.
        TypeError: The time is no ``int``.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092"}
        >>> offset_at(config, "events-stamped", 0, 1_700_000_000_123)  # doctest: +SKIP
        41
    """
    if not isinstance(timestamp_ms, int):
        raise TypeError(f"timestamp_ms is an int, of ms since the epoch, not {type(timestamp_ms).__name__}")
    with PartitionReader(config, "serde-chain-seek", failure=StampError, timeout_s=timeout_s) as reader:
        return offsets_at(reader, topic, (partition,), max(timestamp_ms, 0), EntryTimes())[partition]
