"""A client whose close() was interrupted is closed by a second one."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker
from tests.interrupts import interrupted_at

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer, NewProducer

pytestmark = pytest.mark.full

PAYLOAD = b"payload" * 300


def config(folder: Path) -> dict[str, Any]:
    return {
        "large.message.payload.store.class": "local",
        "local.path": str(folder / "payloads"),
        "large.message.threshold.bytes": 1000,
    }


def note(reports: list[KafkaError | None], error: KafkaError | None, _message: object) -> None:
    reports.append(error)


def test_producer(topic: str, new_producer: "NewProducer", tmp_path: Path) -> None:
    """However far the first call came, the record is reported once."""
    interrupts = 0
    while True:
        reports: list[KafkaError | None] = []
        producer = new_producer(
            {
                **config(tmp_path),
                "value.serializers": "bytes, large-message",
                "large.message.journal.path": str(tmp_path / "journal"),
            }
        )
        producer.produce(topic, PAYLOAD, on_delivery=partial(note, reports))
        try:
            with interrupted_at(interrupts):
                producer.close()
        except KeyboardInterrupt:
            interrupts += 1
            assert producer.close()
            assert len(reports) == 1
        else:
            break
    assert interrupts > 50


def test_consumer(broker: KafkaBroker, topic: str, new_consumer: "NewConsumer", tmp_path: Path) -> None:
    """However far the first call came, the delivered record is stored as delivered."""
    with Producer(
        {**broker.client_config(), **config(tmp_path), "value.serializers": "bytes, large-message"}
    ) as producer:
        for _ in range(3):
            producer.produce(topic, PAYLOAD)
    interrupts = 0
    while True:
        reading = {
            **config(tmp_path),
            "value.deserializers": "large-message, bytes",
            "group.id": f"{topic}-{interrupts}",
        }
        consumer = new_consumer(reading)
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.committed([TopicPartition(topic, 0)], 20)  # the client commits at the end if it knows the coordinator
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == PAYLOAD
        try:
            with interrupted_at(interrupts):
                consumer.close()
        except KeyboardInterrupt:
            interrupts += 1
            consumer.close()
            other = new_consumer(reading)
            assert [place.offset for place in other.committed([TopicPartition(topic, 0)], 20)] == [1]
            other.close()
        else:
            break
    assert interrupts > 50
