"""How large a record may be: what librdkafka still sends, and what a topic takes (formulas: ``docs/limits.md``)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from serde_chain.errors import TopicLimitError
from serde_chain.record import Headers

__all__ = ["MESSAGE_MAX_BYTES", "TopicLimit", "TopicLimits", "largest_key", "largest_value", "record_size"]

_log = logging.getLogger("serde_chain")

MESSAGE_MAX_BYTES: Final = 1_000_000  # librdkafka's default for message.max.bytes
RECORD_OVERHEAD: Final = 36
BATCH_OVERHEAD: Final = 61  # of a batch as the broker measures it
_BODY_OVERHEAD: Final = 3
_VARINT_LIMITS: Final = (63, 8191, 1048575, 134217727)

# Kept free when the limit of a key is computed: its value may still become a reference with its headers.
_ROOM_FOR_VALUE: Final = 16_384
# A topic that is not there may be created any moment.
_UNKNOWN_TTL_S: Final = 1.0
_UNUSABLE: Final = ("transactional.", "transaction.")


def largest_value(
    message_max_bytes: int, key: bytes | None, headers: Headers | None, topic_max_bytes: int | None = None
) -> int:
    """The largest value that ``produce`` and the topic take.

    Args:
        message_max_bytes: The client's ``message.max.bytes``.
        key: The encoded key.
        headers: The record's headers.
        topic_max_bytes: The topic's ``max.message.bytes``, where it counts.

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
    """The largest key with which a record is still taken whose value was offloaded; in bytes, at least 0."""
    return largest_value(message_max_bytes - _ROOM_FOR_VALUE, None, headers, _less(topic_max_bytes))


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """What a record adds to its batch at most, in bytes."""
    body = _BODY_OVERHEAD + _with_length(key) + _with_length(value) + _varint(len(headers or ()))
    body += _headers_size(headers)
    # Behind others, a record's offset and time are differences that take up to five and ten bytes instead of one each.
    return _varint(body) + body + 13


def _less(topic_max_bytes: int | None) -> int | None:
    return None if topic_max_bytes is None else max(0, topic_max_bytes - _ROOM_FOR_VALUE)


def _headers_size(headers: Headers | None) -> int:
    if not headers:
        return 0
    pairs: Iterable[tuple[str, bytes | str | None]] = headers.items() if isinstance(headers, dict) else headers
    return sum(_with_length(name) + _with_length(value) for name, value in pairs)


def _with_length(data: bytes | str | None) -> int:
    """Size of a string with its length as a zigzag varint in front; -1 stands for null."""
    size = len(data.encode() if isinstance(data, str) else data or b"")
    return size + _varint(size)


def _varint(number: int) -> int:
    return 1 + sum(number > limit for limit in _VARINT_LIMITS)


def _fit(room: int) -> int:
    """The longest string that fits with its length in front; negative if not even an empty one does."""
    return max((size for size in range(room - 5, room) if size + _varint(max(size, 0)) <= room), default=-1)


class TopicLimit(NamedTuple):
    """What a broker says about a topic.

    Attributes:
        max_bytes: Its ``max.message.bytes``, the largest batch; None if there is no such topic, or if it is not told.
        compacted: Whether its ``cleanup.policy`` has ``compact``; None likewise.
        denied: Whether this user may not ask.
    """

    max_bytes: int | None = None
    compacted: bool | None = None
    denied: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    """A limit that the broker has told.

    Attributes:
        limit: The limit.
        until: When it is old, on the monotonic clock.
        refuted: Whether a record was refused that was within it.
    """

    limit: TopicLimit
    until: float
    refuted: bool = False


class TopicLimits:
    """Asks for topics' limits when they are first needed, and again when what is known is old.

    A limit that is known is used while the broker is asked again, unless a record within it was refused. Used by
    several threads at once; the question for one topic holds up no other.

    Args:
        client: Configuration of a Kafka client.
        ttl_ms: How long an answer is taken for true, in ms.
        timeout_ms: Longest time for an answer, in ms.
    """

    def __init__(self, client: Mapping[str, Any], *, ttl_ms: int, timeout_ms: int) -> None:
        self._settings = {
            key: value
            for key, value in client.items()
            if not key.startswith(_UNUSABLE) and (not callable(value) or key == "oauth_cb")
        }
        self._ttl_s = ttl_ms / 1000
        self._timeout_s = timeout_ms / 1000
        self._known: dict[str, _Known] = {}
        self._asked: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._admin: Any = None

    def find(self, topic: str) -> TopicLimit:
        """The limit of a topic.

        Raises:
            TopicLimitError: The broker does not say, and it was not known before.
        """
        known = self._known.get(topic)
        if known is not None and not known.refuted and time.monotonic() < known.until:
            return known.limit
        with self._lock:
            asked = self._asked.get(topic)
            if asked is None:
                asked = self._asked[topic] = self._ask(topic)
        if known is not None and not known.refuted and not asked.done():
            return known.limit
        return self._answer(topic, asked, known).limit

    def forget(self, topic: str) -> None:
        """Ask again when the topic's limit is needed next, and wait for the answer."""
        with self._lock:
            if (known := self._known.get(topic)) is not None:
                self._known[topic] = replace(known, refuted=True)
            self._asked.pop(topic, None)  # the answer may be older than the refusal

    def close(self) -> None:
        """Let go of the connection."""
        self._admin = None

    def _answer(self, topic: str, asked: Future[Any], known: _Known | None) -> _Known:
        """Wait for an answer and take note of it."""
        try:
            limit, ttl = self._read(topic, asked)
        except TopicLimitError as error:
            if known is None:
                raise
            _log.warning("%s; the limit that was known is used", error.message)
            limit, ttl = known.limit, self._timeout_s
        finally:
            with self._lock:
                if self._asked.get(topic) is asked:
                    del self._asked[topic]
        found = self._known[topic] = _Known(limit, time.monotonic() + ttl)
        return found

    def _ask(self, topic: str) -> Future[Any]:
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        if self._admin is None:
            self._admin = AdminClient(self._settings)
            self._admin.poll(0)  # a token is fetched here, where there is a callback for tokens
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future: Future[Any]
        (future,) = self._admin.describe_configs([resource], request_timeout=self._timeout_s).values()
        return future

    def _read(self, topic: str, asked: Future[Any]) -> tuple[TopicLimit, float]:
        """An answer, and for how many seconds it is taken for true."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            entries = asked.result(self._timeout_s + 1)
        except (KafkaException, TimeoutError) as error:
            reason = error.args[0] if isinstance(error, KafkaException) else None
            code = reason.code() if reason is not None else None
            if code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
                return TopicLimit(denied=True), self._ttl_s
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return TopicLimit(), _UNKNOWN_TTL_S
            raise TopicLimitError(
                f"the broker did not say how large records of the topic may be: {reason or 'no answer'}",
                hint="Check that the broker is there; or switch offloading off with automatic_offload = false where it "
                "goes to hop, or set large.message.threshold.bytes to a number where it is auto",
                topic=topic,
            ) from error
        policy = str(entries["cleanup.policy"].value)
        return TopicLimit(int(entries["max.message.bytes"].value), "compact" in policy), self._ttl_s
