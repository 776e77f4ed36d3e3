"""A topic's records, by page and individually."""

from __future__ import annotations

import heapq
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import click

from serde_chain.cli.inspect_topic import describe
from serde_chain.cli.records import RecordUnavailableError, batches, open_reader, places
from serde_chain.cli.selection import Selection, selecting, selection
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.config import Config

__all__ = ["AbandonedError", "Page", "Patience", "Row", "Scan", "Topic", "asked"]

_ROWS: Final = 25
# If few records match, a page reads increasingly more, up to these limits; the next page continues from there.
_WIDER: Final = 4
_MOST_RECORDS: Final = 20_000
_MOST_BYTES: Final = 64 << 20
# A scan reads so many offsets of each partition at a time, so that what it has found is shown soon.
_SCANNED: Final = 200
_PLACE: Final = re.compile(r"(?:\d{1,9}:\d{1,19})(?:,\d{1,9}:\d{1,19})*")

Places = dict[int, int]
Ranges = dict[int, tuple[int, int]]


class AbandonedError(Exception):
    """A result is not needed any more: the browser has disconnected, or the program ends."""


class Patience:
    """The time limit of the pages' work.

    Args:
        seconds: Time limit from now, in seconds.

    Attributes:
        is_over: Whether the result is not needed any more; set by any thread.
    """

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def is_up(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._end

    def check_abandoned(self) -> None:
        """Stop if the result is not needed any more.

        Raises:
            AbandonedError: It is not.
        """
        if self.is_over:
            raise AbandonedError

    def check(self) -> None:
        """Stop if continuing is pointless.

        Raises:
            AbandonedError: The result is not needed any more.
            RecordUnavailableError: The time is up.
        """
        self.check_abandoned()
        if self.is_up:
            error = RecordUnavailableError(
                f"the records did not arrive within {self._seconds:g} s",
                hint="Choose one partition, or a smaller range; or raise --timeout",
            )
            error.transient = True
            raise error


@dataclass(frozen=True)
class Row:
    """A record in a list.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        timestamp_ms: Its time, in ms since the epoch.
        key: Its key, as described by :func:`~serde_chain.cli.inspect_topic.describe`.
        value: Its value, likewise.
        message: The raw record.
    """

    partition: int
    offset: int
    timestamp_ms: int
    key: dict[str, Any]
    value: dict[str, Any]
    message: Any


@dataclass(frozen=True)
class Page:
    """A part of a topic.

    Attributes:
        rows: The newest first; within a partition in offset order.
        older: Position of older records, as text for :meth:`Topic.page`; None if there are none.
        newer: Position of newer records, likewise.
        end: Position after the newest of its records.
        looked_at: Number of offsets read.
    """

    rows: list[Row]
    older: str | None
    newer: str | None
    end: str
    looked_at: int


@click.command(add_help_option=False)
@selecting
def _query(**options: Any) -> Selection:
    return selection(**options, count=None)


def asked(query: Mapping[str, str]) -> Selection:
    """Parse the form's fields, which are the options of ``consume`` and ``inspect``.

    Args:
        query: ``partition``, ``offsets``, ``from`` and ``key``, if filled in.

    Raises:
        click.UsageError: A field is wrong.

    Example:
        >>> asked({"partition": "0", "offsets": "10..19", "key": ""}).last
        19
    """
    names = [name for name in ("partition", "offsets", "from", "key") if query.get(name)]
    wanted: Selection = _query.main([f"--{name}={query[name]}" for name in names], "browse", standalone_mode=False)
    return wanted


class Topic:
    """Reads a topic, with a separate consumer per page, which ends with the answer.

    Args:
        config: Flat configuration.
        name: The topic.
        timeout_s: Maximum wait for the broker, in seconds.
        formats: The reference formats to recognize.
    """

    def __init__(self, config: Config, name: str, timeout_s: float, formats: Iterable[str]) -> None:
        self.name = name
        self._config = config
        self._timeout_s = timeout_s
        self._formats = formats

    def describe(self, message: Any) -> dict[str, Any]:
        """A record as ``inspect`` shows it; see :func:`~serde_chain.cli.inspect_topic.describe`."""
        return describe(message, self._formats)

    def record(self, partition: int, offset: int, patience: Patience) -> Any:
        """Fetch a raw record.

        Raises:
            RecordUnavailableError: It does not exist, or did not arrive in time.
        """
        wanted = Selection(partition, offset, offset, count=1)
        with self.open() as reader:
            for batch in batches(reader, self.name, places(reader, self.name, wanted), wanted):
                patience.check()
                return batch[0]
        raise RecordUnavailableError(
            "no record has this offset: transaction markers and compaction leave such gaps",
            topic=self.name,
            partition=partition,
            offset=offset,
        )

    def page(self, wanted: Selection, patience: Patience, *, at: str = "", newer: bool | None = None) -> Page:
        """Read a page.

        Args:
            wanted: The selection.
            patience: The time limit.
            at: A position from another page; by default the end, or the start of the selection.
            newer: Whether to read the records after that position instead of those before it.

        Raises:
            RecordUnavailableError: A record did not arrive in time, or a partition is unreadable.
        """
        begins = wanted.since_ms is not None or wanted.first is not None
        forward = begins if newer is None else newer
        with self.open() as reader:
            bounds = self.bounds(reader, wanted)
            start = _within(bounds, at, forward=forward)
            near, rest, looked_at = self._near(reader, wanted, bounds, start, patience, forward=forward)
        rows = list(islice(_merged(near, forward=forward), _ROWS))
        end = {partition: _edge(partition, near, rows, start, rest, forward=forward) for partition in bounds}
        low, high = (start, end) if forward else (end, start)
        return Page(
            rows if not forward else rows[::-1],
            _text(low) if any(low[partition] > first for partition, (first, _) in bounds.items()) else None,
            _text(high) if any(high[partition] < last for partition, (_, last) in bounds.items()) else None,
            _text(high),
            looked_at,
        )

    def scan(self, wanted: Selection, patience: Patience, at: str = "") -> Scan:
        """Read records one after the other: see :class:`Scan`.

        Args:
            wanted: The selection.
            patience: The time limit.
            at: A position from another scan; by default the end, or the start of the selection.
        """
        return Scan(self, wanted, patience, at)

    def open(self) -> PartitionReader:
        """A reader of the topic."""
        return open_reader(self._config, self._timeout_s)

    def bounds(self, reader: PartitionReader, wanted: Selection) -> Ranges:
        """The first offset and the end of a selection, by partition."""
        found = places(reader, self.name, wanted)
        return {partition: (low, max(low, high)) for partition, (low, high) in found.items()}

    def _near(
        self,
        reader: PartitionReader,
        wanted: Selection,
        bounds: Ranges,
        start: Places,
        patience: Patience,
        *,
        forward: bool,
    ) -> tuple[dict[int, list[Row]], Places, int]:
        """The rows nearest to a position, nearest first, by partition; the end of the read range; and its size."""
        near: dict[int, list[Row]] = {partition: [] for partition in bounds}
        reached = dict(start)
        # Records with other keys count too: time and number limits apply to the records read.
        every = replace(wanted, key=None)
        size, looked_at, read = _ROWS, 0, 0
        while looked_at < _MOST_RECORDS and read < _MOST_BYTES:
            window: Ranges = {}
            for partition, (first, last) in bounds.items():
                at = reached[partition]
                if len(near[partition]) < _ROWS:
                    window[partition] = (at, min(at + size, last)) if forward else (max(at - size, first), at)
            steps = sum(last - first for first, last in window.values())
            if not steps:
                break
            # In a window before the position, the last rows are the nearest.
            found = {partition: deque[Row](maxlen=None if forward else _ROWS) for partition in window}
            for batch in batches(reader, self.name, window, every):
                patience.check()
                for message in batch:
                    read += len(message)
                    if wanted.takes(message) and not (forward and len(found[message.partition()]) == _ROWS):
                        found[message.partition()].append(self.row(message))
            for partition, rows in found.items():
                near[partition] += rows if forward else reversed(rows)
                reached[partition] = window[partition][1 if forward else 0]
            looked_at += steps
            size *= _WIDER
        return near, reached, looked_at

    def row(self, message: Any) -> Row:
        """A raw record as a row."""
        seen = self.describe(message)
        return Row(seen["partition"], seen["offset"], seen["timestamp_ms"], seen["key"], seen["value"], message)


class Scan:
    """Reads records from the newest to older ones, up to a limit of records, bytes and time.

    Args:
        topic: The topic.
        wanted: The selection; if it has a start, records are read from there to newer ones.
        patience: The time limit.
        at: A position from another scan.

    Attributes:
        is_forward: Whether it reads from older records to newer ones.
        looked_at: Number of offsets read so far.
        rest: Position of the records that were not read, as text; None if there are none.
    """

    def __init__(self, topic: Topic, wanted: Selection, patience: Patience, at: str) -> None:
        self.is_forward = wanted.since_ms is not None or wanted.first is not None
        self.looked_at = 0
        self.rest: str | None = None
        self._topic, self._wanted, self._patience, self._at = topic, wanted, patience, at
        self._read = 0

    def windows(self, is_enough: Callable[[], bool] = lambda: False) -> Iterator[Iterator[Row]]:
        """The records by window of offsets: windows from the newest on, the records of each as they arrive.

        Args:
            is_enough: Asked between windows, at which another scan can go on.

        Raises:
            AbandonedError: The result is not needed any more.
            RecordUnavailableError: A record did not arrive in time, or a partition is unreadable.
        """
        forward = self.is_forward
        with self._topic.open() as reader:
            bounds = self._topic.bounds(reader, self._wanted)
            at = _within(bounds, self._at, forward=forward)
            while True:
                if forward:
                    window = {part: (at[part], min(at[part] + _SCANNED, high)) for part, (_, high) in bounds.items()}
                else:
                    window = {part: (max(at[part] - _SCANNED, low), at[part]) for part, (low, _) in bounds.items()}
                steps = sum(last - first for first, last in window.values())
                self.rest = _text(at) if steps else None
                is_over = self.looked_at >= _MOST_RECORDS or self._read >= _MOST_BYTES or self._patience.is_up
                if not steps or is_over or is_enough():
                    return
                yield self._rows(reader, window)
                at = {part: ends[1 if forward else 0] for part, ends in window.items()}
                self.looked_at += steps

    def _rows(self, reader: PartitionReader, window: Ranges) -> Iterator[Row]:
        for batch in batches(reader, self._topic.name, window, replace(self._wanted, key=None)):
            self._patience.check_abandoned()
            self._read += sum(map(len, batch))
            yield from (self._topic.row(message) for message in batch if self._wanted.takes(message))


def _within(bounds: Ranges, at: str, *, forward: bool) -> Places:
    """A link's position, for all partitions, within the selection."""
    named = dict(_places(at)) if _PLACE.fullmatch(at) else {}
    return {
        partition: min(max(named.get(partition, low if forward else high), low), high)
        for partition, (low, high) in bounds.items()
    }


def _places(text: str) -> Iterator[tuple[int, int]]:
    for place in text.split(","):
        partition, _, offset = place.partition(":")
        yield int(partition), int(offset)


def _text(place: Places) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in place.items())


def _merged(near: Mapping[int, list[Row]], *, forward: bool) -> Iterator[Row]:
    """Rows of all partitions by time, nearest first; those of one partition stay in order whatever their times."""
    return heapq.merge(*near.values(), key=lambda row: row.timestamp_ms if forward else -row.timestamp_ms)


def _edge(
    partition: int, near: Mapping[int, list[Row]], rows: list[Row], start: Places, reached: Places, *, forward: bool
) -> int:
    """The end of a page in a partition."""
    shown = [row.offset for row in rows if row.partition == partition]
    if len(shown) == len(near[partition]) < _ROWS:
        return reached[partition]
    if not shown:
        return start[partition]
    return shown[-1] + 1 if forward else shown[-1]
