"""A client's limits for its stages that offload, and the broker's answers about topics on which they depend."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, NamedTuple, Protocol

from serde_chain.clients.limits import KEY_ROOM, LEAST_LIMIT, RECORD_OVERHEAD, largest_key, largest_value
from serde_chain.record import KEY, VALUE, Context, RecordContext, key_of
from serde_chain.transfer import Question, Transfer

_log = logging.getLogger("serde_chain")


class TopicLimit(NamedTuple):
    """A broker's answer about a topic.

    Attributes:
        max_bytes: Its ``max.message.bytes``, the largest batch; None if the topic does not exist, or its limit is
            not reported.
        compacted: Whether its ``cleanup.policy`` contains ``compact``; None likewise.
        denied: Whether this user lacks the permission to ask.
        unanswered: Whether there is no answer; then nothing else is known.
    """

    max_bytes: int | None = None
    compacted: bool | None = None
    denied: bool = False
    unanswered: bool = False


class TopicAnswers(Protocol):
    """Brokers' answers about topics, remembered."""

    def known(self, topic: str) -> TopicLimit | None:
        """The answer about a topic if it is known; None otherwise, and then the broker is being asked."""

    def learn(self, topic: str) -> TopicLimit:
        """The answer about a topic; waits for it. Without limit if the broker does not answer."""

    def forget(self, topic: str) -> None:
        """Ask again on next use of the topic's limit."""


class ClientLimits:
    """A client's limits for the stages that offload (:class:`serde_chain.base.RecordLimits`).

    Args:
        message_max_bytes: The client's ``message.max.bytes``; where a topic's limit is unknown, in bytes.
        overhead: Bytes that later stages add.
        topics: The limits of topics, if they apply.
        is_key: Whether they are for keys.
        setting: The client's name of its limit.
        learnt_max_bytes: The client's limit where that of the topic is known; None: the same.
        sends_again: Whether the client sends records again that the broker refuses for their size. Otherwise, every
            record waits for its topic's limit.
        only: The topic of all records, if there is one, and its limit is known.
        policies: Answers whether topics are compacted; None: ``topics`` does.
    """

    def __init__(
        self,
        message_max_bytes: int,
        overhead: int,
        topics: TopicAnswers | None,
        *,
        is_key: bool,
        setting: str = "message.max.bytes",
        learnt_max_bytes: int | None = None,
        sends_again: bool = True,
        only: str | None = None,
        policies: TopicAnswers | None = None,
    ) -> None:
        self._own_policies, self._policies = policies, topics if policies is None else policies
        self._sends_again = sends_again
        self._max_bytes = message_max_bytes
        self._learnt_max_bytes = message_max_bytes if learnt_max_bytes is None else learnt_max_bytes
        self._name = setting
        self._overhead = overhead
        self._topics = topics
        self._is_key = is_key
        self._warned: set[str] = set()
        most = message_max_bytes if topics is None else self._learnt_max_bytes
        self.most = max(0, most - RECORD_OVERHEAD)
        self.setting = f"{setting} ({most})"
        room = self.largest(None if only is None else RecordContext(only, KEY if is_key else VALUE))
        self.always = max(0, room if is_key else room - KEY_ROOM) if topics is None or only is not None else 0

    def of_client(self) -> ClientLimits:
        """The limits of the client alone."""
        if self._topics is None:
            return self
        return ClientLimits(
            self._max_bytes, self._overhead, None, is_key=self._is_key, setting=self._name, policies=self._own_policies
        )

    def ask(self, ctx: Context | None) -> Transfer[Any] | None:
        """The question to the broker, if the topic's limit applies and is unknown; None otherwise."""
        return _question(self._topics, ctx)

    def ask_policy(self, ctx: Context | None) -> Transfer[Any] | None:
        """The question to the broker, if it is unknown whether the topic is compacted; None otherwise."""
        return _question(self._policies, ctx)

    def fits_any_topic(self, size: int, ctx: Context | None) -> bool:
        """Whether a field is so small that any topic accepts it, so that no answer of a broker is needed.

        Args:
            size: Its bytes.
            ctx: The record around it, whose key and headers count.
        """
        if not self._sends_again:
            return False
        size += self._overhead
        if self._is_key:  # as in largest: regardless of headers
            return size <= min(KEY_ROOM, largest_key(self._max_bytes, None))
        headers = None if ctx is None else ctx.headers
        return size <= largest_value(min(self._max_bytes, LEAST_LIMIT), key_of(ctx), headers, LEAST_LIMIT)

    def largest(self, ctx: Context | None) -> int:
        """The largest field that client and topic accept in this record, less the overhead of later stages."""
        topic_max = _answer(self._topics, ctx).max_bytes
        max_bytes = self._max_bytes if topic_max is None else self._learnt_max_bytes
        if self._is_key:  # regardless of headers: equal keys are offloaded in all records or in none
            return largest_key(max_bytes, None, topic_max) - self._overhead
        headers = None if ctx is None else ctx.headers
        return largest_value(max_bytes, key_of(ctx), headers, topic_max) - self._overhead

    def denied(self, ctx: Context | None) -> str | None:
        """Hop's rule: a user without permission to see the topic's limit does not offload."""
        topic = "" if ctx is None else str(ctx.topic)
        if not _answer(self._topics, ctx).denied:
            return None
        reason = f"this user may not see the limit of the topic {topic} (DESCRIBE_CONFIGS)"
        if topic not in self._warned:
            self._warned.add(topic)
            _log.warning("large messages are off: %s", reason)
        return reason

    def compacted(self, ctx: Context | None) -> bool:
        """Whether the record's topic is known to be compacted.

        A user without permission to see that gets a warning, once for each topic, if its records have keys: compacted
        topics accept no others.
        """
        limit = _answer(self._policies, ctx)
        if limit.denied and ctx is not None and key_of(ctx) is not None and ctx.topic not in self._warned:
            self._warned.add(ctx.topic)
            _log.warning(
                "ids of payloads are random: this user may not see whether the topic %s is compacted "
                "(DESCRIBE_CONFIGS). Set large.message.id",
                ctx.topic,
            )
        return bool(limit.compacted)


def _question(topics: TopicAnswers | None, ctx: Context | None) -> Transfer[Any] | None:
    """The question about a record's topic; None if it does not matter, or the answer is known."""
    if topics is None or ctx is None or not ctx.topic or topics.known(ctx.topic) is not None:
        return None
    return Question(partial(topics.learn, ctx.topic), lambda _limit: None)


def _answer(topics: TopicAnswers | None, ctx: Context | None) -> TopicLimit:
    """The broker's answer about the record's topic; without limit if it does not apply, or there is no topic."""
    return TopicLimit() if topics is None or ctx is None or not ctx.topic else topics.learn(ctx.topic)
