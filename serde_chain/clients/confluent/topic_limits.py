"""Topic limits from the broker (PIP-36's idea, for Kafka)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Final

from serde_chain.clients.limits import TopicLimit
from serde_chain.errors import TopicLimitError

__all__ = ["TopicLimits"]

_log = logging.getLogger("serde_chain")

# A missing topic may be created at any moment.
_UNKNOWN_TTL_S: Final = 1.0
_UNUSABLE: Final = ("transactional.", "transaction.")


@dataclass(frozen=True, slots=True)
class _Known:
    """A limit reported by the broker.

    Attributes:
        limit: The limit.
        until: When it expires, on the monotonic clock.
        refuted: Whether a record within the limit was refused.
    """

    limit: TopicLimit
    until: float
    refuted: bool = False


class TopicLimits:
    """Asks for topic limits on first use, and again after they expire.

    A known limit is used while the broker is asked again, unless a record within it was refused. Thread-safe; a
    question about one topic does not delay others.

    Args:
        client: Configuration of a Kafka client.
        ttl_ms: How long an answer is remembered, in ms.
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
            TopicLimitError: The broker does not report it, and there is no earlier value.
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

    def is_known(self, topic: str) -> bool:
        """Whether :meth:`find` returns without waiting for an answer."""
        known = self._known.get(topic)
        return known is not None and not known.refuted

    def forget(self, topic: str) -> None:
        """Ask again on next use of the topic's limit, and wait for the answer."""
        with self._lock:
            if (known := self._known.get(topic)) is not None:
                self._known[topic] = replace(known, refuted=True)
            self._asked.pop(topic, None)  # the answer may be older than the refusal

    def close(self) -> None:
        """Release the connection."""
        self._admin = None

    def _answer(self, topic: str, asked: Future[Any], known: _Known | None) -> _Known:
        """Wait for an answer, and remember it."""
        try:
            limit, ttl = self._read(topic, asked)
        except TopicLimitError as error:
            if known is None:
                raise
            _log.warning("%s; the last known limit is used", error.message)
            limit, ttl = known.limit, self._timeout_s
        finally:
            with self._lock:
                if self._asked.get(topic) is asked:
                    del self._asked[topic]
        known = self._known[topic] = _Known(limit, time.monotonic() + ttl)
        return known

    def _ask(self, topic: str) -> Future[Any]:
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        if self._admin is None:
            self._admin = AdminClient(self._settings)
            self._admin.poll(0)  # fetches a token, if there is a callback for tokens
        resource = ConfigResource(ResourceType.TOPIC, topic)
        future: Future[Any]
        (future,) = self._admin.describe_configs([resource], request_timeout=self._timeout_s).values()
        return future

    def _read(self, topic: str, asked: Future[Any]) -> tuple[TopicLimit, float]:
        """An answer, and its time to live in seconds."""
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
                f"the broker did not report how large records of the topic may be: {reason or 'no answer'}",
                hint="Check that the broker is running; or switch offloading off with automatic_offload = false where "
                "it goes to hop, or set large.message.threshold.bytes to a number where it is auto",
                topic=topic,
            ) from error
        policy = str(entries["cleanup.policy"].value)
        return TopicLimit(int(entries["max.message.bytes"].value), "compact" in policy), self._ttl_s
