"""A user's program: values are objects of a class."""

from dataclasses import dataclass
from typing import assert_type

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped,unused-ignore]

from serde_chain import AsyncConsumer, AsyncProducer, Consumer, Producer
from serde_chain.clients import aiokafka


@dataclass
class Alert:
    id: int
    band: str


CONFIG: dict[str, object] = {
    "bootstrap.servers": "localhost",
    "value.serializer": "avro",
    "value.deserializer": "avro",
    "avro.type": Alert,
}

with Producer[Alert](CONFIG) as producer:
    producer.produce("alerts", Alert(1, "g"), key="1")
    producer.produce("alerts", None, key="1")

with Consumer[Alert](CONFIG) as consumer:
    message = consumer.poll(1.0)
    if message is not None:
        assert_type(message.value(), Alert | None)
    assert_type([each.value() for each in consumer.consume(10)], list[Alert | None])
    consumer.commit(message)


async def copy() -> None:
    async with AsyncConsumer[Alert](CONFIG) as source, AsyncProducer[Alert](CONFIG) as target:
        async for message in source:
            assert_type(message.value(), Alert | None)
            await target.produce("copies", message.value())
    async with (
        aiokafka.Consumer[Alert](AIOKafkaConsumer("alerts"), CONFIG) as records,
        aiokafka.Producer[Alert](AIOKafkaProducer(), CONFIG) as sender,
    ):
        async for record in records:
            assert_type(record.value, Alert | None)
            await sender.send("copies", record.value)
