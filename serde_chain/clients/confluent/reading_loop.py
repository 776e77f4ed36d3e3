"""The loop with which a consumer reads: it fetches records and their payloads, and keeps the client served.

The records that came and were not handed over are in a :class:`~serde_chain.clients.window.Window`. What a call has
taken from it counts as handed over when the next call begins, since Ctrl-C may end any call at any point.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import confluent_kafka

from payload_stores.message_headers import headers_of
from serde_chain.clients.confluent.arrow import ArrowReader
from serde_chain.clients.confluent.messages import decode_message
from serde_chain.clients.confluent.plain_poll import PlainDecoder, Taken
from serde_chain.clients.window import place
from serde_chain.clients.window_reader import WindowReader, marker_headers, prefetch_for
from serde_chain.codec import Decoder
from serde_chain.errors import DeadLetterError, SerializationError
from serde_chain.signals import let_through
from serde_chain.telemetry import client_telemetry

if TYPE_CHECKING:
    from serde_chain.chain import DeserializerChain
    from serde_chain.clients.backoff import Backoff
    from serde_chain.clients.client_chains import ClientChains
    from serde_chain.clients.confluent.dead_letters import DeadLetters
    from serde_chain.clients.confluent.rewind import Rewind
    from serde_chain.clients.error_policy import ErrorPolicy
    from serde_chain.clients.window import Window

__all__ = ["ReadingLoop"]

Message: TypeAlias = "confluent_kafka.Message[Any, Any]"

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


class ReadingLoop:
    """Reads a consumer's records, in offset order for each partition.

    For one call at a time.

    Args:
        client: The client.
        setup: The chains.
        window: The records that came.
        backoff: Waits before a record is tried again.
        rewind: Sets the client back after an interrupt.
        policy: What happens to records that cannot be read.
        dead_letters: Where the policy puts them, if it does.
        stores_offsets: Whether the offsets of what was handed over are stored.

    Attributes:
        reader: Reads the records of the window, and fetches their payloads.
        plain: Decodes records that need neither headers nor I/O; None where all of them do.
        is_cut: Whether the last batch left out records that are there, for their time or payloads.
        skipped: How many records were passed over.
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
        # How many records are decoded between two looks at the clock: few, until it is known how long they take.
        self._at_once = 1
        self._arrow = ArrowReader(setup.key, setup.value)
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

    def take(self, timeout: float) -> Taken | None:
        """One record, within a timeout in seconds; negative waits forever."""
        until = _until(timeout)
        return self.take_front(until) if self._fetch(self._poll, timeout) else None

    def take_front(self, until: float) -> Taken | None:
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

    def take_several(self, num_messages: int, timeout: float) -> tuple[list[Message], list[Message]] | None:
        """Several records.

        Args:
            num_messages: The most.
            timeout: Longest wait in seconds, for the broker and for payloads; negative waits forever.

        Returns:
            Records of the window, those that were passed over among them, and the final forms of the others; None where
            there are none in time.
        """
        until = _until(timeout)
        self.is_cut = False
        if not self.fetch_several(num_messages, timeout):
            return None
        taken, ready = self._gather(num_messages, until)
        while not ready:
            self._window.given = taken  # all of them were passed over
            if not self._fetch_until(partial(self._consume, num_messages), until):
                return None
            taken, ready = self._gather(num_messages, until)
        return taken, ready

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
        full = self.reader.taken_bytes + self.reader.most_bytes
        while len(taken) < len(waiting) and not (taken and (now >= stop or self.reader.taken_bytes >= full)):
            some = waiting[len(taken) : len(taken) + self._at_once]
            if self.plain is not None and self.plain.decode(some):
                ready += some
                taken += some
            elif not self._read_one_by_one(some, taken, ready, stop, full):
                if self.reader.taken_bytes >= full or not self._wait_for(
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
        self.is_cut = len(taken) < len(waiting) and (now >= stop or self.reader.taken_bytes >= full)
        return taken, ready

    def _read_one_by_one(
        self, records: list[Message], taken: list[Message], ready: list[Message], stop: float, full: float
    ) -> bool:
        """Read records for as long as there is time and room, and up to the first that cannot be read, or not yet."""
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
        """Read records of partitions other than those whose next record has to be waited for."""
        blocked = set()
        for record in records:
            if time.monotonic() >= stop or self.reader.taken_bytes >= full:
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

    def take_table(self, num_messages: int, timeout: float) -> tuple[list[Message], Any]:
        """Records of the window, and a table of them."""
        # A batch fetches payloads by itself.
        due = self.fetch_several(num_messages, timeout, ahead=False)
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
        most = self.reader.most_bytes
        if most == math.inf or not self._has_marks:
            return records  # without marks, only decoding tells which of them have payloads
        held = itertools.accumulate(map(self.reader.payload_bytes, records))
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

    def _fetch_until(self, fetch: Callable[[float], None], until: float) -> bool:
        """As :meth:`_fetch`, and whether there is any time left."""
        left = until - time.monotonic()
        return left > 0 and self._fetch(fetch, -1 if left == math.inf else left)

    def fetch_several(self, num_messages: int, timeout: float, *, ahead: bool = True) -> bool:
        """Fetch what is missing to a number of messages, and their payloads meanwhile; as :meth:`_fetch`."""
        if not 0 <= num_messages <= _MOST_MESSAGES:
            raise ValueError(f"num_messages must be between 0 and {_MOST_MESSAGES} (1M)")
        return num_messages > 0 and self._fetch(partial(self._consume, num_messages, ahead=ahead), timeout)

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

    def _poll(self, timeout: float) -> None:
        if self._window.front() is None:
            self._window.fetch(self._consumer.poll, timeout)
            return
        if self._window.under_way:
            self._look_ahead()
        self._serve()

    def _consume(self, num_messages: int, timeout: float, *, ahead: bool = True) -> None:
        ahead = ahead and self.reader.fetches_ahead and self._backoff.record is None
        until = _until(timeout)
        while (missing := num_messages - self._window.count()) > 0:
            left = until - time.monotonic()
            step = min(left, _SLICE) if ahead else left
            self._window.fetch_several(self._consumer.consume, missing, -1 if step == math.inf else max(step, 0))
            self._served = time.monotonic()
            if not ahead or self._served >= until:
                return
            if self._window.count() < num_messages:
                self.reader.look_ahead()
        self._serve()

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
            return self.reader.wait(record, 0)
        self.reader.wait(record, min(left, _TICK))
        self._serve()
        return True

    def _look_ahead(self) -> None:
        """Begin to fetch the payloads of records behind the first; of those too that the client has already."""
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
        self.skipped += 1
        self._policy.report(error, self._telemetry)

    def _stay(self, record: Message) -> None:
        self._backoff.note(record)
        self._telemetry.retried(record.topic() or "")

    def _settle(self) -> None:
        """Note that the results of the last call have been handed over."""
        self.store_given()
        self.count_given()
        self._window.settle()

    def count_given(self) -> None:
        """Count the records that were handed over, where there is telemetry."""
        if self._telemetry.is_on:
            for message in self._window.given:
                if message.error() is None and id(message) not in self._window.aside:
                    self._telemetry.consumed(message.topic() or "")

    def store_given(self) -> None:
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
