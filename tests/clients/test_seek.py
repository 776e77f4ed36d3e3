"""The search by time, without a broker: frames, Kafka's timestamps, tombstones and gaps."""

from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import ConfigError
from serde_chain.clients.seek import MOST_TOMBSTONES, EntryTimes, Moment, first_at
from serde_chain.wire.entry_metadata import frame

TIME = st.integers(0, 40)
HIGH = 301


class Stored(NamedTuple):
    """A record: the time of its frame, if it has one; Kafka's timestamp."""

    entered: int | None
    timestamp: int
    is_tombstone: bool = False

    @property
    def time(self) -> int:
        return self.timestamp if self.entered is None else self.entered


Log = Mapping[int, Stored]


def outcome(search: Generator[tuple[int, int], list[Moment], int], read: Callable[[int, int], list[Moment]]) -> int:
    """Run a search to its end."""

    def ranges() -> Generator[tuple[int, int], list[Moment], None]:
        result.append((yield from search))

    result: list[int] = []
    running = ranges()
    for start, end in running:
        with suppress(StopIteration):
            wanted = (start, end)
            while True:
                wanted = running.send(read(*wanted))
    return result[0]


def found(log: Log, wanted: int, *, low: int = 0, high: int = HIGH, reads: list[int] | None = None) -> int:
    """The result of the search; the broker answers by timestamps alone."""
    there = {offset: log[offset] for offset in sorted(log) if low <= offset < high}
    answer = next((offset for offset, record in there.items() if record.timestamp >= wanted), high)

    def read(start: int, end: int) -> list[Moment]:
        assert low <= start < end <= high
        moments = [
            Moment(offset, record.time, record.entered is not None, record.is_tombstone)
            for offset, record in there.items()
            if start <= offset < end
        ]
        before = list(takewhile(lambda moment: moment.is_tombstone, moments))
        seen = moments[: len(before) + 1][:MOST_TOMBSTONES]
        if reads is not None:
            reads.append(len(seen))
        return seen

    return outcome(first_at(low, high, answer, wanted), read)


def first(log: Log, wanted: int, low: int = 0) -> int:
    return min((offset for offset, record in log.items() if offset >= low and record.time >= wanted), default=HIGH)


def spread(offsets: list[int], records: list[Stored]) -> dict[int, Stored]:
    return dict(zip(sorted(offsets), records, strict=False))


OFFSETS = st.lists(st.integers(0, HIGH - 1), unique=True, max_size=60)


@given(OFFSETS, st.lists(TIME, min_size=60, max_size=60), TIME, st.integers(0, 20))
def test_without_frames_the_brokers_answer_counts_in_any_order(
    offsets: list[int], times: list[int], wanted: int, low: int
) -> None:
    log = spread(offsets, [Stored(None, time) for time in times])
    assert found(log, wanted, low=low) == first(log, wanted, low)


@given(OFFSETS, st.lists(TIME, min_size=60, max_size=60), st.lists(TIME, min_size=60, max_size=60), TIME)
def test_frames_count_whatever_the_timestamps_are(
    offsets: list[int], times: list[int], timestamps: list[int], wanted: int
) -> None:
    log = spread(offsets, [Stored(time, stamp) for time, stamp in zip(sorted(times), timestamps, strict=True)])
    assert found(log, wanted) == first(log, wanted)


@given(OFFSETS, st.lists(st.tuples(TIME, st.booleans(), st.booleans()), min_size=60, max_size=60), TIME)
def test_frames_and_timestamps_in_one_order(
    offsets: list[int], kinds: list[tuple[int, bool, bool]], wanted: int
) -> None:
    # Each record has a frame, or none, or no value; the clocks agree.
    records = [
        Stored(time if is_framed and not is_tombstone else None, time, is_tombstone)
        for time, is_framed, is_tombstone in sorted(kinds, key=lambda kind: kind[0])
    ]
    log = spread(offsets, records)
    assert found(log, wanted) == first(log, wanted)


@given(
    OFFSETS,
    st.lists(TIME, min_size=60, max_size=60),
    st.integers(0, 60),
    st.lists(TIME, min_size=60, max_size=60),
    TIME,
)
def test_frames_that_are_switched_on_later(
    offsets: list[int], times: list[int], switched: int, entered: list[int], wanted: int
) -> None:
    before = [Stored(None, time) for time in sorted(times)[:switched]]
    latest = max((record.timestamp for record in before), default=0)
    # A relay: frames are later than the timestamps that it has preserved.
    log = spread(offsets, before + [Stored(latest + time, 0) for time in sorted(entered)])
    assert found(log, wanted) == first(log, wanted)


