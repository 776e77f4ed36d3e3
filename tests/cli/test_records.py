"""Where the records lie that a command is about."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from serde_chain.cli.doctor.examine import examine
from serde_chain.cli.records import RecordUnavailableError, batches, open_reader, places
from serde_chain.cli.selection import Selection
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.testing.services import KafkaBroker
from tests.conftest import NewTopic

MANY = 20


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where readers have gone, and what they have asked the broker, each of which takes time with one that is far."""
    asked: list[str] = []
    ask, assign = PartitionReader._ask, PartitionReader.assign

    def counted_ask(reader: PartitionReader, topic: str, method: Any, *arguments: object, **options: object) -> Any:
        asked.append(method.__name__)
        return ask(reader, topic, method, *arguments, **options)

    def counted_assign(reader: PartitionReader, topic: str, offsets: Any) -> None:
        asked.append("assign")
        assign(reader, topic, offsets)

    monkeypatch.setattr(PartitionReader, "_ask", counted_ask)
    monkeypatch.setattr(PartitionReader, "assign", counted_assign)
    return asked


@pytest.fixture
def wide(broker: KafkaBroker, new_topic: NewTopic) -> str:
    """A topic with two records in every second partition, the older one of the key ``a``."""
    topic = new_topic(MANY)
    producer = confluent_kafka.Producer(broker.client_config())
    for key in (b"a", b"b"):
        for partition in range(0, MANY, 2):
            producer.produce(topic, b"x", key, partition)
        assert producer.flush(30) == 0
    return topic


@pytest.mark.parametrize(
    ("wanted", "start"),
    [
        (Selection(), 0),
        (Selection(since_ms=1), 0),
        (Selection(newest=1), 1),
        (Selection(newest=1, key=b"a"), 0),
    ],
)
def test_many_partitions_are_asked_about_at_once(
    broker: KafkaBroker, wide: str, asked: list[str], wanted: Selection, start: int
) -> None:
    with open_reader(broker.client_config(), 30) as reader:
        where = places(reader, wide, wanted)
    assert where == {partition: (0, 0) if partition % 2 else (start, 2) for partition in range(MANY)}
    assert len(asked) <= 6, asked


def test_records_that_retention_removes_meanwhile_are_passed_over(broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 0})
    for _ in range(40):
        producer.produce(topic, bytes(900_000))  # more than the reader keeps
    assert producer.flush(60) == 0
    wanted = Selection()
    with open_reader(broker.client_config(), 30) as reader:
        coming = batches(reader, topic, places(reader, topic, wanted), wanted)
        read = [message.offset() for message in next(coming)]
        place = TopicPartition(topic, 0, 38)
        admin = broker.admin()  # held until the answer is there
        admin.delete_records([place])[place].result(30)
        read += [message.offset() for batch in coming for message in batch]
    assert read[-2:] == [38, 39]
    assert len(read) < 40


def test_a_topic_that_is_deleted_is_followed_no_more(broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    producer.produce(topic, b"x")
    assert producer.flush(30) == 0
    wanted = Selection()
    with open_reader(broker.client_config(), 1) as reader:
        coming = batches(reader, topic, places(reader, topic, wanted), wanted, follow=True)
        assert len(next(coming)) == 1
        admin = broker.admin()  # held until the answer is there
        admin.delete_topics([topic])[topic].result(30)
        with pytest.raises(RecordUnavailableError, match="Unknown topic"):
            next(coming)


@pytest.mark.full
def test_a_broker_that_goes_is_waited_for_by_who_follows() -> None:
    """A broker of its own, which is started twice."""
    with KafkaBroker() as broker:
        broker.create_topic("images")
        producer = confluent_kafka.Producer({**broker.client_config(), "log_level": 0})
        producer.produce("images", b"x")
        assert producer.flush(30) == 0
        wanted = Selection()
        with open_reader(broker.client_config(), 1) as reader:
            coming = batches(reader, "images", places(reader, "images", wanted), wanted, follow=True)
            assert len(next(coming)) == 1
            broker.kill()
            with ThreadPoolExecutor(1) as thread:
                waiting = thread.submit(next, coming)
                with pytest.raises(TimeoutError):
                    waiting.result(3)  # longer than the reader's deadline
                broker.restart()
                producer.produce("images", b"y")
                [message] = waiting.result(60)
        assert message.value() == b"y"
        assert producer.flush(30) == 0


def test_doctor_looks_at_many_partitions_at_once(broker: KafkaBroker, wide: str, asked: list[str]) -> None:
    checks = list(examine({**broker.client_config(), "value.deserializers": "bytes"}, [wide], timeout_s=30))
    [records] = [check for check in checks if check.name == "records"]
    assert records.message == f"the newest 20 records of {MANY // 2} partitions are readable"
    assert len(asked) < MANY, asked
