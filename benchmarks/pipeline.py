"""Large messages through a slow store: one at a time and beside each other.

64 payloads of 1.2 MB over a store in memory whose calls take 50 ms, so that waiting is all there is to win; the broker
is a real one.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import TopicPartition
from rich.console import Console
from rich.table import Table

from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Consumer, Producer
from serde_chain.testing.services import KafkaBroker

_PAYLOADS: Final = 64
_PAYLOAD_BYTES: Final = 1_200_000
_STORE_SECONDS: Final = 0.05
_ROUNDS: Final = 3
_SECONDS: Final = 120
# Times as fast as one at a time; of the blocking producer's rate.
_WANTED: Final = 6.0
_WANTED_OF_ASYNC: Final = 0.9


class SlowStore(MemoryStore):
    """A store whose calls take a while."""

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        """Publish, after a while."""
        time.sleep(_STORE_SECONDS)
        return super().publish(topic, data, context)

    def download(self, reference: str) -> bytes:
        """Download, after a while."""
        time.sleep(_STORE_SECONDS)
        return super().download(reference)


def run() -> bool:
    """Print the tables; returns whether the targets are reached."""
    store = SlowStore()
    store.configure({})
    with KafkaBroker() as broker:
        config: dict[str, Any] = {
            **broker.client_config(),
            "log_level": 0,
            "value.serializers": "bytes, large-message",
            "value.deserializers": "large-message, bytes",
            "large.message.payload.store.class": store,
        }
        seconds: dict[str, list[float]] = {
            name: [] for name in ("up, one at a time", "up", "up, asyncio", "down, one at a time", "down")
        }
        for number in range(_ROUNDS + 1):  # the first round warms everything up
            topic = f"pipeline-{number}"
            broker.create_topic(topic)
            taken = _round(config, topic)
            if number:
                for name, each in taken.items():
                    seconds[name].append(each)
            MemoryStore.clear()
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    return _print(medians)


def _round(config: dict[str, Any], topic: str) -> dict[str, float]:
    payloads = [number.to_bytes(2, "big") * (_PAYLOAD_BYTES // 2) for number in range(_PAYLOADS)]
    taken: dict[str, float] = {}
    one = {"large.message.uploads.in.flight": 1, "large.message.downloads.in.flight": 1}
    for name, more in (("up, one at a time", one), ("up", {})):
        with Producer({**config, **more}) as producer, _clock(taken, name):
            for payload in payloads:
                producer.produce(topic, payload)
            if producer.flush(_SECONDS):
                raise TimeoutError(name)
    taken["up, asyncio"] = asyncio.run(_produce(config, topic, payloads))
    for name, more in (("down, one at a time", one), ("down", {})):
        reading = {"group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        with Consumer({**config, **more, **reading}) as consumer, _clock(taken, name):
            consumer.assign([TopicPartition(topic, 0, 0)])
            for _ in range(_PAYLOADS):
                message = consumer.poll(_SECONDS)
                if message is None or message.error() is not None:
                    raise TimeoutError(name)
    return taken


async def _produce(config: dict[str, Any], topic: str, payloads: list[bytes]) -> float:
    async with AsyncProducer(config) as producer:
        begun = time.perf_counter()
        delivered = [await producer.produce(topic, payload) for payload in payloads]
        await asyncio.gather(*delivered)
        return time.perf_counter() - begun


@contextmanager
def _clock(taken: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    taken[name] = time.perf_counter() - begun


def _print(medians: dict[str, float]) -> bool:
    table = Table(title=f"{_PAYLOADS} payloads of 1.2 MB, store calls of 50 ms")
    for column in ("", "seconds", "ratio", "wanted"):
        table.add_column(column, justify="left" if not column else "right")
    reached = True
    for name, seconds in medians.items():
        against = {"up": "up, one at a time", "down": "down, one at a time", "up, asyncio": "up"}.get(name)
        ratio = None if against is None else medians[against] / seconds
        wanted = _WANTED_OF_ASYNC if name == "up, asyncio" else _WANTED
        if ratio is not None:
            reached &= ratio >= wanted
        table.add_row(name, f"{seconds:.2f}", f"{ratio:.2f}" if ratio else "", f"≥ {wanted}" if ratio else "")
    Console().print(table)
    return reached
