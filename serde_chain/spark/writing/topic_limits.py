"""The limits of topics: asked for on the driver where it knows the topic, and in the workers otherwise."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Final

from serde_chain.base import SupportsUploads
from serde_chain.clients.client_limits import TopicLimit
from serde_chain.clients.topic_limits import DESCRIBE_MS, TopicAdmin, TopicLimits, warn_of_no_question

_log = logging.getLogger("serde_chain")

_SERVERS: Final = "bootstrap.servers"
# Default of Java's batch.size, in bytes.
_SINK_BATCH: Final = 16_384


@dataclass(frozen=True)
class SinkLimits:
    """What a plan knows of the limits of topics.

    Attributes:
        asks: Whether limits of other topics are asked for, once per process and topic; otherwise those of topics do not
            count.
        only: The topic of all records, if there is one, and its answer is known.
        answers: The broker's answers.
    """

    asks: bool = False
    only: str | None = None
    answers: Mapping[str, TopicLimit] = field(default_factory=dict)


NOT_ASKED: Final = SinkLimits()


def admin_of(client: Mapping[str, Any]) -> TopicAdmin:
    """The one who asks.

    Args:
        client: The client's settings.

    Raises:
        MissingDependencyError: confluent_kafka is not installed.
    """
    from serde_chain.clients.confluent.topic_admin import ConfluentAdmin

    return ConfluentAdmin(client)


class Asking:
    """Asks for the limits of topics on the driver; its answers are remembered, also for the next query.

    Args:
        stages: The stages that offload; a warning says so if one needs the limits, and they cannot be asked for.
        client: The client's settings.
        setting: The limit that applies then, with its value.
    """

    def __init__(self, stages: Sequence[SupportsUploads], client: Mapping[str, Any], setting: str) -> None:
        self._topics: TopicLimits | None = None
        self._warned: set[str] = set()
        problem = None
        if _SERVERS not in client:
            problem = f"the configuration has no {_SERVERS}"
        elif find_spec("confluent_kafka") is None:
            problem = "confluent_kafka is not installed (pip install 'serde-chain[kafka]')"
        if problem is not None:
            warn_of_no_question(stages, problem, setting)
            return
        ttls = [stage.limits_ttl_ms for stage in stages if stage.negotiates]
        if ttls:
            self._topics = TopicLimits(admin_of(client), ttl_ms=min(ttls), timeout_ms=DESCRIBE_MS)

    def limits(self, topic: str | None) -> SinkLimits:
        """What is known of the limits, once the broker was asked.

        Args:
            topic: The topic of all records, if there is one.
        """
        if self._topics is None:
            return NOT_ASKED
        answer = TopicLimit() if topic is None else self._topics.learn(topic)
        if topic is None or (answer.max_bytes is None and not answer.denied):
            return SinkLimits(asks=True)  # a topic that is missing today may be there when a task runs
        self._check_batches(topic, answer)
        return SinkLimits(asks=True, only=topic, answers={topic: answer})

    def _check_batches(self, topic: str, answer: TopicLimit) -> None:
        """Warn of batches that the topic refuses, since the sink's options are unknown here."""
        if answer.max_bytes is not None and answer.max_bytes < _SINK_BATCH and topic not in self._warned:
            self._warned.add(topic)
            _log.warning(
                "the topic %s accepts batches of up to %d bytes, less than the default of the sink's kafka.batch.size "
                "(%d): set that option to at most %d, since Kafka's producer may lose records of a refused batch "
                "(KAFKA-19479)",
                *(topic, answer.max_bytes, _SINK_BATCH, answer.max_bytes),
            )
