"""Chains in Confluent's own clients."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.aio import AsyncDeserializingConsumer, AsyncSerializingProducer
from confluent_kafka.error import KeySerializationError, ValueDeserializationError, ValueSerializationError
from confluent_kafka.serialization import MessageField, SerializationContext

from payload_stores.memory import MemoryStore
from serde_chain import DeserializerChain, SerializationError, SerializerChain
from serde_chain.builders import DeserializerChainBuilder, SerializerChainBuilder
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.clients.conftest import NewConsumer, NewProducer

SECONDS = 60.0
LARGE = {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 1000}
CONFIG: dict[str, Any] = {
    "key.serializers": "string, zstd",
    "key.deserializers": "zstd, string",
    "value.serializers": "json, zstd, large-message",
    "value.deserializers": "large-message, zstd, json",
    **LARGE,
}
SMALL, BIG = {"id": 1}, {"id": 2, "numbers": [number * 7919 for number in range(1000)]}


@pytest.fixture(autouse=True)
def payloads() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


def producer_of(broker: KafkaBroker, **config: Any) -> Any:
    return SerializingProducer({**broker.client_config(), "linger.ms": 0, **config})


def consumer_of(broker: KafkaBroker, topic: str, **config: Any) -> Any:
    """One that reads the topic from its beginning."""
    consumer = DeserializingConsumer(
        {**broker.client_config(), "group.id": topic, "auto.offset.reset": "earliest", **config}
    )
    consumer.subscribe([topic])
    return consumer


def poll(consumer: Any, count: int) -> list[Any]:
    """So many records, or what is raised first."""
    found: list[Any] = []
    until = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is not None:
            found.append(message)
    assert len(found) == count
    return found


# SerializingProducer and DeserializingConsumer


def test_chains_for_keys_and_values(broker: KafkaBroker, topic: str) -> None:
    write = {
        "key.serializer": SerializerChain.from_config(CONFIG, is_key=True),
        "value.serializer": SerializerChain.from_config(CONFIG),
    }
    read = {
        "key.deserializer": DeserializerChain.from_config(CONFIG, is_key=True),
        "value.deserializer": DeserializerChain.from_config(CONFIG),
    }
    producer, consumer = producer_of(broker, **write), consumer_of(broker, topic, **read)
    headers: list[Any] = [("user", b"1")]
    for value in (SMALL, BIG, None, SMALL):
        producer.produce(topic, key="key", value=value, headers=headers)  # one list for all of them
    assert producer.flush(30) == 0
    found = poll(consumer, 4)
    assert [message.value() for message in found] == [SMALL, BIG, None, SMALL]
    assert {message.key() for message in found} == {"key"}
    assert len(list(MemoryStore().list(topic))) == 1
    consumer.close()
    producer.close()
    for chain in (*write.values(), *read.values()):
        chain.close()  # who made it closes it


@pytest.mark.parametrize("name", ["kip1159", "bakdata-headers"])
def test_without_headers_a_large_message_is_refused_before_it_is_stored(
    name: str, broker: KafkaBroker, topic: str
) -> None:
    with SerializerChain.from_config({**CONFIG, "large.message.format": name}) as chain:
        producer = producer_of(broker, **{"value.serializer": chain})
        with pytest.raises(
            ValueSerializationError,
            match=r"headers cannot be written.*stage=large-message \(3 of 3\).*Pass headers=\[\]",
        ) as caught:
            producer.produce(topic, value=BIG)
        assert isinstance(caught.value.exception, SerializationError)
        assert caught.value.exception.topic == topic
        producer.produce(topic, value=BIG, headers=[])
        assert producer.flush(30) == 0
        producer.close()
    assert len(list(MemoryStore().list(topic))) == 1


def test_errors_are_those_of_their_clients(broker: KafkaBroker, topic: str) -> None:
    write = {
        "key.serializer": SerializerChain.from_config(CONFIG, is_key=True),
        "value.serializer": SerializerChain.from_config({"value.serializers": "string"}),
    }
    producer = producer_of(broker, **write)
    with pytest.raises(KeySerializationError, match=r"string takes str.*field=key"):
        producer.produce(topic, key=1, value="text")
    producer.produce(topic, key="key", value="not json")
    producer.produce(topic, key="key", value='"json"')
    assert producer.flush(30) == 0
    consumer = consumer_of(
        broker, topic, **{"value.deserializer": DeserializerChain.from_config({"value.deserializers": "json"})}
    )
    with pytest.raises(ValueDeserializationError, match=r"not JSON.*field=value.*stage=json") as caught:
        poll(consumer, 1)
    assert isinstance(caught.value.exception, SerializationError)
    assert caught.value.kafka_message is not None
    assert caught.value.kafka_message.offset() == 0
    assert [message.value() for message in poll(consumer, 1)] == ["json"]
    consumer.close()
    producer.close()


class WantsCluster:
    """A stage that asks which cluster it is in, as subject strategies of Confluent's serializers do."""

    resolver: Callable[[], str] | None = None

    def __call__(self, data: Any, ctx: Any) -> Any:
        return data

    def set_cluster_id_resolver(self, resolver: Callable[[], str]) -> None:
        self.resolver = resolver


