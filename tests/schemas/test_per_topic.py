"""What the registry is asked once per topic."""

import pytest

from serde_chain import RecordContext, SchemaRegistryError
from serde_chain.record import Context
from serde_chain.schemas.schema_registry import PerTopic


def test_each_topic_is_asked_about_once() -> None:
    asked: list[str | None] = []

    def ask(ctx: Context | None) -> str:
        asked.append(None if ctx is None else ctx.topic)
        return f"of {asked[-1]}"

    answers = PerTopic(ask)
    for _ in range(2):
        assert [answers.of(RecordContext(topic, "value")) for topic in ("a", "b")] == ["of a", "of b"]
        assert answers.of(None) == "of None"
    assert asked == ["a", "b", None]


def test_a_failure_is_not_remembered() -> None:
    failures = iter([SchemaRegistryError("it is down")])

    def ask(_ctx: Context | None) -> str:
        for failure in failures:
            raise failure
        return "answer"

    answers = PerTopic(ask)
    with pytest.raises(SchemaRegistryError):
        answers.of(None)
    assert answers.of(None) == "answer"
