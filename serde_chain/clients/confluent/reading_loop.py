"""A consumer's reading loop: it fetches records and their payloads, and polls the client regularly.

Fetched records wait in a :class:`~serde_chain.clients.window.Window`. The records of a call count as delivered only
when the next call begins, since Ctrl-C may end any call at any point.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import confluent_kafka

from payload_stores.message_headers import headers_of
from payload_stores.signals import let_through
from serde_chain.clients.confluent.messages import decode_message
from serde_chain.clients.confluent.plain_poll import NextRecord, PlainDecoder
from serde_chain.clients.timeouts import client_timeout, deadline
from serde_chain.clients.window import place
from serde_chain.clients.window_reader import WindowReader, marker_headers, prefetch_for
from serde_chain.codec import Decoder
from serde_chain.errors import DeadLetterError, SerializationError
from serde_chain.telemetry import client_telemetry

if TYPE_CHECKING:
    from serde_chain.chain import DeserializerChain
    from serde_chain.clients.backoff import Backoff
    from serde_chain.clients.client_chains import ClientChains
    from serde_chain.clients.confluent.arrow import ArrowReader
    from serde_chain.clients.confluent.dead_letters import DeadLetters
    from serde_chain.clients.confluent.rewind import Rewind
    from serde_chain.clients.error_policy import ErrorPolicy
    from serde_chain.clients.window import Window

Message: TypeAlias = "confluent_kafka.Message[Any, Any]"

_MOST_MESSAGES: Final = 1_000_000
# Most records that are decoded between two checks of the clock.
_AT_ONCE: Final = 100
# Bounds on fetching while the first record's payload is in flight: records, and their bytes without payloads.
_AHEAD: Final = 500
_AHEAD_BYTES: Final = 32 << 20
_STEP: Final = 32
# Longest time in seconds between two polls of the client, which keep the group membership and serve callbacks.
_TICK: Final = 0.5
# Most surplus records fetched by such polls; beyond that, the client's partitions are paused.
_UNASKED: Final = 100
# Longest wait for more records while fetched ones can be examined.
_SLICE: Final = 0.1


class ReadingLoop:
    """Reads a consumer's records in offset order per partition.

    For one call at a time.

    Args:
        client: The client.
        setup: The chains.
        window: Fetched records.
        backoff: Waits before a retry.
        rewind: Rewinds the client after an interrupt.
        policy: The policy for undecodable records.
        dead_letters: The dead-letter topic, if the policy has one.
        stores_offsets: Whether offsets of returned records are stored.

    Attributes:
        reader: Reads the records of the window, and fetches their payloads.
        plain: Decodes records that need neither headers nor I/O; None if all do.
        is_cut: Whether the last batch omitted available records because of time or payload size.
        skipped: Number of skipped records.
    """

    def __init__(
        self,
        client: confluent_kafka.Consumer,
        setup: ClientChains[DeserializerChain],
        *,
        window: Window,
        backoff: Backoff,
        rewind: Rewind,
        policy: ErrorPolicy,
        dead_letters: DeadLetters | None,
        stores_offsets: bool,
    ) -> None:
        self._consumer = client
        self._window = window
        self._backoff = backoff
        self._rewind = rewind
        self._policy = policy
        self._dead_letters = dead_letters
        self._stores_offsets = stores_offsets
        self._has_chains = setup.key is not None or setup.value is not None
        self._decoding_seconds = setup.limit_ms / 2000
        # Records decoded between two checks of the clock: few until their duration is known.
        self._at_once = 1
        self._key, self._value = setup.key, setup.value
        markers = marker_headers(setup.key, setup.value)
        self._has_marks = markers is not None
        self.reader = WindowReader(
            window,
            partial(decode_message, decoder=Decoder(setup.key, setup.value)),
            _marks(markers),
            prefetch_for(setup.key, setup.value),
        )
        self.plain = PlainDecoder.of(setup.key, setup.value, window.decoded)
        self.is_cut = False
        self.skipped = 0
        self._served = -math.inf
        self._unasked = 0
        self._telemetry = client_telemetry()

    @cached_property
    def _arrow(self) -> ArrowReader:
        from serde_chain.clients.confluent.arrow import ArrowReader  # few programs read tables

        return ArrowReader(self._key, self._value)

    def take(self, timeout: float) -> NextRecord | None:
        """One record, within a timeout in seconds; negative waits forever."""
        until = deadline(timeout)
        return self.take_front(until) if self._fetch(self._poll, timeout) else None

    def take_front(self, until: float) -> NextRecord | None:
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
                    self.settle()
                    self._serve()
                    if time.monotonic() >= until:
                        return None
                    continue
                if message is not None:
                    return NextRecord(record, message)
                if not self._wait(record, until):
                    return None
            # Its partition was revoked during the wait, or there was no record.
            if not self._fetch_until(self._poll, until):
                return None

    def read_first(self, records: list[Message], seconds: float) -> list[Message]:
        """The decoded messages of the first records, up to one that fails or may have a payload to fetch.

        Args:
            records: The first records of the window.
            seconds: The time in which no further one is begun.
        """
        until = time.monotonic() + seconds
        ready: list[Message] = []
        for record in records:
            if time.monotonic() > until or self.reader.may_wait(record):
                break
            try:
                message = self._read(record)
            except Exception as error:  # noqa: BLE001  raised once it is the first
                let_through(error)
                break
            if message is None:
                break
            ready.append(message)
        return ready

    def take_several(self, num_messages: int, timeout: float) -> tuple[list[Message], list[Message]] | None:
        """Several records.

        Args:
            num_messages: The most.
            timeout: Longest wait in seconds, for the broker and for payloads; negative waits forever.

        Returns:
            Records of the window, including skipped ones, and the decoded messages of the others; None if none are
            ready in time.
        """
        until = deadline(timeout)
        self.is_cut = False
        if not self.fetch_several(num_messages, timeout):
            return None
        taken, ready = self._gather(num_messages, until)
        while not ready:
            self._window.given = taken  # all were skipped
            if not self._fetch_until(partial(self._consume, num_messages), until):
                return None
            taken, ready = self._gather(num_messages, until)
        return taken, ready

    def _gather(self, most: int, until: float) -> tuple[list[Message], list[Message]]:
        """Read waiting records.

        Args:
            most: The most.
            until: When to stop waiting for payloads.

        Returns:
            Records of the window, including skipped ones, and the decoded messages of the others.
        """
        drops = self._window.drops
        messages = self._window.messages
        waiting = list(itertools.islice(self._window.waiting(), most)) if self._window.paused else messages[:most]
        if self.plain is not None and self.plain.leaves(waiting):
            return waiting, [*waiting]
        taken: list[Message] = []
        ready: list[Message] = []
        now = time.monotonic()
        stop = now + self._decoding_seconds
        full = self.reader.taken_bytes + self.reader.most_bytes
        while len(taken) < len(waiting) and not (taken and (now >= stop or self.reader.taken_bytes >= full)):
            some = waiting[len(taken) : len(taken) + self._at_once]
            if self.plain is not None and self.plain.decode(some):
                ready += some
                taken += some
            elif not self._read_one_by_one(some, taken, ready, stop, full):
                if self.reader.taken_bytes >= full:
                    break
                is_there = self._wait_for(waiting[len(taken)], until if not taken else min(until, stop))
                if self._window.drops != drops:
                    return self._gather(most, until)
                if not is_there:
                    break
            before, now = now, time.monotonic()
            is_slow = now - before > self._decoding_seconds / 10
            self._at_once = max(1, self._at_once // 2) if is_slow else min(2 * self._at_once, _AT_ONCE)
        if self._window.under_way:
            self._read_others(waiting[len(taken) :], taken, ready, stop, full)
        self.is_cut = len(taken) < len(waiting) and (now >= stop or self.reader.taken_bytes >= full)
        return taken, ready

    def _read_one_by_one(
        self, records: list[Message], taken: list[Message], ready: list[Message], stop: float, full: float
    ) -> bool:
        """Read records while there is time and room, up to the first one that fails or is not ready."""
        for record in records:
            if taken and (time.monotonic() >= stop or self.reader.taken_bytes >= full):
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
        """Read records of partitions whose next record is ready."""
        blocked = set()
        for record in records:
            if time.monotonic() >= stop or self.reader.taken_bytes >= full:
                return
            if place(record) in blocked:
                continue
            try:
                message = self._read(record)
            except Exception as error:  # noqa: BLE001  raised once it is the first
                let_through(error)
                message = None
            if message is None:
                blocked.add(place(record))
            else:
                taken.append(record)
                ready.append(message)

    def take_table(self, num_messages: int, timeout: float, columns: Sequence[str] | None) -> tuple[list[Message], Any]:
        """Records of the window, and a table of them."""
        # A batch fetches its payloads itself.
        due = self.fetch_several(num_messages, timeout, ahead=False)
        waiting = list(self._window.waiting()) if due else []
        ends = [message for message in waiting if _is_end(message)]
        ready = [message for message in waiting if not _is_end(message)]
        failed = next((at for at, message in enumerate(ready) if message.error() is not None), len(ready))
        if ready and failed == 0:
            failure = confluent_kafka.KafkaException(ready[0].error())
            self._window.passed = [*ends, ready[0]]
            raise failure
        # Now: the loop waits for a temporarily unreadable record only if it is the first of the window.
        self._window.passed = ends
        self._window.settle()
        ready = self._within_bound(ready[: min(num_messages, failed)], columns)
        for record in ready:
            self._window.under_way.pop(id(record), None)
            # Records decoded by an interrupted call pass through the chains again, as a column.
            if (decoded := self._window.decoded.get(id(record))) is not None:
                decoded.undo()
        table = self._read_table(ready, columns)
        while isinstance(table, SerializationError):
            if not self._passes(ready[0], table):
                raise table
            self._window.given = (ready.pop(0),)
            self.settle()
            table = self._read_table(ready, columns)
        return ready[: len(table)], table

    def _within_bound(self, records: list[Message], columns: Sequence[str] | None = None) -> list[Message]:
        """The records up to the one whose payload exceeds the bound."""
        most = self.reader.most_bytes
        if most == math.inf or not self._has_marks:
            return records  # without marks, payloads are found only by decoding
        size_of: Callable[[Message], int] = self.reader.payload_bytes
        if columns is not None:
            from serde_chain.clients.confluent.arrow import bytes_of_columns

            size_of = partial(bytes_of_columns, columns=columns, otherwise=size_of)
        held = itertools.accumulate(map(size_of, records))
        return records[: next((at for at, size in enumerate(held, 1) if size >= most), len(records))]

    def _read_table(self, records: list[Message], columns: Sequence[str] | None) -> Any:
        """Records as a table, up to the first that fails; its error if it is the first of all."""
        try:
            table, error = self._arrow.read(records, self._decoding_seconds, columns)
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

    def _fetch_until(self, fetch: Callable[[float], None], until: float) -> bool:
        """Like :meth:`_fetch`, but False if no time is left."""
        left = until - time.monotonic()
        return left > 0 and self._fetch(fetch, client_timeout(left))

    def fetch_several(self, num_messages: int, timeout: float, *, ahead: bool = True) -> bool:
        """Fetch missing messages up to a number, and their payloads meanwhile; see :meth:`_fetch`."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError(f"num_messages must be between 0 and {_MOST_MESSAGES} (1M)")
        return num_messages > 0 and self._fetch(partial(self._consume, num_messages, ahead=ahead), timeout)

    def _fetch(self, fetch: Callable[[float], None], timeout: float) -> bool:
        """Fetch messages, and serve callbacks.

        Args:
            fetch: Fetches within a number of seconds.
            timeout: Longest wait in seconds if no message is waiting; negative waits forever.

        Returns:
            Whether the first message may be read; False while it waits for a retry.
        """
        self.settle()
        self._rewind.go_back()
        if self._backoff.lasts():
            return self._backoff.wait(timeout)
        if self._backoff.held and len(self._window.messages) < _UNASKED:
            self._backoff.let_go()
            self._unasked = 0
        fetch(0 if self._window.front() is not None else timeout)
        return True

    def _poll(self, timeout: float) -> None:
        if self._window.front() is None:
            self._window.fetch(self._consumer.poll, timeout)
            return
        if self._window.under_way:
            self._look_ahead()
        self._serve()

    def _consume(self, num_messages: int, timeout: float, *, ahead: bool = True) -> None:
        ahead = ahead and self.reader.fetches_ahead and self._backoff.record is None
        until = deadline(timeout)
        while (missing := num_messages - self._window.count()) > 0:
            left = until - time.monotonic()
            step = min(left, _SLICE) if ahead else left
            self._window.fetch_several(self._consumer.consume, missing, client_timeout(max(step, 0)))
            self._served = time.monotonic()
            if not ahead or self._served >= until:
                return
            if self._window.count() < num_messages:
                self.reader.look_ahead()
        self._serve()

    def _wait_for(self, record: Message, until: float) -> bool:
        """Like :meth:`_wait`, but only for a record whose payload is in flight."""
        return id(record) in self._window.under_way and self._wait(record, until)

    def _wait(self, record: Message, until: float) -> bool:
        """Wait for a record's payload, while later payloads are fetched too.

        Returns:
            Whether to check again; False if the time is up.
        """
        self._look_ahead()
        left = until - time.monotonic()
        if left <= 0:
            return self.reader.wait(record, 0)
        self.reader.wait(record, min(left, _TICK))
        self._serve()
        return True

    def _look_ahead(self) -> None:
        """Start fetching the payloads of later records, including records that the client has already fetched."""
        window, reader = self._window, self.reader
        if self._backoff.record is not None or not reader.wants_more:
            return
        reader.look_ahead()
        while not reader.has_enough and len(window.messages) <= _AHEAD - _STEP and self._has_room():
            window.fetch_several(self._consumer.consume, _STEP, 0)
            self._served = time.monotonic()
            if not reader.look_ahead():
                return

    def _has_room(self) -> bool:
        """Whether the encoded bytes of fetched records are within their bound."""
        decoded = self._window.decoded

        def size(message: Message) -> int:
            noted = decoded.get(id(message))
            return len((message.value() if noted is None else noted.came[1]) or b"")

        return sum(size(message) for message in self._window.messages) < _AHEAD_BYTES

    def _serve(self) -> None:
        """Poll the client if due, to stay in the group and to serve callbacks."""
        if time.monotonic() < self._served + _TICK:
            return
        before = len(self._window.messages)
        if min(self._unasked, before) >= _UNASKED:
            self._backoff.hold()
        self._window.fetch(self._consumer.poll, 0)
        self._unasked += len(self._window.messages) > before
        self._served = time.monotonic()

    def _read(self, message: Message) -> Message | None:
        """The decoded message; None while its payload is in flight."""
        if message.error() is not None or not self._has_chains:
            return message
        decoded = self._window.decoded.get(id(message))
        if decoded is None:
            decoded = self.reader.read(message)
            if decoded is None:
                return None
            self._window.decoded[id(message)] = decoded
        final: Message = decoded.finish()
        return final

    def _passes(self, record: Message, error: Exception) -> bool:
        """Apply the policy to a failed record: skip it, advance past it, or stay at it.

        Returns:
            Whether it was skipped. Otherwise the caller raises its error.

        Raises:
            DeadLetterError: The dead-letter topic does not accept it; the consumer stays at it.
        """
        if isinstance(error, SerializationError):
            # Records with the same payload share its error.
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
        """Like :meth:`_passes`, after records that can be returned: the next call raises the error."""
        with suppress(DeadLetterError):
            return self._policy.passes_over(error) and self._passes(record, error)
        return False

    def _pass_over(self, record: Message, error: SerializationError) -> None:
        if id(record) in self._window.aside:
            return  # by a call that was interrupted
        if self._dead_letters is not None:
            self._dead_letters.put(record, error)
        self._window.aside[id(record)] = record
        self.skipped += 1
        self._policy.report(error, self._telemetry)

    def _stay(self, record: Message) -> None:
        self._backoff.note(record)
        self._telemetry.retried(record.topic() or "")

    def settle(self) -> None:
        """Record that the results of the last call were delivered."""
        self.store_given()
        self.count_given()
        self._window.settle()

    def count_given(self) -> None:
        """Count the delivered records, if telemetry is on."""
        if self._telemetry.is_on:
            for message in self._window.given:
                if message.error() is None and id(message) not in self._window.aside:
                    self._telemetry.consumed(message.topic() or "")

    def store_given(self) -> None:
        """Store the offsets of delivered records: only now, since an interrupted call has delivered nothing."""
        if not self._stores_offsets:
            return
        for message in self._window.last_given():
            try:
                self._consumer.store_offsets(message)
            except confluent_kafka.KafkaException as error:
                # The partition was revoked; its new owner stores its offsets.
                if error.args[0].code() != confluent_kafka.KafkaError._STATE:  # noqa: SLF001, its documented name
                    raise


def _is_end(message: Message) -> bool:
    """Whether a message only marks the current end of a partition."""
    error = message.error()
    return error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF  # noqa: SLF001, its documented name


def _marks(markers: frozenset[str] | None) -> Callable[[Message], bool]:
    """A function that tells whether a message may have a payload to fetch, by its headers."""

    def is_marked(message: Message) -> bool:
        if message.error() is not None:
            return False
        headers = headers_of(message)
        return markers is None or any(name in markers for name, _ in headers or ())

    return is_marked
