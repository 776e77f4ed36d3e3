"""A client without room: what it is asked before, and what is not uploaded twice."""

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore
from serde_chain import Consumer, Producer
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer


@pytest.fixture
def store() -> FaultyStore:
    MemoryStore.clear()
    return FaultyStore(MemoryStore())


def config_of(broker: KafkaBroker, store: object, **more: object) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "log_level": 0,
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": store,
        "large.message.threshold.bytes": 1000,
        **more,
    }


def test_the_usual_loop_uploads_each_payload_once(broker: KafkaBroker, topic: str, store: FaultyStore) -> None:
    full = 0
    config = config_of(broker, store, **{"queue.buffering.max.messages": 3, "linger.ms": 20})
    with Producer(config) as producer:
        for number in range(12):
            while True:
                try:
                    producer.produce(topic, bytes([number]) * 5_000)
                    break
                except BufferError:
                    full += 1
                    producer.poll(0.01)
        assert producer.flush(30) == 0
    assert full > 0
    assert store.calls.count("publish") == 12


def test_a_queue_that_is_full_by_bytes_is_waited_for(
    broker: KafkaBroker, topic: str, store: FaultyStore, new_consumer: "NewConsumer"
) -> None:
    config = config_of(broker, store, **{"queue.buffering.max.kbytes": 1, "linger.ms": 20})
    with Producer(config) as producer:
        for number in range(12):
            producer.produce(topic, bytes([number]) * (900 if number % 2 else 5_000))
        assert producer.flush(30) == 0
    assert store.calls.count("publish") == 6
    consumer = new_consumer({**config, "value.deserializers": "large-message"})
    consumer.subscribe([topic])
    assert [(message.value() or b"")[0] for message in consumer.consume(12, 30)] == list(range(12))


def test_without_payloads_a_full_queue_is_said_at_once(broker: KafkaBroker, topic: str) -> None:
    config = {**broker.client_config(), "queue.buffering.max.messages": 1, "linger.ms": 10_000}
    with Producer({**config, "value.serializer": "string"}) as producer:
        producer.produce(topic, "1")
        with pytest.raises(BufferError, match="Queue full"):
            producer.produce(topic, "2")


def test_keywords_are_keys_as_in_the_original(broker: KafkaBroker, topic: str) -> None:
    config: dict[str, Any] = {**broker.client_config(), "value.serializer": "string", "value.deserializer": "string"}
    with Producer(**config) as producer:
        producer.produce(topic, "text")
        assert producer.flush(30) == 0
    own: dict[str, Any] = {"group.id": topic, "auto.offset.reset": "earliest", "value.deserializer": "string"}
    with Consumer({**config, "value.deserializer": "json"}, **own) as consumer:
        consumer.subscribe([topic])
        message: Any = consumer.poll(30)
        assert message.value() == "text"


@pytest.mark.parametrize("count", [-1, 1_000_001])
def test_a_number_out_of_range_is_the_originals_value_error(new_consumer: "NewConsumer", count: int) -> None:
    consumer = new_consumer({"value.deserializer": "string"})
    for consume in (consumer.consume, consumer.consume_arrow):
        with pytest.raises(ValueError, match=r"num_messages must be between 0 and 1000000 \(1M\)"):
            consume(count, 0)


def test_one_configuration_serves_both_clients_without_a_warning(capfd: pytest.CaptureFixture[str]) -> None:
    config: dict[str, Any] = {
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": 4,
        "value.serializer": "string",
        "value.deserializer": "string",
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "max.poll.interval.ms": 300_000,
        "session.timeout.ms": 45_000,
        "max.partition.fetch.bytes": 1_000_000,
        "allow.auto.create.topics": True,
        "isolation.level": "read_committed",
        "linger.ms": 5,
        "acks": "all",
        "retries": 3,
        "batch.size": 100_000,
        "compression.type": "lz4",
        "delivery.timeout.ms": 1_000,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "on_commit": lambda *_arguments: None,
        "queue.buffering.max.messages": 10,
    }
    Producer(config).close()
    Consumer(config).close()
    assert "CONFWARN" not in capfd.readouterr().err


def test_only_the_stages_that_are_named_are_imported() -> None:
    code = """if True:
        import sys, serde_chain
        settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "group.id": "g", "linger.ms": 5}
        serde_chain.Producer({**settings, "value.serializers": "bytes"}).close()
        serde_chain.Consumer({**settings, "value.deserializer": "bytes"}).close()
        print(*sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split()
    assert "serde_chain.stages.primitives" in loaded
    assert "importlib.metadata" not in loaded, "no package here registers a stage"
    others = {"avro", "protobuf", "json", "compression", "encryption"}
    assert not {f"serde_chain.stages.{name}.stage" for name in others} & {*loaded}
    assert not {f"payload_stores.{name}" for name in ("local", "s3", "hop", "memory")} & {*loaded}
