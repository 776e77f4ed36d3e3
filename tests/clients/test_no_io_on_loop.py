"""Producers on an event loop: what the encoding of a record asks of a service is asked in a thread."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from serde_chain import AsyncProducer, Serializer
from serde_chain.clients import aiokafka
from serde_chain.testing.services import KafkaBroker
from serde_chain.transfer import Lookups, finish

COUNT = 20
Send = Callable[[str, bytes], Awaitable[Awaitable[Any]]]


class AsksNowAndThen(Serializer[bytes]):
    """Needs another answer of a service for each second record, as ``encrypt`` does now and then.

    Attributes:
        asked: For each question, whether it was asked on the event loop.
        begun: For each record, whether it was begun there.
    """

    def __init__(self) -> None:
        self.asked: list[bool] = []
        self.begun: list[bool] = []
        self._answers: Lookups[int, bytes] = Lookups()

    def _ask(self) -> bytes:
        self.asked.append(threading.current_thread() is threading.main_thread())
        return b"answer "

    def begin(self, data: bytes, ctx: Any, /) -> Any:
        self.begun.append(threading.current_thread() is threading.main_thread())
        number = int(data) // 2
        if number in self._answers.known:
            return self._answers.known[number] + data
        return self._answers.transfer(number, self._ask, lambda answer: answer + data)

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return None if data is None else finish(self.begin(data, ctx))


async def with_confluent(broker: KafkaBroker, config: dict[str, Any], use: Callable[[Send], Awaitable[None]]) -> None:
    async with AsyncProducer({**broker.client_config(), "log_level": 0, **config}) as producer:
        await use(lambda topic, data: producer.produce(topic, data, key=data))


async def with_aiokafka(broker: KafkaBroker, config: dict[str, Any], use: Callable[[Send], Awaitable[None]]) -> None:
    client = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    async with aiokafka.Producer(client, config) as producer:
        await use(lambda topic, data: producer.send(topic, data, key=data))


@pytest.mark.parametrize("producer", [with_confluent, with_aiokafka])
@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("last", [[], ["large-message"]], ids=["inline", "with-payloads"])
def test_a_service_is_asked_in_a_thread(  # noqa: PLR0917  fixtures
    producer: Callable[..., Coroutine[Any, Any, None]],
    side: str,
    last: list[str],
    broker: KafkaBroker,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Small records are encoded on the loop, even on a busy machine.
    monkeypatch.setattr("serde_chain.clients.event_loop._LONG_SECONDS", 30.0)
    stage = AsksNowAndThen()
    config: dict[str, Any] = {f"{side}.serializers": [stage, *last]}
    if last:
        config["large.message.payload.store.class"] = "memory"

    async def produce(send: Send) -> None:
        await asyncio.gather(*[await send(topic, b"%d" % number) for number in range(COUNT)])

    asyncio.run(producer(broker, config, produce))
    assert stage.asked == [False] * (COUNT // 2)
    # Each record is begun once, on the loop but for the first: a stage may consume what it encodes, as an iterator.
    assert stage.begun == [False] + [True] * (COUNT - 1)
