"""Records that a consumer has fetched but not delivered.

A signal handler may raise at any call in Python code (Ctrl-C in a notebook, a deadline in a service), and the process
may continue. So a record leaves this window only after delivery: the last statement of a call notes its results, and
the next call removes them. Fetched messages get from the client into the list without a step of Python between.
The records of a batch in hand are delivered one by one; how many were is the position of an iterator, which is moved
and returned from without a call between.
Whatever is raised, the next call returns the same records. Only an exception within the client's own call drops
messages: ``torn`` counts these, and ``Rewind`` fetches them again.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from serde_chain.clients.timeouts import client_timeout, deadline
from serde_chain.transfer import Prefetched

_IS_THERE: Final = partial(operator.is_not, None)
_IS_NOT_THERE: Final = partial(operator.is_, None)
_NOTHING: Final[Iterator[Any]] = iter(())
_BEHIND: Final = partial(operator.add, 1)

# For how long calls stay short after an interrupt, and the pause between them, in seconds.
_WARY: Final = 1.0
_TICK: Final = 0.005

Place: TypeAlias = tuple[str | None, int | None]


class WaitingMessage:
    """A message that waits for a transfer.

    Attributes:
        message: The message. Its identity is the key of this entry, so it must live as long.
        ahead: The transfer.
        is_awaited: Whether the reader has reached the message since.
    """

    __slots__ = ("ahead", "is_awaited", "message")

    def __init__(self, message: Any, ahead: Prefetched, *, is_awaited: bool = False) -> None:
        self.message, self.ahead, self.is_awaited = message, ahead, is_awaited


class Window:
    """Fetched messages in order of arrival.

    Attributes:
        messages: The messages. Always the same list.
        given: Messages delivered by the last call. Assigned by its last statement.
        confirmed: How many of these an earlier call has delivered.
        hand: Messages that ``poll`` delivers one by one, in order of arrival; mostly the first ones. While there are
            any, ``given`` follows from ``in_hand``: see :meth:`note_given`.
        in_hand: Iterates over their final form; its position is the number of delivered ones.
        passed: Messages that it reported instead, or that its caller ignores; likewise.
        decoded: Decoded parts of messages, by identity. Always the same dictionary.
        under_way: Messages whose payloads are being fetched, likewise; removal abandons the transfer.
        aside: Undecodable messages that were set aside, for instance in a dead-letter topic, likewise.
        paused: Topics and partitions whose messages wait.
        is_in_use: Whether a call that delivers records is running. Set and reset without a Python call between, so that
            no interrupt leaves it set.
        places: Topics and partitions of the messages, or more: see :meth:`expect`. Empty if not known.
        drops: Counts drops and pauses of messages, so that a call that serves callbacks can notice them.
        taken: Offset of the last message that left after delivery or report, by topic, then by partition: each
            message's topic is a new string, and hashing it would dominate the cost. Always the same dictionaries.
        torn: Upper bound of messages dropped by interrupted calls of the client; see Rewind.
    """

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.given: Sequence[Any] = ()
        self.confirmed = 0
        self.hand: list[Any] = []
        self.in_hand: Iterator[Any] = _NOTHING
        self.passed: Collection[Any] = ()
        self.decoded: dict[int, Any] = {}
        self.under_way: dict[int, WaitingMessage] = {}
        self.aside: dict[int, Any] = {}
        self.drops = 0
        self.is_in_use = False
        self.paused: set[Place] = set()
        self.places: set[Place] = set()
        self.taken: defaultdict[str | None, dict[int | None, int]] = defaultdict(dict)
        self.torn = 0
        self._topics: set[str | None] = set()
        self._wary_until = 0.0
        self._last: tuple[Sequence[Any], Sequence[Any]] = ((), ())

    def expect(self, places: Collection[Place]) -> None:
        """Note assigned topics and partitions, before messages of them come.

        They stay until all messages are dropped: those of lost partitions may have been delivered.
        """
        self._topics.update(topic for topic, _ in places)
        self.places.update(places)

    def fetch(self, poll: Callable[[float], Any], timeout: float) -> None:
        """Add what the client's ``poll`` returns, if it is a message."""
        self._fetch(lambda seconds: (filter(_IS_THERE, map(poll, (seconds,))),), 1, timeout)

    def fetch_several(self, consume: Callable[[int, float], Iterable[Any]], most: int, timeout: float) -> None:
        """Add what the client's ``consume`` returns."""
        self._fetch(lambda seconds: map(consume, (most,), (seconds,)), most, timeout)

    def _fetch(self, call: Callable[[float], Iterable[Iterable[Any]]], most: int, timeout: float) -> None:
        """Add what a call of the client returns, of up to ``most`` messages: the only item of an iterable."""
        until = deadline(timeout)
        count = len(self.messages)
        while True:
            is_wary = self.is_wary()
            # any, extend, filter and map call each other in C, where no signal handler runs: an assignment in between
            # could be interrupted with the message in no list.
            try:
                any(map(self.messages.extend, call(0 if is_wary else timeout)))
            except BaseException:
                self.torn += most
                self.be_wary()
                raise
            left = until - time.monotonic()
            if not is_wary or len(self.messages) > count or left <= 0:
                return
            timeout = client_timeout(left)
            time.sleep(min(left, _TICK))

    def be_wary(self) -> None:
        """Record that a call of the client was interrupted."""
        self._wary_until = time.monotonic() + _WARY

    def is_wary(self) -> bool:
        """Whether a call of the client was interrupted recently, so that more interrupts are likely.

        Dropped messages take up to ``fetch.wait.max.ms`` to come again, and longer if calls are interrupted more often.
        So the client is then polled without waiting.
        """
        return self.torn > 0 or (self._wary_until > 0 and time.monotonic() < self._wary_until)

    def waiting(self) -> Iterator[Any]:
        """The messages that may be delivered, in order."""
        if not self.paused:
            return iter(self.messages)
        return (message for message in self.messages if place(message) not in self.paused)

    def count(self) -> int:
        """The number of these."""
        return len(self.messages) if not self.paused else sum(1 for _ in self.waiting())

    def front(self) -> Any | None:
        """The first of these."""
        if not self.paused:
            return self.messages[0] if self.messages else None
        return next(self.waiting(), None)

    def take_in_hand(self, records: list[Any], decoded: list[Any]) -> None:
        """Deliver records one by one from now on. Only after :meth:`settle`.

        Args:
            records: The records, as they are in ``messages``.
            decoded: The messages to deliver for them.
        """
        in_hand = iter(decoded)
        self.hand, self.in_hand = records, in_hand

    def note_given(self) -> None:
        """Note the records in hand that were delivered."""
        if self.hand:
            count = len(self.hand) - operator.length_hint(self.in_hand)
            if count != len(self.given):
                self.given, self.confirmed = self.hand[:count], count - 1

    def put_down(self) -> None:
        """Note the records in hand that were delivered; the others are delivered by a call that looks at them again."""
        if self.hand:
            self.note_given()
            self.hand, self.in_hand = [], _NOTHING

    def take_back(self) -> None:
        """Deliver the results of the last call again."""
        self.put_down()
        self.given, self.passed = self.given[: self.confirmed], ()

    def settle(self) -> None:
        """Remove the messages that the last call delivered or reported."""
        self.put_down()
        given, count = self.given, len(self.given)
        # Taken back after an interrupt below, they would be decoded twice.
        self.confirmed = count
        if self._begins_with_given():
            self._take(self.last_given())
            for noted in (self.decoded, self.under_way, self.aside):
                if count == len(self.messages):
                    noted.clear()
                elif noted:
                    for identity in map(id, given):
                        noted.pop(identity, None)
            # Assignments: no call may come between.
            self.messages[:count] = ()
            self.given, self.confirmed, self._last = (), 0, ((), ())
        elif gone := self._gone():
            self._take([message for message in self.messages if id(message) in gone and message.error() is None])
            self.messages[:] = [message for message in self.messages if id(message) not in gone]
            for identity in gone:
                for noted in (self.decoded, self.under_way, self.aside):
                    noted.pop(identity, None)
            self.given, self.confirmed, self.passed = (), 0, ()

    def _begins_with_given(self) -> bool:
        """Whether the delivered messages, which are in order of arrival, are the first without a gap, and all to go."""
        messages, given = self.messages, self.given
        count = len(given)
        fits = not self.passed and 0 < count <= len(messages)
        return fits and messages[0] is given[0] and messages[count - 1] is given[-1]

    def last_given(self) -> Sequence[Any]:
        """The last record of each partition among those that the last call delivered."""
        self.note_given()
        given, last = self._last
        if given is not self.given:
            given = self.given
            last = self._last_of_each(given)
            self._last = given, last
        return last

    def _last_of_each(self, messages: Sequence[Any]) -> Sequence[Any]:
        """The last record of each partition."""
        if not messages:
            return ()
        last = self._last_at_each_place(messages)
        # Only these are asked for errors: a record behind an error of its partition counts anyway.
        if any(map(type(messages[0]).error, last)):
            return self._last_of_each([message for message in messages if message.error() is None])
        return last

    def _last_at_each_place(self, messages: Sequence[Any]) -> Sequence[Any]:
        """The last message of each partition, which may be an error."""
        if len(messages) < 2 or len(self.places) == 1:
            return messages[-1:]
        kind = type(messages[0])  # its methods cost a third of calls by name
        partitions = [*map(kind.partition, messages)]
        if len(self._topics) != 1:
            places = zip(map(kind.topic, messages), partitions, strict=True)
            return [*dict(zip(places, messages, strict=True)).values()]
        # A topic is a new string for each message, and hashing it costs most.
        if partitions.count(partitions[-1]) < len(messages):
            return [*dict(zip(partitions, messages, strict=True)).values()]
        return messages[-1:]

    def _take(self, records: Iterable[Any]) -> None:
        for record in records:
            self.taken[record.topic()][record.partition()] = record.offset()

    def ends(self) -> dict[Place, int]:
        """For each partition, the offset after its last fetched record."""
        ends = {
            (topic, partition): offset + 1
            for topic, offsets in self.taken.items()
            for partition, offset in offsets.items()
        }
        # A signal handler can run at few points here, regardless of the number of messages, so that a rewind also
        # succeeds under frequent signals.
        if messages := [*self.messages]:
            kind = type(messages[0])
            is_record = map(_IS_NOT_THERE, map(kind.error, messages))
            records = [*itertools.compress(messages, is_record)]
            places = zip(map(kind.topic, records), map(kind.partition, records), strict=True)
            ends.update(zip(places, map(_BEHIND, map(kind.offset, records)), strict=True))
        return ends

    def pause(self, places: Collection[Place]) -> None:
        """Hold back the messages of some partitions; their payloads are dropped, and fetched again later."""
        self.put_down()
        self.drops += 1
        self.paused.update(places)
        _keep(
            self.under_way,
            [message for message in self.messages if place(message) not in places],
        )

    def drop(self, places: Collection[Place] | None = None) -> None:
        """Forget the messages of some partitions; of all if none are named."""
        self.put_down()
        kept = [] if places is None else [message for message in self.messages if place(message) not in places]
        if places is None:
            self.given, self.confirmed, self.passed = (), 0, ()
            self.places, self._topics = set(), set()
        for topic, offsets in self.taken.items():
            for partition in [*offsets]:
                if places is None or (topic, partition) in places:
                    del offsets[partition]
        self.drops += 1
        # In one step, also for a fetch during which a rebalance calls this.
        self.messages[:] = kept
        for noted in (self.decoded, self.under_way, self.aside):
            _keep(noted, kept)

    def first_offsets(self) -> dict[Place, int | None]:
        """For each partition with undelivered messages, the offset of the first, paused or not."""
        gone = self._gone()
        if self._begins_with_given():
            left = self.messages[len(self.given) :]
        else:
            left = [message for message in self.messages if id(message) not in gone]
        if not left:
            return {}
        kind = type(left[0])
        left.reverse()  # the first of a partition counts
        places = zip(map(kind.topic, left), map(kind.partition, left), strict=True)
        return dict(zip(places, map(kind.offset, left), strict=True))

    def _gone(self) -> set[int]:
        self.note_given()
        return {id(message) for message in (*self.given, *self.passed)}


def in_use() -> RuntimeError:
    """The error of a call while another one is running."""
    return RuntimeError(
        "the consumer is in use by another thread: calls that hand records over cannot run at the same time. Give each "
        "thread its own consumer, or lock the calls"
    )


def place(message: Any) -> Place:
    """The topic and partition of a message."""
    return message.topic(), message.partition()


def _keep(noted: dict[int, Any], messages: Iterable[Any]) -> None:
    """Forget the entries of other messages."""
    for identity in noted.keys() - set(map(id, messages)):
        noted.pop(identity, None)
