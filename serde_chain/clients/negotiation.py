"""Keeps records within the limits of their topics (PIP-36's idea, for Kafka); by default, the broker's limit.

A check of single records leaves two problems. librdkafka does not split batches, so small records fail together if
``batch.size`` is above the topic's limit: here the records in flight fit into one batch. And a limit can be lowered
while a producer runs: refused records are sent again, offloaded if necessary.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial
from typing import Any, Final

from serde_chain.base import SupportsOffload
from serde_chain.clients.limits import BATCH_OVERHEAD, Topics, largest_value, record_size
from serde_chain.clients.outgoing import Outgoing
from serde_chain.record import VALUE, RecordContext
from serde_chain.transfer import Question, Transfer, then

__all__ = ["Attempt", "Negotiation"]

# Sent again unchanged, then offloaded: a limit may be lowered twice, but not forever.
_MOST_ATTEMPTS: Final = 3


class Attempt:
    """An admitted record.

    Attributes:
        record: The record.
        number: Number of the attempt, from 1.
        size: The record's share of a batch, in bytes.
        is_under_way: Whether its size counts.
        is_refused: Whether the client reported that it was too large, and it may be sent again. Set before
            :meth:`Negotiation.settle`.
        is_fitted: Whether it was made to fit since.
        accepted: Results of the client's ``produce``; not empty once the client has the record.
        is_told: Whether the user's callback was called.
        report: The client's report, of the client's own type.
    """

    def __init__(self, record: Outgoing, number: int, size: int) -> None:
        self.record = record
        self.number = number
        self.size = size
        self.is_under_way = False
        self.is_refused = False
        self.is_fitted = False
        self.accepted: list[None] = []
        self.is_told = False
        self.report: Any = None


class Negotiation:
    """A sender's gate that keeps batches below the limits of their topics, and sends refused records again.

    Records without predecessors are admitted in the producing threads and settled in the polling threads, where a
    signal handler may raise at any call. So steps that belong together have no call between them.

    Args:
        topics: The limits of topics.
        stage: The stage that offloads values, if it is the last of its chain; None otherwise.
        batch_bytes: The largest batch that the client makes.
        message_max_bytes: The largest record that it sends.
    """

    def __init__(
        self, topics: Topics, stage: SupportsOffload | None, *, batch_bytes: int, message_max_bytes: int
    ) -> None:
        self._topics = topics
        self._stage = stage
        self._batch_bytes = batch_bytes
        self._max_bytes = message_max_bytes
        self._under_way: defaultdict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def may_go_again(self, attempt: Attempt) -> bool:
        """Whether a record refused for its size can be made smaller."""
        record = attempt.record
        return self._stage is not None and record.step is not None and attempt.number < _MOST_ATTEMPTS

    def admit(self, record: Outgoing) -> Transfer[Any] | bool:
        """See :class:`~serde_chain.clients.outgoing.Gate`."""
        last: Attempt | None = record.state
        if last is not None and last.is_under_way:
            return True  # the client had no room for it
        topic = record.topic
        under_way = self._under_way[topic]
        if last is not None and under_way:
            return False  # records in flight may be refused as well, and come before this one
        if self._topics.known(topic) is None or (last is not None and not last.is_fitted):
            value = record.step  # replaced by this question
            return Question(partial(self._topics.learn, topic), lambda _limit: self._fitted(record, value))
        return self._enter(record)

    def admit_now(self, record: Outgoing) -> bool:
        """Admit a record without predecessors, in the producing thread.

        Returns:
            Whether it may go to the client at once; otherwise it must wait in its lane.
        """
        return self._topics.known(record.topic) is not None and self._enter(record)

    def _enter(self, record: Outgoing) -> bool:
        topic, last = record.topic, record.state
        limit = self._topics.learn(topic).max_bytes
        size = record_size(record.key, record.step, record.headers)
        # Nothing to do if batches are smaller anyway.
        if limit is not None and limit < self._batch_bytes:
            under_way = self._under_way[topic]
            if under_way and BATCH_OVERHEAD + under_way + size > limit:
                return False
        record.state = attempt = Attempt(record, 1 if last is None else last.number + 1, size)
        with self._lock:
            attempt.is_under_way = True
            self._under_way[topic] += size
        return True

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
        return topic, report.record

    def count_off(self, attempt: Attempt) -> None:
        """Note that a record is no longer in flight; idempotent."""
        with self._lock:
            if attempt.is_under_way:
                attempt.is_under_way = False
                self._under_way[attempt.record.topic] -= attempt.size

    def _fitted(self, record: Outgoing, value: Any) -> Any:
        """The value in a form that the topic accepts: offloaded if it was refused and no longer fits."""
        last: Attempt | None = record.state
        if last is None or self._stage is None:
            return value
        last.is_fitted = True
        limit = self._topics.learn(record.topic).max_bytes
        is_last_try = last.number == _MOST_ATTEMPTS - 1
        if len(value) <= largest_value(self._max_bytes, record.key, record.headers, limit) and not is_last_try:
            return value
        headers = list(record.headers or ())
        ctx = RecordContext(record.topic, VALUE, headers, record.key)
        if not self._stage.is_inline(value, ctx):
            return value

        def offloaded(placeholder: Any) -> Any:
            record.headers = headers
            return placeholder

        return then(self._stage.offload(value, ctx), offloaded)
