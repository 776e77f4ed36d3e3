"""Topic limits from the broker (PIP-36's idea, for Kafka), remembered; each client library asks in its own way."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Final, NamedTuple, Protocol

from payload_stores import forks
from payload_stores.errors import PayloadStoreError
from payload_stores.threads import DaemonPool
from serde_chain.base import SupportsUploads
from serde_chain.clients.client_limits import ClientLimits, TopicLimit
from serde_chain.errors import TopicLimitError

_log = logging.getLogger("serde_chain")

DESCRIBE_MS: Final = 10_000
"""Longest time for an answer, in ms."""
DESCRIBED: Final = ("max.message.bytes", "cleanup.policy")
"""The topic's settings that matter."""

_NONE: Final[Mapping[str, TopicLimit]] = {}
_UNANSWERED: Final = TopicLimit(unanswered=True)

# Kafka's error codes, the same in all client libraries.
_UNKNOWN_TOPIC: Final = 3
_NOT_AUTHORIZED: Final = frozenset({29, 31})  # for the topic, for the cluster

# A missing topic may be created at any moment.
_UNKNOWN_TTL_S: Final = 1.0
# A broker that does not answer is asked again after this time, while records go on.
_UNANSWERED_TTL_S: Final = 60.0
# A question that takes this share of its deadline was not answered; errors that come sooner are of one topic.
_SILENCE: Final = 0.9
# Beyond the client's own deadline.
_GRACE_S: Final = 1.0
# Questions at a time: each has a thread, and a broker that never answers has one for each topic of a producer.
_MOST_QUESTIONS: Final = 8
_UNTIL_THEN: Final = "records up to the client's own limit are sent, and larger ones are offloaded, with random ids"
_ADVICE: Final = (
    "Check that the broker is running, and answers DescribeConfigs; or switch offloading off with automatic_offload = "
    "false where it goes to hop, set large.message.threshold.bytes to a number where it is auto, and large.message.id"
)


class _Known(NamedTuple):
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


class TopicAdmin(Protocol):
    """How a client library asks a broker about a topic."""

    def describe(self, topic: str, timeout_s: float) -> TopicLimit:
        """Ask, and wait for the answer; in a daemon thread.

        Args:
            topic: The topic.
            timeout_s: Longest time for the answer, in seconds.

        Raises:
            Exception: There is no answer; its first argument says why.
        """

    def may_wait(self) -> bool:
        """Whether this thread may wait for answers; not that of an event loop, which has to bring them."""

    def close(self) -> None:
        """Release the connection."""


def limit_of(settings: Mapping[str, str | None]) -> TopicLimit:
    """The limit in a broker's answer.

    Args:
        settings: The values of :data:`DESCRIBED`.

    Example:
        >>> limit_of({"max.message.bytes": "5000", "cleanup.policy": "compact,delete"})
        TopicLimit(max_bytes=5000, compacted=True, denied=False, unanswered=False)
    """
    max_bytes, policy = (settings[name] for name in DESCRIBED)
    is_compacted = None if policy is None else "compact" in policy
    return TopicLimit(None if max_bytes is None else int(max_bytes), is_compacted)


def limit_without(code: int) -> TopicLimit | None:
    """The limit after an error that answers the question: the topic is missing, or the user may not know.

    Args:
        code: Kafka's code of the error.

    Returns:
        The limit; None if the error is no answer.

    Example:
        >>> limit_without(29)
        TopicLimit(max_bytes=None, compacted=None, denied=True, unanswered=False)
    """
    if code in _NOT_AUTHORIZED:
        return TopicLimit(denied=True)
    return TopicLimit() if code == _UNKNOWN_TOPIC else None


