"""The same records through every client: the same bytes and headers in the topic."""

import asyncio
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer

from serde_chain import AsyncProducer, Producer
from serde_chain.clients import aiokafka
from serde_chain.codec import Record, RecordCodec
from serde_chain.spark import encode
from serde_chain.testing.services import KafkaBroker
from serde_chain.transfer import finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


SECONDS = 60.0
COUNT = 40
Sent: TypeAlias = tuple[bytes | None, str | None, list[Any]]
STAGES: dict[str, dict[str, Any]] = {
    "bytes": {"value.serializers": "bytes, large-message"},
    "compressed": {"value.serializers": "bytes, zstd, large-message", "key.serializers": "string, large-message"},
    "keyed": {"value.serializers": "bytes, large-message", "large.message.id": "keyed"},
    "described": {"value.serializers": "bytes, gzip, large-message", "serde.chain.describe": True},
}
NAMES = [
    pytest.param(stages, client, marks=[pytest.mark.spark] if client == "Spark" else [])
    for stages in STAGES
    for client in ("Producer", "AsyncProducer", "aiokafka", "Spark")
]


def config_of(stages: str, folder: Path, broker: KafkaBroker) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "large.message.payload.store.class": "local",
        "local.path": str(folder),
        "large.message.threshold.bytes": 60,
        "large.message.id": "content",
        **STAGES[stages],
    }


def records() -> list[Sent]:
    random = Random(24)
    made: list[Sent] = []
    for _ in range(COUNT):
        value = random.choice((None, b"", random.randbytes(40), random.randbytes(500), b"a" * random.randrange(200)))
        # aiokafka refuses a record without either; ids of large.message.id = keyed need a key.
        no_key = () if value is None or len(value) > 60 else (None,)
        key = random.choice(("", "M 51", "k" * 100, *no_key))
        headers: list[Any] = [("own", random.choice((b"", b"1")))] * random.randrange(3)
        made.append((value, key, headers))
    return made


def with_confluent(config: dict[str, Any], topic: str, sent: list[Sent], _spark: Any) -> None:
    with Producer(config) as producer:
        for value, key, headers in sent:
            producer.produce(topic, value, key, 0, headers=headers)
        assert producer.flush(SECONDS) == 0


def with_asyncio(config: dict[str, Any], topic: str, sent: list[Sent], _spark: Any) -> None:
    async def main() -> None:
        async with AsyncProducer(config) as producer:
            for value, key, headers in sent:
                await producer.produce(topic, value, key, 0, headers=headers)
            await producer.flush()

    asyncio.run(main())


def with_aiokafka(config: dict[str, Any], topic: str, sent: list[Sent], _spark: Any) -> None:
    async def main() -> None:
        client = AIOKafkaProducer(bootstrap_servers=config["bootstrap.servers"])
        async with aiokafka.Producer(client, config) as producer:
            for value, key, headers in sent:
                await producer.send(topic, value, key, 0, headers=headers)

    asyncio.run(main())


def with_spark(config: dict[str, Any], topic: str, sent: list[Sent], spark: "SparkSession") -> None:
    rows = [(at, value, key, headers or None) for at, (value, key, headers) in enumerate(sent)]
    pairs = "array<struct<key: string, value: binary>>"
    frame = spark.createDataFrame(rows, f"at int, value binary, key string, headers {pairs}").coalesce(1).sort("at")
    writer = frame.drop("at").transform(encode(config, topic=topic)).coalesce(1).write.format("kafka")
    servers = config["bootstrap.servers"]
    writer.options(**{"kafka.bootstrap.servers": servers, "topic": topic, "includeHeaders": "true"}).save()


CLIENTS: "dict[str, Callable[..., None]]" = {
    "Producer": with_confluent,
    "AsyncProducer": with_asyncio,
    "aiokafka": with_aiokafka,
    "Spark": with_spark,
}


def in_topic(broker: KafkaBroker, topic: str) -> list[tuple[Any, Any, Any]]:
    consumer = confluent_kafka.Consumer({**broker.client_config(), "group.id": topic})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        until = time.monotonic() + SECONDS
        while len(found) < COUNT and time.monotonic() < until:
            found += consumer.consume(COUNT, 0.5)
        return [(message.key(), message.value(), message.headers() or []) for message in found]
    finally:
        consumer.close()


@pytest.mark.parametrize(("stages", "client"), NAMES)
def test_bytes_and_headers_are_those_of_the_codec(
    stages: str, client: str, topic: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broker: KafkaBroker = request.getfixturevalue("broker")
    config, sent = config_of(stages, tmp_path, broker), records()
    with RecordCodec(config) as codec:
        wanted = [tuple(finish(codec.encode(Record(topic, *parts, 0)))) for parts in sent]
    assert sum(bool(value and value.startswith(b"file:")) for _, value, _ in wanted) > COUNT / 8
    CLIENTS[client](config, topic, sent, request.getfixturevalue("spark") if client == "Spark" else None)
    assert in_topic(broker, topic) == wanted
