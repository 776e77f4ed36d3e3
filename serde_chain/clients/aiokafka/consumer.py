"""A consumer around aiokafka's, whose keys and values come out of deserializer chains."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, IllegalStateError

from serde_chain.clients.aiokafka.decoder import Record, RecordDecoder
from serde_chain.config import Config
from serde_chain.errors import SerializationError

__all__ = ["Consumer"]


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
        self._decoder = RecordDecoder(config)

    async def start(self) -> None:
        """Connect to the cluster, and join the group."""
        await self._consumer.start()

    async def stop(self) -> None:
        """Commit if so configured, leave the group, and close the chains and their stores."""
        try:
            await self._consumer.stop()
        finally:
            await self._decoder.close()

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
            outcomes = await self._decoder.outcomes([record for records in fetched.values() for record in records])
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
