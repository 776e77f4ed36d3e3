"""Payloads in compacted topics have content ids by default, whatever the threshold is, where the client can ask."""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer

from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Producer, RecordContext, SerializerChain
from serde_chain.builders import SerializerChainBuilder
from serde_chain.clients import aiokafka, topic_limits
from serde_chain.clients.client_limits import TopicLimit
from serde_chain.clients.confluent.topic_admin import ConfluentAdmin
from serde_chain.clients.kafka_python import Serializer
from serde_chain.testing.services import KafkaBroker

if TYPE_CHECKING:
    from tests.conftest import NewTopic

PAYLOAD = b"x" * 5000
FIELDS = {"large.fields.paths": "image", "value.serializers": "large-fields, json", "large.fields.min.bytes": 1000}


@pytest.fixture(autouse=True)
def _store() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


@pytest.fixture
def config(broker: KafkaBroker) -> dict[str, Any]:
    return {
        **broker.client_config(),
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": 1000,
    }


@pytest.fixture
def compacted(new_topic: "NewTopic") -> str:
    return new_topic(1, {"cleanup.policy": "compact"})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that a broker was asked about."""
    topics: list[str] = []
    describe = ConfluentAdmin.describe

    def noted(admin: ConfluentAdmin, topic: str, timeout_s: float) -> TopicLimit:
        topics.append(topic)
        return describe(admin, topic, timeout_s)

    monkeypatch.setattr(ConfluentAdmin, "describe", noted)
    return topics


def stored(topic: str) -> int:
    return len(list(MemoryStore().list(topic)))


def by_producer(config: dict[str, Any], topic: str, values: list[Any]) -> None:
    with Producer(config) as producer:
        for number, value in enumerate(values):
            producer.produce(topic, value, b"%d" % number)


def by_async_producer(config: dict[str, Any], topic: str, values: list[Any]) -> None:
    async def main() -> None:
        async with AsyncProducer(config) as producer:
            for number, value in enumerate(values):
                await producer.produce(topic, value, b"%d" % number)

    asyncio.run(asyncio.wait_for(main(), 100))


def by_aiokafka(config: dict[str, Any], topic: str, values: list[Any]) -> None:
    async def main() -> None:
        client = AIOKafkaProducer(bootstrap_servers=config["bootstrap.servers"])
        async with aiokafka.Producer(client, config) as producer:
            for number, value in enumerate(values):
                await producer.send_and_wait(topic, value, b"%d" % number)

    asyncio.run(asyncio.wait_for(main(), 100))


def by_builder(config: dict[str, Any], topic: str, values: list[Any]) -> None:
    chain, client = SerializerChainBuilder().build(config, is_key=False)
    producer = confluent_kafka.Producer(client)
    with chain:
        for number, value in enumerate(values):
            headers: list[Any] = []
            data: Any = chain(value, RecordContext(topic, "value", headers))
            producer.produce(topic, data, b"%d" % number, headers=headers)
    assert producer.flush(30) == 0


CLIENTS = [by_producer, by_async_producer, by_aiokafka, by_builder]
Send = Callable[[dict[str, Any], str, list[Any]], None]


@pytest.mark.parametrize("send", CLIENTS)
@pytest.mark.parametrize("threshold", [1000, None, "auto"])
def test_equal_payloads_are_one_object_in_compacted_topics(
    *, config: dict[str, Any], compacted: str, topic: str, send: Send, threshold: object
) -> None:
    size = 2_000_000 if threshold != 1000 else 5000
    config["large.message.threshold.bytes"] = threshold
    if threshold is None:
        del config["large.message.threshold.bytes"]
    for each in (compacted, topic):
        send(config, each, [b"x" * size, b"small", b"x" * size, b"y" * size])
    assert (stored(compacted), stored(topic)) == (2, 3)


@pytest.mark.parametrize("send", CLIENTS)
def test_fields_too(*, config: dict[str, Any], compacted: str, topic: str, send: Send) -> None:
    image = {"image": "x" * 5000, "name": "M 51"}
    for each in (compacted, topic):
        send({**config, **FIELDS}, each, [image, image, {"image": "small"}])
    assert (stored(compacted), stored(topic)) == (1, 2)


def test_small_records_ask_nothing_and_large_ones_once(
    *, config: dict[str, Any], compacted: str, topic: str, asked: list[str]
) -> None:
    threads = {thread.name for thread in threading.enumerate()}
    with Producer(config) as producer:
        for each in (compacted, topic):
            for _ in range(100):
                producer.produce(each, b"small", b"k")
        assert producer.flush(30) == 0
        assert asked == []
        assert not {thread.name for thread in threading.enumerate()} - threads
        for each in (compacted, topic):
            for _ in range(20):
                producer.produce(each, PAYLOAD, b"k")
        assert producer.flush(30) == 0
    assert sorted(asked) == sorted([compacted, topic])
    assert (stored(compacted), stored(topic)) == (1, 20)


@pytest.mark.parametrize("ids", ["random", "content", "keyed"])
def test_explicit_ids_ask_nothing(config: dict[str, Any], compacted: str, asked: list[str], ids: str) -> None:
    by_producer({**config, "large.message.id": ids}, compacted, [PAYLOAD, PAYLOAD])
    assert stored(compacted) == (1 if ids == "content" else 2)
    assert asked == []


def test_keys_ask_nothing(config: dict[str, Any], compacted: str, asked: list[str]) -> None:
    with Producer({**config, "key.serializers": "bytes, large-message"}) as producer:
        producer.produce(compacted, b"small", PAYLOAD)
    assert (stored(compacted), asked) == (1, [])


def test_routes_ask_for_their_own_topics(
    config: dict[str, Any], compacted: str, new_topic: "NewTopic", asked: list[str]
) -> None:
    routed = new_topic(1, {"cleanup.policy": "compact"})
    route: dict[str, Any] = {
        "large.message.route.here.topics": routed,
        "large.message.route.here.large.message.id": "random",
    }
    for topic in (routed, compacted):
        by_producer({**config, **route}, topic, [PAYLOAD, PAYLOAD])
    assert (stored(routed), stored(compacted), asked) == (2, 1, [compacted])
    route["large.message.route.here.large.message.id"] = "content"
    route["large.message.route.here.topics"] = compacted
    by_producer({**config, **route, "large.message.id": "random"}, compacted, [PAYLOAD, PAYLOAD])
    assert stored(compacted) == 1
    del route["large.message.route.here.large.message.id"]
    route |= {"large.message.route.here.topics": routed, "large.message.route.here.threshold.bytes": 2000}
    by_producer({**config, **route}, routed, [PAYLOAD, PAYLOAD])
    assert (stored(routed), asked) == (3, [compacted, routed])


def test_a_user_who_may_not_ask_has_random_ids(
    config: dict[str, Any], broker: KafkaBroker, compacted: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.allow("alice", ["WRITE"], topic=compacted)
    by_producer({**config, **broker.client_config("alice")}, compacted, [PAYLOAD, PAYLOAD, PAYLOAD])
    assert stored(compacted) == 3
    [said] = [record.getMessage() for record in caplog.records if "ids of payloads" in record.getMessage()]
    assert f"this user may not see whether the topic {compacted} is compacted (DESCRIBE_CONFIGS)" in said


def test_a_broker_that_does_not_answer_is_asked_once(
    config: dict[str, Any], compacted: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def silent(_admin: ConfluentAdmin, topic: str, _timeout_s: float) -> TopicLimit:
        asked.append(topic)
        raise TimeoutError("no answer in time")

    monkeypatch.setattr(ConfluentAdmin, "describe", silent)
    by_producer(config, compacted, [b"small", PAYLOAD, PAYLOAD, PAYLOAD])
    assert (asked, stored(compacted)) == ([compacted], 3)
    [said] = [record.getMessage() for record in caplog.records if "no answer in time" in record.getMessage()]
    assert "with random ids" in said
    assert "large.message.id" in said


def test_a_pipe_which_is_read_once_has_a_random_id(config: dict[str, Any], compacted: str) -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as source, open(writing, "wb") as sink:  # noqa: PTH123, a descriptor
        sink.write(PAYLOAD)
        sink.close()
        by_producer(config, compacted, [source, PAYLOAD, PAYLOAD])
    assert stored(compacted) == 2


def test_kafka_python_says_once_that_it_does_not_ask(
    config: dict[str, Any], broker: KafkaBroker, compacted: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic_limits._warn_of_ids.cache_clear()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, value_serializer=Serializer(config))

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    producer.send(compacted, b"small", b"k").get(30)
    assert not any("compacted" in text for text in said())
    for _ in range(3):
        producer.send(compacted, PAYLOAD, b"k").get(30)
    producer.close()
    assert stored(compacted) == 3
    [text] = [text for text in said() if "compacted" in text]
    assert text.startswith("this client does not ask the broker whether topics are compacted")


def test_chains_alone_have_random_ids(config: dict[str, Any], compacted: str) -> None:
    with SerializerChain.from_config(config) as chain:
        for _ in range(2):
            chain(PAYLOAD, RecordContext(compacted, "value", []))
    assert stored(compacted) == 2
