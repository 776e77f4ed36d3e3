"""A consumer around aiokafka's, with deserializer chains for keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.structs import OffsetAndTimestamp

from payload_stores import forks
from serde_chain.catalogue import DESERIALIZE
from serde_chain.clients.aiokafka.dead_letters import DeadLetters
from serde_chain.clients.aiokafka.decoder import Batches, Record
from serde_chain.clients.aiokafka.times import TimeSearch
from serde_chain.clients.client_chains import ClientChains, warn_of_other_side
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.clients.event_loop import in_daemon_thread
from serde_chain.clients.seek import EntryTimes
from serde_chain.config import Config
from serde_chain.errors import ConfigError, DeadLetterError, SerializationError
from serde_chain.record import ValueT
from serde_chain.telemetry import client_telemetry


class Consumer(Generic[ValueT]):
    """aiokafka's ``AIOKafkaConsumer`` with deserializer chains, which get topic, key and headers of each record.

    Records are aiokafka's ``ConsumerRecord`` with decoded key, value and headers. ``getmany`` fetches the payloads of
    large messages in parallel (``large.message.downloads.in.flight``), keeps the order, and returns at most
    ``large.message.downloads.max.bytes`` of payloads at a time; ``getone`` and ``async for`` fetch one at a time, since
    aiokafka commits the records that this consumer has fetched. The event loop proceeds meanwhile.

    A failed read raises :class:`~serde_chain.errors.SerializationError`; good records before it are returned first. If
    the record is undecodable (``error.about_record``), the consumer advances past it, or applies
    ``serde.error.policy``; otherwise it stays at the record. The next call returns the records of a cancelled one.

    aiokafka itself commits the records that ``getone`` and ``getmany`` have returned, processed or not: for
    at-least-once, set ``enable_auto_commit=False`` and commit.

    Args:
        consumer: aiokafka's consumer, with neither ``key_deserializer`` nor ``value_deserializer``. It is started and
            stopped with this one.
        config: A mapping, or the path of a TOML or Java ``.properties`` file. Only keys of chains, stages and stores
            are used.
        dead_letters: aiokafka's producer for ``serde.error.policy = dead-letter``, started and stopped with this one.
            It should have ``acks="all"`` and a ``max_request_size`` of the largest record.
        searcher: aiokafka's consumer for :meth:`offsets_for_times` of a chain with ``entry-metadata``, started and
            stopped with this one: without topics and group, with the other's ``isolation_level``,
            ``auto_offset_reset="earliest"``, and a small ``max_partition_fetch_bytes``.

    Raises:
        ConfigError: A chain's configuration is wrong; or dead letters are configured without a producer for them.

    Example:
        >>> config = {"value.deserializers": "zstd, json"}
        >>> async def main():
        ...     async with Consumer(AIOKafkaConsumer("images", group_id="readers"), config) as consumer:
        ...         async for record in consumer:
        ...             print(record.value)
        >>> asyncio.run(main())  # doctest: +SKIP
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        config: Config | str | Path,
        *,
        dead_letters: AIOKafkaProducer | None = None,
        searcher: AIOKafkaConsumer | None = None,
    ) -> None:
        self._consumer = consumer
        self._setup = setup = ClientChains.of_reader(config)
        warn_of_other_side(setup, DESERIALIZE)
        try:
            self._policy = ErrorPolicy.of(setup.config)
            self._dead_letters = None
            if (topic := self._policy.dead_letter_topic) is not None:
                self._dead_letters = DeadLetters(consumer, dead_letters, topic)
            self._times = EntryTimes.of_config(setup.resolved)
        except ConfigError:
            setup.close()
            raise
        self._searcher = searcher
        self._search: TimeSearch | None = None
        self._batches = Batches(setup)
        self._skipped = 0
        self._telemetry = client_telemetry()
        forks.leave(self, Consumer, "_consumer", closing="stop")

    async def start(self) -> None:
        """Connect to the cluster and join the group."""
        if self._dead_letters is not None:
            await self._dead_letters.producer.start()
        if self._searcher is not None:
            await self._searcher.start()
        await self._consumer.start()

    async def stop(self) -> None:
        """Commit if so configured, leave the group, and close the chains and their stores."""
        try:
            await self._consumer.stop()
        finally:
            try:
                if self._dead_letters is not None:
                    await self._dead_letters.producer.stop()
            finally:
                try:
                    if self._searcher is not None:
                        await self._searcher.stop()
                finally:
                    await in_daemon_thread(self._setup.close)

    @property
    def skipped(self) -> int:
        """Number of records skipped by ``serde.error.policy``, including dead-lettered ones."""
        return self._skipped

    async def getone(self, *partitions: TopicPartition) -> Record[ValueT]:
        """The next record; see aiokafka's ``getone``.

        Raises:
            SerializationError: It cannot be read.
        """
        while True:
            record = await self._consumer.getone(*partitions)
            for decoded in (await self._decoded({_place(record): [record]})).values():
                return decoded[0]

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[Record[ValueT]]]:
        """The next records; see aiokafka's ``getmany``.

        Raises:
            SerializationError: No record can be returned, since the first of a partition cannot be read.
            DeadLetterError: Likewise, and the dead-letter topic refuses it.
        """
        fetched = await self._consumer.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        return await self._decoded(fetched)

    async def _decoded(
        self, fetched: Mapping[TopicPartition, list[Record[ValueT]]]
    ) -> dict[TopicPartition, list[Record[ValueT]]]:
        """Decode records; the next call fetches the others again."""
        positions = {place: records[0].offset for place, records in fetched.items() if records}
        try:
            outcomes = await self._batches.outcomes([record for records in fetched.values() for record in records])
            decoded: dict[TopicPartition, list[Record[ValueT]]] = {}
            failure: Exception | None = None
            for place, records in fetched.items():
                for record in records:
                    outcome = outcomes.get(id(record))
                    if outcome is None:  # beyond the bound of one call
                        break
                    if isinstance(outcome, Exception):
                        outcome = await self._passed_over(record, outcome)
                        if outcome is not None:
                            failure = failure or outcome
                            break
                    else:
                        decoded.setdefault(place, []).append(outcome)
                        self._telemetry.consumed(record.topic)
                    positions[place] = record.offset + 1
            if failure is not None and not decoded:
                if isinstance(failure, SerializationError) and failure.about_record:
                    positions[_place(failure.record)] += 1
                raise failure
            return decoded
        finally:
            for place, position in positions.items():
                if position != fetched[place][-1].offset + 1:
                    with suppress(IllegalStateError):  # the partition was revoked
                        self._consumer.seek(place, position)

    async def _passed_over(self, record: Record, error: Exception) -> Exception | None:
        """Skip an undecodable record if that is the policy; otherwise return the error to raise."""
        if not isinstance(error, SerializationError):
            return error
        self._telemetry.failed(record.topic, error)
        if not error.about_record:
            self._telemetry.retried(record.topic)
        if not self._policy.passes_over(error):
            return error
        if self._dead_letters is not None:
            try:
                await self._dead_letters.put(record, error)
            except DeadLetterError as refused:
                refused.record = record
                return refused
        self._skipped += 1
        self._policy.report(error, self._telemetry)
        return None

    def subscribe(self, topics: Any = (), pattern: str | None = None, listener: Any = None) -> None:
        """Subscribe to topics, or to all whose names match a pattern."""
        self._consumer.subscribe(topics, pattern, listener)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._consumer.unsubscribe()

    def subscription(self) -> Any:
        """The subscribed topics."""
        return self._consumer.subscription()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions manually."""
        self._consumer.assign(partitions)

    def assignment(self) -> Any:
        """The assigned partitions."""
        return self._consumer.assignment()

    async def commit(self, offsets: Any = None) -> None:
        """Commit the given offsets, or those of all returned records."""
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
        """Continue at another offset."""
        self._consumer.seek(partition, offset)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition with a time or a later one.

        If the chain of values begins with ``entry-metadata``, these are times of entry: those of frames, and Kafka's
        timestamps of records without one. Some twenty records of a million are read for that, by ``searcher``.

        Args:
            timestamps: Times in ms since the epoch, by partition.

        Returns:
            Its offset and time; None without one.

        Raises:
            ConfigError: There is no ``searcher``, and the records may have frames.
            KafkaTimeoutError: The broker does not answer, or a record does not come in time.
        """
        answers: dict[TopicPartition, OffsetAndTimestamp | None]
        if self._times is None:
            answers = await self._consumer.offsets_for_times(dict(timestamps))
            return answers
        if self._search is None:
            self._search = TimeSearch(self._searcher, self._times)
        answers = await self._consumer.offsets_for_times(dict(timestamps))
        return await self._search.correct(timestamps, answers)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> Any:
        """Continue at the first offset."""
        return await self._consumer.seek_to_beginning(*partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> Any:
        """Continue after the last offset."""
        return await self._consumer.seek_to_end(*partitions)

    async def seek_to_committed(self, *partitions: TopicPartition) -> Any:
        """Continue at the committed offset."""
        return await self._consumer.seek_to_committed(*partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Pause partitions."""
        self._consumer.pause(*partitions)

    def paused(self) -> Any:
        """Paused partitions."""
        return self._consumer.paused()

    def resume(self, *partitions: TopicPartition) -> None:
        """Resume paused partitions."""
        self._consumer.resume(*partitions)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[ValueT]:
        """The next record; the iteration ends when the consumer stops."""
        try:
            return await self.getone()
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


def _place(record: Any) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
