"""A consumer with deserializer chains for keys and values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias

import confluent_kafka
from confluent_kafka import TopicPartition

from payload_stores import forks
from payload_stores.client_log import with_log
from payload_stores.options import Option, boolean
from serde_chain.catalogue import DESERIALIZE
from serde_chain.clients.backoff import Backoff
from serde_chain.clients.client_chains import ClientChains, warn_of_other_side
from serde_chain.clients.confluent.dead_letters import DeadLetters
from serde_chain.clients.confluent.messages import Message
from serde_chain.clients.confluent.plain_poll import plain_poll
from serde_chain.clients.confluent.reading_loop import ReadingLoop
from serde_chain.clients.confluent.rewind import Rewind
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.clients.timeouts import deadline
from serde_chain.clients.window import Place, Window, in_use
from serde_chain.config import load
from serde_chain.record import ValueT
from serde_chain.telemetry import client_telemetry

if TYPE_CHECKING:
    from pathlib import Path

OnRebalance: TypeAlias = Callable[["Consumer[Any]", list[TopicPartition]], None]

_STORE: Final = Option("enable.auto.offset.store", boolean, True)
_REPORTS_ENDS: Final = Option("enable.partition.eof", boolean, False)


class Consumer(Generic[ValueT]):
    """confluent_kafka's ``Consumer``, with ``key.deserializers`` and ``value.deserializers`` in its configuration.

    It has all calls of the original, with the same behaviour. Messages carry the decoded key, value and headers; a
    field without a chain is unchanged.

    A failed read raises :class:`~serde_chain.errors.SerializationError` with the raw record and its position. Good
    records of the same batch are returned before and after it. If the record is undecodable (``error.about_record``),
    the consumer advances past it, as the original does; ``seek`` to its position reads it again. With
    ``serde.error.policy`` = ``skip`` or ``dead-letter``, undecodable records are skipped instead, the latter once they
    are in ``serde.dead.letter.topic``. Otherwise a store, registry or key provider is unavailable: the consumer stays
    at the record until it can be read.

    Payloads of large messages are fetched ahead, ``large.message.downloads.in.flight`` (default 8) at a time, while at
    most ``large.message.downloads.max.bytes`` (default 256 MiB) wait. The client is polled meanwhile, so that
    rebalances proceed.

    The next call (``poll``, ``consume``, ``commit``, ``assign``, ``unsubscribe``, ``close``) stores the offsets of the
    records that the last call returned, and no others: a process that stops at a record reads it again. ``poll``
    fetches and decodes up to 256 small records at once and returns them one by one; it stores their offsets together,
    0.2 s later at most. If a signal handler or a callback raises during a call, the next call returns the same records.

    ``Consumer[Alert]`` tells type checkers what ``message.value()`` is, as with ``avro.type``; at run time it changes
    nothing.

    Not thread-safe, unlike the original: of threads that poll or consume at the same time, all but one get a
    RuntimeError. Give each thread its own consumer, or lock the calls.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092", "group.id": "readers", "value.deserializers": "zstd, json"}
        >>> with Consumer(config) as consumer:  # doctest: +SKIP
        ...     consumer.subscribe(["images"])
        ...     print(consumer.poll(30).value())
    """

    def __init__(
        self,
        config: Mapping[str, object] | str | Path | None = None,
        /,
        *,
        fetch_external: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a consumer.

        Args:
            config: A mapping, or the path of a TOML or Java ``.properties`` file. Keys of chains, stages and stores are
                read here; the rest is passed to confluent_kafka unchanged, except for keys of producers.
            fetch_external: Whether hop's references are followed; overrides the configuration's key of that name.
                Otherwise their messages are returned unchanged: bytes of JSON, with the header ``_format``.
            **kwargs: Further keys, such as ``logger``; they override those of ``config``.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        if fetch_external is not None:
            kwargs["fetch_external"] = fetch_external
        setup = ClientChains.of_reader({**load(config or {}), **kwargs})
        warn_of_other_side(setup, DESERIALIZE)
        try:
            self._stores_offsets = _STORE.read(setup.config)
            policy = ErrorPolicy.of(setup.config)
            # Offsets are stored after records were returned, not when they are fetched: see ReadingLoop.
            self._consumer = confluent_kafka.Consumer({**with_log(setup.client), _STORE.name: False})
            setup.set_cluster(self._consumer.cluster_id)
        except BaseException:
            setup.close()
            raise
        self._setup = setup
        self._window = Window()
        self._backoff = Backoff(self._consumer, self._window)
        self._rewind = Rewind(
            self._consumer,
            self._window,
            reset=setup.client.get("auto.offset.reset"),
            reports_ends=_REPORTS_ENDS.read(setup.client),
        )
        self._dead_letters = None
        if policy.dead_letter_topic is not None:
            self._dead_letters = DeadLetters(self._consumer, setup.client, policy.dead_letter_topic, setup.limit_ms)
        self._loop = loop = ReadingLoop(
            self._consumer,
            setup,
            window=self._window,
            backoff=self._backoff,
            rewind=self._rewind,
            policy=policy,
            dead_letters=self._dead_letters,
            stores_offsets=self._stores_offsets,
        )
        if type(self).poll is Consumer.poll and loop.plain is not None and not client_telemetry().is_on:
            # A closure over local names; not for subclasses that override poll.
            poll = plain_poll(self._consumer, self._window, self._backoff, loop.plain, loop)
            vars(self)["poll"] = update_wrapper(poll, self.poll)
        forks.leave(self, Consumer, "_consumer")

    def poll(self, timeout: float = -1) -> Message[ValueT] | None:
        """Fetch one record.

        Args:
            timeout: Longest wait in seconds, for the broker and for the record's payload; -1 waits forever.

        Returns:
            The message in its final form, one with ``error()``, or None. A payload that is under way then is taken by a
            later call.

        Raises:
            SerializationError: The record cannot be read; the error carries it and its position. If the error is not
                ``about_record`` (a store, registry or key provider is unavailable), the consumer stays at the record.
                The next call tries again, after a wait within its ``timeout`` that grows from 0.1 to 5 s.

        Example:
            >>> message = consumer.poll(1)  # doctest: +SKIP
            >>> if message is not None and message.error() is None:  # doctest: +SKIP
            ...     print(message.value())
        """
        if self._window.is_in_use:
            raise in_use()
        self._window.is_in_use = True
        try:
            taken: Any = self._loop.take(timeout)  # its message is decoded, unlike its type
            message: Message[ValueT]
            if taken is None:
                return None
            # Last of all, with no call behind it; see Window.
            self._window.given, message = (taken[0],), taken[1]
            return message
        finally:
            self._window.is_in_use = False

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message[ValueT]]:
        """Fetch several records.

        If decoding takes long, the result is shorter, so that the next call comes within ``max.poll.interval.ms``. The
        same applies once the payloads reach ``large.message.downloads.max.bytes``. The next call returns the rest.

        Args:
            num_messages: The most to return, up to a million.
            timeout: Longest wait in seconds, for the broker and for payloads; -1 waits forever.

        Returns:
            Decoded messages, or messages with ``error()``, in offset order per partition.

        Raises:
            SerializationError: The first record cannot be read; as in :meth:`poll`. Records before a failed one are
                returned, and the next call raises its error.
            ValueError: ``num_messages`` is out of range.

        Example:
            >>> for message in consumer.consume(500, timeout=1):  # doctest: +SKIP
            ...     print(message.offset(), message.value())
        """
        if self._window.is_in_use:
            raise in_use()
        self._window.is_in_use = True
        try:
            ready: list[Message[ValueT]]
            several: Any = self._loop.take_several(num_messages, timeout)
            if several is None:
                return []
            # Last of all, with no call behind it; see Window.
            self._window.given, ready = several
            return ready
        finally:
            self._window.is_in_use = False

    def consume_arrow(self, num_messages: int = 1, timeout: float = -1, *, columns: Sequence[str] | None = None) -> Any:
        """Fetch several records as an Arrow table, for pandas, Polars, DuckDB and the like.

        If decoding takes long, or payloads reach ``large.message.downloads.max.bytes``, the result is shorter, as in
        :meth:`consume`. Placeholders without headers (bakdata-flag) do not count.

        Args:
            num_messages: The most to return, up to a million.
            timeout: Longest wait for the broker in seconds; -1 waits forever.
            columns: Names of the values' fields, or dotted paths: ``value`` has only these. ``avro`` decodes only
                these, and of moved fields (``large-fields``) only these are fetched. None for all.

        Returns:
            ``pyarrow.Table`` with the columns topic, partition, offset, timestamp (ms, UTC), key, headers and value;
            key and value typed as in :meth:`DeserializerChain.to_arrow`.

        Raises:
            SerializationError: The first record cannot be read; as in :meth:`consume`.
            ConfigError: The values have no such column; the records are read again by the next call.
            ValueError: ``num_messages`` is out of range.
            confluent_kafka.KafkaException: The client reports an error. Ends of partitions are skipped.

        Example:
            >>> consumer.consume_arrow(1000, timeout=3).select(["key", "value"]).to_pandas()  # doctest: +SKIP
        """
        if self._window.is_in_use:
            raise in_use()
        self._window.is_in_use = True
        try:
            self._window.given, table = self._loop.take_table(num_messages, timeout, columns)
            return table
        finally:
            self._window.is_in_use = False

    @property
    def is_cut(self) -> bool:
        """Whether the last :meth:`consume` omitted available records because of time or payload size.

        Example:
            >>> messages = consumer.consume(500, 1)  # doctest: +SKIP
            >>> consumer.is_cut  # doctest: +SKIP
            True
        """
        return self._loop.is_cut

    def take_back(self) -> None:
        """Return the last call's results again in the next call.

        For wrappers whose caller may be gone by then.

        Example:
            >>> if consumer.poll(1) is not None:  # doctest: +SKIP
            ...     consumer.take_back()  # the next poll returns the same message
        """
        self._window.take_back()

    @property
    def skipped(self) -> int:
        """Number of records skipped by ``serde.error.policy``, including dead-lettered ones."""
        return self._loop.skipped

    def _drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget all state of lost partitions; of all partitions if none are named."""
        places = None if partitions is None else {_place(partition) for partition in partitions}
        self._window.drop(places)
        self._window.paused = set() if places is None else self._window.paused - places
        self._backoff.forget(places)
        self._rewind.forget(places)

    def subscribe(
        self,
        topics: list[str],
        on_assign: OnRebalance | None = None,
        on_revoke: OnRebalance | None = None,
        on_lost: OnRebalance | None = None,
    ) -> None:
        """Subscribe to topics. Callbacks receive this consumer and the partitions."""
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if not (callback is None or callable(callback)):
                raise TypeError(f"{name} expects a callable")

        def take(_consumer: object, partitions: list[TopicPartition]) -> None:
            self._window.expect(_places(partitions))
            if on_assign is not None:
                on_assign(self, partitions)

        def revoke(_consumer: object, partitions: list[TopicPartition]) -> None:
            self._backoff.let_go(set(map(_place, partitions)))
            self._drop(partitions)
            if on_revoke is not None:
                on_revoke(self, partitions)

        def lose(_consumer: object, partitions: list[TopicPartition]) -> None:
            self._backoff.let_go(set(map(_place, partitions)))
            self._drop(partitions)
            if on_lost is not None:
                on_lost(self, partitions)

        callbacks: dict[str, Any] = {"on_assign": take, "on_revoke": revoke}
        if on_lost is not None:
            callbacks["on_lost"] = lose
        self._consumer.subscribe(topics, **callbacks)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._loop.store_given()
        self._backoff.let_go()
        self._consumer.unsubscribe()
        self._drop()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions manually."""
        self._loop.store_given()
        self._backoff.let_go()
        places = _places(partitions)
        self._window.expect(places)
        self._consumer.assign(partitions)
        self._drop()
        self._window.expect(places)
        # Nothing to rewind; for a moment, the client's position is still that of the former assignment.
        self._window.torn = 0
        self._rewind.note_start(partitions)

    def unassign(self) -> None:
        """Unassign all partitions."""
        self._loop.store_given()
        self._backoff.let_go()
        self._consumer.unassign()
        self._drop()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assign more partitions."""
        self._window.expect(_places(partitions))
        self._consumer.incremental_assign(partitions)
        self._rewind.note_start(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Unassign some partitions."""
        self._loop.store_given()
        self._backoff.let_go(set(map(_place, partitions)))
        self._consumer.incremental_unassign(partitions)
        self._drop(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions."""
        return self._consumer.assignment()

    def seek(self, partition: TopicPartition) -> None:
        """Continue at another offset."""
        self._consumer.seek(partition)
        self._window.drop({_place(partition)})
        self._rewind.note_start((partition,))

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause partitions."""
        self._consumer.pause(partitions)
        self._window.pause(set(map(_place, partitions)))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._consumer.resume(partitions)
        places = set(map(_place, partitions))
        self._window.paused -= places
        self._backoff.forget(places)
        self._loop.reader.look_again()

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offsets after the last returned records."""
        self._rewind.go_back()
        first = self._window.first_offsets()
        positions = self._consumer.position(partitions)
        for position in positions:
            waiting = first.get(_place(position))
            if waiting is not None:
                position.offset = waiting
            elif position.offset < 0:  # librdkafka's answer after a partition was rewound
                position.offset = self._window.ends().get(_place(position), position.offset)
        return positions

    def commit(
        self,
        message: confluent_kafka.Message[Any, Any] | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offset of a message, the given offsets, or all stored offsets."""
        self._loop.store_given()
        what: dict[str, Any] = {"asynchronous": asynchronous}
        what |= {"message": message} if message is not None else {}
        what |= {"offsets": offsets} if offsets is not None else {}
        committed: list[TopicPartition] | None = self._consumer.commit(**what)
        return committed

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Committed offsets; ``timeout`` in seconds."""
        return self._consumer.committed(partitions, timeout=timeout)

    def store_offsets(
        self, message: confluent_kafka.Message[Any, Any] | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store offsets for the next commit; requires ``enable.auto.offset.store`` = false."""
        if (message is None) == (offsets is None):
            raise ValueError("store_offsets takes either message or offsets")
        if not (message is None or isinstance(message, confluent_kafka.Message)):
            raise TypeError(f"message is {type(message).__name__}, not a Message")
        if not (offsets is None or isinstance(offsets, list)):
            raise TypeError(f"offsets are {type(offsets).__name__}, not a list")
        if self._stores_offsets:
            # The client's own setting is always off, so it would accept them, and the next call would overwrite them.
            code = confluent_kafka.KafkaError._INVALID_ARG  # noqa: SLF001, its documented name
            said = f"{_STORE.name} must be set to false to store offsets"
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(code, said))
        what: dict[str, Any] = {"message": message} if message is not None else {"offsets": offsets}
        self._consumer.store_offsets(**what)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """First and next offset of a partition; ``timeout`` in seconds."""
        return self._consumer.get_watermark_offsets(partition, timeout=timeout, cached=cached)

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Offsets for timestamps in ms.

        If the chain of values begins with ``entry-metadata``, these are times of entry: those of frames, and Kafka's
        timestamps of records without one. Some twenty records of a million are read for that, by a client of its own.

        Args:
            partitions: Partitions, with the times in ms since the epoch as their offsets.
            timeout: Longest wait in seconds; -1 waits forever, a search by frames up to ``max.poll.interval.ms``.

        Returns:
            The first offset of each partition with a record of that time or later; -1 (``OFFSET_END``) without one.

        Raises:
            confluent_kafka.KafkaException: The client's own errors; also if a record does not come in time.

        Example:
            >>> [place] = consumer.offsets_for_times([TopicPartition("events", 0, 1_700_000_000_000)])  # doctest: +SKIP
            >>> consumer.seek(place)  # doctest: +SKIP
        """
        # A plain consumer needs none of the search by frames.
        from serde_chain.clients.confluent.times import offsets_for_times
        from serde_chain.clients.seek import EntryTimes

        until = deadline(timeout)
        times = EntryTimes.of_config(self._setup.resolved)
        answers = self._consumer.offsets_for_times(partitions, timeout=timeout)
        if times is None:
            return answers
        left_s = min(self._setup.limit_ms / 1000, max(0.0, until - time.monotonic()))
        return offsets_for_times(partitions, answers, times, self._setup.for_search, left_s)

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
        """Change the SASL credentials of future connections."""
        self._consumer.set_sasl_credentials(username, password)

    def close(self) -> None:
        """Commit if so configured, leave the group, and close the chains and their stores.

        An interrupted call can be repeated: it goes on where it stopped.
        """
        try:
            self._loop.store_given()
            self._loop.count_given()
            self._drop()  # now: a repeated call must not store offsets in a closed client
            self._rewind.close()
            self._consumer.close()
        finally:
            if self._dead_letters is not None:
                self._dead_letters.close()
            self._setup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _place(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition


def _places(partitions: Iterable[object]) -> set[Place]:
    """The places of partitions; the client refuses all else."""
    return {_place(partition) for partition in partitions if isinstance(partition, TopicPartition)}
