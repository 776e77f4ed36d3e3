"""Finds a record by its frame's timestamp: a binary search that reads about twenty records of a million."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from serde_chain.clients.confluent.partitions import TIMEOUT_S, PartitionReader
from serde_chain.config import Config
from serde_chain.errors import StampError
from serde_chain.wire.entry_metadata import peek

__all__ = ["offset_at", "search"]


def offset_at(
    config: Config | str | Path, topic: str, partition: int, timestamp_ms: int, *, timeout_s: float = TIMEOUT_S
) -> int:
    """The first record of a partition framed at or after a time. Payloads are not decoded.

    Frame times must not go backwards, which ``stamp`` guarantees; unframed records are skipped.

    Args:
        config: Client configuration: a mapping, or the path of a file.
        topic: A topic with frames.
        partition: The partition.
        timestamp_ms: Time in ms since the epoch.
        timeout_s: Maximum wait for the broker, in seconds.

    Returns:
        Its offset; the partition's end if there is none.

    Raises:
        EntryMetadataError: A frame that was read is malformed.
        StampError: The topic is unreadable.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092"}
        >>> offset_at(config, "events-stamped", 0, 1_700_000_000_123)  # doctest: +SKIP
        41
    """
    with PartitionReader(config, "serde-chain-seek", failure=StampError, timeout_s=timeout_s) as reader:
        low, high = reader.bounds(topic, partition)

        def read(start: int, end: int) -> tuple[int, int] | None:
            for message in reader.read(topic, partition, start, end):
                metadata = None if message.value() is None else peek(message.value())
                if metadata is not None and metadata.broker_timestamp is not None:
                    return message.offset(), metadata.broker_timestamp
            return None

        return search(read, low, high, timestamp_ms)


def search(read: Callable[[int, int], tuple[int, int] | None], low: int, high: int, timestamp_ms: int) -> int:
    """The search itself.

    Args:
        read: Returns offset and time of the first framed record within a range of offsets, or None. Offsets may have
            gaps, from transaction markers and compaction.
        low: First offset.
        high: The offset after the last one.
        timestamp_ms: The time to find.

    Returns:
        Offset of the first record of that time or later; ``high`` if there is none.
    """
    first = high
    while low < high:
        middle = (low + high) // 2
        record = read(middle, high)
        if record is None:
            high = middle
        elif record[1] >= timestamp_ms:
            first, high = record[0], middle
        else:
            low = record[0] + 1
    return first
