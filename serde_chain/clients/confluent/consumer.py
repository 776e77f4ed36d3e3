"""A consumer whose keys and values come out of deserializer chains."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial, update_wrapper
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import confluent_kafka
from confluent_kafka import TopicPartition

from payload_stores.message_headers import headers_of
from payload_stores.options import Option, boolean
from serde_chain.catalogue import DESERIALIZE
from serde_chain.chain import DeserializerChain
from serde_chain.clients.backoff import Backoff
from serde_chain.clients.client_chains import MAX_POLL_INTERVAL, ClientChains, warn_of_other_side
from serde_chain.clients.confluent.arrow import ArrowReader
from serde_chain.clients.confluent.dead_letters import DeadLetters
from serde_chain.clients.confluent.messages import decode_message
from serde_chain.clients.confluent.plain_poll import PlainDecoder, Taken, plain_poll
from serde_chain.clients.confluent.rewind import Rewind
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.clients.window import Place, Window, in_use, place
from serde_chain.clients.window_reader import WindowReader, marker_headers, prefetch_for
from serde_chain.codec import Decoder
from serde_chain.config import load
from serde_chain.errors import DeadLetterError, SerializationError
from serde_chain.signals import let_through
from serde_chain.telemetry import client_telemetry

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Consumer"]

Message: TypeAlias = "confluent_kafka.Message[Any, Any]"
OnRebalance: TypeAlias = Callable[["Consumer", list[TopicPartition]], None]

_MOST_MESSAGES: Final = 1_000_000
# Most records that are decoded between two checks of the clock.
_AT_ONCE: Final = 100
# Bounds of what is fetched while the first record's payload is under way: records, and their bytes without payloads.
_AHEAD: Final = 500
_AHEAD_BYTES: Final = 32 << 20
_STEP: Final = 32
# Longest time in seconds between two calls of the client, which keep this member in its group and serve callbacks.
_TICK: Final = 0.5
# Most records that such calls fetch on top of those that were asked for; from then on, the client fetches nothing.
_UNASKED: Final = 100
# Longest wait for further records while those that came can be looked at.
_SLICE: Final = 0.1
_STORE: Final = Option("enable.auto.offset.store", boolean, True)
_TELLS_ENDS: Final = Option("enable.partition.eof", boolean, False)


class Consumer:
    """confluent_kafka's ``Consumer``, with ``key.deserializers`` and ``value.deserializers`` in its configuration.

    All calls of the original are there and behave as they do there. Messages carry key, value and headers in their
    final form; a field for which the configuration names no chain stays as it is.

    A record that cannot be read raises a :class:`~serde_chain.errors.SerializationError` with the raw record and its
    position. Good records of the same batch are handed over before and after it. Where the error is about the record
    (``error.about_record``), the consumer moves past it, as the original does; ``seek`` to its position reads it again.
    With ``serde.error.policy`` = ``skip`` or ``dead-letter``, such records are passed over instead, the latter once
    they are in ``serde.dead.letter.topic``. Otherwise a store, registry or key provider is unavailable: the consumer
    stays at the record until it can be read.

    Payloads of large messages are fetched ahead, ``large.message.downloads.in.flight`` (default 8) at a time, while no
    more than ``large.message.downloads.max.bytes`` (default 256 MiB) wait. The client is polled while a call waits for
    one, so that rebalances go on.

    Offsets are stored when the next call shows that records were handed over (``poll``, ``consume``, ``commit``,
    ``assign``, ``unsubscribe``, ``close``), never that of a record that was not: a process that stops at it meets it
    again. If a signal handler or a callback raises during a call, the next call hands the same records over.

    Not thread-safe, unlike the original: of threads that poll or consume at the same time, all but one get a
    RuntimeError. Give each a consumer of its own, or put a lock around the calls.

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
                read here; the rest goes to confluent_kafka untouched, save for what only producers know.
            fetch_external: Whether hop's references are followed; comes before the configuration's key of that name.
                Otherwise their messages come as they are: bytes of JSON, with the header ``_format``.
            **kwargs: Further keys, which come before those of ``config``, such as ``logger``.

        Raises:
            ConfigError: A chain's configuration is wrong.
            confluent_kafka.KafkaException: The client refuses the rest.
        """
        if fetch_external is not None:
            kwargs["fetch_external"] = fetch_external
        setup = ClientChains.of({**load(config or {}), **kwargs}, DeserializerChain, MAX_POLL_INTERVAL)
        warn_of_other_side(setup, DESERIALIZE)
        try:
            self._stores_offsets = _STORE.read(setup.config)
            self._policy = ErrorPolicy.of(setup.config)
            # Offsets are stored once records were handed over, not as they are fetched: see _store_given.
            self._consumer = confluent_kafka.Consumer({**setup.client, _STORE.name: False})
            setup.tell_cluster(self._consumer.cluster_id)
        except BaseException:
            setup.close()
            raise
        self._setup = setup
        self._key, self._value = setup.key, setup.value
        self._window = Window()
        self._backoff = Backoff(self._consumer, self._window)
        self._rewind = Rewind(
            self._consumer,
            self._window,
            reset=setup.client.get("auto.offset.reset"),
            tells_ends=_TELLS_ENDS.read(setup.client),
        )
        self._decoding_seconds = setup.limit_ms / 2000
        # How many records are decoded between two looks at the clock: few, until it is known how long they take.
        self._at_once = 1
        self._arrow = ArrowReader(setup.key, setup.value)
        markers = marker_headers(setup.key, setup.value)
        self._reader = WindowReader(
            self._window,
            partial(decode_message, decoder=Decoder(setup.key, setup.value)),
            _marks(markers),
            prefetch_for(setup.key, setup.value),
        )
        self._has_marks = markers is not None
        self._is_cut = False
        self._served = -math.inf
        self._unasked = 0
        self._dead_letters = None
        if (dead_letter_topic := self._policy.dead_letter_topic) is not None:
            self._dead_letters = DeadLetters(self._consumer, setup.client, dead_letter_topic, setup.limit_ms)
        self._skipped = 0
        self._telemetry = client_telemetry()
        self._plain = PlainDecoder.of(setup.key, setup.value, self._window.decoded)
        if type(self).poll is Consumer.poll and self._plain is not None and not self._telemetry.is_on:
            # A closure over local names; subclasses that override poll are left alone.
            poll = plain_poll(
                self._consumer,
                self._window,
                self._backoff,
                self._plain,
                stores_offsets=self._stores_offsets,
                take=self._take,
                take_front=self._take_front,
                waits=self._reader.fetches_ahead,
            )
            vars(self)["poll"] = update_wrapper(poll, self.poll)

    def poll(self, timeout: float = -1) -> Message | None:
        """Fetch one record.

        Args:
            timeout: Longest wait in seconds, for the broker and for the record's payload; -1 waits forever.

        Returns:
            The message in its final form, one with ``error()``, or None. A payload that is under way then is taken by a
            later call.

        Raises:
            SerializationError: The record cannot be read; carries it and its position. Where it is not ``about_record``
                (a store, registry or key provider is unavailable), the consumer stays at the record, and the next call
                tries again, after a wait within its ``timeout`` that grows from 0.1 to 5 s.

        Example:
            >>> message = consumer.poll(1)  # doctest: +SKIP
            >>> if message is not None and message.error() is None:  # doctest: +SKIP
            ...     print(message.value())
        """
        if self._window.is_in_use:
            raise in_use()
        self._window.is_in_use = True
        try:
            taken = self._take(timeout)
            if taken is None:
                return None
            # Last of all, with no call behind it; see Window.
            self._window.given, message = (taken[0],), taken[1]
            return message
        finally:
            self._window.is_in_use = False

    def _take(self, timeout: float) -> Taken | None:
        until = _until(timeout)
        return self._take_front(until) if self._fetch(self._poll, timeout) else None

    def _take_front(self, until: float) -> Taken | None:
        """The first record, if it can be read by a point in time."""
        while True:
            while (record := self._window.front()) is not None:
                try:
                    message = self._read(record)
                except Exception as error:
                    let_through(error)
                    if not self._passes(record, error):
                        raise
                    self._window.given = (record,)
                    self._settle()
                    self._serve()
                    if time.monotonic() >= until:
                        return None
                    continue
                if message is not None:
                    return Taken(record, message)
                if not self._wait(record, until):
                    return None
            # Its partition was revoked while it was waited for, or there was none.
            if not self._fetch_until(self._poll, until):
                return None

    def _fetch_until(self, fetch: Callable[[float], None], until: float) -> bool:
        """As :meth:`_fetch`, and whether there is any time left."""
        left = until - time.monotonic()
        return left > 0 and self._fetch(fetch, -1 if left == math.inf else left)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Fetch several records.

        When reading them takes long, fewer are handed over, so that the next call comes within
        ``max.poll.interval.ms``; likewise once their payloads have ``large.message.downloads.max.bytes``. The others
        follow then.

        Args:
            num_messages: The most to return, up to a million.
            timeout: Longest wait in seconds, for the broker and for payloads; -1 waits forever.

        Returns:
            Messages in their final form, or with ``error()``: in offset order for each partition.

        Raises:
            SerializationError: The first record cannot be read; carries it and its position, and the consumer stays at
                it or passes it, as in :meth:`poll`. The records before one that cannot be read are returned, and the
                error raised by the next call.
            ValueError: ``num_messages`` is out of range.

        Example:
            >>> for message in consumer.consume(500, timeout=1):  # doctest: +SKIP
            ...     print(message.offset(), message.value())
        """
        until = _until(timeout)
        if self._window.is_in_use:
            raise in_use()
        self._window.is_in_use = True
        try:
            self._is_cut = False
            if not self._fetch_several(num_messages, timeout):
                return []
            taken, ready = self._gather(num_messages, until)
            while not ready:
                self._window.given = taken  # all of them were passed over
                if not self._fetch_until(partial(self._consume, num_messages), until):
                    return []
                taken, ready = self._gather(num_messages, until)
            # Last of all, with no call behind it; see Window.
            self._window.given = taken
            return ready
        finally:
            self._window.is_in_use = False

    def _gather(self, most: int, until: float) -> tuple[list[Message], list[Message]]:
        """Read waiting records.

        Args:
            most: How many.
            until: When to stop waiting for payloads.

        Returns:
            Records of the window, those that were passed over among them, and the final forms of the others.
        """
        drops = self._window.drops
        waiting = list(itertools.islice(self._window.waiting(), most))
        taken: list[Message] = []
        ready: list[Message] = []
        now = time.monotonic()
        stop = now + self._decoding_seconds
        full = self._reader.taken_bytes + self._reader.most_bytes
        while len(taken) < len(waiting) and not (taken and (now >= stop or self._reader.taken_bytes >= full)):
            some = waiting[len(taken) : len(taken) + self._at_once]
            if self._plain is not None and self._plain.decode(some):
                ready += some
                taken += some
            elif not self._read_one_by_one(some, taken, ready, stop, full):
                if self._reader.taken_bytes >= full or not self._wait_for(
                    waiting[len(taken)], until if not taken else min(until, stop)
                ):
                    break
                if self._window.drops != drops:
                    return self._gather(most, until)
            before, now = now, time.monotonic()
            is_slow = now - before > self._decoding_seconds / 10
            self._at_once = max(1, self._at_once // 2) if is_slow else min(2 * self._at_once, _AT_ONCE)
        if self._window.under_way:
            self._read_others(waiting[len(taken) :], taken, ready, stop, full)
        self._is_cut = len(taken) < len(waiting) and (now >= stop or self._reader.taken_bytes >= full)
        return taken, ready

    def _read_one_by_one(
        self, records: list[Message], taken: list[Message], ready: list[Message], stop: float, full: float
    ) -> bool:
        """Read records for as long as there is time and room, and up to the first that cannot be read, or not yet."""
        for record in records:
            if taken and (time.monotonic() >= stop or self._reader.taken_bytes >= full):
                return False
            try:
                message = self._read(record)
            except Exception as error:
                let_through(error)
                if not (self._passes_behind(record, error) if taken else self._passes(record, error)):
                    if taken:
                        return False
                    raise
                taken.append(record)
                continue
            if message is None:
                return False
            taken.append(record)
            ready.append(message)
        return True

    def _read_others(
        self, records: list[Message], taken: list[Message], ready: list[Message], stop: float, full: float
    ) -> None:
        """Read records of partitions other than those whose next record has to be waited for."""
        blocked = set()
        for record in records:
            if time.monotonic() >= stop or self._reader.taken_bytes >= full:
                return
            if place(record) in blocked:
                continue
            try:
                message = self._read(record)
            except Exception as error:  # noqa: BLE001  raised when it is the first
                let_through(error)
                message = None
            if message is None:
                blocked.add(place(record))
            else:
                taken.append(record)
                ready.append(message)

    def consume_arrow(self, num_messages: int = 1, timeout: float = -1) -> Any:
        """Fetch several records as an Arrow table, for pandas, Polars, DuckDB and the like.

        When reading them takes long, or their payloads fill ``large.message.downloads.max.bytes``, fewer are handed
        over, as in :meth:`consume`. Placeholders without headers (bakdata-flag) do not count.

        Args:
            num_messages: The most to return, up to a million.
            timeout: Longest wait for the broker in seconds; -1 waits forever.

        Returns:
            ``pyarrow.Table`` with the columns topic, partition, offset, timestamp (ms, UTC), key, headers and value;
            key and value typed as in :meth:`DeserializerChain.to_arrow`.

        Raises:
            SerializationError: The first record cannot be read; as in :meth:`consume`.
            ValueError: ``num_messages`` is out of range.
            confluent_kafka.KafkaException: The client reports an error. Ends of partitions are passed over.

        Example:
            >>> consumer.consume_arrow(1000, timeout=3).select(["key", "value"]).to_pandas()  # doctest: +SKIP
        """
        if self._window.is_in_use:
            raise in_use()
        self._window.is_in_use = True
        try:
            self._window.given, table = self._take_table(num_messages, timeout)
            return table
        finally:
            self._window.is_in_use = False

    def _take_table(self, num_messages: int, timeout: float) -> tuple[list[Message], Any]:
        """Records of the window, and a table of them."""
        # A batch fetches payloads by itself.
        due = self._fetch_several(num_messages, timeout, ahead=False)
        waiting = list(self._window.waiting()) if due else []
        ends = [message for message in waiting if _is_end(message)]
        ready = [message for message in waiting if not _is_end(message)]
        failed = next((at for at, message in enumerate(ready) if message.error() is not None), len(ready))
        if ready and failed == 0:
            failure = confluent_kafka.KafkaException(ready[0].error())
            self._window.passed = [*ends, ready[0]]
            raise failure
        # At once: a record that cannot be read for now is waited for while it is the first of the window.
        self._window.passed = ends
        self._window.settle()
        ready = self._within_bound(ready[: min(num_messages, failed)])
        for record in ready:
            self._window.under_way.pop(id(record), None)
            # Records that an interrupted call had decoded go through the chains once more, as a column.
            if (decoded := self._window.decoded.get(id(record))) is not None:
                decoded.undo()
        table = self._read_table(ready)
        while isinstance(table, SerializationError):
            if not self._passes(ready[0], table):
                raise table
            self._window.given = (ready.pop(0),)
            self._settle()
            table = self._read_table(ready)
        return ready[: len(table)], table

    def _within_bound(self, records: list[Message]) -> list[Message]:
        """The records up to the one whose payload passes the bound of downloads."""
        most = self._reader.most_bytes
        if most == math.inf or not self._has_marks:
            return records  # without marks, only decoding tells which of them have payloads
        held = itertools.accumulate(map(self._reader.payload_bytes, records))
        return records[: next((at for at, size in enumerate(held, 1) if size >= most), len(records))]

    def _read_table(self, records: list[Message]) -> Any:
        """Records as a table, up to the first that cannot be read; its error if that is the first of all."""
        try:
            table, error = self._arrow.read(records, self._decoding_seconds)
        except SerializationError as failure:
            if not records:
                raise
            return failure
        except Exception as failure:
            let_through(failure)
            if records:
                self._backoff.note(records[0])
            raise
        return error if error is not None and not len(table) else table

    @property
    def is_cut(self) -> bool:
        """Whether the last batch of :meth:`consume` left out records that are there, for their time or payloads.

        Example:
            >>> messages = consumer.consume(500, 1)  # doctest: +SKIP
            >>> consumer.is_cut  # doctest: +SKIP
            True
        """
        return self._is_cut

    def take_back(self) -> None:
        """Count what the last call has returned or raised as not handed over: the next call hands it over again.

        For callers whose own callers may have gone meanwhile.

        Example:
            >>> if consumer.poll(1) is not None:  # doctest: +SKIP
            ...     consumer.take_back()  # the next poll returns the same message
        """
        self._window.given = self._window.passed = ()

    def _poll(self, timeout: float) -> None:
        if self._window.front() is None:
            self._window.fetch(self._consumer.poll, timeout)
            return
        if self._window.under_way:
            self._look_ahead()
        self._serve()

    def _fetch_several(self, num_messages: int, timeout: float, *, ahead: bool = True) -> bool:
        """Fetch what is missing to a number of messages, and their payloads meanwhile; as :meth:`_fetch`."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError(f"num_messages must be between 0 and {_MOST_MESSAGES} (1M)")
        return num_messages > 0 and self._fetch(partial(self._consume, num_messages, ahead=ahead), timeout)

    def _consume(self, num_messages: int, timeout: float, *, ahead: bool = True) -> None:
        ahead = ahead and self._reader.fetches_ahead and self._backoff.record is None
        until = _until(timeout)
        while (missing := num_messages - self._window.count()) > 0:
            left = until - time.monotonic()
            step = min(left, _SLICE) if ahead else left
            self._window.fetch_several(self._consumer.consume, missing, -1 if step == math.inf else max(step, 0))
            self._served = time.monotonic()
            if not ahead or self._served >= until:
                return
            if self._window.count() < num_messages:
                self._reader.look_ahead()
        self._serve()

    def _fetch(self, fetch: Callable[[float], None], timeout: float) -> bool:
        """Fetch messages, and serve callbacks.

        Args:
            fetch: Fetches, within a number of seconds.
            timeout: Longest wait in seconds, if no message is waiting; negative waits forever.

        Returns:
            Whether the first message may be read; not if that has failed, and it is not yet time to try again.
        """
        self._settle()
        self._rewind.go_back()
        if self._backoff.lasts():
            return self._backoff.wait(timeout)
        if self._backoff.held and len(self._window.messages) < _UNASKED:
            self._backoff.let_go()
            self._unasked = 0
        fetch(0 if self._window.front() is not None else timeout)
        return True

    def _wait_for(self, record: Message, until: float) -> bool:
        """As :meth:`_wait`; not for a record that was not read for another reason."""
        return id(record) in self._window.under_way and self._wait(record, until)

    def _wait(self, record: Message, until: float) -> bool:
        """Wait for a record's payload, while the payloads of those behind it are fetched too.

        Returns:
            Whether to look again: not if the time is up.
        """
        self._look_ahead()
        left = until - time.monotonic()
        if left <= 0:
            return self._reader.wait(record, 0)
        self._reader.wait(record, min(left, _TICK))
        self._serve()
        return True

    def _look_ahead(self) -> None:
        """Begin to fetch the payloads of records behind the first; of those too that the client has already."""
        window, reader = self._window, self._reader
        if self._backoff.record is not None or not reader.wants_more:
            return
        reader.look_ahead()
        while not reader.has_enough and len(window.messages) <= _AHEAD - _STEP and self._has_room():
            window.fetch_several(self._consumer.consume, _STEP, 0)
            self._served = time.monotonic()
            if not reader.look_ahead():
                return

    def _has_room(self) -> bool:
        """Whether the bytes of fetched records, as they came, are within their bound."""
        decoded = self._window.decoded

        def size(message: Message) -> int:
            noted = decoded.get(id(message))
            return len((message.value() if noted is None else noted.came[1]) or b"")

        return sum(size(message) for message in self._window.messages if message is not None) < _AHEAD_BYTES

    def _serve(self) -> None:
        """Call the client if that is due, to stay in the group, and to serve callbacks."""
        if time.monotonic() < self._served + _TICK:
            return
        before = len(self._window.messages)
        if min(self._unasked, before) >= _UNASKED:
            self._backoff.hold()
        self._window.fetch(self._consumer.poll, 0)
        self._unasked += len(self._window.messages) > before
        self._served = time.monotonic()

    def _read(self, message: Message) -> Message | None:
        """The final form of a message; None while its payload is under way."""
        if message.error() is not None or (self._key is None and self._value is None):
            return message
        decoded = self._window.decoded.get(id(message))
        if decoded is None:
            decoded = self._reader.read(message)
            if decoded is None:
                return None
            self._window.decoded[id(message)] = decoded
        final: Message = decoded.finish()
        return final

    def _passes(self, record: Message, error: Exception) -> bool:
        """Pass a record over that cannot be read; where that is not the policy, go past it or stay at it.

        Returns:
            Whether it was passed over. Otherwise its error is to be raised.

        Raises:
            DeadLetterError: The dead-letter topic does not take it; the consumer stays at it.
        """
        if isinstance(error, SerializationError):
            # Records that refer to the same payload share its error.
            error.record = record
            error.topic, error.partition, error.offset = record.topic(), record.partition(), record.offset()
            self._telemetry.failed(error.topic or "", error)
            if self._policy.passes_over(error):
                try:
                    self._pass_over(record, error)
                except DeadLetterError as refused:
                    refused.record = record
                    self._stay(record)
                    raise
                return True
            if error.about_record:
                self._window.passed = (record,)
                return False
        self._stay(record)
        return False

    def _passes_behind(self, record: Message, error: Exception) -> bool:
        """As :meth:`_passes`, behind records that can be handed over: an error is raised by the next call."""
        with suppress(DeadLetterError):
            return self._policy.passes_over(error) and self._passes(record, error)
        return False

    def _pass_over(self, record: Message, error: SerializationError) -> None:
        if id(record) in self._window.aside:
            return  # by a call that was interrupted
        if self._dead_letters is not None:
            self._dead_letters.put(record, error)
        self._window.aside[id(record)] = record
        self._skipped += 1
        self._policy.report(error, self._telemetry)

    def _stay(self, record: Message) -> None:
        self._backoff.note(record)
        self._telemetry.retried(record.topic() or "")

    @property
    def skipped(self) -> int:
        """How many records were passed over by ``serde.error.policy``, those in the dead-letter topic included."""
        return self._skipped

    def _settle(self) -> None:
        """Note that the results of the last call have been handed over."""
        self._store_given()
        self._count_given()
        self._window.settle()

    def _count_given(self) -> None:
        if self._telemetry.is_on:
            for message in self._window.given:
                if message.error() is None and id(message) not in self._window.aside:
                    self._telemetry.consumed(message.topic() or "")

    def _store_given(self) -> None:
        """Store the offsets of what was handed over: now, since a call that was interrupted has handed over nothing."""
        if not self._stores_offsets:
            return
        for message in self._window.last_given():
            try:
                self._consumer.store_offsets(message)
            except confluent_kafka.KafkaException as error:
                # The partition was revoked meanwhile; its new owner stores its offsets.
                if error.args[0].code() != confluent_kafka.KafkaError._STATE:  # noqa: SLF001, its documented name
                    raise

    def _drop(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget everything about partitions that are no longer this consumer's; about all if none are named."""
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
        """Subscribe to topics; callbacks are called with this consumer and the partitions."""
        for name, callback in (("on_assign", on_assign), ("on_revoke", on_revoke), ("on_lost", on_lost)):
            if not (callback is None or callable(callback)):
                raise TypeError(f"{name} expects a callable")

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

        callbacks: dict[str, Any] = {"on_revoke": revoke}
        if on_assign is not None:
            callbacks["on_assign"] = lambda _consumer, partitions: on_assign(self, partitions)
        if on_lost is not None:
            callbacks["on_lost"] = lose
        self._consumer.subscribe(topics, **callbacks)

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._store_given()
        self._backoff.let_go()
        self._consumer.unsubscribe()
        self._drop()

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Take partitions by hand."""
        self._store_given()
        self._backoff.let_go()
        self._consumer.assign(partitions)
        self._drop()
        self._rewind.note_start(partitions)

    def unassign(self) -> None:
        """Give all partitions back."""
        self._store_given()
        self._backoff.let_go()
        self._consumer.unassign()
        self._drop()

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Take further partitions."""
        self._consumer.incremental_assign(partitions)
        self._rewind.note_start(partitions)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Give some partitions back."""
        self._store_given()
        self._backoff.let_go(set(map(_place, partitions)))
        self._consumer.incremental_unassign(partitions)
        self._drop(partitions)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer has."""
        return self._consumer.assignment()

    def seek(self, partition: TopicPartition) -> None:
        """Go on at another offset."""
        self._consumer.seek(partition)
        self._window.drop({_place(partition)})
        self._rewind.note_start((partition,))

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Stop handing over records of partitions."""
        self._consumer.pause(partitions)
        self._window.pause(set(map(_place, partitions)))

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Go on with paused partitions."""
        self._consumer.resume(partitions)
        places = set(map(_place, partitions))
        self._window.paused -= places
        self._backoff.forget(places)
        self._reader.look_again()

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The offsets behind the last records that were handed over."""
        self._rewind.go_back()
        first, ends = self._window.first_offsets(), self._window.ends()
        positions = self._consumer.position(partitions)
        for position in positions:
            waiting = first.get(_place(position))
            if waiting is not None:
                position.offset = waiting
            elif position.offset < 0:  # which librdkafka says of a partition that has gone back
                position.offset = ends.get(_place(position), position.offset)
        return positions

    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,
    ) -> list[TopicPartition] | None:
        """Commit the offsets of a message, the given offsets, or all that are stored."""
        self._store_given()
        what: dict[str, Any] = {"asynchronous": asynchronous}
        what |= {"message": message} if message is not None else {}
        what |= {"offsets": offsets} if offsets is not None else {}
        committed: list[TopicPartition] | None = self._consumer.commit(**what)
        return committed

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Committed offsets; ``timeout`` in seconds."""
        return self._consumer.committed(partitions, timeout=timeout)

    def store_offsets(self, message: Message | None = None, offsets: list[TopicPartition] | None = None) -> None:
        """Store offsets for the next commit, where ``enable.auto.offset.store`` is off."""
        if (message is None) == (offsets is None):
            raise ValueError("store_offsets takes either message or offsets")
        if not (message is None or isinstance(message, confluent_kafka.Message)):
            raise TypeError(f"message is {type(message).__name__}, not a Message")
        if not (offsets is None or isinstance(offsets, list)):
            raise TypeError(f"offsets are {type(offsets).__name__}, not a list")
        if self._stores_offsets:
            # The client's own setting is off, so it would store them, and the next call would store others.
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
            self._store_given()
            self._count_given()
            self._rewind.close()
            self._consumer.close()
        finally:
            self._drop()
            if self._dead_letters is not None:
                self._dead_letters.close()
            self._setup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _place(partition: TopicPartition) -> Place:
    return partition.topic, partition.partition


def _is_end(message: Message) -> bool:
    """Whether a message only marks the present end of a partition."""
    error = message.error()
    return error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF  # noqa: SLF001, its documented name


def _until(timeout: float) -> float:
    """When a wait ends; a negative one never does."""
    return math.inf if timeout < 0 else time.monotonic() + timeout


def _marks(markers: frozenset[str] | None) -> Callable[[Message], bool]:
    """Whether a message may have a payload to fetch, by its headers."""

    def is_marked(message: Message) -> bool:
        if message.error() is not None:
            return False
        headers = headers_of(message)
        return markers is None or any(name in markers for name, _ in headers or ())

    return is_marked