class TopicLimits:
    """Asks for topic limits on first use, and again after they expire.

    A known limit is used while the broker is asked again, unless a record within it was refused. If the broker does not
    answer, the last known limit stays, or the topic counts as one without a known limit; a warning names the cure. That
    is remembered for a minute, and for all topics: one question is waited for, and not one for each record or topic.
    From then on the broker is asked without a wait, until it answers. Thread-safe; unanswered questions do not delay
    others, up to eight at a time.

    Args:
        admin: Asks the broker.
        ttl_ms: How long an answer is remembered, in ms (``large.message.threshold.ttl.ms``).
        timeout_ms: Longest time for an answer, in ms.
        answers: Answers that are known and stay.

    Example:
        >>> admin = ConfluentAdmin({"bootstrap.servers": "localhost:9092"})  # doctest: +SKIP
        >>> TopicLimits(admin, ttl_ms=300_000, timeout_ms=10_000).find("images").max_bytes  # doctest: +SKIP
        1048588
    """

    def __init__(
        self, admin: TopicAdmin, *, ttl_ms: int, timeout_ms: int, answers: Mapping[str, TopicLimit] = _NONE
    ) -> None:
        self._admin = admin
        self._ttl_s = ttl_ms / 1000
        self._timeout_s = timeout_ms / 1000
        self._known = {topic: _Known(limit, math.inf) for topic, limit in answers.items()}
        self._is_closed = False
        self._threads = DaemonPool(_MOST_QUESTIONS)
        self._begin()
        forks.watch(self, TopicLimits._leave_to_parent)

    def _begin(self) -> None:
        self._asked: dict[str, Future[_Known]] = {}
        self._logged: str | None = None  # why there was no answer; of all topics, since one broker is at fault for all
        # Since the broker has let a question's deadline pass: the cause, and when other topics are asked for, on the
        # monotonic clock.
        self._silence: tuple[Exception | None, float] | None = None
        self._lock = threading.Lock()

    def _leave_to_parent(self) -> tuple[()]:
        self._begin()
        return ()

    def known(self, topic: str) -> TopicLimit | None:
        """The answer about a topic if it is known; None otherwise, and then the broker is being asked."""
        known = self._usable(topic)
        return known.limit if isinstance(known, _Known) else None

    def learn(self, topic: str) -> TopicLimit:
        """The answer about a topic; waits for it. Without limit if the broker does not answer."""
        return self._wait(topic).limit

    def find(self, topic: str) -> TopicLimit:
        """The answer about a topic, for callers that cannot do without it.

        Raises:
            TopicLimitError: The broker does not answer, and there is no earlier answer.
        """
        known = self._wait(topic)
        if known.error is not None and known.limit in {TopicLimit(), _UNANSWERED}:
            raise copy(known.error)
        return known.limit

    def forget(self, topic: str) -> None:
        """Ask again on next use of the topic's limit, and wait for the answer; not if there was none a moment ago."""
        with self._lock:
            known = self._known.get(topic)
            if known is not None and known.error is None:
                self._known[topic] = known._replace(refuted=True)
                self._asked.pop(topic, None)  # the answer may be older than the refusal

    def close(self) -> None:
        """Release the connection; a question on its way is of no interest then."""
        self._is_closed = True
        self._admin.close()

    def _usable(self, topic: str) -> _Known | Future[_Known]:
        """What is known, if it may be used; otherwise the answer to come. Asks the broker if it is missing or old."""
        known = self._known.get(topic)
        if known is None and (silence := self._silence) is not None:
            cause, until = silence
            known = self._known.setdefault(topic, _Known(_UNANSWERED, until, _no_answer(topic, cause)))
        if known is not None and not known.refuted and time.monotonic() < known.until:
            return known
        asked = self._ask(topic, known)
        return asked if known is None or known.refuted else known

    def _wait(self, topic: str) -> _Known:
        asked = self._usable(topic)
        if isinstance(asked, _Known):
            return asked
        if not self._admin.may_wait():
            # A record was refused this moment: with the old limit, it is sent again until the new one is there.
            return self._known.get(topic) or _Known(_UNANSWERED, 0)
        try:
            return asked.result(self._timeout_s + _GRACE_S)
        except TimeoutError:  # a callback for tokens that hangs, say
            return self._not_answered(topic, asked, None, silent=True)

    def _ask(self, topic: str, seen: _Known | None) -> _Known | Future[_Known]:
        """Ask the broker, in a daemon thread: making a connection takes a while, and so may a callback for tokens.

        Args:
            topic: The topic.
            seen: What was known. If an answer has come since, that is returned.
        """
        with self._lock:
            known = self._known.get(topic)
            if known is not None and known is not seen and not known.refuted:
                return known
            asked = self._asked.get(topic)
            if asked is not None:
                return asked
            asked = self._asked[topic] = Future()
        try:
            self._threads.submit(self._answer, topic, asked)
        except PayloadStoreError as error:
            self._not_answered(topic, asked, error)
        return asked

    def _answer(self, topic: str, asked: Future[_Known]) -> None:
        """Wait for the broker's answer, and remember it."""
        if self._is_closed:
            self._not_answered(topic, asked, None)
            return
        if self._asked.get(topic) is not asked:  # it was waited for long enough
            return
        began = time.monotonic()
        try:
            limit, ttl_s = self._read(topic)
        except Exception as error:  # noqa: BLE001  a thread may wait for the answer
            is_silent = time.monotonic() - began >= self._timeout_s * _SILENCE
            self._not_answered(topic, asked, error, silent=is_silent)
        else:
            known = _Known(limit, time.monotonic() + ttl_s)
            self._logged = self._silence = None
            self._remember(topic, asked, known)
            _pass(known, asked)

    def _not_answered(
        self, topic: str, asked: Future[_Known], cause: Exception | None, *, silent: bool = False
    ) -> _Known:
        """Remember that there was no answer; if the broker let the deadline pass, for all topics."""
        reason = _reason(cause)
        error = _no_answer(topic, cause)
        before = self._known.get(topic)
        until = time.monotonic() + _UNANSWERED_TTL_S
        known = _Known(_UNANSWERED if before is None else before.limit, until, error)
        is_new = before is None or before.error is None
        if self._remember(topic, asked, known) and is_new and not self._is_closed:
            level = logging.DEBUG if self._logged == reason else logging.WARNING
            self._logged = reason
            _log.log(level, "%s: %s", _UNTIL_THEN if before is None else "the last known limit is used", error)
        _pass(known, asked)
        if silent:
            self._silence = cause, until
            self._release()
        return known

    def _release(self) -> None:
        """End the waits for a silent broker's answers about unknown topics."""
        with self._lock:
            waiting = [(topic, asked) for topic, asked in self._asked.items() if topic not in self._known]
        for topic, asked in waiting:
            if isinstance(known := self._usable(topic), _Known):
                _pass(known, asked)

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
        limit = self._admin.describe(topic, self._timeout_s)
        is_missing = limit.max_bytes is None and not limit.denied
        return limit, _UNKNOWN_TTL_S if is_missing else self._ttl_s


