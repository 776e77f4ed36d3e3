"""A transactional producer that another one of its id has fenced: what its calls raise, and what its callbacks get."""

import gc
import json
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from payload_stores.memory import MemoryStore
from serde_chain import Producer
from serde_chain.testing.services import KafkaBroker

# confluent_kafka's own, of a producer that is closed within a transaction
pytestmark = pytest.mark.filterwarnings("ignore:Producer abort_transaction failed:RuntimeWarning")

SECONDS = 30
RECORDS = 20
LARGE = {
    "value.serializers": "bytes, large-message",
    "large.message.threshold.bytes": 1000,
    "large.message.payload.store.class": "memory",
}
# Chains, and sizes of values, that go each of the ways to the client.
WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "inline": (LARGE, 100),
    "offloaded": (LARGE, 5000),
    "offloaded to Kafka": ({**LARGE, "large.message.payload.store.class": "kafka"}, 5000),
    "errors only": ({"delivery.report.only.error": True}, 100),
}


def poll_all(producer: Producer) -> None:
    until = time.monotonic() + SECONDS
    while len(producer) and time.monotonic() < until:
        producer.poll(0.1)


CALLS: dict[str, Callable[[Producer], object]] = {
    "commit": lambda producer: producer.commit_transaction(SECONDS),
    "abort": lambda producer: producer.abort_transaction(SECONDS),
    "flush": lambda producer: producer.flush(SECONDS),
    "poll": poll_all,
    "close": lambda producer: producer.close(),
}


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


class Told:
    """A callback of records, which calls functions of C as users' callbacks do."""

    def __init__(self) -> None:
        self.counts: Counter[bytes] = Counter()
        self.codes: set[int] = set()

    def __call__(self, error: KafkaError | None, message: Any) -> None:
        self.counts[json.loads(json.dumps(message.key().decode())).encode()] += 1
        assert error is not None
        self.codes.add(error.code())


def fenced(broker: KafkaBroker, topic: str, way: str, told: Told) -> Producer:
    """A producer with records on their way, which it does not know to be fenced."""
    more, size = WAYS[way]
    config = {**broker.client_config(), "log_level": 0, "transactional.id": f"id-{uuid.uuid4()}"}
    producer = Producer({**config, **more, "linger.ms": 200})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    # The partition is in the transaction: so it is a produce request that the broker refuses.
    producer.produce(topic, b"x" * size, key=b"first")
    assert producer.flush(SECONDS) == 0
    other = confluent_kafka.Producer(config)
    other.init_transactions(SECONDS)
    for number in range(RECORDS):
        producer.produce(topic, b"x" * size, key=str(number).encode(), on_delivery=told)
    return producer


@pytest.mark.full
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("way", WAYS)
def test_each_call_raises_what_the_client_raises_and_each_callback_is_called(
    broker: KafkaBroker, topic: str, way: str, call: str
) -> None:
    told = Told()
    producer = fenced(broker, topic, way, told)
    with pytest.raises(KafkaException) as caught:
        CALLS[call](producer)
    error = caught.value.args[0]
    assert error.code() == KafkaError._FENCED
    assert error.fatal()
    assert not error.txn_requires_abort(), "as the loop of docs/delivery.md asks"
    assert producer.close() is True
    assert told.counts == {str(number).encode(): 1 for number in range(RECORDS)}


def test_what_a_callback_raises_is_raised(broker: KafkaBroker, topic: str) -> None:
    class Raising(Told):
        def __call__(self, error: KafkaError | None, message: Any) -> None:
            super().__call__(error, message)
            raise ValueError("by a callback")

    told = Raising()
    producer = fenced(broker, topic, "inline", told)
    with pytest.raises(ValueError, match="by a callback"):
        producer.flush(SECONDS)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].fatal()
    with suppress(ValueError):
        producer.close()
    assert set(told.counts.values()) == {1}


def test_a_commit_says_so_as_well_where_a_payload_came_too_late(broker: KafkaBroker, topic: str) -> None:
    told = Told()
    producer = fenced(broker, topic, "offloaded", told)
    with pytest.raises(KafkaException):
        producer.flush(SECONDS)
    producer.produce(topic, b"x" * 5000, key=b"late", on_delivery=told)  # its lane finds out
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert producer.close() is True
    assert told.counts[b"late"] == 1
    assert not list(MemoryStore().list(topic)), "the one that fences has aborted the transaction"


@pytest.mark.full
@pytest.mark.parametrize("call", CALLS)
def test_nothing_is_kept_of_it(broker: KafkaBroker, topic: str, call: str) -> None:
    """confluent_kafka keeps for ever what a callback has raised: without the frames that it has passed."""

    class Batch:
        pass

    def use() -> list[weakref.ref[Any]]:
        batch = Batch()
        producer = fenced(broker, topic, "inline", Told())
        with suppress(KafkaException):
            CALLS[call](producer)
        producer.close()
        return [weakref.ref(batch), weakref.ref(producer)]

    kept = use()
    gc.collect()
    assert [each() for each in kept] == [None, None]
