"""The selected records of a topic, read by position, without a consumer group."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from serde_chain.cli.selection import Selection
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.clients.confluent.times import offsets_at
from serde_chain.config import Config
from serde_chain.errors import ContextualError

# The raised errors contain librdkafka's messages, and a few records need no large queue.
_QUIET: Final[dict[str, Any]] = {"log_level": 0, "queued.max.messages.kbytes": 16_384}


class RecordUnavailableError(ContextualError):
    """A record to show is not available."""

    context_fields = ("topic", "partition", "offset")


def open_reader(config: Config, timeout_s: float | None) -> PartitionReader:
    """A reader that raises errors instead of printing them, and sees the same records as the user's consumers.

    Args:
        config: Flat configuration.
        timeout_s: Maximum wait for the broker, in seconds. None: 60, and 8 for the first answer.

    Raises:
        ConfigError: The Kafka client refuses its configuration.
    """
    own = {key: config[key] for key in ("isolation.level",) if key in config}
    # Records removed by retention before they are read are gone, like compacted ones.
    settings: dict[str, Any] = {**_QUIET, **own, "auto.offset.reset": "earliest"}
    return PartitionReader(config, "serde-chain", failure=RecordUnavailableError, timeout_s=timeout_s, **settings)


def places(reader: PartitionReader, topic: str, wanted: Selection) -> dict[int, tuple[int, int]]:
    """The bounds of the selected records: by partition, the first offset and the end.

    Raises:
        RecordUnavailableError: The partition does not exist, or does not have the offset.
    """
    count = reader.count(topic)
    if wanted.partition is not None and wanted.partition >= count:
        raise RecordUnavailableError(
            f"the topic has {count} partition{'s' * (count > 1)}, counted from 0",
            topic=topic,
            partition=wanted.partition,
        )
    partitions = range(count) if wanted.partition is None else (wanted.partition,)
    bounds = reader.all_bounds(topic, partitions)
    if len(bounds) == 1 and wanted.first is not None:
        for partition, (low, high) in bounds.items():
            _check(wanted.first, low, high, topic, partition)
    starts = {partition: low for partition, (low, _) in bounds.items()}
    if wanted.since_ms is not None:
        starts = offsets_at(reader, topic, starts, wanted.since_ms)
    elif wanted.newest is not None:
        starts = _newest(reader, topic, bounds, wanted, wanted.newest)
    ends = {partition: high for partition, (_, high) in bounds.items()}
    if wanted.last is not None:
        ends = {partition: min(end, wanted.last + 1) for partition, end in ends.items()}
    return {partition: (max(starts[partition], wanted.first or 0), ends[partition]) for partition in bounds}


def _check(first: int, low: int, high: int, topic: str, partition: int) -> None:
    """Refuse an offset outside the only selected partition."""
    where: dict[str, Any] = {"topic": topic, "partition": partition, "offset": first}
    if low == high:
        raise RecordUnavailableError("the partition has no records", **where)
    if first < low:
        raise RecordUnavailableError(f"the first record still present has the offset {low}", **where)
    if first >= high:
        raise RecordUnavailableError(
            f"the partition ends before it: its last offset is {high - 1}",
            hint="To see records of open transactions, set isolation.level = read_uncommitted",
            **where,
        )


def _newest(
    reader: PartitionReader, topic: str, bounds: Mapping[int, tuple[int, int]], wanted: Selection, count: int
) -> dict[int, int]:
    """The start offsets from which each partition has the wanted number of records: some offsets have none."""
    starts: dict[int, int] = {}
    distance = count
    while len(starts) < len(bounds):
        window = {
            partition: (max(low, high - distance), high)
            for partition, (low, high) in bounds.items()
            if partition not in starts
        }
        newest = {partition: deque[int](maxlen=count) for partition in window}
        for batch in batches(reader, topic, window, replace(wanted, count=None)):
            for message in batch:
                newest[message.partition()].append(message.offset())
        for partition, offsets in newest.items():
            start, _ = window[partition]
            if len(offsets) == count or start == bounds[partition][0]:
                starts[partition] = offsets[0] if len(offsets) == count else start
        distance *= 8
    return starts


def batches(
    reader: PartitionReader,
    topic: str,
    where: Mapping[int, tuple[int, int]],
    wanted: Selection,
    *,
    follow: bool = False,
) -> Iterator[list[Any]]:
    """The selected records as they arrive, in offset order within each partition.

    Args:
        reader: Reads them.
        topic: The topic.
        where: The result of :func:`places`.
        wanted: The selection.
        follow: Wait for further records after the current ends.

    Yields:
        Raw records, as ``confluent_kafka.Message``; several at a time, so that their payloads are fetched together.

    Raises:
        RecordUnavailableError: No record arrived in time, the topic is gone, or a partition is unreadable.
    """
    missing = wanted.count
    for messages in reader.batches(topic, where, follow=follow):
        chosen = [message for message in messages if wanted.takes(message)][:missing]
        if chosen:
            yield chosen
        if missing is not None:
            missing -= len(chosen)
            if missing == 0:
                return


def last(reader: PartitionReader, topic: str, count: int) -> Iterator[list[Any]]:
    """The records at the last offsets of each partition, some of which have none.

    Args:
        reader: Reads them.
        topic: The topic.
        count: Number of offsets of each partition.
    """
    bounds = reader.all_bounds(topic, range(reader.count(topic)))
    return reader.batches(topic, {at: (max(low, high - count), high) for at, (low, high) in bounds.items()})