def test_stages_learn_the_clusters_id(
    broker: KafkaBroker, topic: str, new_producer: "NewProducer", new_consumer: "NewConsumer"
) -> None:
    stages = [WantsCluster() for _ in range(5)]
    write, nested, read, ours, our_reader = stages
    inner = SerializerChain([nested])
    producer = producer_of(broker, **{"value.serializer": SerializerChain([write, inner])})
    consumer = consumer_of(broker, topic, **{"value.deserializer": DeserializerChain([read])})
    own, own_reader = new_producer({"value.serializers": [ours]}), new_consumer({"key.deserializers": [our_reader]})
    found = [stage.resolver() for stage in stages if stage.resolver is not None]
    assert found == [producer.cluster_id(30)] * 5
    for client in (producer, consumer, own, own_reader):
        client.close()


# asyncio


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, SECONDS))


@pytest.mark.parametrize("built", [False, True], ids=["ready-made", "builders"])
def test_asyncio_clients(built: bool, broker: KafkaBroker, topic: str) -> None:
    # Their producer sends no headers yet, so that references must be marked in the data.
    config = {**CONFIG, "large.message.format": "bakdata-flag", "large.message.accept": "bakdata-flag"}
    sides: dict[str, tuple[Any, Any]] = {
        "serializer": (SerializerChain, SerializerChainBuilder),
        "deserializer": (DeserializerChain, DeserializerChainBuilder),
    }

    def settings(side: str) -> dict[str, Any]:
        chain, builder = sides[side]
        common = {**broker.client_config(), "linger.ms": 0} if side == "serializer" else broker.client_config()
        if built:
            return {**common, **config, **{f"{field}.{side}.builder": builder() for field in ("key", "value")}}
        return {**common, **{f"{f}.{side}": chain.from_config(config, is_key=f == "key") for f in ("key", "value")}}

    async def go() -> None:
        producer: Any = await AsyncSerializingProducer(settings("serializer"))
        group = {"group.id": topic, "auto.offset.reset": "earliest"}
        consumer: Any = await AsyncDeserializingConsumer({**settings("deserializer"), **group})
        try:
            for value in (SMALL, BIG, None):
                delivery = await producer.produce(topic, key="key", value=value)
                await producer.flush()
                assert (await delivery).error() is None
            await consumer.subscribe([topic])
            found: list[Any] = []
            while len(found) < 3:
                found += await consumer.consume(3, 1)
            assert [message.value() for message in found] == [SMALL, BIG, None]
            assert {message.key() for message in found} == {"key"}
        finally:
            await consumer.close()
            await producer.close()

    run(go())
    assert len(list(MemoryStore().list(topic))) == 1


def test_asyncio_producers_have_no_headers_for_references(broker: KafkaBroker, topic: str) -> None:
    async def go() -> None:
        chain = SerializerChain.from_config(CONFIG)
        producer: Any = await AsyncSerializingProducer({**broker.client_config(), "value.serializer": chain})
        try:
            with pytest.raises(ValueSerializationError, match="headers cannot be written"):
                await producer.produce(topic, value=BIG)
        finally:
            await producer.close()
            await chain.aclose()

    run(go())
    assert not list(MemoryStore().list(topic))


def test_foreign_contexts_reach_foreign_stages() -> None:
    seen: list[Any] = []

    def stage(data: Any, ctx: Any) -> Any:
        seen.append(ctx)
        return data

    ctx = SerializationContext("t", MessageField.VALUE, [])
    SerializerChain([stage, SerializerChain([stage])])(b"data", ctx)
    assert seen == [ctx, ctx]
