"""Partitions that are read by position."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.errors import ConfigError, JobError
from serde_chain.testing.services import KafkaBroker
from tests.conftest import NewTopic

_TIMED_OUT = confluent_kafka.KafkaError._TIMED_OUT


def test_a_broker_that_is_not_there_may_be_later() -> None:
    with (
        PartitionReader({"bootstrap.servers": "127.0.0.1:1"}, "group", failure=JobError, timeout_s=0.5) as reader,
        pytest.raises(JobError, match=r"the broker did not answer: .*Check bootstrap\.servers") as caught,
    ):
        reader.count("topic")
    assert caught.value.transient
    assert "state CONNECT" not in str(caught.value)
    assert str(caught.value).count("failed: Connection refused") == 1


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("large.fields.min.byte", r"not a configuration key .*Did you mean large\.fields\.min\.bytes"),
        ("statistics.interval", r"the Kafka client refuses its configuration: .*statistics\.interval"),
    ],
)
def test_a_misspelt_key_is_named_before_a_client_refuses_it(key: str, message: str) -> None:
    config = {"bootstrap.servers": "localhost:1", "value.deserializers": "large-fields, bytes", key: "1"}
    with pytest.raises(ConfigError, match=message):
        PartitionReader(config, "test", failure=JobError)


def test_a_file_that_a_client_does_not_find_is_named(tmp_path: Path) -> None:
    config = {"bootstrap.servers": "localhost:1", "security.protocol": "SSL", "ssl.ca.location": f"{tmp_path}/ca.pem"}
    with pytest.raises(ConfigError, match=rf"There is no such file: ssl\.ca\.location = {tmp_path}/ca\.pem"):
        PartitionReader(config, "test", failure=JobError)


def test_what_comes_from_a_new_place_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    with PartitionReader({"bootstrap.servers": "127.0.0.1:1"}, "group", failure=JobError) as reader:
        consumer = SimpleNamespace(
            assign=lambda _places: calls.append("assign"),
            pause=lambda _places: calls.append("pause"),
            resume=lambda places: calls.append(f"resume {len(places)}"),
        )
        with monkeypatch.context() as patched:
            patched.setattr(reader, "_consumer", consumer)
            reader.assign("topic", {0: 0, 1: 0, 2: 0})
            reader.pause("topic", 0)
            reader.pause("topic", 2)
            reader.assign("topic", {0: 1})
            reader.assign("topic", {0: 2})
    # Resumed after it was assigned, librdkafka drops what it has fetched, and may drop all that follows.
    assert calls == ["assign", "pause", "pause", "resume 2", "assign", "assign"]


def test_waits_are_short_at_first_and_long_enough_for_a_slow_broker() -> None:
    waits: list[float] = []

    def slow(*, timeout: float) -> str:
        waits.append(timeout)
        if timeout < 3:
            raise confluent_kafka.KafkaException(
                confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT if len(waits) == 1 else _TIMED_OUT)
            )
        return "metadata"

    with PartitionReader({"bootstrap.servers": "127.0.0.1:1"}, "group", failure=JobError, timeout_s=60) as reader:
        assert reader._ask("topic", slow, timeout=60) == "metadata"
    assert waits == [0.5, 0.5, 1, 2, 4]


@pytest.mark.parametrize(
    ("answers", "timeout_s", "waited_s"),
    [
        ((), None, 8),
        ((), 60, 60),
        ((), 5, 5),
        (("COORDINATOR_LOAD_IN_PROGRESS",), None, 60),
        ((None,), None, 60),
    ],
)
def test_a_broker_that_has_answered_is_waited_for_longer(
    answers: tuple[str | None, ...], timeout_s: float | None, waited_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the broker is an answer. A time that the caller has chosen holds for the first one too."""
    now, left = [0.0], list(answers)

    def passes(seconds: float) -> None:
        now[0] += seconds

    def asked(*, timeout: float) -> str:
        name = left.pop(0) if left else "_TRANSPORT"
        if name is None:
            return "metadata"
        passes(timeout)
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name)))

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=passes)
    with (
        PartitionReader({"bootstrap.servers": "127.0.0.1:1"}, "group", failure=JobError, timeout_s=timeout_s) as reader,
        monkeypatch.context() as patched,
    ):
        patched.setattr("serde_chain.clients.confluent.partitions.time", clock)
        if answers == (None,):
            reader._ask("topic", asked, timeout=60)
        with pytest.raises(JobError, match="the broker did not answer"):
            reader._ask("topic", asked, timeout=60)
    assert now[0] == pytest.approx(waited_s, abs=1)


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 2), ("read_uncommitted", 3)])
def test_the_bounds_of_partitions(broker: KafkaBroker, new_topic: NewTopic, isolation: str, end: int) -> None:
    topic = new_topic(3)
    # A record and a marker that are committed, and a record of a transaction that is open.
    producer = confluent_kafka.Producer({**broker.client_config(), "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"committed", partition=1)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(30)
    settings: dict[str, Any] = {"isolation.level": isolation}
    with PartitionReader(broker.client_config(), "group", failure=JobError, **settings) as reader:
        assert reader.all_bounds(topic, range(3)) == {0: (0, 0), 1: (0, end), 2: (0, 0)}
        assert reader.bounds(topic, 1) == (0, end)
        assert reader.at_time(topic, range(3), 500) == {0: 0, 1: 0, 2: 0}
        assert reader.at_time(topic, range(3), 9_999_999_999_999) == {0: 0, 1: end, 2: 0}
    producer.abort_transaction(30)


def test_a_partition_that_is_not_there(broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    with PartitionReader(broker.client_config(), "group", failure=JobError) as reader:
        for ask in (reader.all_bounds, lambda name, numbers: reader.at_time(name, numbers, 1_000_000)):
            with pytest.raises(JobError, match="Unknown partition"):
                ask(topic, (0, 5))


@pytest.mark.parametrize("name", ["NOT_LEADER_FOR_PARTITION", "OFFSET_NOT_AVAILABLE"])
def test_a_leader_that_moves_is_asked_again(
    broker: KafkaBroker, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PartitionReader(broker.client_config(), "group", failure=JobError) as reader:
        consumer, asked = reader.client, 0

        def moving(places: list[Any], timeout: float) -> list[Any]:
            nonlocal asked
            asked += 1
            if asked > 1:
                answer: list[Any] = consumer.offsets_for_times(places, timeout=timeout)
                return answer
            error = confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name))
            return [SimpleNamespace(partition=0, offset=-2, error=error)]

        with monkeypatch.context() as patched:
            patched.setattr(reader, "_consumer", SimpleNamespace(offsets_for_times=moving))
            assert reader.bounds(topic, 0) == (0, 0)
        assert asked == 3
