"""Keeps records within the limits of their topics (PIP-36's idea, for Kafka); by default, the broker's limit.

A check of single records leaves two problems. librdkafka does not split batches, so small records fail together if
``batch.size`` is above the topic's limit: here the records in flight fit into one batch. And a limit can be lowered
while a producer runs: refused records are sent again, offloaded if necessary.

Small records do not wait until a limit is known, which it may never be. Meanwhile they are sent in batches that any
topic accepts. If a batch of small ones is refused all the same, they go singly: one record that is too large takes the
others of its batch with it.

Order: Kafka's clients go on with what they have when the broker refuses a batch for its size, also with one request in
flight, and with idempotence in a new epoch. A refused record that is sent again comes behind all of that. So where a
refusal is to be expected, nothing is in flight behind a record that may be refused: as long as the broker has not
answered, and after a topic without a known limit has refused a batch. It costs a round trip for each such record. Where
a limit is lowered that was known, only records in flight when the refusal is reported can precede those that are sent
again, unless the user pays the price at all times (``in_order``).
"""

from __future__ import annotations

import math
import threading
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from payload_stores.options import Option, integer
from serde_chain.base import SupportsOffload
from serde_chain.clients.client_limits import TopicAnswers, TopicLimit
from serde_chain.clients.limits import BATCH_OVERHEAD, LEAST_LIMIT, RECORD_OVERHEAD, batch_size, record_size, sent_size
from serde_chain.clients.outgoing import Attempt, Gate, Outgoing
from serde_chain.errors import MessageTooLargeError
from serde_chain.record import VALUE, RecordContext
from serde_chain.transfer import Question, Transfer, then

# Sent again unchanged, then offloaded: a limit may be lowered twice, but not forever.
_MOST_ATTEMPTS: Final = 3
# Kafka's setting for order at all costs, and librdkafka's other name of it.
_REQUESTS: Final = (
    Option("max.in.flight.requests.per.connection", integer(1), 1_000_000),
    Option("max.in.flight", integer(1), 1_000_000),
)
# Bytes of a record that any topic accepts.
_SMALL: Final = LEAST_LIMIT - BATCH_OVERHEAD


def keeps_order(config: Mapping[str, object]) -> bool:
    """Whether records that are sent again keep their places, also after a known limit was lowered.

    Args:
        config: The client's configuration.

    Example:
        >>> keeps_order({"max.in.flight.requests.per.connection": "1"}), keeps_order({})
        (True, False)
    """
    return any(option.read(config) == 1 for option in _REQUESTS)


