"""Throughput of large messages through a slow store, by number in flight.

64 payloads of 1.2 MB over an in-memory store with calls of 50 ms, so that only waiting can be saved; the broker
is real.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import TopicPartition

from benchmarks.harness import Row, Table, per_second
from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Consumer, Producer
from serde_chain.testing.services import KafkaBroker

_PAYLOADS: Final = 64
_PAYLOAD_BYTES: Final = 1_200_000
_STORE_SECONDS: Final = 0.05
_IN_FLIGHT: Final = (1, 2, 4, 8, 16, 32)
_DEFAULT: Final = 8
_ROUNDS: Final = 3
_SECONDS: Final = 120


class SlowStore(MemoryStore):
    """A store with slow calls."""

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        """Publish, after a delay."""
        time.sleep(_STORE_SECONDS)
        return super().publish(topic, data, context)

    def download(self, reference: str) -> bytes:
        """Download, after a delay."""
        time.sleep(_STORE_SECONDS)
        return super().download(reference)


def run(*, quick: bool) -> Iterator[Table]:
    """Upload and download with several settings, in turns; and with ``AsyncProducer`` and the default."""
    store = SlowStore()
    store.configure({})
    payloads = [number.to_bytes(2, "big") * (_PAYLOAD_BYTES // 2) for number in range(32 if quick else _PAYLOADS)]
    seconds: dict[tuple[str, int], list[float]] = {}
    with KafkaBroker() as broker:
        config: dict[str, Any] = {
            **broker.client_config(),
            "log_level": 0,
            "value.serializers": "bytes, large-message",
            "value.deserializers": "large-message, bytes",
            "large.message.payload.store.class": store,
        }
        for number in range((1 if quick else _ROUNDS) + 1):  # the first round warms everything up
            topic = f"in-flight-{number}"
            broker.create_topic(topic)
            for way, taken in _round(config, topic, payloads):
                if number:
                    seconds.setdefault(way, []).append(taken)
            MemoryStore.clear()
    rates = {way: per_second(sum(map(len, payloads)) / 1e6, taken) for way, taken in seconds.items()}
    title = f"payloads of 1.2 MB, store calls of {1000 * _STORE_SECONDS:.0f} ms"
    rows = [
        Row(name, rates[name, count], "one at a time", rates[name, 1], str(count))
        for name in ("upload", "download")
        for count in _IN_FLIGHT
    ]
    yield Table("in-flight", f"Producer and Consumer, {title}", "MB/s", rows, axis="in flight")
    asynchronous = Row("upload", rates["asyncio", _DEFAULT], "Producer", rates["upload", _DEFAULT])
    yield Table("in-flight-asyncio", f"AsyncProducer, {title}, {_DEFAULT} in flight", "MB/s", [asynchronous])


def _round(config: dict[str, Any], topic: str, payloads: list[bytes]) -> Iterator[tuple[tuple[str, int], float]]:
    for count in _IN_FLIGHT:
        settings = {**config, "large.message.uploads.in.flight": count, "large.message.downloads.in.flight": count}
        yield ("upload", count), _upload(settings, topic, payloads)
        yield ("download", count), _download(settings, topic, len(payloads))
    yield ("asyncio", _DEFAULT), asyncio.run(_upload_on_loop(config, topic, payloads))


def _upload(config: dict[str, Any], topic: str, payloads: list[bytes]) -> float:
    with Producer(config) as producer:
        begun = time.perf_counter()
        for payload in payloads:
            producer.produce(topic, payload)
        if producer.flush(_SECONDS):
            raise TimeoutError("payloads were not delivered")
        return time.perf_counter() - begun


async def _upload_on_loop(config: dict[str, Any], topic: str, payloads: list[bytes]) -> float:
    async with AsyncProducer(config) as producer:
        begun = time.perf_counter()
        delivered = [await producer.produce(topic, payload) for payload in payloads]
        await asyncio.gather(*delivered)
        return time.perf_counter() - begun


def _download(config: dict[str, Any], topic: str, count: int) -> float:
    with Consumer({**config, "group.id": topic, "enable.auto.commit": False}) as consumer:
        begun = time.perf_counter()
        consumer.assign([TopicPartition(topic, 0, 0)])
        for _ in range(count):
            message = consumer.poll(_SECONDS)
            if message is None or message.error() is not None:
                raise TimeoutError("payloads did not come")
        return time.perf_counter() - begun