@given(
    OFFSETS,
    st.lists(st.tuples(TIME, st.booleans()), min_size=60, max_size=60),
    st.lists(TIME, min_size=60, max_size=60),
    TIME,
)
def test_tombstones_of_a_relay_that_was_late(
    offsets: list[int], kinds: list[tuple[int, bool]], timestamps: list[int], wanted: int
) -> None:
    ordered = sorted(kinds, key=lambda kind: kind[0])
    log = spread(
        offsets,
        [
            Stored(None if is_tombstone else time, stamp, is_tombstone)
            for (time, is_tombstone), stamp in zip(ordered, timestamps, strict=True)
        ],
    )
    result = found(log, wanted)
    framed = {offset: record for offset, record in log.items() if record.entered is not None}
    early = max((offset for offset, record in framed.items() if record.time < wanted), default=-1)
    # Exactly the first frame of the time, or one of the tombstones just before it, by its timestamp.
    assert early < result <= first(framed, wanted)
    assert result == HIGH or log[result].time >= wanted


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda number: Stored(number * 10, 0), 1_000_000),
        (lambda number: Stored(number * 10, 10**9), 0),
        (lambda number: Stored(None, number * 10), 765_433),
    ],
    ids=["later", "earlier", "unframed"],
)
def test_few_records_of_a_million_are_read(make: Callable[[int], Stored], answer: int) -> None:
    reads: list[int] = []

    def read(start: int, _end: int) -> list[Moment]:
        reads.append(start)
        record = make(start)
        return [Moment(start, record.time, record.entered is not None)]

    assert outcome(first_at(0, 1_000_000, answer, 7_654_321), read) == 765_433
    assert len(reads) <= 22


def test_many_tombstones_are_not_all_read() -> None:
    log = {at: Stored(None, at // 10, is_tombstone=True) for at in range(300)} | {300: Stored(40, 40)}
    reads: list[int] = []
    assert found(log, 20, reads=reads) == 200
    assert max(reads) == MOST_TOMBSTONES
    assert len(reads) <= 11


def test_the_time_of_a_record() -> None:
    times = EntryTimes()
    assert times.of(1, frame(b"x", broker_timestamp=5), None, 9) == Moment(1, 5, is_framed=True)
    assert times.of(1, frame(b"x", index=5), None, 9) == Moment(1, 9)  # a frame without a time
    assert times.of(1, None, None, 9) == Moment(1, 9, is_tombstone=True)
    assert times.of(1, b"", None, 9) == Moment(1, 9)
    assert times.of(1, b"\x0e\x02\xff", None, 9) == Moment(1, 9)  # malformed: refused when it is decoded


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, None),
        ({"value.deserializers": "large-message, json"}, None),
        # Below another stage, frames would have to be decoded.
        ({"value.deserializers": "zstd, entry-metadata, json"}, None),
        ({"key.deserializers": "entry-metadata"}, None),
        ({"value.deserializer": "entry-metadata"}, EntryTimes()),
        ({"value.deserializers": "entry-metadata, large-message, json"}, EntryTimes()),
        ({"value.deserializers": "auto", "serde.chain.allow": "json, zstd"}, None),
        ({"value.deserializers": "auto", "serde.chain.allow": "json, entry-metadata"}, EntryTimes(())),
        (
            {"value.deserializers": "auto", "serde.chain.allow": "json", "serde.chain.default": "json, entry-metadata"},
            EntryTimes(("json", "entry-metadata")),
        ),
    ],
)
def test_the_chains_whose_records_have_frames(config: dict[str, object], expected: EntryTimes | None) -> None:
    assert EntryTimes.of_config(config) == expected


def test_an_unknown_stage_is_an_error() -> None:
    with pytest.raises(ConfigError):
        EntryTimes.of_config({"value.deserializers": "entry-metadatum"})


@pytest.mark.parametrize(
    ("header", "time"),
    [
        (b"1:json,entry-metadata", 5),
        (b"1:json,zstd", 9),
        (b"1:entry-metadata,zstd", 9),
        (b"2:json,entry-metadata", 9),
        (b"entry-metadata", 9),
        (None, 9),
    ],
)
def test_described_records_say_whether_they_have_a_frame(header: bytes | None, time: int) -> None:
    headers = [] if header is None else [("serde-chain", header)]
    assert EntryTimes(()).of(1, frame(b"{}", broker_timestamp=5), headers, 9).time_ms == time


def test_records_without_a_description_have_the_stages_by_default() -> None:
    value = frame(b"{}", broker_timestamp=5)
    assert EntryTimes(("json", "entry-metadata")).of(1, value, [], 9).time_ms == 5
    assert EntryTimes(("json",)).of(1, value, [], 9).time_ms == 9
