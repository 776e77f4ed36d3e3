"""No record stops a consumer around aiokafka's, either; see tests/clients/confluent."""

import asyncio
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from payload_stores import open_store
from serde_chain import Producer
from serde_chain.catalogue import FORMATS, find_format
from serde_chain.clients.aiokafka import Consumer
from serde_chain.testing.services import KafkaBroker
from tests.hostile import GOOD, MOST_BYTES, PASSING, placeholders, policy_config, write

if TYPE_CHECKING:
    from tests.conftest import NewTopic


@pytest.mark.parametrize("policy", PASSING)
# Those that are only read: tests/wire/test_foreign.py.
@pytest.mark.parametrize(
    "name", [name for name in FORMATS.builtins if (found := find_format(name)).writes and not found.whole_record]
)
def test_no_placeholder_stops_a_consumer(
    tmp_path: Path, broker: KafkaBroker, new_topic: "NewTopic", name: str, policy: str
) -> None:
    topic, dead = new_topic(), new_topic()
    config: dict[str, Any] = {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": 100,
        "large.message.format": name,
        "large.message.accept": name,
    }
    store = open_store("local", config)
    good = store.publish(topic, GOOD)
    large = store.publish(topic, bytes(2 * MOST_BYTES))
    store.close()
    write(broker.client_config(), topic, placeholders(name, good, topic, [large]))
    with Producer({**broker.client_config(), **config}) as producer:
        producer.produce(topic, GOOD[::-1])
    reading = {**config, **policy_config(policy, dead), "large.message.max.payload.bytes": MOST_BYTES}

    async def main() -> int:
        servers = broker.bootstrap_servers
        letters = AIOKafkaProducer(bootstrap_servers=servers)
        inner = AIOKafkaConsumer(
            topic, bootstrap_servers=servers, group_id=f"g-{uuid.uuid4()}", auto_offset_reset="earliest"
        )
        async with letters, Consumer(inner, reading, dead_letters=letters) as consumer:
            while (await consumer.getone()).value != GOOD[::-1]:
                pass
            return consumer.skipped

    assert asyncio.run(asyncio.wait_for(main(), 100)) > 0
