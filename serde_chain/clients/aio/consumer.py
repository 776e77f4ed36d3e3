"""A consumer for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from confluent_kafka import TopicPartition

from payload_stores import forks
from serde_chain.clients.aio.callbacks import with_callbacks
from serde_chain.clients.confluent.consumer import Consumer
from serde_chain.clients.confluent.messages import Message
from serde_chain.clients.event_loop import Call, Calls, awaited, on_loop
from serde_chain.clients.timeouts import deadline
from serde_chain.config import load
from serde_chain.record import ValueT

T = TypeVar("T")
OnRebalance: TypeAlias = Callable[["AsyncConsumer[Any]", list[TopicPartition]], Any]

# A call that is cancelled ends after this at the latest.
_SLICE_SECONDS: Final = 0.2


class AsyncConsumer(Generic[ValueT]):
    """:class:`serde_chain.Consumer` for asyncio: the same calls, awaited, and ``async for``.

    Calls block in a thread, one at a time and in order, while the event loop proceeds. Payloads are fetched ahead, and
    records are decoded there. The next call returns the results of a cancelled one: no record is lost.

    ``consume`` is the cheapest way to read many small records; ``poll`` and ``async for`` use the thread for each one.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092", "group.id": "readers", "value.deserializers": "zstd, json"}
        >>> async def main():
        ...     async with AsyncConsumer(config) as consumer:
        ...         await consumer.subscribe(["images"])
        ...         async for message in consumer:
        ...             print(message.value())
        >>> asyncio.run(main())  # doctest: +SKIP
    """

    def __init__(
        self,
        config: Mapping[str, object] | str | Path | None = None,
        /,
        *,
        fetch_external: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a consumer, in a coroutine.

        Args:
            config: As for :class:`serde_chain.Consumer`. Callbacks in it (``error_cb``, ``on_commit``, …) may be
                coroutine functions; others are called in the thread.
            fetch_external: As for :class:`serde_chain.Consumer`.
            **kwargs: Further keys.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        asyncio.get_running_loop()  # an error now rather than with the first call
        settings = with_callbacks({**load(config or {}), **kwargs})
        self._client = Consumer(settings, fetch_external=fetch_external)
        self._calls = Calls()
        self._is_in_call = False
        self._fetching: set[Call[Any]] = set()
        # Cancelled calls, whose results are undelivered.
        self._lost: deque[Call[Any]] = deque()
        forks.leave(self, AsyncConsumer, "_client")

    @property
    def skipped(self) -> int:
        """Number of records skipped by ``serde.error.policy``, including dead-lettered ones."""
        return self._client.skipped

    async def _call(self, work: Callable[..., T], *args: Any) -> T:
        """Make a call of the consumer that delivers no records."""
        return await self._calls.make(Call(self._settled, work, *args))

    def _settled(self, work: Callable[..., T], *args: Any) -> T:
        if self._is_in_call:  # by a callback of the current call, in its thread
            return work(*args)
        self._is_in_call = True
        try:
            were_made = [self._lost.popleft().has_run for _ in range(len(self._lost))]
            if any(were_made):
                self._client.take_back()
            return work(*args)
        finally:
            self._is_in_call = False

    async def _fetch(self, work: Callable[[Call[Any]], T]) -> T:
        """Make a call that delivers records; ``work`` checks whether it is abandoned."""
        call: Call[T] = Call(lambda: self._settled(work, call))
        self._fetching.add(call)
        try:
            return await self._calls.make(call)
        except asyncio.CancelledError:
            call.is_abandoned = True
            self._lost.append(call)
            raise
        finally:
            self._fetching.discard(call)

    async def poll(self, timeout: float = -1) -> Message[ValueT] | None:
        """Fetch one record; see :meth:`serde_chain.Consumer.poll`.

        Example:
            >>> async def next_value(consumer):
            ...     message = await consumer.poll(1)
            ...     return None if message is None else message.value()
        """
        until = deadline(timeout)

        def work(call: Call[Any]) -> Message[ValueT] | None:
            while True:
                left = max(0.0, until - time.monotonic())
                message = self._client.poll(min(left, _SLICE_SECONDS))
                if message is not None or call.is_abandoned or time.monotonic() >= until:
                    return message

        return await self._fetch(work)

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message[ValueT]]:
        """Fetch several records; see :meth:`serde_chain.Consumer.consume`.

        Example:
            >>> async def next_values(consumer):
            ...     return [message.value() for message in await consumer.consume(500, 1)]
        """
        until = deadline(timeout)

        def work(call: Call[Any]) -> list[Message[ValueT]]:
            while True:
                left = max(0.0, until - time.monotonic())
                messages = self._client.consume(num_messages, min(left, _SLICE_SECONDS))
                if len(messages) == num_messages or self._client.is_cut:
                    return messages
                if call.is_abandoned or time.monotonic() >= until:
                    return messages
                self._client.take_back()  # the next slice returns them, with others

        return await self._fetch(work)

    async def consume_arrow(
        self, num_messages: int = 1, timeout: float = -1, *, columns: Sequence[str] | None = None
    ) -> Any:
        """Fetch several records as an Arrow table; see :meth:`serde_chain.Consumer.consume_arrow`.

        Example:
            >>> async def next_table(consumer):
            ...     return (await consumer.consume_arrow(1000, 3)).to_pandas()
        """
        return await self._fetch(lambda _call: self._client.consume_arrow(num_messages, timeout, columns=columns))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[ValueT]:
        """The next record, or message with ``error()``; endless, unless the task is cancelled."""
        while (message := await self.poll()) is None:
            pass
        return message

    async def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe to topics. Callbacks run on the event loop and receive this consumer and the partitions.

        They may be coroutine functions and call this consumer.
        """
        await self._call(self._client.subscribe, topics, *map(self._rebalance, (on_assign, on_revoke, on_lost)))

    def _rebalance(self, callback: OnRebalance | None) -> Any:
        if callback is None:
            return None
        call = on_loop(partial(callback, self))
        return lambda _consumer, partitions: call(partitions)

    unsubscribe = awaited(Consumer.unsubscribe)
    assign = awaited(Consumer.assign)
    unassign = awaited(Consumer.unassign)
    incremental_assign = awaited(Consumer.incremental_assign)
    incremental_unassign = awaited(Consumer.incremental_unassign)
    assignment = awaited(Consumer.assignment)
    seek = awaited(Consumer.seek)
    pause = awaited(Consumer.pause)
    resume = awaited(Consumer.resume)
    position = awaited(Consumer.position)
    commit = awaited(Consumer.commit)
    committed = awaited(Consumer.committed)
    store_offsets = awaited(Consumer.store_offsets)
    get_watermark_offsets = awaited(Consumer.get_watermark_offsets)
    list_topics = awaited(Consumer.list_topics)
    cluster_id = awaited(Consumer.cluster_id)
    consumer_group_metadata = awaited(Consumer.consumer_group_metadata)
    memberid = awaited(Consumer.memberid)
    set_sasl_credentials = awaited(Consumer.set_sasl_credentials)

    async def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Offsets for timestamps in ms; see :meth:`serde_chain.Consumer.offsets_for_times`."""
        return await self._call(self._client.offsets_for_times, partitions, timeout)

    async def close(self) -> None:
        """Commit if so configured, leave the group, and close the chains and their stores.

        Pending calls of other tasks end first, without a record.
        """
        for call in self._fetching:
            call.is_abandoned = True
        await self._call(self._client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
