"""Finds the records of a time in partitions with aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Mapping
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaTimeoutError
from aiokafka.structs import OffsetAndTimestamp

from serde_chain.clients.seek import MOST_TOMBSTONES, EntryTimes, Moment, first_at
from serde_chain.errors import ConfigError

_LONGEST_S: Final = 60.0
_TICK_MS: Final = 500


class TimeSearch:
    """Searches by the times of frames.

    Attributes:
        consumer: As given.

    Args:
        consumer: aiokafka's consumer, of no group, which only reads records for this.
        times: The times of records.

    Raises:
        ConfigError: There is no consumer.
    """

    def __init__(self, consumer: AIOKafkaConsumer | None, times: EntryTimes) -> None:
        if consumer is None:
            raise ConfigError(
                "a search by the times of frames needs a consumer for reading single records",
                hint='Consumer(consumer, config, searcher=AIOKafkaConsumer(…, auto_offset_reset="earliest"))',
            )
        self.consumer = consumer
        self._times = times
        self._lock = asyncio.Lock()

    async def correct(
        self, asked: Mapping[TopicPartition, int], answers: Mapping[TopicPartition, OffsetAndTimestamp | None]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Correct the broker's answers by the times of frames.

        Args:
            asked: Times in ms since the epoch, by partition.
            answers: The broker's answers.

        Raises:
            KafkaTimeoutError: A record did not come in time.
        """
        async with self._lock:
            places = list(asked)
            self.consumer.assign(places)
            lows = await self.consumer.beginning_offsets(places)
            highs = await self.consumer.end_offsets(places)
            searches = {}
            for place, time_ms in asked.items():
                answer = answers.get(place)
                high = highs[place]
                of_broker = high if answer is None else min(answer.offset, high)
                searches[place] = first_at(lows[place], high, of_broker, time_ms)
            return await self._run(searches, highs)

    async def _run(
        self,
        searches: Mapping[TopicPartition, Generator[tuple[int, int], list[Moment], int]],
        highs: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        known: dict[TopicPartition, dict[int, int]] = {place: {} for place in searches}
        sent: dict[TopicPartition, list[Moment] | None] = dict.fromkeys(searches)
        while sent:
            ranges: dict[TopicPartition, tuple[int, int]] = {}
            for place, moments in sent.items():
                known[place] |= {moment.offset: moment.time_ms for moment in moments or ()}
                try:
                    search: Any = searches[place]
                    ranges[place] = search.send(moments)
                except StopIteration as end:
                    is_there = end.value < highs[place]
                    found[place] = OffsetAndTimestamp(end.value, known[place][end.value]) if is_there else None
            sent = dict(await self._first_records(ranges)) if ranges else {}
        return found

    async def _first_records(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> dict[Any, list[Moment]]:
        """The records from the start of each range to the first one with a value."""
        seen: dict[TopicPartition, list[Moment]] = {place: [] for place in ranges}
        for place, (start, _) in ranges.items():
            self.consumer.seek(place, start)
        waiting, until = set(ranges), time.monotonic() + _LONGEST_S
        while waiting:
            if time.monotonic() >= until:
                raise KafkaTimeoutError(f"no record of {min(waiting)} came within {_LONGEST_S:g} s")
            fetched = await self.consumer.getmany(*waiting, timeout_ms=_TICK_MS, max_records=MOST_TOMBSTONES)
            for place, records in fetched.items():
                if self._take(records, ranges[place], seen[place]):
                    waiting.discard(place)
            # Transaction markers and aborted records move the position, too.
            for place in list(waiting):
                if await self.consumer.position(place) >= ranges[place][1]:
                    waiting.discard(place)
        return seen

    def _take(self, records: list[Any], wanted: tuple[int, int], seen: list[Moment]) -> bool:
        """Note the records of a range; whether there are enough of them."""
        start, end = wanted
        for record in records:
            if record.offset < start:
                continue
            if record.offset >= end:
                return True
            seen.append(self._times.of(record.offset, record.value, record.headers, record.timestamp))
            if not seen[-1].is_tombstone or len(seen) >= MOST_TOMBSTONES:
                return True
        return False
