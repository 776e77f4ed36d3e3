"""A consumer of a share group (KIP-932) with deserializer chains for keys and values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import confluent_kafka
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import AdminClient

from payload_stores import forks
from payload_stores.client_log import with_log, without_log
from payload_stores.options import Option, choice
from serde_chain.catalogue import DESERIALIZE
from serde_chain.clients.client_chains import LOCK, ClientChains, for_producer, warn_of_other_side
from serde_chain.clients.confluent.dead_letters import DeadLetters
from serde_chain.clients.confluent.messages import DecodedMessage, decode_message
from serde_chain.clients.confluent.uninterrupted_poll import UninterruptedPoll
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.clients.window import Window
from serde_chain.clients.window_reader import WindowReader, prefetch_for
from serde_chain.codec import Decoder
from serde_chain.config import load
from serde_chain.errors import PayloadStoreUnavailableError, SerializationError, in_chain
from serde_chain.telemetry import client_telemetry

if TYPE_CHECKING:
    from pathlib import Path

Message: TypeAlias = "confluent_kafka.Message[Any, Any]"
_Position: TypeAlias = tuple[str, int, int]

_MODE: Final = Option("share.acknowledgement.mode", choice("implicit", "explicit"), "implicit")
_EXPLICIT: Final = "explicit"
_TICK_S: Final = 0.5
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class ShareConsumer:
    """confluent_kafka's ``ShareConsumer``, with ``key.deserializers`` and ``value.deserializers`` in its configuration.

    It has all calls of the original. Messages carry the decoded key, value and headers. Each record is locked for this
    consumer for ``share.record.lock.duration.ms``; payloads of large messages are fetched in parallel within half of
    that time, which leaves the other half to the application.

    A record that cannot be decoded is acknowledged by the consumer itself, in both modes:

    - If the record is at fault (``error.about_record``), it is rejected: no member of the group gets it again. With
      ``serde.error.policy`` = ``dead-letter`` it is in ``serde.dead.letter.topic`` first; ``skip`` logs it; ``raise``
      raises its error from ``poll``, after the records before it.
    - Otherwise a store, registry or key provider is away. Decoding is tried again until half of the lock time has
      passed; then the record is released for another delivery, and ``poll`` raises the error. The broker archives a
      record after ``group.share.delivery.count.limit`` deliveries (5), so raise that limit, or the lock time, for
      outages that last longer.

    Not thread-safe, like the original.

    Example:
        >>> config = {"bootstrap.servers": "localhost:9092", "group.id": "workers", "value.deserializers": "zstd, json"}
        >>> with ShareConsumer(config) as consumer:  # doctest: +SKIP
        ...     consumer.subscribe(["images"])
        ...     for message in consumer.poll(1):
        ...         print(message.value())
    """

    def __init__(self, config: Mapping[str, object] | str | Path | None = None, /, **kwargs: Any) -> None:
        """Make a consumer.

        Args:
            config: A mapping, or the path of a TOML or Java ``.properties`` file. Keys of chains, stages and stores are
                read here; the rest is passed to confluent_kafka unchanged, except for keys of producers.
            **kwargs: Further keys; they override those of ``config``.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        setup = ClientChains.of_reader({**load(config or {}), **kwargs})
        warn_of_other_side(setup, DESERIALIZE)
        self._topics = _Topics(setup.client)
        try:
            lock_ms = LOCK.read(setup.config)
            self._is_explicit = _MODE.read(setup.config) == _EXPLICIT
            self._policy = ErrorPolicy.of(setup.config)
            # A record must be rejected or released although the others are accepted implicitly.
            self._consumer = confluent_kafka.ShareConsumer({**with_log(setup.client), _MODE.name: _EXPLICIT})
            self._polls = UninterruptedPoll(self._consumer.poll)
            setup.set_cluster(self._topics.cluster_id)
        except BaseException:
            setup.close()
            raise
        self._setup = setup
        self._decoder = Decoder(setup.key, setup.value)
        self._prefetch = prefetch_for(setup.key, setup.value)
        self._seconds = lock_ms / 2000
        self._telemetry = client_telemetry()
        self._dead_letters = None
        if self._policy.dead_letter_topic is not None:
            topic = self._policy.dead_letter_topic
            self._dead_letters = DeadLetters(self._topics, setup.client, topic, lock_ms)
        # Of the last batch: records to decode, by when, outcomes to return, and returned records to accept. An
        # interrupted call leaves them here for the next one.
        self._raw: list[Message] = []
        self._until = 0.0
        self._ready: list[DecodedMessage | Message | Exception] = []
        self._given: list[_Position] = []
        self.skipped = 0
        """Number of records skipped by ``serde.error.policy``, including dead-lettered ones."""
        forks.leave(self, ShareConsumer, "_consumer")

    def poll(self, timeout: float = -1) -> list[Message]:
        """Fetch a batch of records.

        In ``implicit`` mode, accepts the records of the last call first. In the main thread, the client's callbacks run
        in another one meanwhile.

        Args:
            timeout: Longest wait for the broker in seconds; -1 waits forever. Decoding may take half of the lock time.

        Returns:
            The messages in their final form, and ones with ``error()``; empty if there are none in time, or if all were
            skipped.

        Raises:
            SerializationError: The first record cannot be decoded. Records before a failed one are returned, and the
                next call raises its error. The record is rejected or released, see above; the error carries it.
            confluent_kafka.KafkaException: The client's own errors.

        Example:
            >>> for message in consumer.poll(1):  # doctest: +SKIP
            ...     consumer.acknowledge(message)
        """
        self._accept()
        if not self._ready:
            self._release_late()
            if not self._raw:
                self._polls.run(timeout)
                # With no call in between: an interrupted call leaves the batch here or there.
                polls = self._polls
                self._until, self._raw, polls.found = polls.since + self._seconds, polls.found, []
                self._release_late()
            self._decode()
        ready = self._ready
        if ready and isinstance(ready[0], Exception):
            self._ready = ready[1:]
            raise ready[0]
        count = next((at for at, outcome in enumerate(ready) if isinstance(outcome, Exception)), len(ready))
        found: list[Any] = [
            outcome.finish() if isinstance(outcome, DecodedMessage) else outcome for outcome in ready[:count]
        ]
        given = [] if self._is_explicit else _positions(ready[:count])
        # Last of all, with no call behind it: an interrupted call leaves everything to the next one.
        self._ready, self._given = ready[count:], given
        return found

    def acknowledge(self, message: Message, ack_type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledge a message of :meth:`poll`; in ``explicit`` mode only."""
        self.acknowledge_offset(*_position(message), ack_type)

    def acknowledge_offset(
        self,
        topic: str,
        partition: int,
        offset: int,
        ack_type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Acknowledge a record by its position; in ``explicit`` mode only."""
        if not self._is_explicit:
            raise confluent_kafka.IllegalStateException(f"acknowledge requires {_MODE.name} = {_EXPLICIT}")
        self._client.acknowledge_offset(topic, partition, offset, ack_type)

    def commit_sync(self, timeout: float = 60) -> Any:
        """Send the acknowledgements, and wait for the broker's answer; ``timeout`` in seconds."""
        self._accept()
        return self._client.commit_sync(timeout)

    def commit_async(self) -> None:
        """Send the acknowledgements."""
        self._accept()
        self._client.commit_async()

    def set_acknowledgement_commit_callback(self, callback: Callable[[Any, Any], None] | None) -> None:
        """Set the callback for the broker's answers to acknowledgements."""
        self._client.set_acknowledgement_commit_callback(callback)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Change the SASL credentials of future connections."""
        self._client.set_sasl_credentials(username, password)

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to topics; the list replaces the current one."""
        self._client.subscribe(topics)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._client.unsubscribe()

    def subscription(self) -> list[str]:
        """The topics."""
        return list(self._client.subscription())

    def close(self) -> None:
        """Leave the group, and close the chains and their stores. Records that were not returned are released."""
        try:
            self._polls.settle()
            waiting = [*_positions(self._ready), *_records(self._raw), *_records(self._polls.found)]
            self._ready, self._raw, self._polls.found = [], [], []
            self._release(waiting)
            self._client.close()
        finally:
            if self._dead_letters is not None:
                self._dead_letters.close()
            self._setup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _client(self) -> Any:
        """The client, as soon as no poll of an interrupted call uses it."""
        self._polls.settle()
        return self._consumer

    def _accept(self) -> None:
        """Accept the records that were returned, in implicit mode."""
        while self._given:
            self._client.acknowledge_offset(*self._given[-1], AcknowledgeType.ACCEPT)
            self._given.pop()

    def _release_late(self) -> None:
        """Release a batch whose turn comes after half of its lock time."""
        if self._raw and time.monotonic() >= self._until:
            self._release(_records(self._raw))
            self._raw = []

    def _release(self, positions: Iterable[_Position]) -> None:
        for position in positions:
            self._client.acknowledge_offset(*position, AcknowledgeType.RELEASE)

    def _decode(self) -> None:
        """Decode the batch, as far as its payloads fit in memory, and settle the records that cannot be decoded."""
        raw, pause = self._raw, _FIRST_PAUSE_S
        outcomes = self._try(raw)
        while any(map(_is_of_world, outcomes)) and time.monotonic() + pause < self._until:
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
            again = [at for at, outcome in enumerate(outcomes) if _is_of_world(outcome)]
            # Fewer, if their payloads turn out larger than before: the others keep their errors.
            for at, outcome in zip(again, self._try([raw[at] for at in again]), strict=False):
                outcomes[at] = outcome
        # One by one: what an interrupted call has settled is not settled again.
        for at, (message, outcome) in enumerate(zip(raw, outcomes, strict=False), 1):
            settled = self._settle(message, outcome) if isinstance(outcome, SerializationError) else outcome
            ready = self._ready if settled is None else [*self._ready, settled]
            self._ready, self._raw = ready, raw[at:]  # with no call in between

    def _try(self, messages: list[Message]) -> list[Any]:
        """Decode messages, as far as their payloads fit in memory: parts, errors, or messages of the client's own."""
        window = Window()
        window.messages += messages
        reader = WindowReader(window, self._begin, lambda _: True, self._prefetch)
        begun = reader.look_ahead_within_bound()
        for waiting in window.under_way.values():
            waiting.is_awaited = (
                True  # a failed transfer is an outcome: :meth:`_decode` tries all of them again at once
            )
        decoded = window.decoded
        outcomes = [decoded[id(message)] if id(message) in decoded else self._end(reader, message) for message in begun]
        window.drop()  # the tracebacks of errors would hold it
        return outcomes

    def _begin(self, message: Message) -> Any:
        return message if message.error() is not None else decode_message(message, self._decoder)

    def _end(self, reader: WindowReader, message: Message) -> Any:
        """The parts of a record, or its error, after its transfers; not later than the lock allows."""
        try:
            while (parts := reader.read(message)) is None:
                while not reader.wait(message, min(_TICK_S, max(0.0, self._until - time.monotonic()))):
                    if time.monotonic() >= self._until:
                        raise PayloadStoreUnavailableError(
                            f"the payload did not arrive within half of {LOCK.name}",
                            hint="Raise it in the broker and here",
                        )
        except SerializationError as error:
            return error
        except PayloadStoreUnavailableError as error:
            return in_chain(error)
        return parts

    def _settle(self, message: Message, error: SerializationError) -> Exception | None:
        """Reject or release a record; returns the error to raise, if there is one."""
        topic, partition, offset = _position(message)
        error.add_context(topic=topic, partition=partition, offset=offset)
        error.record = message
        if not error.about_record:
            self._client.acknowledge_offset(topic, partition, offset, AcknowledgeType.RELEASE)
            return error
        if self._policy.passes_over(error):
            if self._dead_letters is not None:
                try:
                    self._dead_letters.put(message, error)
                except SerializationError as failure:
                    self._client.acknowledge_offset(topic, partition, offset, AcknowledgeType.RELEASE)
                    return failure
            self._policy.report(error, self._telemetry)
            self.skipped += 1
        self._client.acknowledge_offset(topic, partition, offset, AcknowledgeType.REJECT)
        return None if self._policy.passes_over(error) else error


class _Topics:
    """What a share consumer does not tell of its cluster; an admin client, made on first use."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._client = client
        self._admin: Any = None
        forks.watch(self, _Topics._leave_to_parent)

    def _leave_to_parent(self) -> list[object]:
        left, self._admin = self._admin, None
        return [left]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        if self._admin is None:
            self._admin = AdminClient(without_log(for_producer(self._client)))
        return self._admin.list_topics(*(() if topic is None else (topic,)), timeout=timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        return str(self.list_topics(timeout=timeout).cluster_id)


def _position(message: Message) -> _Position:
    return str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)


def _positions(outcomes: Iterable[DecodedMessage | Message | Exception]) -> list[_Position]:
    return [_position(outcome.message) for outcome in outcomes if isinstance(outcome, DecodedMessage)]


def _records(messages: Iterable[Message]) -> list[_Position]:
    """The positions of records; the client's own errors have none."""
    return [_position(message) for message in messages if message.error() is None]


def _is_of_world(outcome: object) -> bool:
    return isinstance(outcome, SerializationError) and not outcome.about_record