def _reason(cause: Exception | None) -> str:
    return str(cause.args[0] if cause is not None and cause.args else "no answer")


def _no_answer(topic: str, cause: Exception | None) -> TopicLimitError:
    error = TopicLimitError(
        f"the broker did not report how large records of the topic may be: {_reason(cause)}", hint=_ADVICE, topic=topic
    )
    error.__cause__ = cause
    return error


def _pass(known: _Known, asked: Future[_Known]) -> None:
    """Pass an answer to those who wait for it."""
    with suppress(InvalidStateError):  # there is an answer after all, or one that came too late
        asked.set_result(known)


def warn_of_no_question(stages: Iterable[object], problem: str, setting: str) -> None:
    """Warn that the limits of topics, which a stage needs, cannot be asked for.

    Args:
        stages: The stages of the client's chains.
        problem: Why not.
        setting: The limit that applies in their place, with its value.
    """
    if any(isinstance(stage, SupportsUploads) and stage.negotiates for stage in stages):
        _log.warning(
            "the broker is not asked how large records of a topic may be (large.message.threshold.bytes = auto, or "
            "hop's format): %s. Records that %s allows are sent, and those above the topic's limit refused",
            *(problem, setting),
        )


class _Unasked:
    """What a client knows of topics that cannot ask: nothing. See :class:`.client_limits.TopicAnswers`."""

    def known(self, topic: str) -> TopicLimit:
        """There will be no better answer."""
        return self.learn(topic)

    def learn(self, _topic: str) -> TopicLimit:
        """Called for the first payload that is uploaded with an id of no explicit kind."""
        _warn_of_ids()
        return TopicLimit()

    def forget(self, topic: str) -> None:
        """There is nothing to forget."""


@cache
def _warn_of_ids() -> None:
    """Warn once per process: it is the same for each chain and topic."""
    _log.warning(
        "this client does not ask the broker whether topics are compacted, so ids of payloads are random. Set "
        "large.message.id: content or keyed for compacted topics, random for others"
    )


class LearntLimits:
    """Makes the limits of a client's stages, with those of topics if a stage negotiates.

    Whether topics are compacted is asked for in any case, by the first payload of each that is uploaded.

    Args:
        admin: Makes the one who asks; None if this client cannot ask: :func:`warn_of_no_question` says so.
        max_bytes: The client's limit, in bytes.
        setting: The client's name of it.
        timeout_ms: Longest time for an answer, in ms.
        learnt_max_bytes: The client's limit where that of the topic is known; None: the same.
        room: Bytes that are kept free in each record.
        sends_again: Whether the client sends records again that the broker refuses for their size.
        answers: Answers that are known and stay.
        only: The topic of all records, if there is one, and its answer is known.

    Attributes:
        topics: The limits of topics; None if no stage negotiates.
    """

    topics: TopicLimits | None = None

    def __init__(
        self,
        admin: Callable[[], TopicAdmin] | None,
        max_bytes: int,
        *,
        setting: str,
        timeout_ms: int = DESCRIBE_MS,
        learnt_max_bytes: int | None = None,
        room: int = 0,
        sends_again: bool = False,
        answers: Mapping[str, TopicLimit] = _NONE,
        only: str | None = None,
    ) -> None:
        self._admin = admin
        self._max_bytes = max_bytes
        self._setting = setting
        self._timeout_ms = timeout_ms
        self._learnt_max_bytes = learnt_max_bytes
        self._room = room
        self._sends_again = sends_again
        self._answers = answers
        self._only = only
        self._asked: TopicLimits | None = None

    def __call__(self, stage: SupportsUploads, overhead: int, is_key: bool) -> ClientLimits:
        """The limits for a stage.

        Args:
            stage: The stage.
            overhead: Bytes that later stages add.
            is_key: Whether it is for keys.
        """
        if self._asked is None and self._admin is not None:
            # Nothing is asked, and no connection is made, before the first question.
            self._asked = TopicLimits(
                self._admin(), ttl_ms=stage.limits_ttl_ms, timeout_ms=self._timeout_ms, answers=self._answers
            )
        if stage.negotiates:
            self.topics = self._asked
        return ClientLimits(
            self._max_bytes,
            overhead + self._room,
            self.topics if stage.negotiates else None,
            is_key=is_key,
            setting=self._setting,
            learnt_max_bytes=self._learnt_max_bytes,
            sends_again=self._sends_again,
            only=self._only if stage.negotiates else None,
            policies=_Unasked() if self._asked is None else self._asked,
        )

    def close(self) -> None:
        """Release the connection."""
        if self._asked is not None:
            self._asked.close()
