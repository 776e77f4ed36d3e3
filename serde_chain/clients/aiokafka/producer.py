"""A producer around aiokafka's, with serializer chains for keys and values."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeAlias

from aiokafka import AIOKafkaProducer, errors
from aiokafka.structs import RecordMetadata

from payload_stores import forks
from payload_stores.options import Option, integer
from serde_chain.base import SupportsOffload, SupportsUploads
from serde_chain.catalogue import SERIALIZE
from serde_chain.chain import SerializerChain
from serde_chain.clients.aiokafka.topic_admin import AiokafkaAdmin
from serde_chain.clients.client_chains import ClientChains, delete_payload, warn_of_other_side
from serde_chain.clients.event_loop import Pace, Turns, in_daemon_thread, size_of, tell
from serde_chain.clients.limits import JAVA_OVERHEAD, LARGEST_MESSAGE
from serde_chain.clients.negotiation import Negotiation, keeps_order
from serde_chain.clients.outgoing import Attempt, Outgoing
from serde_chain.clients.sender import Sender
from serde_chain.clients.tables import TableRows
from serde_chain.clients.topic_limits import DESCRIBE_MS, LearntLimits, TopicLimits
from serde_chain.codec import Encoder, Record, frozen
from serde_chain.config import Config, Resolved
from serde_chain.record import ValueT
from serde_chain.transfer import Transfer, then

_log = logging.getLogger("serde_chain")

Delivery: TypeAlias = "asyncio.Future[RecordMetadata]"
OnDelivery: TypeAlias = Callable[[BaseException | None, RecordMetadata | None], Any]

_MAX_REQUEST: Final = Option("max.request.size", integer(1), 1_048_576, doc="aiokafka's max_request_size")
_CLEANING_SECONDS: Final = 5.0
_NEWS_SECONDS: Final = 1.0
# From the first record of a missing topic until its records fail, as in serde_chain.Producer. aiokafka itself asks for
# the topic for 40 s for each record.
_TOPIC_SECONDS: Final = 10.0
# Between questions for it, and for an answer.
_QUESTION_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 10.0
_LARGER: Final = "the record exceeds the client's max_request_size, and is not known to fit the topic's limit"
_TOO_LARGE: Final = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
# After these errors a record is in no log: the broker refused it.
_NEVER_WRITTEN: Final = (
    *_TOO_LARGE,
    errors.InvalidTopicError,
    errors.InvalidRequiredAcksError,
    errors.InvalidTimestampError,
    errors.PolicyViolationError,
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
)


class Producer(Generic[ValueT]):
    """aiokafka's ``AIOKafkaProducer`` with serializer chains, which get topic, key and headers of each record.

    Payloads that are too large for a record are uploaded without blocking the event loop; records of one topic leave in
    call order. The largest record is that of aiokafka's ``max_request_size``, or ``max.request.size`` if that is less.

    With ``large.message.threshold.bytes = auto``, and in hop's format, the broker is asked for the topic's limit,
    through aiokafka's own connections. The answer replaces aiokafka's default of ``max_request_size``, which is then
    raised; one that you set applies as well. Refused records are sent again, offloaded if necessary (always in order
    with ``max.in.flight.requests.per.connection = 1`` in the configuration), unless the producer is idempotent: its
    sequence numbers do not allow that.

    Args:
        producer: aiokafka's producer, with neither ``key_serializer`` nor ``value_serializer``. It is started and
            stopped with this one.
        config: A mapping, or the path of a TOML or Java ``.properties`` file. Only keys of chains, stages and stores
            are used.

    Raises:
        ConfigError: A chain's configuration is wrong.

    Example:
        >>> config = {"value.serializers": "json, zstd"}
        >>> async def main():
        ...     async with Producer(AIOKafkaProducer(bootstrap_servers="localhost:9092"), config) as producer:
        ...         await producer.send_and_wait("images", {"name": "M 51"}, key=b"M 51", headers=[("band", b"g")])
        >>> asyncio.run(main())  # doctest: +SKIP
    """

    def __init__(self, producer: AIOKafkaProducer, config: Config | Resolved | str | Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._producer = producer
        setup = ClientChains.of_writer(config)
        warn_of_other_side(setup, SERIALIZE)
        try:
            self._setup, self._limits, self._negotiation = _negotiated(setup, producer, self._loop)
            self._journal = setup.open_journal()
        except BaseException:
            setup.close()
            raise
        self._is_idempotent = _is_idempotent(producer)
        self._encoder = Encoder(self._setup.key, self._setup.value, blocks=False)
        in_flight, buffer_bytes = setup.upload_bounds
        self._sender = Sender(
            _Client(self, self._loop, setup.offloading),
            in_flight=in_flight,
            buffer_bytes=buffer_bytes,
            block_ms=setup.limit_ms,
            gate=self._negotiation,
            ledger=self._journal,
        )
        # Undelivered records that may be sent again.
        self._sent: set[Delivery] = set()
        self._topics: defaultdict[str, Turns] = defaultdict(Turns)
        # Until when topics are looked for that aiokafka does not know.
        self._sought: dict[str, float] = {}
        self._pace = Pace()
        self._is_stopped = False
        self._is_committing = False
        # A running commit or abort of the client.
        self._ending: asyncio.Future[None] | None = None
        forks.leave(self, Producer, "_producer", closing="stop")

    @property
    def client(self) -> Any:
        """The client of aiokafka's producer."""
        return self._producer.client

    async def start(self) -> None:
        """Connect to the cluster, and delete unsent payloads of a killed process."""
        await self._producer.start()
        if self._journal is not None and self._journal.left:
            self._sender.discard(self._journal.left)

    async def stop(self) -> None:
        """Send all queued records, then disconnect and close the chains and their stores."""
        if self._is_stopped:
            return
        self._is_stopped = True
        try:
            await self.flush()
            until = time.monotonic() + _CLEANING_SECONDS
            while self._sender.is_cleaning and time.monotonic() < until:
                await self._news()
        finally:
            await self._producer.stop()
            if self._ending is not None:
                self._ending.cancel()
            if self._limits is not None:
                self._limits.close()
            await in_daemon_thread(self._setup.close)
            if self._journal is not None:
                self._journal.close()

    async def send(  # noqa: PLR0917, the original's signature
        self,
        topic: str,
        value: ValueT | None = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes]] | None = None,
    ) -> Delivery:
        """Encode and send a record; see aiokafka's ``send``.

        Args:
            topic: Topic.
            value: Object for the value chain; None makes a tombstone.
            key: Object for the key chain.
            partition: Partition; None lets aiokafka choose by the encoded key.
            timestamp_ms: Record timestamp in ms since the epoch.
            headers: Headers; the caller's object is not changed.

        Returns:
            A future of the record's metadata; its exception may be a failed upload.

        Raises:
            SerializationError: A stage failed; nothing was sent.
            BufferError: Uploads filled ``large.message.buffer.bytes`` for ``max.block.ms``.
            aiokafka.errors.KafkaError: As in aiokafka.

        Example:
            >>> async def send(producer):
            ...     return await producer.send("images", {"name": "M 51"}, key=b"M 51")
        """
        if self._is_stopped:
            raise errors.ProducerClosed
        value, key = frozen(value), frozen(key)
        turns = self._topics[topic]
        delivery: Delivery = self._loop.create_future()
        size = size_of(value) + size_of(key)
        given = Record(topic, value, key, tuple(headers or ()), partition, timestamp_ms)
        encode = partial(self._encode, self._encoder, given, partial(_resolve, delivery))
        async with turns.lock:
            await self._pass_on(await turns.encode(encode, size))
        if self._pace.is_over():
            await asyncio.sleep(0)
        return delivery

    async def send_and_wait(  # noqa: PLR0917, the original's signature
        self,
        topic: str,
        value: ValueT | None = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes]] | None = None,
    ) -> RecordMetadata:
        """Send a record and wait for its delivery; see :meth:`send`."""
        return await (await self.send(topic, value, key, partition, timestamp_ms, headers))

    async def produce_arrow(
        self, table: Any, topic: str, key: str | None = None, *, on_delivery: OnDelivery | None = None
    ) -> int:
        """Encode and send the rows of a table, in order; see :meth:`serde_chain.Producer.produce_arrow`.

        Later calls for the topic wait for it. A cancelled call ends at its current row, which may have been sent.

        Args:
            table: A table with the Arrow PyCapsule interface, of pyarrow, Polars, DuckDB or pandas.
            topic: Topic.
            key: Name of the column of keys; None for records without keys.
            on_delivery: Called on the event loop with ``(error, metadata)`` for each record, in place of a future; one
                of them is None. The error of a failed upload has the position in ``row``. Default: errors are logged.

        Returns:
            Number of sent records: that of the rows.

        Raises:
            SerializationError: A row cannot be encoded; ``row`` is its position. The rows before it are sent.
            BufferError: There was no room for the row that it names; the rows before it are sent.
            ConfigError: There is no such column, or no chain of values.
            MissingDependencyError: The extra ``arrow`` is not installed.
            aiokafka.errors.KafkaError: As in aiokafka.

        Example:
            >>> async def send(producer, frame):
            ...     return await producer.produce_arrow(frame, "alerts", key="id")
        """
        if self._is_stopped:
            raise errors.ProducerClosed
        turns = self._topics[topic]
        report = partial(_log_failure, topic) if on_delivery is None else on_delivery
        chains = self._setup.key, self._setup.value
        with TableRows(*chains, table, topic, key, blocks=False) as rows:
            async with turns.lock:
                parts = rows.parts()
                while (part := await in_daemon_thread(next, parts, None)) is not None:
                    for value, own in part.pairs:
                        encode = partial(self._encode, part.encoder, Record(topic, value, own), report)
                        await self._pass_on(await turns.encode(encode, size_of(value)))
                        rows.row += 1
                        if self._pace.is_over():
                            await asyncio.sleep(0)
        return rows.row

    def _encode(self, encoder: Encoder, record: Record, on_delivery: OnDelivery) -> Any:
        """The encoded record, or a transfer that leads to it."""
        return then(encoder.encode_in_call(record), lambda encoded: Outgoing.of(record, encoded, on_delivery))

    async def _pass_on(self, record: Outgoing) -> None:
        """Pass a record to aiokafka, or to the sender if its payload or an earlier record is waiting."""
        if isinstance(record.step, Transfer) or not self._sender.enter(record) or not self._is_admitted(record):
            await self._put(record)
            return
        try:
            await self.hand_over(record)
        except BaseException:
            if self._negotiation is not None:
                self._negotiation.withdraw(record)
            raise

    def _is_admitted(self, record: Outgoing) -> bool:
        return self._negotiation is None or self._negotiation.admit_now(record)

    async def _put(self, record: Outgoing) -> None:
        until = time.monotonic() + self._setup.limit_ms / 1000
        while not self._sender.offer(record):
            if time.monotonic() >= until:
                raise BufferError(
                    f"uploads fill large.message.buffer.bytes, and none was finished within {self._setup.limit_ms} ms"
                )
            await self._news(lambda: self._sender.has_room(record.size))

    async def _news(self, is_there: Callable[[], bool] | None = None) -> None:
        """Wait up to a second until a record has left or a payload was deleted."""
        event = asyncio.Event()
        self._sender.call_on_change(partial(tell, self._loop, event.set))
        if is_there is not None and is_there():
            return
        try:
            async with asyncio.timeout(_NEWS_SECONDS):
                await event.wait()
        except TimeoutError:
            self._sender.wake()

    async def hand_over(self, record: Outgoing) -> None:
        """Pass an encoded record to aiokafka; for the sender."""
        attempt: Attempt | None = record.state
        if attempt is not None and attempt.is_too_large:
            raise errors.MessageSizeTooLargeError(_LARGER)
        if self._producer.client.cluster.partitions_for_topic(record.topic) is None:
            await self._find(record.topic)
        elif self._sought:
            self._sought.pop(record.topic, None)  # it was created: if it goes again, the time begins anew
        sent = await self._producer.send(
            record.topic,
            value=_as_bytes(record.step),
            key=_as_bytes(record.key),
            partition=None if record.partition < 0 else record.partition,
            timestamp_ms=record.timestamp or None,
            headers=record.headers,
        )
        if self._negotiation is not None:
            self._sent.add(sent)
        sent.add_done_callback(partial(self._delivered, record))

    async def _find(self, topic: str) -> None:
        """Refuse a topic that does not exist, once a broker says so and there was time to create it."""
        client = self._producer.client
        until = self._sought.setdefault(topic, time.monotonic() + _TOPIC_SECONDS)
        client.add_topic(topic)
        answers = 0
        while client.cluster.partitions_for_topic(topic) is None:
            # The first answer may be one to a question about the topics before this one.
            if answers > 1 and time.monotonic() >= until:
                raise errors.UnknownTopicOrPartitionError(
                    f"the topic {topic!r} does not exist, or has no leader yet: create it, or correct its name"
                )
            if answers > 1:
                await asyncio.sleep(_QUESTION_SECONDS)
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    is_answered = await client.force_metadata_update()
            except TimeoutError:
                is_answered = False
            if not is_answered or topic in client.cluster.unauthorized_topics:
                break  # aiokafka waits for the brokers as long as its user wants, and has an error for this
            answers += 1
        self._sought.pop(topic, None)

    def _delivered(self, record: Outgoing, sent: Delivery) -> None:
        error = asyncio.CancelledError() if sent.cancelled() else sent.exception()
        if self._negotiation is not None and self._goes_again(self._negotiation, record, sent, error):
            return
        if error is not None and isinstance(error, _NEVER_WRITTEN):
            self._sender.discard(record.made)
        if record.on_delivery is not None:
            record.on_delivery(error, None if error is not None else sent.result())

    def _goes_again(
        self, negotiation: Negotiation, record: Outgoing, sent: Delivery, error: BaseException | None
    ) -> bool:
        """Settle a record's delivery; returns whether it is sent again, since its topic's limit is lower by now."""
        attempt: Attempt = record.state
        attempt.is_refused = (
            isinstance(error, _TOO_LARGE) and not self._is_idempotent and negotiation.may_go_again(attempt)
        )
        attempt.report = error if attempt.is_refused else None
        if not attempt.is_refused:
            negotiation.count_off(attempt)
        if attempt.is_refused or not self._sender.is_idle:
            self._sender.settle(attempt)
        self._sent.discard(sent)
        return attempt.is_refused

    async def flush(self) -> None:
        """Wait until all records are delivered."""
        while True:
            await self._uploaded()
            await self._producer.flush()
            if not self._sent and self._sender.is_idle:
                return
            if self._sent:
                await asyncio.wait(self._sent)

    async def _uploaded(self) -> None:
        while not self._sender.is_idle:
            await self._news(lambda: self._sender.is_idle)

    async def partitions_for(self, topic: str) -> Any:
        """The partitions of a topic."""
        return await self._producer.partitions_for(topic)

    async def begin_transaction(self) -> None:
        """Begin a transaction, which includes the payloads of its records.

        If the previous commit or abort was cancelled, this waits for its end.
        """
        await self._ended()
        await self._producer.begin_transaction()
        self._is_committing = False
        self._sender.begin_transaction()

    async def commit_transaction(self) -> None:
        """Commit the transaction, once all uploads are done.

        Raises:
            SerializationError: An upload failed: the transaction must be aborted.
        """
        await self._uploaded()
        if self._sender.failure is not None:
            raise self._sender.failure
        self._is_committing = True
        await in_daemon_thread(self._sender.commit)
        await self._end(self._producer.commit_transaction())
        self._sender.end(delete=False)

    async def abort_transaction(self) -> None:
        """Abort the transaction and delete its payloads.

        Raises:
            aiokafka.errors.IllegalOperation: A cancelled call is still committing or aborting it.
        """
        if self._ending is not None:
            raise errors.IllegalOperation("the transaction is about to end: begin_transaction waits until it has")
        self._sender.purge(errors.ProducerClosed("the transaction was aborted"))
        await self._uploaded()
        try:
            await self._end(self._producer.abort_transaction())
        except errors.ProducerFenced:
            # The broker has aborted it for the next producer, unless it was committed before.
            self._sender.end(delete=not self._is_committing)
            raise
        self._sender.end(delete=True)

    async def _end(self, ending: Coroutine[Any, Any, None]) -> None:
        """End the client's transaction; continues if the caller is cancelled."""
        self._ending = task = asyncio.ensure_future(ending)
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._ending = None

    async def _ended(self) -> None:
        """Wait for the end of a transaction whose caller was cancelled; abort it if the commit failed."""
        if self._ending is None:
            return
        await asyncio.wait([self._ending])
        ending, self._ending = self._ending, None
        if (error := ending.exception()) is not None:
            if isinstance(error, errors.ProducerFenced):
                raise error
            await self.abort_transaction()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction around a ``with`` block: committed at its end, aborted if the block raises.

        If the commit is cancelled, by a timeout for example, it continues: its outcome is unknown, and its payloads
        stay. The next transaction begins after its end.
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except errors.ProducerFenced:
            raise  # nothing is left to abort
        except BaseException:
            is_over = self._producer._txn_manager.is_fatal_error()  # noqa: SLF001, as aiokafka's own transaction()
            if self._ending is None and not is_over:
                await self.abort_transaction()
            raise

    async def send_offsets_to_transaction(self, offsets: Mapping[Any, Any], group_id: str) -> None:
        """Add a consumer's offsets to the transaction."""
        await self._producer.send_offsets_to_transaction(offsets, group_id)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()  # the next attempt's producer needs the journal
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class _Client:
    """aiokafka's producer as a sender's client (:class:`~serde_chain.clients.outgoing.Client`).

    Args:
        producer: The producer around it.
        loop: Its event loop.
        stages: The stages that offload.
    """

    def __init__(self, producer: Producer, loop: asyncio.AbstractEventLoop, stages: Sequence[SupportsUploads]) -> None:
        self._producer = producer
        self._loop = loop
        self._stages = stages

    def send(self, record: Outgoing) -> None:
        """Pass the record to aiokafka, and wait until it has it."""
        handing = self._producer.hand_over(record)
        record.context.run(asyncio.run_coroutine_threadsafe, handing, self._loop).result()

    def failed(self, record: Outgoing, error: BaseException) -> None:
        """Resolve the record's future."""
        attempt: Attempt | None = record.state
        if attempt is not None and attempt.report is not None:
            # Refused for its size: this is the error, regardless of why it was not sent again.
            _log.warning("a record of %s that was too large could not be sent again: %s", record.topic, error)
            error = attempt.report
        if record.on_delivery is not None:
            tell(self._loop, record.on_delivery, error, None)

    def delete(self, reference: str) -> None:
        """Delete a payload."""
        delete_payload(self._stages, reference)


