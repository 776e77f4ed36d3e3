"""Records refused for their size keep their places among those of their partition: on a real broker.

Each record of confluent_kafka is a batch of its own, and none is reported before all are produced: so the small ones
are on their way when the large ones before them are refused.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import pytest
from aiokafka import AIOKafkaProducer

from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Producer
from serde_chain.clients import aiokafka
from serde_chain.clients.confluent.topic_admin import ConfluentAdmin
from serde_chain.testing.services import KafkaBroker
from tests.clients.confluent.test_topic_limits import set_limit
from tests.clients.conftest import Fetch, NewConsumer
from tests.conftest import NewTopic
from tests.refusing_broker import silent

AUTO: dict[str, Any] = {
    "value.serializers": "bytes, large-message",
    "value.deserializers": "large-message, bytes",
    "large.message.payload.store.class": "memory",
    "large.message.threshold.bytes": "auto",
    "max.block.ms": 500,
}
EACH_ALONE: dict[str, Any] = {"linger.ms": 0, "batch.num.messages": 1, "log_level": 0}
ONE: dict[str, Any] = {"max.in.flight.requests.per.connection": 1}
LIMIT = 25_000
FIRST = b"first" * 4000
VALUES = [b"%03d" % number * (10_000 if number % 3 == 1 else 3) for number in range(30)]

Send: TypeAlias = Callable[[str, str, dict[str, Any], Callable[[], None]], None]


def confluent(servers: str, topic: str, more: dict[str, Any], lower: Callable[[], None]) -> None:
    outcomes: list[Any] = []
    with Producer({**AUTO, **EACH_ALONE, "bootstrap.servers": servers, **more}) as producer:
        producer.produce(topic, FIRST)
        assert producer.flush(30) == 0
        lower()
        for value in VALUES:
            producer.produce(topic, value, on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(60) == 0
    assert outcomes == [None] * len(VALUES)


def asynchronous(servers: str, topic: str, more: dict[str, Any], lower: Callable[[], None]) -> None:
    async def main() -> None:
        async with AsyncProducer({**AUTO, **EACH_ALONE, "bootstrap.servers": servers, **more}) as producer:
            await (await producer.produce(topic, FIRST))
            await asyncio.to_thread(lower)
            await asyncio.gather(*[await producer.produce(topic, value) for value in VALUES])

    asyncio.run(asyncio.wait_for(main(), 100))


def with_aiokafka(servers: str, topic: str, more: dict[str, Any], lower: Callable[[], None]) -> None:
    async def main() -> None:
        client = AIOKafkaProducer(bootstrap_servers=servers)
        async with aiokafka.Producer(client, {**AUTO, **more}) as producer:
            await producer.send_and_wait(topic, FIRST)
            await asyncio.to_thread(lower)
            await asyncio.gather(*[await producer.send(topic, value) for value in VALUES])

    asyncio.run(asyncio.wait_for(main(), 100))


CLIENTS = pytest.mark.parametrize(
    ("send", "more"),
    [
        pytest.param(confluent, {}, id="Producer"),
        pytest.param(confluent, {"enable.idempotence": True}, id="idempotent"),
        pytest.param(asynchronous, {}, id="AsyncProducer"),
        pytest.param(with_aiokafka, {}, id="aiokafka"),
    ],
)


@CLIENTS
def test_behind_a_broker_that_never_answers(  # noqa: PLR0917, pytest passes them by name
    broker: KafkaBroker,
    new_topic: NewTopic,
    new_consumer: NewConsumer,
    fetch: Fetch,
    send: Send,
    more: dict[str, Any],
) -> None:
    topic = new_topic(1, {"max.message.bytes": str(LIMIT)})
    check(silent(broker.bootstrap_servers), topic, send, more, lambda: None)
    assert read(new_consumer, fetch, topic) == [FIRST, *VALUES]


@CLIENTS
def test_with_one_request_in_flight_after_a_limit_was_lowered(  # noqa: PLR0917, pytest passes them by name
    broker: KafkaBroker,
    new_topic: NewTopic,
    new_consumer: NewConsumer,
    fetch: Fetch,
    send: Send,
    more: dict[str, Any],
) -> None:
    topic = new_topic(1, {"max.message.bytes": "2000000"})

    def lower() -> None:
        set_limit(broker, topic, LIMIT)
        admin, until = ConfluentAdmin(broker.client_config()), time.monotonic() + 30
        while admin.describe(topic, 10).max_bytes != LIMIT:
            assert time.monotonic() < until

    check(nullcontext(broker.bootstrap_servers), topic, send, {**more, **ONE}, lower)
    assert read(new_consumer, fetch, topic) == [FIRST, *VALUES]


def check(
    reached: AbstractContextManager[str],
    topic: str,
    send: Send,
    more: dict[str, Any],
    lower: Callable[[], None],
) -> None:
    MemoryStore.clear()
    with reached as servers:
        send(servers, topic, more, lower)
    assert [info.size for info in MemoryStore().list(topic)] == [30_000] * 10, "the others were refused too"


def read(new_consumer: NewConsumer, fetch: Fetch, topic: str) -> list[Any]:
    consumer = new_consumer(AUTO)
    consumer.subscribe([topic])
    return [message.value() for message in fetch(consumer, len(VALUES) + 1)]
