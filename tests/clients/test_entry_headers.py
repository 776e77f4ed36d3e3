"""``entry.metadata.headers`` through the clients, with a writer who forges them."""

import asyncio
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaConsumer

from serde_chain import Consumer
from serde_chain.clients.aiokafka import Consumer as AiokafkaConsumer
from serde_chain.clients.dead_letters import read_dead_letter
from serde_chain.clients.kafka_python import Deserializer
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.entry_metadata import frame

SECONDS = 30.0
TIME_MS = 1_700_000_000_123
CHAIN = {"value.deserializers": "entry-metadata, json", "entry.metadata.headers": "true"}
FORGED = [("serde-chain-entry-index", b"666"), ("band", b"g")]
VALUES = [frame(b"1", broker_timestamp=TIME_MS, index=41), b"2", None, frame(b"3", index=42)]
TRUE = [("serde-chain-entry-timestamp", b"%d" % TIME_MS), ("serde-chain-entry-index", b"41")]
EXPECTED = [
    (1, [("band", b"g"), *TRUE]),
    (2, [("band", b"g")]),
    (None, [("band", b"g")]),
    (3, [("band", b"g"), ("serde-chain-entry-index", b"42")]),
]


def fill(broker: KafkaBroker, topic: str, values: list[bytes | None]) -> None:
    producer = confluent_kafka.Producer(broker.client_config())
    for value in values:
        producer.produce(topic, value, partition=0, headers=list(FORGED))
    assert producer.flush(30) == 0


@pytest.fixture
def config(broker: KafkaBroker, topic: str) -> dict[str, Any]:
    return {**broker.client_config(), **CHAIN, "group.id": topic, "auto.offset.reset": "earliest"}


@pytest.mark.parametrize("how", ["poll", "consume", "arrow"])
def test_a_consumer_gets_them(broker: KafkaBroker, config: dict[str, Any], topic: str, how: str) -> None:
    fill(broker, topic, VALUES)
    found: list[Any] = []
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while len(found) < len(VALUES):
            if how == "arrow":
                table = consumer.consume_arrow(10, 1)
                for value, headers in zip(table["value"].to_pylist(), table["headers"].to_pylist(), strict=True):
                    # Without a schema, a column has the text of JSON.
                    number = None if value is None else int(value)
                    found.append((number, [(pair["key"], pair["value"]) for pair in headers]))
                continue
            messages = consumer.consume(10, 1) if how == "consume" else [consumer.poll(SECONDS)]
            found += [(message.value(), message.headers()) for message in messages if message is not None]
    assert found == EXPECTED


def test_aiokafka_gets_them(broker: KafkaBroker, topic: str) -> None:
    fill(broker, topic, VALUES)

    async def main() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", group_id=topic
        )
        async with AiokafkaConsumer(consumer, CHAIN) as reading:
            records = [await reading.getone() for _ in VALUES]
        assert [(record.value, list(record.headers)) for record in records] == EXPECTED

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_dead_letter_is_the_record_as_it_was(broker: KafkaBroker, config: dict[str, Any], topic: str) -> None:
    letters = f"{topic}-dead"
    broker.create_topic(letters)
    bad = frame(b"{", broker_timestamp=TIME_MS, index=7)
    fill(broker, topic, [bad, b"2"])
    policy = {"serde.error.policy": "dead-letter", "serde.dead.letter.topic": letters}
    with Consumer({**config, **policy}) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS)
        assert message is not None
        assert (message.value(), consumer.skipped) == (2, 1)
    plain = {**broker.client_config(), "group.id": letters, "auto.offset.reset": "earliest"}
    with confluent_kafka.Consumer(plain) as reader:
        reader.subscribe([letters])
        letter: Any = reader.poll(SECONDS)
        assert letter.value() == bad
        # With the writer's headers, which a replay writes again, and none that this reader has added.
        assert read_dead_letter(letter.headers()).headers == FORGED


def test_kafka_python_gets_them(broker: KafkaBroker, topic: str) -> None:
    fill(broker, topic, VALUES)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(SECONDS * 1000),
        value_deserializer=Deserializer(CHAIN),
    )
    records = [next(consumer) for _ in VALUES]
    consumer.close()
    assert [(record.value, record.headers) for record in records] == EXPECTED
