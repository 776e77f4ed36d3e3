"""A producer whose keys and values go through serializer chains."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import confluent_kafka

from payload_stores.options import Option, integer
from serde_chain.base import Serializer, SupportsOffload
from serde_chain.chain import SerializerChain
from serde_chain.clients.confluent.plain import plain_produce
from serde_chain.clients.confluent.setup import MAX_BLOCK, ClientSetup
from serde_chain.clients.limits import MESSAGE_MAX_BYTES, ClientLimits
from serde_chain.config import load
from serde_chain.record import KEY, VALUE, Header, Headers, RecordContext
from serde_chain.transfer import finish

if TYPE_CHECKING:
    from serde_chain.clients.confluent.negotiation import Negotiation
    from serde_chain.clients.confluent.topic_limits import TopicLimits

__all__ = ["Producer"]

OnDelivery: TypeAlias = Callable[[confluent_kafka.KafkaError | None, "confluent_kafka.Message[Any, Any]"], None]

_MESSAGE_MAX = Option("message.max.bytes", integer(1), MESSAGE_MAX_BYTES)
_QUEUE_MESSAGES = Option("queue.buffering.max.messages", integer(0), 100_000)
_DESCRIBE_MS = 10_000
_POLL_SECONDS = 0.05
_PURGE_SECONDS = 5.0

_log = logging.getLogger("serde_chain")


class Producer:
    """confluent_kafka's ``Producer``, with ``key.serializers`` and ``value.serializers`` in its configuration.

    All calls of the original are there and behave as they do there; ``produce`` takes objects that the chains turn into
    bytes. Where the configuration names no chain for a field, it is passed on as it is.

    Encoding and uploads happen in the thread that calls ``produce``, which may therefore block for up to
    ``max.block.ms`` (default 60000).

    With ``large.message.threshold.bytes = auto``, and in hop's format, the broker is asked for the topic's limit. A
    record that it refuses nevertheless, because the limit was lowered meanwhile, is sent again.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092", "value.serializers": "json, zstd"}
        >>> with Producer(config) as producer:  # doctest: +SKIP
        ...     producer.produce("images", {"name": "M 51"}, key=b"M 51")
        ...     producer.flush(30)
    """

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
                read here; the rest goes to confluent_kafka untouched, save for what only consumers know.
            automatic_offload: Whether large messages may be offloaded to hop; comes before the configuration's key of
                that name.
            **kwargs: Further keys, which come before those of ``config``, such as ``logger``.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        if automatic_offload is not None:
            kwargs["automatic_offload"] = automatic_offload
        setup = ClientSetup.of({**load(config or {}), **kwargs}, SerializerChain, MAX_BLOCK)
        self._negotiation: Negotiation | None = None
        try:
            setup, topics = _limited(setup)
            self._producer = confluent_kafka.Producer(setup.client)
            setup.tell_cluster(self._producer.cluster_id)
            if topics is not None:
                self._negotiation = self._negotiate(setup, topics)
        except BaseException:
            setup.close()
            raise
        self._setup = setup
        self._is_closed = False
        self._key, self._value = setup.key, setup.value
        # Payloads are not uploaded for records for which the client has no room.
        self._room = _QUEUE_MESSAGES.read(setup.config) if setup.moves_payloads else sys.maxsize
        if type(self).produce is Producer.produce and self._negotiation is None:
            # A closure over local names; subclasses that override produce are left alone.
            vars(self)["produce"] = plain_produce(self._producer.produce, setup.key, setup.value, self.produce)

    def produce(  # noqa: PLR0917, the original's signature
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Encode a record and hand it to the client.

        Args:
            topic: Topic.
            value: Object for the value chain; None makes a tombstone.
            key: Object for the key chain.
            partition: Partition; -1 lets the client choose by the encoded key.
            callback: Alias of ``on_delivery``.
            on_delivery: Called with ``(error, message)`` from :meth:`poll` or :meth:`flush`.
            timestamp: Record timestamp in ms since the epoch; 0 for now.
            headers: Headers; the caller's object is not changed.

        Raises:
            SerializationError: A stage or store failed; nothing was sent.
            BufferError: The client's queue is full. Nothing was uploaded, unless it was full by bytes
                (``queue.buffering.max.kbytes``) for ``max.block.ms``.
            confluent_kafka.KafkaException: As in ``confluent_kafka.Producer.produce``.

        Example:
            >>> producer.produce("images", {"name": "M 51"}, key=b"M 51", headers=[("band", b"g")])  # doctest: +SKIP
        """
        if self._room != sys.maxsize and len(self._producer) >= self._room:
            raise BufferError("Local: Queue full")
        if self._key is None and self._value is None:
            encoded: Headers | None = headers
        else:
            encoded = _copy(headers)
            at = None if partition < 0 else partition
            moment = timestamp or None
            if self._key is not None:
                key = finish(self._key.begin(key, RecordContext(topic, KEY, encoded, None, at, moment)))
            if self._value is not None:
                bare_key = key.encode() if isinstance(key, str) else key
                value = finish(self._value.begin(value, RecordContext(topic, VALUE, encoded, bare_key, at, moment)))
        if self._negotiation is not None:
            bare_key = key.encode() if isinstance(key, str) else key
            callback = on_delivery or callback
            self._negotiation.send(topic, value, bare_key, partition, timestamp, _copy(encoded), callback)
            return
        callback = on_delivery or callback
        try:
            # By position: keywords would cost as much again as the chain of a small record.
            self._producer.produce(topic, value, key, partition, callback, None, timestamp, encoded or None)
        except BufferError:
            if self._room == sys.maxsize:
                raise
            self._produce_when_there_is_room(topic, value, key, partition, callback, None, timestamp, encoded or None)

    def _produce_when_there_is_room(self, *arguments: Any) -> None:
        """Hand a record to the client that may have been uploaded: to encode it again would upload it again."""
        until = time.monotonic() + self._setup.limit_ms / 1000
        while True:
            self._producer.poll(_POLL_SECONDS)
            try:
                return self._producer.produce(*arguments)
            except BufferError:
                if time.monotonic() >= until:
                    raise

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Encode and hand over several records; unlike the original, headers are kept.

        Args:
            topic: Topic.
            messages: Mappings with ``value``, ``key``, ``partition``, ``timestamp``, ``headers``, ``callback``, all
                optional. Those that cannot be encoded or queued get an ``_error``.
            partition: Partition of messages that name none.
            callback: Alias of ``on_delivery``.
            on_delivery: Callback of messages that name none.

        Returns:
            How many were queued.

        Example:
            >>> messages = [{"value": {"name": "M 51"}}, {"value": {"name": "M 87"}, "key": b"M 87"}]
            >>> producer.produce_batch("images", messages)  # doctest: +SKIP
            2
        """
        queued = 0
        for message in messages:
            try:
                self.produce(
                    topic,
                    message.get("value"),
                    message.get("key"),
                    message.get("partition", partition),
                    on_delivery=message.get("callback") or on_delivery or callback,
                    timestamp=message.get("timestamp", 0),
                    headers=message.get("headers"),
                )
            except Exception as error:  # noqa: BLE001, as in the original: the batch goes on, the message carries it
                message["_error"] = error
            else:
                queued += 1
        return queued

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks, for up to a number of seconds; -1 waits forever. Returns how many were served."""
        served = self._producer.poll(timeout)
        if self._negotiation is not None:
            self._negotiation.recover()
            self._negotiation.send_again()
        return served

    def flush(self, timeout: float = -1) -> int:
        """Wait until all records are delivered, for up to a number of seconds. Returns how many are left."""
        until = time.monotonic() + timeout
        left = self._producer.flush(timeout)
        if self._negotiation is None:
            return left
        self._negotiation.recover()
        while self._negotiation.send_again():
            left = self._producer.flush(timeout if timeout < 0 else max(0.0, until - time.monotonic()))
            self._negotiation.recover()
        return left + len(self._negotiation)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drop records that are queued or in flight."""
        if self._negotiation is not None:
            self._negotiation.give_up()
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
        """Begin a transaction."""
        self._producer.begin_transaction()

    def send_offsets_to_transaction(
        self, positions: list[confluent_kafka.TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Add a consumer's offsets to the transaction; ``timeout`` in seconds."""
        self._producer.send_offsets_to_transaction(positions, group_metadata, timeout)

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit the transaction; ``timeout`` in seconds."""
        if self._negotiation is not None:
            self.flush(timeout)
        self._producer.commit_transaction(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction; ``timeout`` in seconds."""
        if self._negotiation is not None:
            self._negotiation.give_up()
        self._producer.abort_transaction(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Change the SASL credentials for connections to come."""
        self._producer.set_sasl_credentials(username, password)

    def close(self) -> bool:
        """Send what is queued, then close the client, the chains and their stores.

        Where it is interrupted, records that are not sent yet are dropped: their callbacks get an error, and a warning
        has their number.
        """
        if self._is_closed:
            return True
        try:
            self.flush()
        except BaseException:
            self._give_up()
            raise
        finally:
            try:
                self._is_closed = self._producer.close()
            finally:
                self._setup.close()
            vars(self).pop("produce", None)  # it refers to this object
        return self._is_closed

    def _give_up(self) -> None:
        if count := len(self):
            # The client counts events of other kinds as well.
            _log.warning("closing the producer was interrupted: at most %d undelivered records are dropped", count)
            self.purge()
            self._producer.flush(_PURGE_SECONDS)

    def __len__(self) -> int:
        return len(self._producer) + (0 if self._negotiation is None else len(self._negotiation))

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _negotiate(self, setup: ClientSetup[SerializerChain], topics: TopicLimits) -> Negotiation:
        from serde_chain.clients.confluent.negotiation import Negotiation  # few producers negotiate

        last = setup.value.stages[-1] if setup.value is not None else None
        return Negotiation(
            self._producer,
            topics,
            last if isinstance(last, SupportsOffload) else None,
            setup.config,
            message_max_bytes=_MESSAGE_MAX.read(setup.config),
            block_ms=setup.limit_ms,
        )


def _limited(setup: ClientSetup[SerializerChain]) -> tuple[ClientSetup[SerializerChain], TopicLimits | None]:
    """The chains with the client's limits: they also offload what it would refuse, which a threshold may allow.

    Returns:
        The setup, and the limits of topics if a stage negotiates.
    """
    limit = _MESSAGE_MAX.read(setup.config)
    topics: TopicLimits | None = None
    limited: dict[str, SerializerChain] = {}
    for field, chain in ((KEY, setup.key), (VALUE, setup.value)):
        stages = chain.stages if chain is not None else ()
        for at, stage in enumerate(stages):
            if chain is None or not isinstance(stage, SupportsOffload):
                continue
            if stage.negotiates and topics is None:
                from serde_chain.clients.confluent.topic_limits import TopicLimits

                timeout_ms = min(_DESCRIBE_MS, setup.limit_ms)
                topics = TopicLimits(setup.client, ttl_ms=stage.limits_ttl_ms, timeout_ms=timeout_ms)
            later = [other for other in stages[at + 1 :] if isinstance(other, Serializer)]
            overhead = sum(other.max_overhead or 0 for other in later)
            asked = topics if stage.negotiates else None
            limited[field] = chain.with_limits(ClientLimits(limit, overhead, asked, is_key=field == KEY))
    return replace(setup, key=limited.get(KEY, setup.key), value=limited.get(VALUE, setup.value)), topics


def _copy(headers: Headers | None) -> list[Header]:
    """A list of our own: stages add headers to it, and the caller may use theirs again."""
    return list(headers.items() if isinstance(headers, dict) else headers or ())
