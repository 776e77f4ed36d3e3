"""Record sizes: the largest record that librdkafka sends, and that a topic accepts (formulas: ``docs/limits.md``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from payload_stores.options import Option, integer
from serde_chain.record import KEY, VALUE, Context, Headers, RecordContext, key_of
from serde_chain.transfer import Question, Transfer

_log = logging.getLogger("serde_chain")

MESSAGE_MAX: Final = Option("message.max.bytes", integer(1), 1_000_000)  # librdkafka's, with its default
LARGEST_MESSAGE: Final = 1_000_000_000  # the largest message.max.bytes that librdkafka accepts
RECORD_OVERHEAD: Final = 36
# Bytes by which the estimate of a record by Java's producer exceeds librdkafka's at most; aiokafka and kafka-python
# estimate like Java.
JAVA_OVERHEAD: Final = 54
BATCH_OVERHEAD: Final = 61  # of a batch as the broker measures it
_BODY_OVERHEAD: Final = 3

# Kept free in the limit of a key: its value may still become a reference with headers.
_ROOM_FOR_VALUE: Final = 16_384
# Bytes of a key that need no check: see RecordLimits.always.
KEY_ROOM: Final = 4096
# Length of a key that fits into it, also as text, of which a character may have four bytes.
SHORT_KEY: Final = KEY_ROOM // 4
# Bytes of a batch that any topic is presumed to accept before its limit is known: 1/64 of Kafka's default. Services
# that lower the default accept at least 256 KiB.
LEAST_LIMIT: Final = 16_384


def largest_value(
    message_max_bytes: int, key: bytes | None, headers: Headers | None, topic_max_bytes: int | None = None
) -> int:
    """The largest value that ``produce`` and the topic accept.

    Args:
        message_max_bytes: The client's ``message.max.bytes``.
        key: The encoded key.
        headers: The record's headers.
        topic_max_bytes: The topic's ``max.message.bytes``, if it applies.

    Returns:
        Size in bytes, at least 0.
    """
    headers_size = _headers_size(headers)
    sent = message_max_bytes - RECORD_OVERHEAD - len(key or b"") - headers_size
    if topic_max_bytes is None:
        return max(0, sent)
    body = _fit(topic_max_bytes - BATCH_OVERHEAD)
    taken = _fit(body - _BODY_OVERHEAD - _with_length(key) - _varint(len(headers or ())) - headers_size)
    return max(0, min(sent, taken))


def largest_key(message_max_bytes: int, headers: Headers | None, topic_max_bytes: int | None = None) -> int:
    """The largest key of an accepted record with an offloaded value; in bytes, at least 0."""
    return largest_value(message_max_bytes - _ROOM_FOR_VALUE, None, headers, _less(topic_max_bytes))


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """The most bytes that a record adds to its batch."""
    # After other records, offset and time are differences of up to five and ten bytes instead of one each.
    return _alone(key, value, headers) + 13


def batch_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of a record alone in its batch, which a topic's ``max.message.bytes`` limits."""
    return BATCH_OVERHEAD + _alone(key, value, headers)


def sent_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of a record as librdkafka counts it, which ``message.max.bytes`` limits."""
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + _headers_size(headers)


def _alone(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes of the first record of a batch."""
    body = _BODY_OVERHEAD + _with_length(key) + _with_length(value) + _varint(len(headers or ()))
    body += _headers_size(headers)
    return _varint(body) + body


def _less(topic_max_bytes: int | None) -> int | None:
    return None if topic_max_bytes is None else max(0, topic_max_bytes - _ROOM_FOR_VALUE)


def _headers_size(headers: Headers | None) -> int:
    if not headers:
        return 0
    pairs: Iterable[tuple[str, bytes | str | None]] = headers.items() if isinstance(headers, dict) else headers
    return sum(_with_length(name) + _with_length(value) for name, value in pairs)


def _with_length(data: bytes | str | None) -> int:
    """Size of a string and its length as a zigzag varint; -1 for null."""
    size = len(data.encode() if isinstance(data, str) else data or b"")
    return size + _varint(size)


def _varint(number: int) -> int:
    """Bytes of a zigzag varint, of seven bits each; zigzag doubles the number."""
    return (number.bit_length() + 7) // 7


def _fit(room: int) -> int:
    """The longest string that fits with its length; negative if not even an empty one does."""
    size = room - 1
    while size + _varint(max(size, 0)) > room:
        size -= 1
    return size


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
