"""What readers do with undecodable records, by configuration."""

import pickle
from typing import Any

import pytest

from serde_chain import ConfigError, DecodeError
from serde_chain.clients.error_policy import ErrorPolicy
from serde_chain.errors import PayloadStoreUnavailableError, SerializationError, in_chain

TOPIC = "serde.dead.letter.topic"
NAME = "serde.error.policy"
LETTERS = {NAME: "dead-letter", TOPIC: "dead"}


@pytest.mark.parametrize("config", [{}, {NAME: "raise"}, {NAME: "raise", TOPIC: "unused"}])
def test_by_default_nothing_is_passed_over(config: dict[str, Any]) -> None:
    policy = ErrorPolicy.of(config)
    assert policy == ErrorPolicy("raise", None)
    assert not policy.passes_over(DecodeError("truncated"))


@pytest.mark.parametrize("config", [{NAME: "skip"}, {NAME: "skip", TOPIC: "unused"}, LETTERS])
def test_only_what_is_wrong_with_the_record_is_passed_over(config: dict[str, Any]) -> None:
    policy = ErrorPolicy.of(config)
    assert policy.passes_over(DecodeError("truncated"))
    away: SerializationError = in_chain(PayloadStoreUnavailableError("the store is down"))
    assert not policy.passes_over(away)
    assert not policy.passes_over(TimeoutError())


def test_a_topic_is_for_dead_letters_alone() -> None:
    assert ErrorPolicy.of(LETTERS).dead_letter_topic == "dead"
    assert ErrorPolicy.of({NAME: "skip", TOPIC: "unused"}).dead_letter_topic is None


@pytest.mark.parametrize("config", [{NAME: "ignore"}, {NAME: "dead-letter"}, {TOPIC: "dead"}])
def test_a_policy_that_makes_no_sense_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"serde\."):
        ErrorPolicy.of(config)


def test_plans_of_spark_carry_it() -> None:
    policy = ErrorPolicy.of(LETTERS)
    assert pickle.loads(pickle.dumps(policy)) == policy  # noqa: S301  its own bytes
