"""Topic limits from the broker (PIP-36's idea, for Kafka)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from payload_stores.daemon_threads import run_in_daemon_thread
from payload_stores.errors import PayloadStoreError
from serde_chain.clients.limits import TopicLimit
from serde_chain.errors import TopicLimitError

__all__ = ["TopicLimits"]

_log = logging.getLogger("serde_chain")

# A missing topic may be created at any moment.
_UNKNOWN_TTL_S: Final = 1.0
# A broker that does not answer is asked again after this time, while records go on.
_UNANSWERED_TTL_S: Final = 60.0
# Beyond the client's own deadline.
_GRACE_S: Final = 1.0
_UNUSABLE: Final = ("transactional.", "transaction.")
_UNTIL_THEN: Final = "records up to the client's own limit are sent, and larger ones are offloaded"
_ADVICE: Final = (
    "Check that the broker is running, and answers DescribeConfigs; or switch offloading off with automatic_offload = "
    "false where it goes to hop, or set large.message.threshold.bytes to a number where it is auto"
)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known about a topic.

    Attributes:
        limit: The broker's answer; without limit if there was none.
        until: When it expires, on the monotonic clock.
        error: Why the broker has not answered, if it has not.
        refuted: Whether a record within the limit was refused.
    """

    limit: TopicLimit
    until: float
    error: TopicLimitError | None = None
    refuted: bool = False


class TopicLimits:
    """Asks for topic limits on first use, and again after they expire.

    A known limit is used while the broker is asked again, unless a record within it was refused. If the broker does not
    answer, the last known limit stays, or the topic counts as one without a known limit; a warning names the cure. That
    is remembered for a minute, so one question is waited for, and not one for each record. Thread-safe; a question
    about one topic does not delay others.

    Args:
        client: Configuration of a Kafka client.
        ttl_ms: How long an answer is remembered, in ms.
        timeout_ms: Longest time for an answer, in ms.

    Example:
        >>> limits = TopicLimits({"bootstrap.servers": "localhost:9092"}, ttl_ms=300_000, timeout_ms=10_000)
        >>> limits.find("images").max_bytes  # doctest: +SKIP
        1048588
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
        self._asked: dict[str, Future[_Known]] = {}
        self._lock = threading.Lock()
        self._connecting = threading.Lock()
        self._admin: Any = None
        self._is_closed = False

    def known(self, topic: str) -> TopicLimit | None:
        """The answer about a topic if it is known; None otherwise, and then the broker is being asked."""
        known = self._usable(topic)
        return None if known is None else known.limit

    def learn(self, topic: str) -> TopicLimit:
        """The answer about a topic; waits for it. Without limit if the broker does not answer."""
        return self._wait(topic).limit

    def find(self, topic: str) -> TopicLimit:
        """The answer about a topic, for callers that cannot do without it.

        Raises:
            TopicLimitError: The broker does not answer, and there is no earlier answer.
        """
        known = self._wait(topic)
        if known.error is not None and known.limit == TopicLimit():
            raise copy(known.error)
        return known.limit

    def forget(self, topic: str) -> None:
        """Ask again on next use of the topic's limit, and wait for the answer; not if there was none a moment ago."""
        with self._lock:
            known = self._known.get(topic)
            if known is not None and known.error is None:
                self._known[topic] = replace(known, refuted=True)
                self._asked.pop(topic, None)  # the answer may be older than the refusal

    def close(self) -> None:
        """Release the connection; a question on its way is of no interest then."""
        self._is_closed = True
        self._admin = None

    def _usable(self, topic: str) -> _Known | None:
        """What is known, if it may be used; the broker is asked if it is missing or old."""
        known = self._known.get(topic)
        if known is None or known.refuted or time.monotonic() >= known.until:
            self._ask(topic)
        return None if known is None or known.refuted else known

    def _wait(self, topic: str) -> _Known:
        known = self._usable(topic)
        if known is not None:
            return known
        asked = self._ask(topic)
        try:
            return asked.result(self._timeout_s + _GRACE_S)
        except TimeoutError:  # a callback for tokens that hangs, say
            return self._not_answered(topic, asked, None)

    def _ask(self, topic: str) -> Future[_Known]:
        """Ask the broker, in a daemon thread: making a connection takes a while, and so may a callback for tokens."""
        with self._lock:
            asked = self._asked.get(topic)
            if asked is not None:
                return asked
            asked = self._asked[topic] = Future()
        try:
            run_in_daemon_thread(partial(self._answer, topic, asked))
        except PayloadStoreError as error:
            self._not_answered(topic, asked, error)
        return asked

    def _answer(self, topic: str, asked: Future[_Known]) -> None:
        """Wait for the broker's answer, and remember it."""
        try:
            limit, ttl_s = self._read(topic)
        except Exception as error:  # noqa: BLE001  whatever the reason is, somebody may wait for the answer
            self._not_answered(topic, asked, error)
        else:
            known = _Known(limit, time.monotonic() + ttl_s)
            self._remember(topic, asked, known)
            _pass(known, asked)

    def _not_answered(self, topic: str, asked: Future[_Known], cause: Exception | None) -> _Known:
        """Remember that there was no answer."""
        reason = cause.args[0] if cause is not None and cause.args else None
        error = TopicLimitError(
            f"the broker did not report how large records of the topic may be: {reason or 'no answer'}",
            hint=_ADVICE,
            topic=topic,
        )
        error.__cause__ = cause
        before = self._known.get(topic)
        limit = TopicLimit() if before is None else before.limit
        known = _Known(limit, time.monotonic() + _UNANSWERED_TTL_S, error)
        is_new = before is None or before.error is None
        if self._remember(topic, asked, known) and is_new and not self._is_closed:
            _log.warning("%s: %s", _UNTIL_THEN if before is None else "the last known limit is used", error)
        _pass(known, asked)
        return known

    def _remember(self, topic: str, asked: Future[_Known], known: _Known) -> bool:
        """Remember an answer, unless the topic was asked for again since; returns whether it is remembered."""
        with self._lock:
            is_current = self._asked.get(topic) is asked
            if is_current:
                self._known[topic] = known
                del self._asked[topic]
        return is_current

    def _read(self, topic: str) -> tuple[TopicLimit, float]:
        """The broker's answer, and its time to live in seconds."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

        with self._connecting:
            admin = self._admin
            if admin is None:
                admin = self._admin = AdminClient(self._settings)
                admin.poll(0)  # fetches a token, if there is a callback for tokens
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = admin.describe_configs([resource], request_timeout=self._timeout_s).values()
        try:
            entries = future.result(self._timeout_s + _GRACE_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code in {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}:
                return TopicLimit(denied=True), self._ttl_s
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return TopicLimit(), _UNKNOWN_TTL_S
            raise
        policy = str(entries["cleanup.policy"].value)
        return TopicLimit(int(entries["max.message.bytes"].value), "compact" in policy), self._ttl_s


def _pass(known: _Known, asked: Future[_Known]) -> None:
    """Pass an answer to those who wait for it."""
    with suppress(InvalidStateError):  # there is an answer after all, or one that came too late
        asked.set_result(known)
