"""A topic's records, by page and individually."""

from __future__ import annotations

import heapq
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import click

from serde_chain.cli.inspect_topic import describe
from serde_chain.cli.records import RecordUnavailableError, batches, open_reader, places
from serde_chain.cli.selection import Selection, parse_time, selecting, selection
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.config import Config

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
            raise RecordUnavailableError(
                f"the records did not arrive within {self._seconds:g} s",
                hint="Choose one partition, or a smaller range; or raise --timeout",
            ).marked(transient=True)


@dataclass(frozen=True)
class ListedRecord:
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

    rows: list[ListedRecord]
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
    given = {name: query[name] for name in ("partition", "offsets", "from", "key") if query.get(name)}
    if "from" in given:
        try:
            given["from"] = f"{parse_time(given['from'], datetime.now(UTC)):015}"  # ms, and not ten digits
        except ValueError as error:
            raise click.UsageError(f"From: {error}") from None
    wanted: Selection = _query.main(
        [f"--{name}={each}" for name, each in given.items()], "browse", standalone_mode=False
    )
    return wanted


class Readers:
    """Readers of the broker, which are kept for later pages.

    Args:
        config: Flat configuration.
        timeout_s: Maximum wait for the broker, in seconds.
    """

    def __init__(self, config: Config, timeout_s: float) -> None:
        self._config, self._timeout_s = config, timeout_s
        self._lock = threading.Lock()
        self._idle: list[PartitionReader] = []
        self._is_closed = False

    @contextmanager
    def open(self) -> Iterator[PartitionReader]:
        """A reader for exclusive use, discarded after an error.

        Raises:
            ConfigError: The Kafka client refuses its configuration.
        """
        with self._lock:
            reader = self._idle.pop() if self._idle else None
        if reader is None:
            reader = open_reader(self._config, self._timeout_s)
        try:
            yield reader
            reader.stop()
        except BaseException:
            reader.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(reader)
                return
        reader.close()

    def close(self) -> None:
        """Close the unused readers; the others follow when their pages end."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()


class Topic:
    """Reads a topic.

    Args:
        readers: Readers of the broker.
        name: The topic.
        formats: The reference formats to recognize.
    """

    def __init__(self, readers: Readers, name: str, formats: Iterable[str]) -> None:
        self.name = name
        self.readers = readers
        self._formats = formats

    def describe(self, message: Any) -> dict[str, Any]:
        """A record as ``inspect`` shows it; see :func:`~serde_chain.cli.inspect_topic.describe`."""
        return describe(message, self._formats)

    def record(self, partition: int, offset: int, patience: Patience) -> Any:
        """Fetch a raw record.

        Raises:
            RecordUnavailableError: It does not exist, or did not arrive in time.
        """
        return self.neighbourhood(partition, offset, patience)[0]

    def neighbourhood(self, partition: int, offset: int, patience: Patience) -> tuple[Any, range]:
        """Fetch a raw record, and the offsets of its partition.

        Raises:
            RecordUnavailableError: It does not exist, or did not arrive in time.
        """
        wanted = Selection(partition, offset, offset, count=1)
        with self.readers.open() as reader:
            where = places(reader, self.name, wanted)
            for batch in batches(reader, self.name, where, wanted):
                patience.check()
                return batch[0], range(*reader.bounds(self.name, partition))
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
        with self.readers.open() as reader:
            walk = Walk(self, reader, wanted, at, forward=forward)
            bounds, start = walk.bounds, dict(walk.at)
            near = self._near(walk, patience)
        rest = walk.at
        rows = list(islice(_merged(near, forward=forward), _ROWS))
        end = {partition: _edge(partition, near, rows, start, rest, forward=forward) for partition in bounds}
        low, high = (start, end) if forward else (end, start)
        return Page(
            rows if not forward else rows[::-1],
            _text(low) if any(low[partition] > first for partition, (first, _) in bounds.items()) else None,
            _text(high) if any(high[partition] < last for partition, (_, last) in bounds.items()) else None,
            _text(high),
            walk.looked_at,
        )

    def scan(self, wanted: Selection, patience: Patience, at: str = "") -> Scan:
        """Read records one after the other: see :class:`Scan`.

        Args:
            wanted: The selection.
            patience: The time limit.
            at: A position from another scan; by default the end, or the start of the selection.
        """
        return Scan(self, wanted, patience, at)

    def _near(self, walk: Walk, patience: Patience) -> dict[int, list[ListedRecord]]:
        """The rows nearest to a position, nearest first, by partition."""
        near: dict[int, list[ListedRecord]] = {partition: [] for partition in walk.bounds}
        size = _ROWS
        while not walk.is_far:
            window = walk.ahead(size, (partition for partition, rows in near.items() if len(rows) < _ROWS))
            if not window:
                break
            # In a window before the position, the last rows are the nearest.
            found = {partition: deque[ListedRecord](maxlen=None if walk.forward else _ROWS) for partition in window}
            for row in walk.rows(window, patience.check):
                if not (walk.forward and len(found[row.partition]) == _ROWS):
                    found[row.partition].append(row)
            for partition, rows in found.items():
                near[partition] += rows if walk.forward else reversed(rows)
            size *= _WIDER
        return near

    def row(self, message: Any) -> ListedRecord:
        """A raw record as a row."""
        seen = self.describe(message)
        return ListedRecord(
            seen["partition"], seen["offset"], seen["timestamp_ms"], seen["key"], seen["value"], message
        )


class Walk:
    """Reads a topic by windows of offsets, each next to the one before, up to a limit of records and bytes.

    Args:
        topic: The topic.
        reader: Its reader.
        wanted: The selection.
        at: The position of another walk, as text; by default the end, or the start if ``forward``.
        forward: Whether to go to newer records.

    Attributes:
        bounds: The first offset and the end of the selection, by partition.
        at: The position.
        forward: As above.
        looked_at: Number of offsets read so far.
    """

    def __init__(self, topic: Topic, reader: PartitionReader, wanted: Selection, at: str, *, forward: bool) -> None:
        self._topic, self._reader, self._wanted = topic, reader, wanted
        found = places(reader, topic.name, wanted)
        self.bounds: Ranges = {partition: (low, max(low, high)) for partition, (low, high) in found.items()}
        self.at = _within(self.bounds, at, forward=forward)
        self.forward = forward
        self.looked_at = self._read = 0

    @property
    def is_far(self) -> bool:
        """Whether a limit is reached."""
        return self.looked_at >= _MOST_RECORDS or self._read >= _MOST_BYTES

    def ahead(self, size: int, partitions: Iterable[int]) -> Ranges:
        """The next offsets of some partitions, up to this number of each; empty if there are none."""
        window: Ranges = {}
        for partition in partitions:
            (low, high), at = self.bounds[partition], self.at[partition]
            window[partition] = (at, min(at + size, high)) if self.forward else (max(at - size, low), at)
        return window if any(low < high for low, high in window.values()) else {}

    def rows(self, window: Ranges, check: Callable[[], None]) -> Iterator[ListedRecord]:
        """The records of a window as they arrive; the position is then behind it.

        Args:
            window: The result of :meth:`ahead`.
            check: Called for each batch; raises an error to stop.

        Raises:
            RecordUnavailableError: A record did not arrive in time, or a partition is unreadable.
        """
        # Records with other keys count too: time and number limits apply to the records read.
        for batch in self._reader.batches(self._topic.name, window):
            check()
            self._read += sum(map(len, batch))
            yield from (self._topic.row(message) for message in batch if self._wanted.takes(message))
        self.at |= {partition: ends[1 if self.forward else 0] for partition, ends in window.items()}
        self.looked_at += sum(high - low for low, high in window.values())


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

    def windows(self, is_enough: Callable[[], bool] = lambda: False) -> Iterator[Iterator[ListedRecord]]:
        """The records by window of offsets: windows from the newest on, the records of each as they arrive.

        Args:
            is_enough: Asked between windows, at which another scan can go on.

        Raises:
            AbandonedError: The result is not needed any more.
            RecordUnavailableError: A record did not arrive in time, or a partition is unreadable.
        """
        with self._topic.readers.open() as reader:
            walk = Walk(self._topic, reader, self._wanted, self._at, forward=self.is_forward)
            while True:
                window = walk.ahead(_SCANNED, walk.bounds)
                self.looked_at = walk.looked_at
                self.rest = _text(walk.at) if window else None
                if not window or walk.is_far or self._patience.is_up or is_enough():
                    return
                yield walk.rows(window, self._patience.check_abandoned)


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


def _merged(near: Mapping[int, list[ListedRecord]], *, forward: bool) -> Iterator[ListedRecord]:
    """Rows of all partitions by time, nearest first; those of one partition stay in order whatever their times."""
    return heapq.merge(*near.values(), key=lambda row: row.timestamp_ms if forward else -row.timestamp_ms)


def _edge(
    partition: int,
    near: Mapping[int, list[ListedRecord]],
    rows: list[ListedRecord],
    start: Places,
    reached: Places,
    *,
    forward: bool,
) -> int:
    """The end of a page in a partition."""
    shown = [row.offset for row in rows if row.partition == partition]
    if len(shown) == len(near[partition]) < _ROWS:
        return reached[partition]
    if not shown:
        return start[partition]
    return shown[-1] + 1 if forward else shown[-1]
