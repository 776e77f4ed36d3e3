"""Exceptions of a store's own code or library, as producers report them and consumers stop at them."""

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from payload_stores import PayloadStoreError
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer
    from tests.conftest import NewTopic

PAYLOAD = b"payload" * 10


def config(store: FaultyStore) -> dict[str, Any]:
    return {"large.message.payload.store.class": store, "large.message.threshold.bytes": 10}


def test_a_failed_upload_is_reported_as_the_stores(topic: str, broker: KafkaBroker) -> None:
    store = FaultyStore(MemoryStore())
    reports: list[Any] = []
    settings = {**broker.client_config(), **config(store), "value.serializers": "bytes, large-message"}
    with Producer(settings) as producer:
        for failure in (RuntimeError("quota"), ConnectionResetError("reset by peer")):
            store.fail(failure)
            producer.produce(topic, PAYLOAD, on_delivery=lambda error, _: reports.append(error))
            assert producer.flush(30) == 0
            error = reports.pop().__cause__
            assert isinstance(error, PayloadStoreError)
            assert (error.about_record, error.transient) == (False, isinstance(failure, ConnectionError))
            assert error.__cause__ is not None
            assert error.__cause__.__cause__ is failure


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
@pytest.mark.parametrize("how", ["poll", "arrow"])
def test_no_policy_passes_over_a_record_for_a_fault_of_its_store(
    broker: KafkaBroker, new_topic: "NewTopic", new_consumer: "NewConsumer", policy: str, how: str
) -> None:
    topic, dead = new_topic(1), new_topic(1)
    store = FaultyStore(MemoryStore())
    with Producer({**broker.client_config(), **config(store), "value.serializers": "bytes, large-message"}) as producer:
        for number in range(3):
            producer.produce(topic, b"%d" % number * 100)
    chosen = {"serde.error.policy": policy, "serde.dead.letter.topic": dead, "value.deserializers": "large-message"}
    consumer = new_consumer({**config(store), **chosen})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def take() -> list[Any]:
        if how == "arrow":
            column: list[Any] = consumer.consume_arrow(3, 5).column("value").to_pylist()
            return column
        message = consumer.poll(5)
        return [] if message is None else [message.value()]

    store.fail(RuntimeError("quota"), times=1_000)
    for _ in range(2):
        with pytest.raises(PayloadStoreError, match="quota"):
            take()
    assert consumer.skipped == 0
    store._errors.clear()
    values: list[Any] = []
    until = time.monotonic() + 60
    while len(values) < 3 and time.monotonic() < until:
        values += take()
    assert (values, consumer.skipped) == ([b"0" * 100, b"1" * 100, b"2" * 100], 0)