class Negotiation(Gate):
    """A sender's gate that keeps batches below the limits of their topics, and sends refused records again.

    Records without predecessors are admitted in the producing threads and settled in the polling threads, where a
    signal handler may raise at any call. So steps that belong together have no call between them.

    Args:
        topics: The limits of topics.
        stage: The stage that offloads values, if it is the last of its chain; None otherwise.
        batch_bytes: The largest batch that the client makes.
        message_max_bytes: The largest record that it sends where the topic's limit is unknown.
        learnt_max_bytes: The same where the limit is known; None: the same.
        in_order: See :func:`keeps_order`.
    """

    def __init__(
        self,
        topics: TopicAnswers,
        stage: SupportsOffload | None,
        *,
        batch_bytes: int,
        message_max_bytes: int,
        learnt_max_bytes: int | None = None,
        in_order: bool = False,
    ) -> None:
        self._topics = topics
        self._in_order = in_order
        self._stage = stage
        self._batch_bytes = batch_bytes
        self._max_bytes = message_max_bytes
        self._learnt_max_bytes = message_max_bytes if learnt_max_bytes is None else learnt_max_bytes
        # In flight, by topic: bytes, records that are alone, and records that go again.
        self._under_way: defaultdict[str, int] = defaultdict(int)
        self._alone: defaultdict[str, int] = defaultdict(int)
        self._again: defaultdict[str, int] = defaultdict(int)
        # The largest batch of topics that have refused one, as long as their limit is unknown.
        self._presumed: dict[str, int] = {}
        self._lock = threading.Lock()

    def may_go_again(self, attempt: Attempt) -> bool:
        """Whether a record refused for its size may be sent again: smaller, or without those of its batch."""
        return attempt.number < _MOST_ATTEMPTS

    def admit(self, record: Outgoing) -> Transfer[Any] | bool | None:
        """See :class:`~serde_chain.clients.outgoing.Gate`."""
        last: Attempt | None = record.state
        if last is not None and last.is_under_way:
            return True  # the client had no room for it
        topic = record.topic
        if last is not None and self._under_way[topic] and not self._again[topic]:
            return False  # records in flight may be refused as well, and come before this one
        known, size = self._topics.known(topic), _size(record)
        if (last is not None and not last.is_fitted) or (known is None and size > _SMALL):
            value = record.step  # replaced by this question
            return Question(partial(self._topics.learn, topic), lambda limit: self._fitted(record, value, limit))
        smaller = self._offloaded(record, record.step) if self._must_shrink(record, known, size) else None
        if smaller is not None:
            return smaller
        # The answer makes room too, which no delivery report announces.
        return self._enter(record, known, size) or (None if known is None else False)

    def admit_now(self, record: Outgoing) -> bool:
        """Admit a record without predecessors, in the producing thread.

        Returns:
            Whether it may go to the client at once; otherwise it must wait in its lane.
        """
        known, size = self._topics.known(record.topic), _size(record)
        if (known is None and size > _SMALL) or self._must_shrink(record, known, size):
            return False
        return self._enter(record, known, size)

    def _enter(self, record: Outgoing, known: TopicLimit | None, size: int) -> bool:
        topic, last = record.topic, record.state
        number = 1 if last is None else last.number + 1
        room = self._room(topic, known, is_again=last is not None)
        is_alone = room <= LEAST_LIMIT and size > _SMALL
        if under_way := self._under_way[topic]:
            if is_alone or self._alone[topic] or bool(self._again[topic]) != (number > 1):
                return False
            # Nothing to do if batches are smaller anyway.
            if room < self._batch_bytes and BATCH_OVERHEAD + under_way + size > room:
                return False
        record.state = attempt = Attempt(record, number, size, is_alone=is_alone)
        attempt.is_too_large = self._exceeds(record, known, size)
        with self._lock:
            attempt.is_under_way = True
            self._under_way[topic] += size
            self._alone[topic] += is_alone
            self._again[topic] += number > 1
        return True

    def _room(self, topic: str, known: TopicLimit | None, *, is_again: bool) -> float:
        """Bytes that may be in flight in a topic: what it accepts, or if it may refuse that, what any topic accepts."""
        is_cautious = is_again or self._in_order
        if known is not None and known.max_bytes is not None:
            return min(known.max_bytes, LEAST_LIMIT) if is_cautious else known.max_bytes
        if is_cautious or known is None or known.unanswered or topic in self._presumed:
            return self._presumed.get(topic, LEAST_LIMIT)
        return math.inf

    def withdraw(self, record: Outgoing) -> None:
        """See :class:`~serde_chain.clients.outgoing.Gate`."""
        if record.state is not None:
            self.count_off(record.state)

    def settle(self, report: Attempt) -> tuple[str, Outgoing | None]:
        """See :class:`~serde_chain.clients.outgoing.Gate`."""
        topic = report.record.topic
        was_under_way = report.is_under_way
        self.count_off(report)
        if not (was_under_way and report.is_refused):
            return topic, None
        self._topics.forget(topic)
        # A large one has gone alone, so nothing is known about smaller batches.
        bound = LEAST_LIMIT if report.number == 1 or report.size > _SMALL else 0
        self._presumed[topic] = min(bound, self._presumed.get(topic, bound))
        return topic, report.record

    def count_off(self, attempt: Attempt) -> None:
        """Note that a record is no longer in flight; idempotent."""
        with self._lock:
            if attempt.is_under_way:
                attempt.is_under_way = False
                self._under_way[attempt.record.topic] -= attempt.size
                self._alone[attempt.record.topic] -= attempt.is_alone
                self._again[attempt.record.topic] -= attempt.number > 1

    def _must_shrink(self, record: Outgoing, known: TopicLimit | None, size: int) -> bool:
        """Whether a value must be offloaded now: the topic's limit was lowered while the record waited, say."""
        if self._stage is None:
            return False
        limit = None if known is None else known.max_bytes
        if limit is not None and BATCH_OVERHEAD + size > limit:
            return batch_size(record.key, record.step, record.headers) > limit
        return self._exceeds(record, known, size)

    def _exceeds(self, record: Outgoing, known: TopicLimit | None, size: int) -> bool:
        """Whether a record exceeds the client's own limit, and what its topic is known to accept.

        librdkafka checks the larger limit only, and would send what the broker has to refuse after the transfer.
        """
        if size + RECORD_OVERHEAD <= self._max_bytes:
            return False
        sent = sent_size(record.key, record.step, record.headers)
        return sent > self._max_bytes and not self._fits(record, record.step, known)

    def _fits(self, record: Outgoing, value: Any, known: TopicLimit | None) -> bool:
        """Whether client and topic accept a record; the client alone, if the topic's limit is unknown."""
        parts = record.key, value, record.headers
        if known is None or known.max_bytes is None:
            return sent_size(*parts) <= self._max_bytes
        return sent_size(*parts) <= self._learnt_max_bytes and batch_size(*parts) <= known.max_bytes

    def _fitted(self, record: Outgoing, value: Any, limit: TopicLimit) -> Any:
        """The value in a form that the topic accepts: offloaded if it was refused and no longer fits.

        Raises:
            MessageTooLargeError: It no longer fits, and cannot be offloaded.
        """
        last: Attempt | None = record.state
        if last is None:
            return value
        last.is_fitted = True
        fits = self._fits(record, value, limit)
        if fits and last.number < _MOST_ATTEMPTS - 1:
            return value
        smaller = self._offloaded(record, value)
        if smaller is None and not fits:
            raise MessageTooLargeError("the topic's limit was lowered, and the value cannot be offloaded")
        return value if smaller is None else smaller

    def _offloaded(self, record: Outgoing, value: Any) -> Transfer[Any] | None:
        """A transfer that offloads a record's value; None if that is not possible."""
        headers = list(record.headers or ())
        ctx = RecordContext(record.topic, VALUE, headers, record.key)
        if self._stage is None or value is None or not self._stage.is_inline(value, ctx):
            return None

        def offloaded(placeholder: Any) -> Any:
            record.headers = headers
            return placeholder

        smaller: Transfer[Any] = then(self._stage.offload(value, ctx), offloaded)
        return smaller


def _size(record: Outgoing) -> int:
    return record_size(record.key, record.step, record.headers)
