"""The result of an audit, which finds references to missing or different payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from serde_chain.jobs.reference_plan import END, WHOLE, ReferencePlan, plan_reading
from serde_chain.jobs.topic_bounds import named_topics

ProblemsT = TypeVar("ProblemsT")


@dataclass(frozen=True)
class Problem:
    """A reference that a reader cannot follow.

    Attributes:
        topic: The record's topic.
        partition: Its partition.
        offset: Its offset.
        reference: The reference; None if the placeholder itself is unreadable.
        kind: The error's class.
        message: Its message.
    """

    topic: str
    partition: int
    offset: int
    reference: str | None
    kind: str
    message: str


@dataclass(frozen=True)
class AuditReport(Generic[ProblemsT]):
    """The result of an audit.

    Attributes:
        references: Number of references in the records.
        problems: The references that a reader cannot follow: :class:`~serde_chain.jobs.Problems`; with Spark, a
            DataFrame whose columns are the attributes of :class:`Problem`.
    """

    references: int
    problems: ProblemsT


def plan_audit(config: Mapping[str, object], topics: str | Sequence[str], *, payloads: bool) -> ReferencePlan:
    """Plan how references are read and checked.

    Args:
        config: Flat configuration of a client.
        topics: The topics.
        payloads: Download each payload; otherwise read only its last byte.

    Raises:
        ConfigError: The configuration is wrong, or no topic is given.
    """
    return replace(plan_reading(config, named_topics(topics)), check=WHOLE if payloads else END)
