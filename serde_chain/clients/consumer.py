"""A consumer whose keys and values come out of deserializer chains."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import confluent_kafka
from confluent_kafka import TopicPartition

from payload_stores.options import Option, boolean
from serde_chain.chain import DeserializerChain
from serde_chain.clients.arrow import ArrowReader
from serde_chain.clients.messages import decode_message
from serde_chain.clients.setup import MAX_POLL_INTERVAL, ClientSetup, with_switch
from serde_chain.errors import SerializationError

__all__ = ["Consumer"]

Message: TypeAlias = "confluent_kafka.Message[Any, Any]"
OnRebalance: TypeAlias = Callable[["Consumer", list[TopicPartition]], None]

_STORE: Final = Option("enable.auto.offset.store", boolean, True)


class Consumer:
    """confluent_kafka's ``Consumer``, with ``key.deserializers`` and ``value.deserializers`` in its configuration.

    All calls of the original are there and behave as they do there. Messages carry key, value and headers in their
    final form; a field for which the configuration names no chain stays as it is.

    A record that cannot be read raises a :class:`~serde_chain.errors.SerializationError` with the raw record and its
    position. Good records of the same batch are handed over before and after it. The error moves past the record, as
    the original does; ``seek`` to its position reads it again. Its offset is not stored, only those of records that
    were handed over: a process that stops at it meets it again.
    """

    def __init__(
        self, config: Mapping[str, object] | str | Path, /, *, fetch_external: bool | None = None, **kwargs: Any
    ) -> None:
        """Make a consumer.

        Args:
            config: A mapping, or the path of a TOML or Java ``.properties`` file. Keys of chains, stages and stores are
                read here; the rest goes to confluent_kafka untouched.
            fetch_external: Whether hop's references are followed; comes before the configuration's key of that name.
                Else their messages come as they are: bytes of JSON, with the header ``_format``.
            **kwargs: Further arguments for ``confluent_kafka.Consumer``, such as ``logger``.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        config = with_switch(config, "fetch_external", fetch_external)
        setup = ClientSetup.of(config, DeserializerChain, MAX_POLL_INTERVAL)
        try:
            self._stores_offsets = _STORE.read(setup.config)
            # Offsets are stored as records are handed over, not as they are fetched: see _hand_over.
            self._consumer = confluent_kafka.Consumer({**setup.client, _STORE.name: False}, **kwargs)
            setup.tell_cluster(self._consumer.cluster_id)
        except BaseException:
            setup.close()
            raise
        self._setup = setup
        self._key, self._value = setup.key, setup.value
        # Fetched and not handed over yet: what stood behind a record that raised, or behind slow downloads.
        self._pending: deque[Message] = deque()
        self._paused: set[tuple[str, int]] = set()
        self._decoding_seconds = setup.limit_ms / 2000
        self._arrow = ArrowReader(setup.key, setup.value)

    def poll(self, timeout: float = -1) -> Message | None:
        """Fetch one record.

        Args:
            timeout: Longest wait for the broker in seconds; -1 waits for ever.

        Returns:
            The message in its final form, one with ``error()``, or None.

        Raises:
            SerializationError: The record cannot be read; carries it and its position.
        """
        waiting = self._is_waiting()
        # Also called when a record is waiting: it keeps the consumer in its group and serves callbacks.
        message = self._consumer.poll(0 if waiting else timeout)
        if message is not None:
            self._pending.append(message)
        return next(iter(self._hand_over(1)), None)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Fetch several records.

        When reading them takes long (downloads), fewer are handed over, so that the next call comes within
        ``max.poll.interval.ms``; the others follow then.

        Args:
            num_messages: The most to return.
            timeout: Longest wait for the broker in seconds; -1 waits for ever.

        Returns:
            Messages in their final form, or with ``error()``.

        Raises:
            SerializationError: The first record cannot be read; carries it and its position. The records before one
                that cannot be read are returned, and the error raised by the next call.
        """
        self._fetch(num_messages, timeout)
        return self._hand_over(num_messages)

    def consume_arrow(self, num_messages: int = 1, timeout: float = -1) -> Any:
        """Fetch several records as an Arrow table, for pandas, Polars, DuckDB and the like.

        When reading them takes long, fewer are handed over, as of :meth:`consume`.

        Args:
            num_messages: The most to return.
            timeout: Longest wait for the broker in seconds; -1 waits for ever.

        Returns:
            ``pyarrow.Table`` with the columns topic, partition, offset, timestamp (ms, UTC), key, headers and value;
            key and value typed as :meth:`DeserializerChain.to_arrow` says.

        Raises:
            SerializationError: The first record cannot be read; as of :meth:`consume`.
            confluent_kafka.KafkaException: The client reports an error. Ends of partitions are passed over.
        """
        self._fetch(num_messages, timeout)
        held = [message for message in self._pending if self._is_paused(message)]
        ready = [message for message in self._pending if not self._is_paused(message)]
        self._pending.clear()
        ready = [message for message in ready if not _is_end(message)]
        failed = next((at for at, message in enumerate(ready) if message.error() is not None), None)
        if failed == 0:
            self._pending.extend([*held, *ready[1:]])
            raise confluent_kafka.KafkaException(ready[0].error())
        taken = min(num_messages, len(ready) if failed is None else failed)
        done = 0
        try:
            table, error = self._arrow.read(ready[:taken], self._decoding_seconds)
            # A record that cannot be read is raised when it comes first, and is behind us then.
            done = len(table) or int(error is not None)
        finally:
            self._pending.extend([*held, *ready[done:]])
        if error is not None and not len(table):
            raise error
        self._store_offsets_of(ready[: len(table)])
        return table

    def _fetch(self, num_messages: int, timeout: float) -> None:
        """Add what is missing to what is pending; asks the broker also when nothing is, as of :meth:`poll`."""
        if num_messages:
            missing = num_messages - sum(not self._is_paused(message) for message in self._pending)
            self._pending.extend(self._consumer.consume(max(missing, 1), 0 if self._is_waiting() else timeout))

    def _hand_over(self, most: int) -> list[Message]:
        """Decode records and store their offsets, until the first that cannot be read."""
        ready: list[Message] = []
        held: list[Message] = []
        until = time.monotonic() + self._decoding_seconds
        try:
            while self._pending and len(ready) < most and (not ready or time.monotonic() < until):
                message = self._pending.popleft()
                if self._is_paused(message):
                    held.append(message)
                    continue
                try:
                    ready.append(self._decode(message))
                except SerializationError:
                    if not ready:
                        raise
                    self._pending.appendleft(message)
                    break
        finally:
            self._pending.extendleft(reversed(held))
        self._store_offsets_of(ready)
        return ready

    def _decode(self, message: Message) -> Message:
        if message.error() is not None or (self._key is None and self._value is None):
            return message
        found: Message = decode_message(message, self._key, self._value)
        return found

    def _store_offsets_of(self, messages: list[Message]) -> None:
        if not self._stores_offsets:
            return
        last = {(message.topic(), message.partition()): message for message in messages if message.error() is None}
        for (topic, partition), message in last.items():
            offset = TopicPartition(str(topic), partition or 0, (message.offset() or 0) + 1)
            try:
                self._consumer.store_offsets(offsets=[offset])
            except confluent_kafka.KafkaException as error:
                # The partition was revoked meanwhile; whoever has it now stores its offsets.
                if error.args[0].code() != confluent_kafka.KafkaError._STATE:  # noqa: SLF001, its documented name
                    raise

    def _is_paused(self, message: Message) -> bool:
        return bool(self._paused) and (message.topic(), message.partition()) in self._paused

    def _is_waiting(self) -> bool:
        return any(not self._is_paused(message) for message in self._pending)

    def _drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget records that were fetched and not handed over; all of them if no partitions are named."""
        if partitions is None:
            self._pending.clear()
            self._paused.clear()
            return
        gone = {(partition.topic, partition.partition) for partition in partitions}
        self._paused -= gone
        self._pending = deque(
            message for message in self._pending if (message.topic(), message.partition()) not in gone
        )

    def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe to topics; callbacks are called with this consumer and the partitions."""

        def revoke(_consumer: object, partitions: list[TopicPartition]) -> None:
            self._drop(partitions)
            if on_revoke is not None:
                on_revoke(self, partitions)

        def lose(_consumer: object, partitions: list[TopicPartition]) -> None:
            self._drop(partitions)
            if on_lost is not None:
                on_lost(self, partitions)

        callbacks: dict[str, Any] = {"on_revoke": revoke}
        if on_assign is not None:
            callbacks["on_assign"] = lambda _consumer, partitions: on_assign(self, partitions)
        if on_lost is not None:
            callbacks["on_lost"] = lose
        self._consumer.subscribe(topics, **callbacks)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._consumer.unsubscribe()
        self._drop()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Take partitions by hand."""
        self._consumer.assign(partitions)
        self._drop()

    def unassign(self) -> None:
        """Give all partitions back."""
        self._consumer.unassign()
        self._drop()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Take further partitions."""
        self._consumer.incremental_assign(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Give some partitions back."""
        self._consumer.incremental_unassign(partitions)
        self._drop(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer has."""
        return self._consumer.assignment()

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another offset."""
        self._consumer.seek(partition)
        paused = (partition.topic, partition.partition) in self._paused
        self._drop([partition])
        if paused:
            self._paused.add((partition.topic, partition.partition))

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop handing over records of partitions."""
        self._consumer.pause(partitions)
        self._paused |= {(partition.topic, partition.partition) for partition in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Go on with paused partitions."""
        self._consumer.resume(partitions)
        self._paused -= {(partition.topic, partition.partition) for partition in partitions}

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offsets behind the last records that were handed over."""
        first: dict[tuple[str | None, int | None], int | None] = {}
        for message in self._pending:
            first.setdefault((message.topic(), message.partition()), message.offset())
        positions = self._consumer.position(partitions)
        for position in positions:
            waiting = first.get((position.topic, position.partition))
            position.offset = position.offset if waiting is None else waiting
        return positions

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offsets of a message, the given offsets, or all that are stored."""
        what: dict[str, Any] = {"asynchronous": asynchronous}
        what |= {"message": message} if message is not None else {}
        what |= {"offsets": offsets} if offsets is not None else {}
        committed: list[TopicPartition] | None = self._consumer.commit(**what)
        return committed

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Committed offsets; ``timeout`` in seconds."""
        return self._consumer.committed(partitions, timeout=timeout)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next commit."""
        what: dict[str, Any] = {"message": message} if message is not None else {"offsets": offsets}
        self._consumer.store_offsets(**what)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """First and next offset of a partition; ``timeout`` in seconds."""
        return self._consumer.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Offsets for timestamps in ms; ``timeout`` in seconds."""
        return self._consumer.offsets_for_times(partitions, timeout=timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Cluster metadata; ``timeout`` in seconds."""
        which: dict[str, Any] = {} if topic is None else {"topic": topic}
        return self._consumer.list_topics(**which, timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """Id of the cluster; ``timeout`` in seconds."""
        return self._consumer.cluster_id(timeout)

    def consumer_group_metadata(self) -> Any:
        """Metadata for ``Producer.send_offsets_to_transaction``."""
        return self._consumer.consumer_group_metadata()

    def memberid(self) -> str | None:
        """Id of this member of the group."""
        return self._consumer.memberid()

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Change the SASL credentials for connections to come."""
        self._consumer.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Commit if so configured, leave the group, and close the chains and their stores."""
        try:
            self._consumer.close()
        finally:
            self._drop()
            self._setup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_end(message: Message) -> bool:
    """Whether a message only says that a partition has no more for now."""
    error = message.error()
    return error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF  # noqa: SLF001, its documented name