def _negotiated(
    setup: ClientChains[SerializerChain], producer: AIOKafkaProducer, loop: asyncio.AbstractEventLoop
) -> tuple[ClientChains[SerializerChain], TopicLimits | None, Negotiation | None]:
    """The chains with aiokafka's limits; if a stage negotiates, the limits of topics, and the gate of records.

    Raises:
        ConfigError: A threshold is above the client's limit.
    """
    own: int = producer._max_request_size  # noqa: SLF001, aiokafka has no public name for it, nor for those below
    is_set = own != _MAX_REQUEST.default or _MAX_REQUEST.name in setup.config
    max_bytes = min(own, _MAX_REQUEST.read(setup.config)) if _MAX_REQUEST.name in setup.config else own
    learnt_max_bytes = (max_bytes if is_set else LARGEST_MESSAGE) - JAVA_OVERHEAD
    limits = LearntLimits(
        partial(AiokafkaAdmin, producer.client, loop),
        max_bytes - JAVA_OVERHEAD,
        setting=_MAX_REQUEST.name,
        timeout_ms=min(DESCRIBE_MS, setup.limit_ms),
        learnt_max_bytes=learnt_max_bytes,
        sends_again=not _is_idempotent(producer),
    )
    setup = setup.with_limits(limits)
    if limits.topics is None:
        return setup, None, None
    if not is_set:
        producer._max_request_size = LARGEST_MESSAGE  # noqa: SLF001
    last = setup.value.stages[-1] if setup.value is not None else None
    negotiation = Negotiation(
        limits.topics,
        last if isinstance(last, SupportsOffload) else None,
        batch_bytes=producer._message_accumulator._batch_size,  # noqa: SLF001
        message_max_bytes=max_bytes - JAVA_OVERHEAD,
        learnt_max_bytes=learnt_max_bytes,
        in_order=keeps_order(setup.config),
    )
    return setup, limits.topics, negotiation


def _is_idempotent(producer: AIOKafkaProducer) -> bool:
    return producer._txn_manager is not None  # noqa: SLF001


def _resolve(delivery: Delivery, error: BaseException | None, metadata: RecordMetadata | None) -> None:
    if delivery.done():
        return
    if error is not None:
        delivery.set_exception(error)
    elif metadata is not None:
        delivery.set_result(metadata)


def _log_failure(topic: str, error: BaseException | None, _metadata: RecordMetadata | None) -> None:
    if error is not None:
        _log.error("a record of %s was not sent: %s", topic, error)


def _as_bytes(data: Any) -> Any:
    """Bytes for aiokafka."""
    return data if data is None or isinstance(data, bytes) else data.encode() if isinstance(data, str) else bytes(data)
