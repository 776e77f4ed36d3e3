"""Finds records by time: of the frame where a record has one (PIP-70), of Kafka where it has none.

A topic may have both kinds of records, since frames are switched on while it is in use. PIP-70 asks for the old
behaviour there, and Pulsar's brokers seek by the frame's time or else by the publisher's
(``Commands.getEntryTimestamp``). The search reads a record in the middle of a range, then one in the middle of the half
that is left: some twenty of a million.

The assumption: the times of frames do not go backwards within a partition, which ``serde-chain stamp`` guarantees.
Kafka's timestamps may, since producers set them (``CreateTime``). So the broker's own answer is asked for as well:
before it, no record has a timestamp of the wanted time or later. Where there are no frames, the result is exactly that
answer. Behind a frame that is too early, it counts for nothing: the records before that frame entered earlier. Where
records with frames and records without alternate, the timestamps are assumed to be in order with the times of the
frames; otherwise the result has the wanted time or a later one, but need not be the first such record.

A tombstone has no value, so no frame. Its timestamp may be much older than its entry: a relay preserves it. So the
search decides by the next record with a value.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from serde_chain.base import Buffer
from serde_chain.catalogue import DESERIALIZE
from serde_chain.config import Config, Resolved, resolve
from serde_chain.record import VALUE, Header, RecordContext
from serde_chain.self_describing import AutoDeserializer, outermost_stage
from serde_chain.stages.entry_metadata import NAME, EntryMetadataDeserializer
from serde_chain.wire.entry_metadata import EntryMetadataError, peek

MOST_TOMBSTONES: Final = 100
"""The most tombstones that are read to find a record with a value behind them."""


class Moment(NamedTuple):
    """The time of a record.

    Attributes:
        offset: Its offset.
        time_ms: Its time, in ms since the epoch; -1 if it has none.
        is_framed: Whether the time is that of a frame.
        is_tombstone: Whether the record has no value.
    """

    offset: int
    time_ms: int
    is_framed: bool = False
    is_tombstone: bool = False


@dataclass(frozen=True)
class EntryTimes:
    """The times of records in a topic with frames.

    A frame is read where ``entry-metadata`` is the last serializer; one below another stage would have to be decoded.

    Attributes:
        default: With self-describing chains, the stages of records without a header, as written; None if all records
            may have a frame.

    Example:
        >>> from serde_chain.wire.entry_metadata import frame
        >>> EntryTimes().of(7, frame(b"", broker_timestamp=2000), [], 1000)
        Moment(offset=7, time_ms=2000, is_framed=True, is_tombstone=False)
        >>> EntryTimes().of(8, b"M 51", [], 1000).time_ms
        1000
    """

    default: tuple[str, ...] | None = None

    @classmethod
    def of_config(cls, config: Config | Resolved) -> Self | None:
        """The times for a reader with a configuration.

        Args:
            config: A configuration.

        Returns:
            None if its values have no frames, so that the broker's answer counts.

        Raises:
            ConfigError: A stage is unknown.

        Example:
            >>> EntryTimes.of_config({"value.deserializers": "entry-metadata, json"})
            EntryTimes(default=None)
            >>> EntryTimes.of_config({"value.deserializers": "json"})
        """
        for stage in resolve(config).of(DESERIALIZE, is_key=False)[:1]:
            kind = stage.kind if isinstance(stage.kind, type) else type(stage.kind)
            if issubclass(kind, EntryMetadataDeserializer):
                return cls()
            if issubclass(kind, AutoDeserializer):
                default, others = AutoDeserializer.listed(stage.settings)
                return cls(default) if NAME in (*default, *others) else None
        return None

    def of(self, offset: int, value: Buffer | None, headers: Iterable[Header] | None, timestamp_ms: int) -> Moment:
        """The time of a record.

        Args:
            offset: Its offset.
            value: Its value as stored in the topic. A malformed frame counts as none: it must not stop a search.
            headers: Its headers.
            timestamp_ms: Kafka's timestamp, in ms since the epoch.
        """
        if value is None:
            return Moment(offset, timestamp_ms, is_tombstone=True)
        if self._may_be_framed(headers):
            try:
                metadata = peek(value)
            except EntryMetadataError:
                metadata = None
            if metadata is not None and metadata.broker_timestamp is not None:
                return Moment(offset, metadata.broker_timestamp, is_framed=True)
        return Moment(offset, timestamp_ms)

    def _may_be_framed(self, headers: Iterable[Header] | None) -> bool:
        if self.default is None:
            return True
        ctx: Any = RecordContext("", VALUE, list(headers or ()))
        return outermost_stage(ctx, self.default) == NAME


def first_at(low: int, high: int, answer: int, time_ms: int) -> Generator[tuple[int, int], list[Moment], int]:
    """Search a partition, without I/O.

    Args:
        low: Its first offset.
        high: The offset after its last record.
        answer: The broker's answer: the first offset with a timestamp of the time or later; ``high`` if there is none.
        time_ms: The time, in ms since the epoch.

    Yields:
        Ranges of offsets, from the first up to the second, exclusive. To be sent for each: the records from its start
        to the first one with a value; up to ``MOST_TOMBSTONES``, and fewer or none if the range ends before.

    Returns:
        Offset of the first record of the time or later; ``high`` if there is none.

    Example:
        >>> search = first_at(0, 3, 1, 1000)
        >>> next(search)
        (1, 3)
        >>> search.send([Moment(1, 1000)])
        (0, 1)
        >>> try:
        ...     search.send([Moment(0, 999)])
        ... except StopIteration as end:
        ...     end.value
        1
    """
    found, after = high, low  # after the last frame that is known to be too early
    start, stop = low, high
    while start < stop:
        middle = (start + stop) // 2
        seen = yield middle, stop
        at = _deciding(seen)
        if at is not None and at.time_ms < time_ms:
            start = at.offset + 1
            after = start if at.is_framed else after
        else:
            found = next((moment.offset for moment in seen if moment.time_ms >= time_ms), found)
            stop = middle
    if after <= answer < found:
        seen = yield answer, found
        if seen and seen[0].time_ms >= time_ms:
            return seen[0].offset
    return found


def _deciding(seen: list[Moment]) -> Moment | None:
    """The record by which the search goes on; None if there is nothing but tombstones up to the end."""
    if seen and not seen[-1].is_tombstone:
        return seen[-1]
    return seen[0] if len(seen) >= MOST_TOMBSTONES else None
