"""Clients of the real broker, closed when the test ends."""

import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest

from payload_stores.memory import MemoryStore
from serde_chain import Consumer, Producer
from serde_chain.testing.services import KafkaBroker

SECONDS = 30.0
# A question to the broker waits until the fetch in front of it has its answer: half a second by default.
QUICK = {"fetch.wait.max.ms": 20}


class NewProducer(Protocol):
    """Makes a producer."""

    def __call__(self, config: Any = None, **more: Any) -> Producer: ...


class NewConsumer(Protocol):
    """Makes a consumer that reads from the beginning."""

    def __call__(self, config: Any = None, **more: Any) -> Consumer: ...


class Fetch(Protocol):
    """Takes messages from a consumer until there are as many as wanted; their values are objects, not bytes."""

    def __call__(self, consumer: Consumer, count: int) -> list[Any]: ...


@pytest.fixture
def new_producer(broker: KafkaBroker) -> Iterator[NewProducer]:
    MemoryStore.clear()
    with ExitStack() as stack:

        def make(config: Any = None, **more: Any) -> Producer:
            whole = {**broker.client_config(), "log_level": 0, "linger.ms": 0, **(config or {}), **more}
            return stack.enter_context(Producer(whole))

        yield make
    MemoryStore.clear()


@pytest.fixture
def new_consumer(broker: KafkaBroker) -> Iterator[NewConsumer]:
    with ExitStack() as stack:

        def make(config: Any = None, **more: Any) -> Consumer:
            own = {"group.id": f"group-{uuid.uuid4()}", "auto.offset.reset": "earliest", **QUICK}
            whole = {**broker.client_config(), "log_level": 0, **own, **(config or {}), **more}
            return stack.enter_context(Consumer(whole))

        yield make


@pytest.fixture
def fetch() -> Fetch:
    def take(consumer: Consumer, count: int) -> list[Any]:
        found: list[Any] = []
        until = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < until:
            found += consumer.consume(count - len(found), 0.5)
        assert [message.error() for message in found] == [None] * count, f"{len(found)} of {count} records came"
        return found

    return take
