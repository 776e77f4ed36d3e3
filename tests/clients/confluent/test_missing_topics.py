"""Records for a topic that does not exist fail while a program still waits for its first records."""

import uuid
from pathlib import Path
from typing import Any

import pytest

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker

_SETTING = "topic.metadata.propagation.max.ms"
# Less than librdkafka's own 30 s.
_SECONDS = 25.0


@pytest.mark.full
def test_a_missing_topic_is_reported_and_one_that_is_created_meanwhile_gets_its_records(broker: KafkaBroker) -> None:
    # It takes 10 s: the default.
    missing, late = f"missing-{uuid.uuid4()}", f"late-{uuid.uuid4()}"
    reports: dict[str, str | None] = {}

    def report(error: Any, message: Any) -> None:
        reports[message.topic()] = None if error is None else error.name()

    with Producer({**broker.client_config(), "value.serializers": "json"}) as producer:
        for topic in (missing, late):
            producer.produce(topic, {"id": 1}, on_delivery=report)
        broker.create_topic(late)
        assert producer.flush(_SECONDS) == 0
    assert reports == {missing: "UNKNOWN_TOPIC_OR_PART", late: None}


@pytest.mark.parametrize("has_callback", [True, False])
def test_the_payload_of_a_record_for_a_missing_topic_is_deleted(
    broker: KafkaBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture, has_callback: bool
) -> None:
    config = {
        **broker.client_config(),
        _SETTING: 0,
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": 1,
    }
    topic = f"missing-{uuid.uuid4()}"
    reports: list[Any] = []
    report = (lambda error, _message: reports.append(error.name())) if has_callback else None
    with Producer(config) as producer:
        producer.produce(topic, b"large", on_delivery=report)
        assert producer.flush(8) == 0
    assert reports == ["UNKNOWN_TOPIC_OR_PART"] * has_callback
    told = [record.getMessage() for record in caplog.records if record.name == "serde_chain"]
    assert told == [f"a record of {topic} was not delivered: Broker: Unknown topic or partition"] * (not has_callback)
    assert list((tmp_path / topic).iterdir()) == []


def test_ones_own_time_for_a_topic_counts(broker: KafkaBroker) -> None:
    reports: list[Any] = []
    config = {**broker.client_config(), _SETTING: 0, "value.serializers": "json"}
    with Producer(config) as producer:
        producer.produce(
            f"missing-{uuid.uuid4()}", {"id": 1}, on_delivery=lambda error, _message: reports.append(error)
        )
        # Less than the default.
        assert producer.flush(8) == 0
    assert [error.name() for error in reports] == ["UNKNOWN_TOPIC_OR_PART"]
