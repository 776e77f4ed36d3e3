"""A producer and a consumer over a store with faults of all kinds: no record is lost, none is damaged."""

import time
from collections.abc import Iterator
from typing import Any, get_args

import confluent_kafka
import pytest

from payload_stores import open_store
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore, Toxic
from payload_stores.testing.faults import Kind
from serde_chain import Consumer, Producer, SerializationError
from serde_chain.testing.services import KafkaBroker

pytestmark = pytest.mark.full

RECORDS = 150
TOXICS = (
    Toxic("latency", probability=0.2, seconds=0.02),
    Toxic("transient", probability=0.08),
    Toxic("permanent", probability=0.02),
    Toxic("cut", probability=0.06),
    Toxic("corrupt", probability=0.06),
    Toxic("hang", probability=0.01, seconds=2),
    Toxic("error after success", probability=0.06),
)


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    store = FaultyStore(open_store("memory", {}), seed=13)
    yield store
    store.heal()
    MemoryStore.clear()


def value(number: int) -> bytes:
    return b"%d " % number * 100


@pytest.mark.parametrize("cache", [0, 10_000])
@pytest.mark.parametrize("strategy", ["random", "content"])
def test_no_record_is_lost(  # noqa: PLR0917
    store: FaultyStore,
    broker: KafkaBroker,
    topic: str,
    strategy: str,
    cache: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Seconds: faults by the hundred, and each is retried."""
    config: dict[str, Any] = {
        **broker.client_config(),
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": store,
        "large.message.threshold.bytes": 10,
        "large.message.id": strategy,
        "large.message.store.timeout.ms": 500,
        "large.message.store.retry.attempts": 2,
        "large.message.store.cache.bytes": cache,
    }
    store.add(*TOXICS)
    until = time.monotonic() + 90
    with Producer(config) as producer:
        missing = set(range(RECORDS))

        def settled(number: int) -> Any:
            def told(error: object, _message: object) -> None:
                if error is None:
                    missing.discard(number)

            return told

        while missing:
            assert time.monotonic() < until
            for number in sorted(missing):
                producer.produce(topic, value(number), on_delivery=settled(number))
            assert producer.flush(60) == 0
    seen: dict[int, bytes] = {}
    refused = 0
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while len(seen) < RECORDS:
            assert time.monotonic() < until
            try:
                message = consumer.poll(1)
            except SerializationError as error:
                refused += 1
                if error.about_record:  # what came was not what was published, and may be, the next time
                    consumer.seek(confluent_kafka.TopicPartition(topic, error.partition or 0, error.offset or 0))
                continue
            if message is not None:
                data = message.value()
                assert data is not None
                seen[int(data.split()[0])] = data
    assert seen == {number: value(number) for number in range(RECORDS)}
    assert set(store.injected) == set(get_args(Kind))
    with capsys.disabled():
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(store.injected.items()))
        print(  # noqa: T201  what was survived is worth knowing
            f"\n{sum(store.injected.values())} faults injected ({kinds}); {RECORDS} records written and read, "
            f"{refused} reads refused, 0 lost"
        )
