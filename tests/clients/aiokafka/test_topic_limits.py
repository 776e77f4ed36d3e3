"""The limit of a topic, learnt by aiokafka's producer."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError

from payload_stores.memory import MemoryStore
from serde_chain.clients.aiokafka import Consumer, Producer
from serde_chain.clients.aiokafka.topic_admin import AiokafkaAdmin
from serde_chain.clients.client_limits import TopicLimit
from serde_chain.clients.limits import largest_value
from serde_chain.testing.services import KafkaBroker
from tests.clients.confluent.test_topic_limits import set_limit
from tests.conftest import NewTopic

AUTO: dict[str, Any] = {
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.payload.store.class": "memory",
    "large.message.threshold.bytes": "auto",
}
DEFAULT = 1_048_576


@pytest.fixture(autouse=True)
def _store() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 100))


def client(broker: KafkaBroker, **more: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **more)


def offloaded(topic: str) -> list[int]:
    return sorted(info.size for info in MemoryStore().list(topic))


async def read(broker: KafkaBroker, topic: str, count: int) -> list[Any]:
    settings = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 6_000_000}
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.bootstrap_servers, **settings)
    async with Consumer(consumer, AUTO) as records:
        return [(await records.getone()).value for _ in range(count)]


@pytest.mark.parametrize("limit", [5_000, 5_000_000])
@pytest.mark.parametrize("idempotent", [False, True])
def test_the_largest_record_to_the_byte(
    broker: KafkaBroker, new_topic: NewTopic, limit: int, *, idempotent: bool
) -> None:
    topic = new_topic(1, {"max.message.bytes": str(limit)})
    headers: list[Any] = [("a", b"1")]
    largest = largest_value(10**9, b"k", headers, limit)
    values = [bytes([at]) * size for at, size in enumerate((largest - 1, largest, largest + 1, 10))]

    async def main() -> None:
        async with Producer(client(broker, enable_idempotence=idempotent), AUTO) as producer:
            for value in values:
                await producer.send_and_wait(topic, value, b"k", headers=headers)
        assert offloaded(topic) == [largest + 1]
        assert await read(broker, topic, len(values)) == values

    run(main())


def test_a_limit_that_you_set_applies_too(broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(1, {"max.message.bytes": "5000000"})

    async def main() -> None:
        for config, more in (
            ({**AUTO, "max.request.size": 2_000_000}, {"max_request_size": 3_000_000}),
            (AUTO, {"max_request_size": 2_000_000}),
            ({**AUTO, "max.request.size": DEFAULT}, {}),
        ):
            MemoryStore.clear()
            own = min(2_000_000, config.get("max.request.size", 2_000_000))
            async with Producer(client(broker, **more), config) as producer:
                for size in (own - 200, own - 80, own):
                    await producer.send_and_wait(topic, bytes(size))
            assert offloaded(topic) == [own - 80, own]

    run(main())


def test_without_auto_the_clients_limit_stays(broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(1, {"max.message.bytes": "5000000"})
    config = {name: value for name, value in AUTO.items() if name != "large.message.threshold.bytes"}

    async def main() -> None:
        async with Producer(client(broker), config) as producer:
            for size in range(DEFAULT - 100, DEFAULT + 1, 10):  # aiokafka refused some of these: its estimate is Java's
                await producer.send_and_wait(topic, bytes(size))
            with pytest.raises(MessageSizeTooLargeError, match="max_request_size"):
                await producer.send(topic, b"", b"k" * 2_000_000)
        assert DEFAULT in offloaded(topic)

    run(main())


def test_what_neither_client_nor_topic_accepts(broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(1, {"max.message.bytes": "5000000"})

    async def main() -> None:
        async with Producer(client(broker), AUTO) as producer:
            await producer.send_and_wait(topic, b"", b"k" * 4_000_000)
            with pytest.raises(MessageSizeTooLargeError, match="max_request_size, and is not known to fit the topic"):
                await producer.send_and_wait(topic, b"", b"k" * 5_000_000)

    run(main())


def test_small_records_stay_within_the_limit_together(broker: KafkaBroker, new_topic: NewTopic) -> None:
    """aiokafka makes batches of 16 KiB, and does not split those that the topic refuses."""
    topic = new_topic(1, {"max.message.bytes": "5000"})
    values = [b"%04d" % number * (50 if number % 10 else 2000) for number in range(200)]

    async def main() -> None:
        async with Producer(client(broker, linger_ms=20), AUTO) as producer:
            sent = [await producer.send(topic, value) for value in values]
            await asyncio.gather(*sent)
        assert await read(broker, topic, len(values)) == values

    run(main())
    assert len(offloaded(topic)) == 20


def test_a_limit_that_changes_while_running(broker: KafkaBroker, new_topic: NewTopic) -> None:
    topic = new_topic(1, {"max.message.bytes": "1000000"})
    values = [b"%03d" % number * 4000 for number in range(30)]

    async def main() -> None:
        async with Producer(client(broker, linger_ms=20), AUTO) as producer:
            await producer.send_and_wait(topic, b"first")
            await producer.send_and_wait(topic, bytes(20_000))
            assert offloaded(topic) == []
            await asyncio.to_thread(set_limit, broker, topic, 9_000)
            sent = [await producer.send(topic, value) for value in values]
            await producer.flush()
            assert all(each.done() and each.exception() is None for each in sent)
            await asyncio.to_thread(set_limit, broker, topic, 5_000_000)
        assert offloaded(topic) == [12_000] * 30
        assert (await read(broker, topic, 32))[2:] == values
        async with Producer(client(broker), {**AUTO, "large.message.threshold.ttl.ms": 1}) as producer:
            await producer.send_and_wait(topic, bytes(2_000_000))
        assert len(offloaded(topic)) == 30

    run(main())


def test_the_question_has_a_deadline_and_blocks_no_loop(broker: KafkaBroker, topic: str) -> None:
    async def main() -> None:
        producer = client(broker)
        async with Producer(producer, {**AUTO, "max.block.ms": 500, "large.message.store.timeout.ms": 200}) as chain:
            steps = 0

            async def watch() -> None:
                nonlocal steps
                while True:
                    steps += 1
                    await asyncio.sleep(0.01)

            watching = asyncio.create_task(watch())
            original = producer.client.send
            answered = asyncio.Event()

            async def send(node: Any, request: Any, **more: Any) -> Any:
                if "DescribeConfigs" in type(request).__name__:
                    await answered.wait()
                return await original(node, request, **more)

            producer.client.send = send
            await chain.send_and_wait(topic, bytes(900_000))
            assert steps > 20  # half a second
            watching.cancel()

    run(main())


def test_what_the_broker_says(broker: KafkaBroker, new_topic: NewTopic) -> None:
    compacted = new_topic(1, {"cleanup.policy": "compact,delete", "max.message.bytes": "5000"})

    async def main() -> None:
        async with client(broker) as producer:
            admin = AiokafkaAdmin(producer.client, asyncio.get_running_loop())
            assert not admin.may_wait()
            assert await asyncio.to_thread(admin.may_wait)
            asked = [await asyncio.to_thread(admin.describe, name, 10) for name in (compacted, "there-is-none")]
        assert asked == [TopicLimit(5000, compacted=True), TopicLimit()]

    run(main())
