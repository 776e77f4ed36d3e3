"""The sizes of a topic's records, of those that are stored inline and of those that refer to payloads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

_SPANS: Final = 24


class Bar(NamedTuple):
    """A bar of a chart.

    Attributes:
        of: Its place: the upper bound of a size in bytes, or the time at which a span begins, in ms since the epoch.
        inline: Its lower part: records, or bytes in Kafka.
        stored: Its upper part: records with payloads in the store, or bytes there.
    """

    of: int
    inline: int
    stored: int

    @property
    def total(self) -> int:
        """Both parts."""
        return self.inline + self.stored


class _Seen(NamedTuple):
    timestamp_ms: int
    inline: int
    stored: int | None


@dataclass
class Sizes:
    """Counts records by size and by time.

    Attributes:
        records: Number of records.
        offloaded: Number of those with payloads in the store.
        inline_bytes: Bytes of keys and values in Kafka.
        stored_bytes: Bytes in the store, as the records state them; a payload of two records counts twice.
        unsized: Number of references that state no size.
        undecided: Number of records that may match a filter or not: their values are not decoded.
    """

    records: int = 0
    offloaded: int = 0
    inline_bytes: int = 0
    stored_bytes: int = 0
    unsized: int = 0
    undecided: int = 0
    _seen: list[_Seen] = field(default_factory=list)

    def add(self, timestamp_ms: int, key: Mapping[str, Any], value: Mapping[str, Any]) -> None:
        """Count a record.

        Args:
            timestamp_ms: Its time, in ms since the epoch.
            key: Its key, as described by :func:`~serde_chain.cli.inspect_topic.describe`.
            value: Its value, likewise.
        """
        inline = key.get("bytes", 0) + value.get("bytes", 0)
        stored = stored_bytes(value)
        is_offloaded = "reference" in value or stored is not None
        self.records += 1
        self.offloaded += is_offloaded
        self.inline_bytes += inline
        self.stored_bytes += stored or 0
        self.unsized += is_offloaded and stored is None
        self._seen.append(_Seen(timestamp_ms, inline, (stored or 0) if is_offloaded else None))

    def times(self) -> tuple[int, int] | None:
        """The earliest and latest time, in ms since the epoch; None without records that have one."""
        known = [each.timestamp_ms for each in self._seen if each.timestamp_ms >= 0]
        return (min(known), max(known)) if known else None

    def by_size(self) -> list[Bar]:
        """Number of records by size, in powers of two; the size includes the payload."""
        powers: dict[int, list[int]] = {}
        for each in self._seen:
            counts = powers.setdefault((each.inline + (each.stored or 0)).bit_length(), [0, 0])
            counts[each.stored is not None] += 1
        span = range(min(powers), max(powers) + 1) if powers else ()
        return [Bar(1 << power, *powers.get(power, (0, 0))) for power in span]

    def by_time(self) -> list[Bar]:
        """Bytes in 24 equal spans of time, in Kafka and in the store."""
        ends = self.times()
        if ends is None:
            return []
        first, last = ends
        width = max(last - first, 1)
        sums = [[0, 0] for _ in range(_SPANS)]
        for each in self._seen:
            if each.timestamp_ms >= 0:
                at = min((each.timestamp_ms - first) * _SPANS // width, _SPANS - 1)
                sums[at][0] += each.inline
                sums[at][1] += each.stored or 0
        return [Bar(first + at * width // _SPANS, *each) for at, each in enumerate(sums)]


def stored_bytes(seen: Mapping[str, Any]) -> int | None:
    """The size of a value's payloads, of the whole or of its fields; None if there are none.

    Example:
        >>> stored_bytes({"fields": [{"payload bytes": 9000}, {"payload bytes": 1000}]})
        10000
    """
    fields: Sequence[Mapping[str, Any]] = seen["fields"] if isinstance(seen.get("fields"), list) else ()
    sizes: Iterable[int] = [each["payload bytes"] for each in fields]
    if "payload bytes" in seen:
        sizes = [*sizes, seen["payload bytes"]]
    return sum(sizes) if sizes else None
