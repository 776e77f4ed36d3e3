"""A consumer around aiokafka's, whose keys and values come out of deserializer chains."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import ConsumerRecord

from serde_chain.base import SupportsFetch
from serde_chain.chain import DeserializerChain
from serde_chain.clients.event_loop import Turns, elsewhere
from serde_chain.clients.reading import marker_headers
from serde_chain.clients.setup import MAX_POLL_INTERVAL, ClientSetup
from serde_chain.config import Config
from serde_chain.errors import SerializationError
from serde_chain.record import KEY, VALUE, RecordContext

__all__ = ["Consumer"]

Record: TypeAlias = ConsumerRecord[Any, Any]

# So many small records are decoded on the event loop at a time.
_FEW: Final = 20
_LARGE_BYTES: Final = 1 << 16


class Consumer:
    """aiokafka's ``AIOKafkaConsumer`` with deserializer chains, which know topic, key and headers of each record.

    Records come as aiokafka's ``ConsumerRecord``, with key, value and headers in their final form. ``getmany`` fetches
    the payloads of large messages in parallel (``large.message.downloads.in.flight``), order kept; ``getone`` and
    ``async for`` fetch one at a time. The event loop goes on meanwhile.

    A record that cannot be read raises a :class:`~serde_chain.errors.SerializationError`; the good records before it
    are returned first. Where the error is about the record (``error.about_record``), the consumer moves past it;
    otherwise it stays at it. What a call that is cancelled has fetched comes with the next call.

    aiokafka itself commits what ``getone`` and ``getmany`` have returned, worked on or not: for at-least-once, set
    ``enable_auto_commit=False`` and commit.

    Args:
        consumer: aiokafka's consumer, with neither ``key_deserializer`` nor ``value_deserializer``. It is started and
            stopped with this one.
        config: A mapping, or the path of a TOML or Java ``.properties`` file. What is not about chains, stages and
            stores is left to aiokafka, and passed over.

    Raises:
        ConfigError: A chain's configuration is wrong.

    Example:
        >>> config = {"value.deserializers": "zstd, json"}
        >>> async def main():
        ...     async with Consumer(AIOKafkaConsumer("images", group_id="readers"), config) as consumer:
        ...         async for record in consumer:
        ...             print(record.value)
        >>> asyncio.run(main())  # doctest: +SKIP
    """

    def __init__(self, consumer: AIOKafkaConsumer, config: Config | str | Path) -> None:
        self._consumer = consumer
        self._setup = setup = ClientSetup.of(config, DeserializerChain, MAX_POLL_INTERVAL)
        self._markers = marker_headers(setup.key, setup.value)
        fetching = [
            stage
            for chain in (setup.key, setup.value)
            for stage in (chain.stages if chain else ())
            if isinstance(stage, SupportsFetch)
        ]
        self._in_flight = asyncio.Semaphore(max((stage.downloads_in_flight for stage in fetching), default=1))
        self._turns = Turns()

    async def start(self) -> None:
        """Connect to the cluster, and join the group."""
        await self._consumer.start()

    async def stop(self) -> None:
        """Commit if so configured, leave the group, and close the chains and their stores."""
        try:
            await self._consumer.stop()
        finally:
            await elsewhere(self._setup.close)

    async def getone(self, *partitions: TopicPartition) -> Record:
        """The next record; as aiokafka's ``getone``.

        Raises:
            SerializationError: It cannot be read.
        """
        record = await self._consumer.getone(*partitions)
        ((decoded,),) = (await self._decoded({_place(record): [record]})).values()
        return decoded

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """The next records; as aiokafka's ``getmany``.

        Raises:
            SerializationError: None of them can be returned, since the first of a partition cannot be read.
        """
        fetched = await self._consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return await self._decoded(fetched)

    async def _decoded(self, fetched: Mapping[TopicPartition, list[Record]]) -> dict[TopicPartition, list[Record]]:
        """Decode records; those that are not returned are fetched again by the next call."""
        positions = {place: records[0].offset for place, records in fetched.items() if records}
        try:
            outcomes = await self._outcomes([record for records in fetched.values() for record in records])
            decoded: dict[TopicPartition, list[Record]] = {}
            failure: Exception | None = None
            for place, records in fetched.items():
                for record in records:
                    outcome = outcomes[id(record)]
                    if isinstance(outcome, Exception):
                        failure = failure or outcome
                        break
                    decoded.setdefault(place, []).append(outcome)
                    positions[place] = record.offset + 1
            if failure is not None and not decoded:
                if isinstance(failure, SerializationError) and failure.about_record:
                    positions[_place(failure.record)] += 1
                raise failure
            return decoded
        finally:
            for place, position in positions.items():
                if position != fetched[place][-1].offset + 1:
                    with suppress(IllegalStateError):  # the partition was revoked meanwhile
                        self._consumer.seek(place, position)

    async def _outcomes(self, records: list[Record]) -> dict[int, Record | Exception]:
        """Decode records, each into itself or an error, by their identity."""
        apart = [record for record in records if self._is_apart(record)]
        tasks = [asyncio.create_task(self._fetch(record)) for record in apart]
        try:
            others = [record for record in records if not self._is_apart(record)]
            decode = partial(self._turns.do, lambda: [self._try(record) for record in others])
            is_quick = len(others) <= _FEW and self._turns.is_quick(0)
            outcomes = [*zip(others, decode() if is_quick else await elsewhere(decode), strict=True)]
            outcomes += [*zip(apart, await asyncio.gather(*tasks), strict=True)]
        finally:
            for task in tasks:
                task.cancel()
        return {id(record): outcome for record, outcome in outcomes}

    def _is_apart(self, record: Record) -> bool:
        """Whether a record is decoded in a thread of its own: it is large, or may have a payload to fetch."""
        size = len(record.value or b"") + len(record.key or b"")
        markers = self._markers
        return size > _LARGE_BYTES or markers is None or any(name in markers for name, _ in record.headers)

    async def _fetch(self, record: Record) -> Record | Exception:
        async with self._in_flight:
            return await elsewhere(self._try, record)

    def _try(self, record: Record) -> Record | Exception:
        try:
            return self._decode(record)
        except Exception as error:  # noqa: BLE001  raised when all records before it were returned
            if isinstance(error, SerializationError):
                error.record = record
            return error

    def _decode(self, record: Record) -> Record:
        """Decode a record; the value first, as its reference may stand for a whole record."""
        headers: Any = list(record.headers)
        ctx = RecordContext(record.topic, VALUE, headers, record.key, record.partition, record.timestamp, record.offset)
        key, value = record.key, record.value
        if self._setup.value is not None:
            value = self._setup.value(value, ctx)
            key = ctx.key
        if self._setup.key is not None:
            place = RecordContext(record.topic, KEY, headers, None, record.partition, ctx.timestamp, record.offset)
            key = self._setup.key(key, place)
        timestamp = record.timestamp if ctx.timestamp is None else ctx.timestamp
        return replace(record, key=key, value=value, headers=tuple(headers), timestamp=timestamp)

    def subscribe(self, topics: Any = (), pattern: str | None = None, listener: Any = None) -> None:
        """Subscribe to topics, or to all whose names match a pattern."""
        self._consumer.subscribe(topics, pattern, listener)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._consumer.unsubscribe()

    def subscription(self) -> Any:
        """The topics that are subscribed."""
        return self._consumer.subscription()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Take partitions by hand."""
        self._consumer.assign(partitions)

    def assignment(self) -> Any:
        """The partitions that this consumer has."""
        return self._consumer.assignment()

    async def commit(self, offsets: Any = None) -> None:
        """Commit the given offsets, or those of all that was returned."""
        await self._consumer.commit(offsets)

    async def committed(self, partition: TopicPartition) -> int | None:
        """The committed offset of a partition."""
        offset: int | None = await self._consumer.committed(partition)
        return offset

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the next record."""
        offset: int = await self._consumer.position(partition)
        return offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at another offset."""
        self._consumer.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> Any:
        """Go on at the first offset."""
        return await self._consumer.seek_to_beginning(*partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> Any:
        """Go on behind the last offset."""
        return await self._consumer.seek_to_end(*partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> Any:
        """Go on at the committed offset."""
        return await self._consumer.seek_to_committed(*partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Fetch nothing more from partitions."""
        self._consumer.pause(*partitions)

    def paused(self) -> Any:
        """Paused partitions."""
        return self._consumer.paused()

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        self._consumer.resume(*partitions)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record; there are no more once the consumer is stopped."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _place(record: Any) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
