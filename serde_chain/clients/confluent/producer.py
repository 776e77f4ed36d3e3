"""A producer with serializer chains for keys and values."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Generic, Self

import confluent_kafka

from payload_stores import forks
from payload_stores.callbacks import shielded
from payload_stores.client_log import with_log
from payload_stores.options import Option, boolean, integer
from payload_stores.signals import let_through
from payload_stores.threads import run_in_daemon_thread
from serde_chain import base
from serde_chain.catalogue import SERIALIZE
from serde_chain.clients.client_chains import ClientChains, warn_of_other_side
from serde_chain.clients.confluent.outbox import OnDelivery, Outbox, advise, check_arguments, produce_of, purged
from serde_chain.clients.confluent.plain_produce import plain_produce
from serde_chain.clients.confluent.transactions import (
    NO_PAYLOADS,
    Fatal,
    TransactionPayloads,
    Transactions,
    reraise,
)
from serde_chain.clients.limits import LARGEST_MESSAGE, MESSAGE_MAX
from serde_chain.clients.outgoing import Outgoing
from serde_chain.clients.sender import Sender
from serde_chain.clients.timeouts import client_timeout, deadline
from serde_chain.codec import Encoded, Encoder, Record, frozen
from serde_chain.config import load
from serde_chain.errors import ConfigError
from serde_chain.record import KEY, VALUE, Headers, ValueT
from serde_chain.transfer import Transfer, finish, then

if TYPE_CHECKING:
    from pathlib import Path

    from serde_chain.chain import SerializerChain
    from serde_chain.clients.journal import Journal
    from serde_chain.clients.negotiation import Negotiation
    from serde_chain.clients.tables import TablePart
    from serde_chain.clients.topic_limits import LearntLimits, TopicLimits

_BATCH_SIZE: Final = Option("batch.size", integer(1), 1_000_000)
_QUEUE_MESSAGES: Final = Option("queue.buffering.max.messages", integer(0), 100_000)
_QUEUE_KBYTES: Final = Option("queue.buffering.max.kbytes", integer(1), 1_048_576)
_COPY_MAX: Final = "message.copy.max.bytes"
_COPIED_BYTES: Final = 4096
_TRANSACTIONAL_ID: Final = "transactional.id"
_IDEMPOTENCE: Final = Option("enable.idempotence", boolean, False)
_TRANSACTION_MS: Final = Option("transaction.timeout.ms", integer(1), 60_000)
_ERRORS_ONLY: Final = Option("delivery.report.only.error", boolean, False)
# Until records for a missing topic fail. A new topic reaches all brokers within seconds; librdkafka's own 30 s outlast
# what most programs wait for their first records.
_PROPAGATION: Final = {"topic.metadata.propagation.max.ms": 10_000}
_CALLBACKS: Final = frozenset({"error_cb", "oauth_cb", "on_delivery", "stats_cb", "throttle_cb"})
# Longest wait for the client between two checks of the sender.
_POLL_SECONDS: Final = 0.02
_PURGE_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 10.0

_log = logging.getLogger("serde_chain")


class Producer(Generic[ValueT]):
    """confluent_kafka's ``Producer``, with ``key.serializers`` and ``value.serializers`` in its configuration.

    It has all calls of the original, with the same behaviour; ``produce`` accepts objects, which the chains turn into
    bytes. A field without a chain is passed on unchanged, with a warning if the configuration has a chain for values
    only for readers.

    Values are encoded in the thread that calls ``produce``. Other threads upload payloads that are too large for a
    record, ``large.message.uploads.in.flight`` (default 8) at a time. Records of one topic leave in call order, small
    and large alike. While waiting records hold more than ``large.message.buffer.bytes`` (default 256 MiB), ``produce``
    blocks for up to ``max.block.ms`` (default 60000). A failed upload is reported to ``on_delivery``.

    With ``large.message.threshold.bytes = auto``, and in hop's format, the producer asks the broker for the topic's
    limit, and its own gives way to that unless ``message.max.bytes`` is set. Small records do not wait for the answer.
    If the broker refuses a batch for its size, its records are sent again, offloaded if necessary; with
    ``max.in.flight.requests.per.connection = 1``, always in order.

    ``Producer[Alert]`` lets type checkers check the values of ``produce``.

    Records for a topic that does not exist fail after 10 s, unless ``topic.metadata.propagation.max.ms`` says otherwise
    (30 s in confluent_kafka).

    A producer that is dropped without :meth:`close` is closed in a daemon thread, with a ``ResourceWarning``. Its
    callbacks are called there. Records unsent at the end of the process are lost.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092", "value.serializers": "json, zstd"}
        >>> with Producer(config) as producer:  # doctest: +SKIP
        ...     producer.produce("images", {"name": "M 51"}, key=b"M 51")
        ...     producer.flush(30)
    """

    # Whether a call waits for registry lookups and the like, where its thread is.
    _blocks = True
    # Of the process that made it; set last.
    _pid: int | None = None

    def __init__(
        self,
        config: Mapping[str, object] | str | Path | None = None,
        /,
        *,
        automatic_offload: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a producer.

        Args:
            config: A mapping, or the path of a TOML or Java ``.properties`` file. Keys of chains, stages and stores are
                read here; the rest is passed to confluent_kafka unchanged, except for keys of consumers.
            automatic_offload: Whether large messages may be offloaded to hop; overrides the configuration's key of
                that name.
            **kwargs: Further keys, such as ``logger``; they override those of ``config``.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        if automatic_offload is not None:
            kwargs["automatic_offload"] = automatic_offload
        setup = ClientChains.of_writer({**load(config or {}), **kwargs})
        warn_of_other_side(setup, SERIALIZE)
        self._journal: Journal | None = None
        try:
            limits: LearntLimits | None = None
            if setup.moves_payloads:
                setup, limits = limited(setup)
            topics = None if limits is None else limits.topics
            self._journal = setup.open_journal()
            is_idempotent = _TRANSACTIONAL_ID in setup.client or _IDEMPOTENCE.read(setup.config)
            client = with_log(_PROPAGATION | (setup.client if topics is None else _giving_way(setup)))
            self._producer = confluent_kafka.Producer(_shielded(client) if is_idempotent else client)
            setup, self._payloads = _with_payloads(setup, self._producer)
            setup.set_cluster(self._producer.cluster_id)
        except BaseException:
            if self._journal is not None:
                self._journal.close()
            setup.close()
            raise
        self._setup = setup
        self._is_closed = self._is_drained = False
        self._key, self._value = setup.key, setup.value
        self._encoder = Encoder(setup.key, setup.value, blocks=self._blocks)
        self._limits = limits
        self._topics = topics  # if a stage negotiates
        negotiation = None if topics is None else _negotiation(setup, topics)
        own = setup.client.get("on_delivery")
        errors_only = _ERRORS_ONLY.read(setup.config)
        checks_reports = is_idempotent and not errors_only
        reporting = {"checks_reports": checks_reports, "errors_only": errors_only}
        self._outbox = Outbox(self._producer, setup.offloading, negotiation, own, **reporting)
        # Other producers have no fatal errors, from which callbacks must be shielded.
        self._send = self._outbox.produce if is_idempotent else produce_of(self._producer)
        in_flight, buffer_bytes = setup.upload_bounds
        self._sender = Sender(
            self._outbox,
            in_flight=in_flight,
            buffer_bytes=buffer_bytes,
            block_ms=setup.limit_ms,
            gate=negotiation,
            ledger=self._journal,
        )
        self._outbox.attach(self._sender)
        if self._journal is not None and (left := self._journal.left):
            _log.info("deleting %d payloads that a killed producer had uploaded and not sent", len(left))
            self._sender.discard(left)
        self._transactions = Transactions(
            *(self._producer, self._sender, self._outbox, setup.for_readers, self._wait),
            payloads=self._payloads,
        )
        # No payload is uploaded for a record for which the client has no room.
        self._room = _QUEUE_MESSAGES.read(setup.config) if setup.moves_payloads else sys.maxsize
        if type(self).produce is Producer.produce and self._topics is None:
            # A closure over local names; not for subclasses that override produce.
            vars(self)["produce"] = plain_produce(self._send, setup.key, setup.value, self.produce, self._sender.last)
        self._pid = os.getpid()
        forks.leave(self, Producer, "_producer", closed=True)

    def __del__(self) -> None:
        # Records in flight hold callbacks that hold the client, a cycle that the garbage collector cannot see.
        if sys.is_finalizing() or self._pid != os.getpid() or self._is_closed:
            return
        left = len(self)
        if left:  # the client counts other events too
            _log.warning("a producer was dropped with at most %d records on their way: call close() before", left)
        try:
            run_in_daemon_thread(self._close_dropped)
        finally:
            message = f"{self!r} was dropped without close(), with at most {left} records on their way"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)

    def _close_dropped(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001  there is no caller left
            _log.warning("a producer that was dropped could not be closed: %s", error)

    def produce(  # noqa: PLR0917, the original's signature
        self,
        topic: str,
        value: ValueT | None = None,
        key: Any = None,
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Encode a record and pass it to the client.

        Args:
            topic: Topic.
            value: Object for the value chain; None makes a tombstone.
            key: Object for the key chain.
            partition: Partition; -1 lets the client choose by the encoded key.
            callback: Alias of ``on_delivery``; takes precedence.
            on_delivery: Called with ``(error, message)`` from :meth:`poll` or :meth:`flush`.
            timestamp: Record timestamp in ms since the epoch; 0 for now.
            headers: Headers; the caller's object is not changed.

        Raises:
            SerializationError: A stage failed; nothing was sent. A later error of a store is the ``__cause__`` of the
                error reported to ``on_delivery``; without a callback, it is logged.
            BufferError: The client's queue is full, or uploads filled ``large.message.buffer.bytes`` for
                ``max.block.ms``. Nothing was uploaded or sent.
            confluent_kafka.KafkaException: As in ``confluent_kafka.Producer.produce``.

        Example:
            >>> producer.produce("images", {"name": "M 51"}, key=b"M 51", headers=[("band", b"g")])  # doctest: +SKIP
        """
        callback = on_delivery if callback is None else callback
        if self._key is None and self._value is None and self._topics is None:
            self._send(topic, value, key, partition, callback, None, timestamp, headers or None)
            return
        check_arguments(topic, key if self._key is None else None, partition, timestamp, headers)
        at = None if partition == -1 else partition
        self._produce_in_full(self._encoder, Record(topic, value, key, headers, at, timestamp or None), callback)

    def _produce_in_full(self, encoder: Encoder, record: Record, callback: OnDelivery | None) -> None:
        """Encode a record by the full path, and pass it on."""
        if self._room != sys.maxsize:
            if self._is_closed:
                raise RuntimeError("Producer has been closed")
            if len(self) >= self._room:
                raise BufferError("Local: Queue full")
            if (value := frozen(record.value)) is not record.value:
                record = record._replace(value=value)
        step = encoder.encode_in_call(record)
        if isinstance(step, Transfer):
            self._finish_call(then(step, partial(self._hand_over, record, callback)))
        else:
            self._hand_over(record, callback, step)

    def _finish_call(self, step: Transfer[Any]) -> None:
        """Run the transfers of a call, such as a registry lookup; the last one hands the record over."""
        finish(step)

    def _hand_over(self, record: Record, callback: OnDelivery | None, encoded: Encoded) -> None:
        """Hand an encoded record to the client, or to the sender if its payload or an earlier record is waiting."""
        key, value, headers = encoded
        if self._topics is not None or isinstance(value, Transfer) or not self._sender.is_clear(record.topic):
            outgoing = Outgoing.of(record, encoded, callback)
            if not isinstance(value, Transfer) and self._sender.enter(outgoing) and self._outbox.send_now(outgoing):
                return
            is_served = self._topics is not None or self._payloads is not NO_PAYLOADS
            self._sender.put(outgoing, while_waiting=self._serve if is_served else None)
            return
        topic, _, _, _, partition, timestamp, _ = record
        partition = -1 if partition is None else partition
        # Positional: keywords would cost as much as the chain of a small record.
        try:
            self._send(topic, value, key, partition, callback, None, timestamp or 0, headers or None)
        except confluent_kafka.KafkaException as error:
            advise(error, topic)
            raise

    def has_room(self, size: int) -> bool:
        """Whether ``produce`` would accept a record of a size in bytes without waiting for uploads.

        Example:
            >>> producer.has_room(1000)  # doctest: +SKIP
            True
        """
        return self._sender.has_room(size)

    def _serve(self) -> None:
        """Let deliveries make room in batches; not from a delivery callback, which may only wait for uploads."""
        if not self._outbox.is_calling():
            self._producer.poll(0)
            self._outbox.recover()

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Encode and pass on several records; unlike the original, it keeps headers.

        Args:
            topic: Topic.
            messages: Mappings with ``value``, ``key``, ``partition``, ``timestamp``, ``headers``, ``callback``, all
                optional. A message that cannot be encoded or queued gets an ``_error``.
            partition: Partition of messages without one.
            callback: Alias of ``on_delivery``.
            on_delivery: Callback of messages without one.

        Returns:
            Number of queued records.

        Raises:
            TypeError: An argument, a message or its partition has a wrong type; as for keys and values without a chain.
            RuntimeError: The producer is closed.

        Example:
            >>> messages = [{"value": {"name": "M 51"}}, {"value": {"name": "M 87"}, "key": b"M 87"}]
            >>> producer.produce_batch("images", messages)  # doctest: +SKIP
            2
        """
        self._check_batch(topic, messages, partition)
        queued = 0
        for message in messages:
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    on_delivery=message.get("callback", on_delivery if callback is None else callback),
                    timestamp=message.get("timestamp", 0),
                    headers=message.get("headers"),
                )
            except Exception as error:  # noqa: BLE001, as in the original: the batch continues, the message carries the error
                let_through(error)
                message["_error"] = error
            else:
                queued += 1
        return queued

    def produce_arrow(
        self, table: Any, topic: str, key: str | None = None, *, on_delivery: OnDelivery | None = None
    ) -> int:
        """Encode and pass on the rows of a table, in order; each is a record, as with :meth:`produce`.

        The first stage of values takes whole columns if it can: :meth:`SerializerChain.from_arrow` says which do. While
        the client's queue is full, the call serves delivery callbacks, and waits for up to ``max.block.ms`` for each
        row.

        Args:
            table: A table with the Arrow PyCapsule interface, of pyarrow, Polars, DuckDB or pandas.
            topic: Topic.
            key: Name of the column of keys, which are objects for the key chain; it stays in the value. None for
                records without keys.
            on_delivery: Called with ``(error, message)`` for each record. If its upload failed, the store's error, the
                ``__cause__``, has the position in ``row``.

        Returns:
            Number of queued records: that of the rows.

        Raises:
            SerializationError: A row cannot be encoded; ``row`` is its position. The rows before it are queued.
            BufferError: There was no room for the row that it names; the rows before it are queued.
            ConfigError: There is no such column, or no chain of values.
            MissingDependencyError: The extra ``arrow`` is not installed.

        Example:
            >>> producer.produce_arrow(polars.read_parquet("alerts.parquet"), "alerts", key="id")  # doctest: +SKIP
            10000
        """
        from serde_chain.clients.tables import TableRows  # few programs write tables

        with TableRows(self._key, self._value, table, topic, key, blocks=self._blocks) as rows:
            for part in rows.parts():
                produce = self._way_of(part)
                for value, own in part.pairs:
                    self._produce_waiting(produce, topic, value, own, on_delivery)
                    rows.row += 1
        return rows.row

    def _way_of(self, part: TablePart) -> Callable[..., None]:
        """``produce`` for a part of a table."""

        def in_full(topic: str, value: Any, key: Any, _partition: int, callback: OnDelivery | None, *_: Any) -> None:
            check_arguments(topic, key if self._key is None else None, -1, 0, None)
            self._produce_in_full(part.encoder, Record(topic, value, key), callback)

        if self._topics is not None:
            return in_full
        return plain_produce(self._send, self._key, part.rest, in_full, self._sender.last)

    def _produce_waiting(
        self, produce: Callable[..., None], topic: str, value: Any, key: Any, on_delivery: OnDelivery | None
    ) -> None:
        """Produce a record, waiting for room in the client's queue."""
        until: float | None = None
        while True:
            try:
                return produce(topic, value, key, -1, on_delivery)
            except BufferError:
                now = time.monotonic()
                until = now + self._setup.limit_ms / 1000 if until is None else until
                if now >= until or self._outbox.is_calling():
                    raise
                self.poll(_POLL_SECONDS)

    def _check_batch(self, topic: str, messages: list[dict[str, Any]], partition: int) -> None:
        """Raise the errors that the original raises before it sends a message."""
        if not isinstance(messages, list):
            raise TypeError(f"messages are a list, not {type(messages).__name__}")
        check_arguments(topic, None, partition, 0, None)
        if messages and self._is_closed:
            raise RuntimeError("Producer has been closed")
        unchained = [name for name, chain in ((VALUE, self._value), (KEY, self._key)) if chain is None]
        for at, message in enumerate(messages):
            if not isinstance(message, dict):
                raise TypeError(f"message {at} is {type(message).__name__}, not a dict")
            if not isinstance(message.get("partition", -1), int):
                raise TypeError(f"the partition of message {at} is no int")
            for name in unchained:
                if not isinstance(message.get(name), (bytes, str, NoneType)):
                    raise TypeError(f"the {name} of message {at} is {type(message[name]).__name__}, not bytes or str")

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks, waiting up to ``timeout`` seconds; -1 waits forever. Returns how many were served."""
        try:
            if self._sender.is_idle and self._topics is None:
                served = self._sender.serve() or self._producer.poll(timeout)
                self._outbox.recover()
                return served
            return self._poll_and_send(timeout)
        except confluent_kafka.KafkaException as error:
            reraise(error)

    def _poll_and_send(self, timeout: float) -> int:
        """Serve callbacks while records wait in the sender."""
        until = deadline(timeout)
        while True:
            left = max(0.0, until - time.monotonic())
            served = self._sender.serve()
            is_waiting = not (served or self._sender.is_idle)
            if is_waiting:
                self._sender.wake()
            served += self._producer.poll(
                min(_POLL_SECONDS, left) if is_waiting else 0 if served else client_timeout(left)
            )
            self._outbox.recover()
            if served or time.monotonic() >= until:
                return served

    def flush(self, timeout: float = -1) -> int:
        """Wait up to ``timeout`` seconds until all records are delivered. Returns the number of remaining records."""
        until = deadline(timeout)
        while True:
            left = max(0.0, until - time.monotonic())
            try:
                if self._sender.is_idle:
                    self._producer.flush(client_timeout(left))
                else:
                    self._sender.wake()
                    self._wait(left)
            except confluent_kafka.KafkaException as error:
                reraise(error)
            self._outbox.recover()
            self._sender.serve()
            if (self._sender.is_idle and not len(self._producer)) or time.monotonic() >= until:
                return len(self)

    def _wait(self, seconds: float) -> None:
        """Wait briefly for progress of the sender, serving the client's callbacks."""
        moment = min(_POLL_SECONDS, seconds)
        if self._topics is not None or self._payloads.is_waiting:
            self._producer.poll(moment)  # the next record or its payload may wait for a delivery
        else:
            self._sender.wait(moment)
            self._producer.poll(0)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop queued or in-flight records, and delete the payloads of records that were never sent.

        The payload of an in-flight record stays, since the record may be in the topic.
        """
        if in_queue:
            self._sender.purge(purged())
        self._producer.purge(in_queue, in_flight, blocking)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Cluster metadata; ``timeout`` in seconds."""
        which: dict[str, Any] = {} if topic is None else {"topic": topic}
        return self._producer.list_topics(**which, timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Id of the cluster; ``timeout`` in seconds."""
        return self._producer.cluster_id(timeout)

    def init_transactions(self, timeout: float = -1) -> None:
        """Prepare for transactions; ``timeout`` in seconds."""
        self._producer.init_transactions(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction, which includes the payloads of its records."""
        self._transactions.begin()

    def send_offsets_to_transaction(
        self, positions: list[confluent_kafka.TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Add a consumer's offsets to the transaction; ``timeout`` in seconds."""
        self._producer.send_offsets_to_transaction(positions, group_metadata, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit the transaction, once all uploads are done; ``timeout`` in seconds.

        Raises:
            confluent_kafka.KafkaException: As in the original. If an upload failed, or the broker did not report a
                payload's position, the error has ``txn_requires_abort()``. If the outcome is unknown, no payload is
                deleted.
        """
        self._transactions.commit(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction and delete its payloads; ``timeout`` in seconds.

        Payloads with content ids, which other records may share, are not deleted.
        """
        self._transactions.abort(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Change the SASL credentials of future connections."""
        self._producer.set_sasl_credentials(username, password)

    def close(self) -> bool:
        """Send all queued records, then close the client, the chains and their stores.

        An interrupt drops unsent records: their callbacks get an error, and a warning names their number.

        Raises:
            confluent_kafka.KafkaException: A fatal error that no earlier call has raised; for example, another producer
                has fenced this one. It is closed nevertheless.
        """
        if self._is_closed:
            return True
        try:
            fatal = Fatal()
            if not self._is_drained:
                with fatal:
                    if count := self.flush(_PATIENCE_SECONDS):
                        _log.warning(
                            "closing the producer waits for at most %d records, up to message.timeout.ms", count
                        )
                        self.flush()
                if fatal.error is not None:
                    self._give_up()
        except BaseException:
            self._give_up()
            raise
        finally:
            self._is_drained = True  # an interrupted call may have closed the client, which cannot be flushed then
            try:
                self._finish_cleaning()
                is_closed = self._producer.close()
            finally:
                if self._journal is not None:
                    self._journal.close()
                if self._limits is not None:
                    self._limits.close()
                self._setup.close()
            vars(self).pop("produce", None)  # it refers to this object
            self._is_closed = is_closed  # last: after an interrupt, the next call closes what is left
        if fatal.error is not None and not self._transactions.has_ended:
            raise confluent_kafka.KafkaException(fatal.error)
        return self._is_closed

    def _finish_cleaning(self) -> None:
        until = time.monotonic() + _PURGE_SECONDS
        while self._sender.is_cleaning and time.monotonic() < until:
            self._sender.wait(until - time.monotonic())

    def _give_up(self) -> None:
        if count := len(self):
            # The client counts other events too.
            _log.warning("closing the producer was interrupted: at most %d undelivered records are dropped", count)
            self.purge()
        with Fatal():
            self.flush(_PURGE_SECONDS)

    def __len__(self) -> int:
        return len(self._producer) + len(self._sender)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _with_payloads(
    setup: ClientChains[SerializerChain], producer: confluent_kafka.Producer
) -> tuple[ClientChains[SerializerChain], TransactionPayloads]:
    """The setup with payloads in the producer's transactions, if it has any and the store supports that."""
    if _TRANSACTIONAL_ID not in setup.client or not setup.joins_transactions:
        return setup, NO_PAYLOADS
    if _ERRORS_ONLY.read(setup.config):
        raise ConfigError(
            f"{_ERRORS_ONLY.name} keeps the payload store from learning where it has written",
            hint="Leave it out, or use a store outside of Kafka",
            key=_ERRORS_ONLY.name,
        )
    from serde_chain.clients.confluent.payload_writer import PayloadWriter

    writer = PayloadWriter(producer, MESSAGE_MAX.read(setup.config), _TRANSACTION_MS.read(setup.config) / 1000)
    return setup.within(writer), writer


def _shielded(client: Mapping[str, Any]) -> dict[str, Any]:
    """A client's settings with callbacks that run even after a fatal error."""
    return {name: shielded(value) if name in _CALLBACKS and value else value for name, value in client.items()}


def _negotiation(setup: ClientChains[SerializerChain], topics: TopicLimits) -> Negotiation:
    from serde_chain.clients.negotiation import Negotiation, keeps_order  # few producers negotiate

    last = setup.value.stages[-1] if setup.value is not None else None
    learnt_max_bytes = _learnt_max(setup.config)
    return Negotiation(
        topics,
        last if isinstance(last, base.SupportsOffload) else None,
        batch_bytes=min(_BATCH_SIZE.read(setup.config), learnt_max_bytes),
        message_max_bytes=MESSAGE_MAX.read(setup.config),
        learnt_max_bytes=learnt_max_bytes,
        in_order=keeps_order(setup.config),
    )


def _giving_way(setup: ClientChains[SerializerChain]) -> dict[str, Any]:
    """The client's settings, with a limit that gives way to those of topics.

    For each batch, librdkafka allocates room for all records that wait for their partition, up to ``message.max.bytes``
    and, for each record, to ``message.copy.max.bytes``: gigabytes for a long queue, if both were large.
    """
    most = _learnt_max(setup.config)
    if most == MESSAGE_MAX.read(setup.config):
        return setup.client
    return {_COPY_MAX: _COPIED_BYTES, **setup.client, MESSAGE_MAX.name: most}


def _learnt_max(config: Mapping[str, object]) -> int:
    """The client's limit where the topic's is known: the one that the user has set, or one that gives way.

    A record also has to fit into the client's queue.
    """
    most = MESSAGE_MAX.read(config)
    if config.get(MESSAGE_MAX.name) is not None:
        return most
    return max(most, min(LARGEST_MESSAGE, _QUEUE_KBYTES.read(config) * 1024))


def limited(setup: ClientChains[SerializerChain]) -> tuple[ClientChains[SerializerChain], LearntLimits]:
    """The chains with the client's limits: they also offload payloads that the client would refuse.

    Returns:
        The setup, and its limits.

    Raises:
        ConfigError: A threshold is above the client's limit.
    """
    # Only for producers with a payload store.
    from serde_chain.clients.confluent.topic_admin import ConfluentAdmin
    from serde_chain.clients.topic_limits import DESCRIBE_MS, LearntLimits

    limits = LearntLimits(
        partial(ConfluentAdmin, setup.client),
        MESSAGE_MAX.read(setup.config),
        setting=MESSAGE_MAX.name,
        timeout_ms=min(DESCRIBE_MS, setup.limit_ms),
        learnt_max_bytes=_learnt_max(setup.config),
        sends_again=True,
    )
    return setup.with_limits(limits), limits
