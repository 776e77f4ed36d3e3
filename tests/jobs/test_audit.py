"""References that lead to nothing, or to something else, are reported; all others are counted."""

from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from payload_stores.base import PayloadStore
from serde_chain.errors import JobError
from serde_chain.jobs import Problem, Problems
from serde_chain.wire.kip1159 import MARKER
from tests.jobs.conftest import Audit, Config, Send, payload, stored


@pytest.mark.parametrize("payloads", [True, pytest.param(False, marks=pytest.mark.full)])
def test_what_is_gone_or_changed_is_reported(
    *, audit: Audit, config: Config, topic: str, send: Send, store: PayloadStore, payloads: bool
) -> None:
    """By Spark, each audit is a few queries."""
    config["large.message.fetch"] = "lazy"  # of readers; an audit fetches
    config["value.deserializers"] = "large-message"
    send(topic, b"small", *map(payload, range(4)), None)
    assert audit(config, topic, payloads=payloads) == (4, [])
    by_content = {
        store.download(reference): Path(reference.removeprefix("file://")) for reference in stored(store, topic)
    }
    by_content[payload(1)].unlink()
    by_content[payload(2)].write_bytes(b"x" * 599)
    by_content[payload(3)].write_bytes(b"x" * 600)
    references, problems = audit(config, topic, payloads=payloads)
    assert references == 4
    damaged = {4: "PayloadIntegrityError"} if payloads else {}  # only a download shows it
    expected = {2: "PayloadNotFoundError", 3: "PayloadIntegrityError", **damaged}
    assert {problem.offset: problem.kind for problem in problems} == expected
    assert {problem.topic for problem in problems} == {topic}
    assert problems[0].reference == f"file://{by_content[payload(1)]}"


def test_an_empty_topic_and_one_that_is_not_there(audit: Audit, config: Config, topic: str) -> None:
    assert audit(config, [topic]) == (0, [])
    with pytest.raises(JobError, match="cannot be read"):
        audit(config, "nowhere")


def test_placeholders_that_are_unreadable_are_problems(audit: Audit, config: Config, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": config["bootstrap.servers"]})
    producer.produce(topic, b"x" * 20_000, headers=[(MARKER, b"true")])
    assert producer.flush(30) == 0
    references, [problem] = audit(config, topic)
    assert references == 0
    assert (problem.offset, problem.reference, problem.kind) == (0, None, "DecodeError")


def test_problems_are_sorted_whatever_is_in_them() -> None:
    first = Problem("t", 0, 1, "file:///t/\ud800", "PayloadNotFoundError", "gone: \ud800")
    problems = [first, replace(first, offset=10), replace(first, partition=1, offset=0, reference=None)]
    kept = Problems(reversed(problems))
    assert list(kept) == problems
    assert len(kept) == 3
