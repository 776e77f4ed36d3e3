"""A producer for asyncio."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

import confluent_kafka

from payload_stores import forks
from payload_stores.threads import run_in_daemon_thread
from serde_chain.clients.aio.callbacks import with_callbacks
from serde_chain.clients.client_chains import MAX_BLOCK
from serde_chain.clients.confluent.outbox import NotSentError, OnDelivery
from serde_chain.clients.confluent.producer import Producer
from serde_chain.clients.event_loop import Pace, Turns, awaited, in_daemon_thread, size_of, tell
from serde_chain.clients.timeouts import deadline
from serde_chain.config import load
from serde_chain.record import Headers, ValueT
from serde_chain.transfer import Transfer, finish

T = TypeVar("T")

_log = logging.getLogger("serde_chain")

Message: TypeAlias = "confluent_kafka.Message[Any, Any]"
Delivery: TypeAlias = "asyncio.Future[Message]"

# Seconds between two checks for room in a full client, and for reports; the client's own reports come at once.
_ROOM_SECONDS: Final = 0.02
_POLL_SECONDS: Final = 0.1


class _WouldBlockError(Exception):
    """Encoding a record requires I/O, and the call is on the event loop.

    Attributes:
        step: The transfer that leads to the record's hand-over; for a thread.
    """

    def __init__(self, step: Transfer[Any]) -> None:
        super().__init__("encoding requires I/O")
        self.step = step


class _LoopProducer(Producer[Any]):
    """A producer whose ``produce`` raises _WouldBlockError on the event loop, in place of waiting for I/O there."""

    _blocks = False

    def __init__(self, config: Mapping[str, object], *, automatic_offload: bool | None) -> None:
        self._loop_thread = threading.get_ident()
        super().__init__(config, automatic_offload=automatic_offload)

    def _finish_call(self, step: Transfer[Any]) -> None:
        if threading.get_ident() == self._loop_thread:
            raise _WouldBlockError(step)
        super()._finish_call(step)


class AsyncProducer(Generic[ValueT]):
    """:class:`serde_chain.Producer` for asyncio.

    ``await producer.produce(...)`` accepts a record with its headers, and returns a future of the delivered message;
    its exception is the delivery error. Records of one topic leave in call order. Small records are encoded on the
    event loop; large ones, and those that take longer than 5 ms, in threads, so that the loop proceeds. Without room,
    ``produce`` waits for up to ``max.block.ms``.

    A cancelled call may have accepted the record; its delivery continues.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092", "value.serializers": "json, zstd"}
        >>> async def main():
        ...     async with AsyncProducer(config) as producer:
        ...         delivery = await producer.produce("images", {"name": "M 51"}, key=b"M 51", headers=[("band", b"g")])
        ...         print((await delivery).offset())
        >>> asyncio.run(main())  # doctest: +SKIP
    """

    def __init__(
        self,
        config: Mapping[str, object] | str | Path | None = None,
        /,
        *,
        automatic_offload: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a producer, in a coroutine.

        Args:
            config: As for :class:`serde_chain.Producer`. Callbacks in it (``error_cb``, ``stats_cb``, …) may be
                coroutine functions; others are called in a thread.
            automatic_offload: As for :class:`serde_chain.Producer`.
            **kwargs: Further keys.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        self._loop = asyncio.get_running_loop()
        settings = with_callbacks({**load(config or {}), **kwargs})
        self._block_s = MAX_BLOCK.read(settings) / 1000
        self._client = _LoopProducer(settings, automatic_offload=automatic_offload)
        self._topics: defaultdict[str, Turns] = defaultdict(Turns)
        self._pace = Pace()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reports: deque[tuple[OnDelivery, confluent_kafka.KafkaError | None, Message]] = deque()
        self._is_reported = False
        self._served = 0
        self._news = asyncio.Event()
        # The client's fatal error, found by the serving thread; and whether a call has raised it.
        self._fatal: confluent_kafka.KafkaException | None = None
        self._has_raised_fatal = False
        self._is_closed = False
        run_in_daemon_thread(partial(_serve, weakref.ref(self), self._client))
        forks.leave(self, AsyncProducer, "_client")

    @property
    def is_served(self) -> bool:
        """Whether reports are still needed."""
        return not (self._is_closed or self._loop.is_closed())

    def note_failure(self, error: Exception) -> None:
        """Handle an exception of the serving thread: of a callback, or the client's fatal error."""
        if isinstance(error, confluent_kafka.KafkaException) and error.args[0].fatal():
            self._fatal = error
        elif not self._is_closed:
            _log.error("a callback of the producer failed", exc_info=error)

    def _delivered(self, report: OnDelivery, error: confluent_kafka.KafkaError | None, message: Message) -> None:
        self._reports.append((report, error, message))
        if not self._is_reported:
            self._is_reported = True
            tell(self._loop, self._report)

    def _report(self) -> None:
        """Report deliveries; if there are many, the loop proceeds in between."""
        self._is_reported = False
        self._news.set()
        while self._reports:
            if self._pace.is_over():
                self._is_reported = True
                self._loop.call_soon(self._report)
                return
            report, error, message = self._reports.popleft()
            self._served += 1
            try:
                report(error, message)
            except Exception as failure:  # noqa: BLE001  there is no caller; the other records continue
                _log.error("a callback of the producer failed", exc_info=failure)

    def _raise_fatal(self) -> None:
        if self._fatal is not None and not self._has_raised_fatal:
            self._has_raised_fatal = True
            raise self._fatal

    async def _report_all(self) -> None:
        while self._reports:
            self._report()
            await asyncio.sleep(0)

    async def produce(  # noqa: PLR0917, the original's signature
        self,
        topic: str,
        value: ValueT | None = None,
        key: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> Delivery:
        """Encode and accept a record.

        Args:
            topic: Topic.
            value: Object for the value chain; None makes a tombstone.
            key: Object for the key chain.
            partition: Partition; -1 lets the client choose by the encoded key.
            timestamp: Record timestamp in ms since the epoch; 0 for now.
            headers: Headers; the caller's object is not changed.

        Returns:
            A future of the delivered message, whose value is the sent one: for a large message, its reference. The
            exception is a ``confluent_kafka.KafkaException``; its ``__cause__`` is the store's error, if any.

        Raises:
            SerializationError: A stage failed; nothing was sent.
            BufferError: There was no room within ``max.block.ms``.
            confluent_kafka.KafkaException: As in ``confluent_kafka.Producer.produce``.

        Example:
            >>> async def send(producer):
            ...     return await producer.produce("images", {"name": "M 51"}, key=b"M 51")
        """
        delivery: Delivery = self._loop.create_future()
        record: Callable[[], None] = partial(
            self._client.produce,
            *(topic, value, key, partition, partial(self._delivered, partial(_resolve, delivery))),
            *(None, timestamp, headers),
        )
        turns = self._topics[topic]
        size = size_of(value) + size_of(key)
        if not turns.count and turns.is_quick(size) and self._client.has_room(size):
            try:
                turns.do(record)
            except BufferError:
                pass  # it waits in a thread below
            except _WouldBlockError as error:
                record = partial(finish, error.step)
            else:
                # The record has its position by now: a cancellation here changes nothing.
                if self._pace.is_over():
                    await asyncio.sleep(0)
                return delivery
        await self._in_turn(topic, partial(self._with_room, turns, record))
        return delivery

    async def produce_arrow(
        self, table: Any, topic: str, key: str | None = None, *, on_delivery: OnDelivery | None = None
    ) -> int:
        """Encode and accept the rows of a table, in a thread; see :meth:`serde_chain.Producer.produce_arrow`.

        Later calls for the topic wait for it. A cancelled call continues.

        Args:
            table: A table with the Arrow PyCapsule interface, of pyarrow, Polars, DuckDB or pandas.
            topic: Topic.
            key: Name of the column of keys; None for records without keys.
            on_delivery: Called on the event loop with ``(error, message)`` for each record, in place of a future.

        Returns:
            Number of accepted records: that of the rows.

        Raises:
            SerializationError: A row cannot be encoded; ``row`` is its position. The rows before it are accepted.
            BufferError: There was no room for the row that it names; the rows before it are accepted.
            ConfigError: There is no such column, or no chain of values.
            MissingDependencyError: The extra ``arrow`` is not installed.

        Example:
            >>> async def send(producer, frame):
            ...     return await producer.produce_arrow(frame, "alerts", key="id")
        """
        report = None if on_delivery is None else partial(self._delivered, on_delivery)
        rows: Callable[[], int] = partial(self._client.produce_arrow, table, topic, key, on_delivery=report)
        return await self._in_turn(topic, partial(in_daemon_thread, rows))

    async def _in_turn(self, topic: str, accept: Callable[[], Awaitable[T]]) -> T:
        """Accept records in their turn, in a new task, so that they keep it if this one is cancelled."""
        turns = self._topics[topic]
        turns.count += 1
        task = asyncio.create_task(_locked(turns, accept))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(_log_failure, topic))
            raise

    async def _with_room(self, turns: Turns, record: Callable[[], None]) -> None:
        """Accept a record in a thread; waits for room."""
        until = time.monotonic() + self._block_s
        while True:
            try:
                await in_daemon_thread(turns.do, record)
            except BufferError:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(_ROOM_SECONDS)
            else:
                return

    async def _produced(self) -> None:
        """Wait for pending ``produce`` calls."""
        if self._tasks:
            await asyncio.wait([*self._tasks])

    async def poll(self, timeout: float = 0) -> int:
        """Wait up to ``timeout`` seconds for deliveries; returns their number. They are served without it too."""
        before = self._served
        with suppress(TimeoutError):
            async with asyncio.timeout(None if timeout < 0 else timeout):
                while self._served == before:
                    self._news.clear()
                    await self._news.wait()
        self._raise_fatal()
        return self._served - before

    async def flush(self, timeout: float = -1) -> int:
        """Wait up to ``timeout`` seconds until all records are delivered. Returns the number of remaining records."""
        until = deadline(timeout)
        try:
            async with asyncio.timeout(None if timeout < 0 else timeout):
                await self._produced()
        except TimeoutError:
            return len(self)
        await in_daemon_thread(self._client.flush, -1 if timeout < 0 else max(0.0, until - time.monotonic()))
        await self._report_all()
        self._raise_fatal()
        return len(self)

    _call = staticmethod(in_daemon_thread)
    purge = awaited(Producer.purge)
    list_topics = awaited(Producer.list_topics)
    cluster_id = awaited(Producer.cluster_id)
    init_transactions = awaited(Producer.init_transactions)
    begin_transaction = awaited(Producer.begin_transaction)
    send_offsets_to_transaction = awaited(Producer.send_offsets_to_transaction)
    set_sasl_credentials = awaited(Producer.set_sasl_credentials)

    async def commit_transaction(self, timeout: float = -1) -> None:
        """Commit the transaction; see :meth:`serde_chain.Producer.commit_transaction`."""
        await self._end(self._client.commit_transaction, timeout)

    async def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction; see :meth:`serde_chain.Producer.abort_transaction`."""
        await self._end(self._client.abort_transaction, timeout)

    async def _end(self, end: Callable[[float], None], timeout: float) -> None:
        """End a transaction."""
        await self._produced()
        try:
            await in_daemon_thread(end, timeout)
        except confluent_kafka.KafkaException as error:
            self._has_raised_fatal |= error.args[0].fatal()
            raise
        await self._report_all()

    async def close(self) -> None:
        """Send all queued records, then close the client, the chains and their stores."""
        if self._is_closed:
            return
        await self._produced()
        self._is_closed = True
        try:
            await in_daemon_thread(self._client.close)
        finally:
            await self._report_all()
        self._raise_fatal()

    def __len__(self) -> int:
        return len(self._client) + len(self._tasks)

    def __bool__(self) -> bool:
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _locked(turns: Turns, accept: Callable[[], Awaitable[T]]) -> T:
    """Accept records when those before them are accepted."""
    try:
        async with turns.lock:
            return await accept()
    finally:
        turns.count -= 1


def _resolve(delivery: Delivery, error: confluent_kafka.KafkaError | None, message: Message) -> None:
    """Resolve the future of a delivery."""
    if delivery.done():  # cancelled
        return
    if error is None:
        delivery.set_result(message)
        return
    failure = confluent_kafka.KafkaException(error)
    failure.__cause__ = error.__cause__ if isinstance(error, NotSentError) else None
    delivery.set_exception(failure)


def _serve(owner: weakref.ref[AsyncProducer], producer: Producer) -> None:
    """Serve a client's reports and callbacks, in a daemon thread, until its owner is closed or dropped."""
    while (there := owner()) is not None and there.is_served:
        del there
        try:
            producer.poll(_POLL_SECONDS)
        except Exception as error:  # noqa: BLE001  its owner interprets it
            if (there := owner()) is not None:
                there.note_failure(error)
                del there


def _log_failure(topic: str, task: asyncio.Task[Any]) -> None:
    """Log the failure of records whose caller is gone."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("a record of %s was not sent: %s", topic, error)
