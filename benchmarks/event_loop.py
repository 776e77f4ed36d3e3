"""``AsyncProducer`` against ``Producer`` with large payloads, and the longest blocking of the event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.harness import Row, Table, per_second
from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Producer
from serde_chain.testing.services import KafkaBroker

PAYLOADS = [os.urandom(20_000_000) for _ in range(8)]
CHAINS = ("bytes, large-message", "bytes, zstd, large-message")
SMALL = [bytes(100)] * 10_000
ROUNDS = 7


def run(*, quick: bool) -> Iterator[Table]:
    """All payloads by both producers, in turns."""
    rates, pauses = [], []
    with KafkaBroker() as broker:
        for at, chain in enumerate(CHAINS):
            topic = f"loop-{at}"
            broker.create_topic(topic)
            config = {
                **broker.client_config(),
                "value.serializers": chain,
                "large.message.payload.store.class": "memory",
            }
            rounds = 2 if quick else ROUNDS
            turns = [(asyncio.run(_on_loop(config, topic, PAYLOADS)), _blocking(config, topic)) for _ in range(rounds)]
            small = [asyncio.run(_on_loop(config, topic, SMALL)) for _ in range(rounds)]
            total = sum(map(len, PAYLOADS)) / 1e6
            ours, theirs = (per_second(total, seconds) for seconds in ([t[0][0] for t in turns], [t[1] for t in turns]))
            rates.append(Row(f"chain: {chain}", ours, "Producer", theirs))
            pauses.append(Row(f"chain: {chain}", [1e3 * turn[0][1] for turn in turns]))
            pauses.append(Row(f"chain: {chain}, {len(SMALL):,} small records", [1e3 * turn[1] for turn in small]))
    title = f"AsyncProducer, {len(PAYLOADS)} payloads of {len(PAYLOADS[0]) // 1_000_000} MB"
    yield Table("event-loop", title, "MB/s", rates)
    yield Table("event-loop-pauses", f"{title}: how long the event loop stands still", "ms", pauses)


async def _on_loop(config: dict[str, Any], topic: str, payloads: Sequence[bytes]) -> tuple[float, float]:
    """Seconds for all payloads, and the longest time in which nothing else could run.

    Excludes Python's garbage collector, which takes as long with any client: it scans all objects of the program.
    """
    pauses: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before - 0.001)

    async with AsyncProducer(config) as producer:
        for _ in range(2):  # afterwards, small records are encoded on the loop
            await (await producer.produce(topic, b"first"))
        gc.collect()
        gc.freeze()
        watching = asyncio.create_task(watch())
        began = time.perf_counter()
        await _all([await producer.produce(topic, payload) for payload in payloads])
        seconds = time.perf_counter() - began
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    gc.unfreeze()
    MemoryStore.clear()
    return seconds, max(pauses)


async def _all(deliveries: Iterable[Any]) -> None:
    for delivery in deliveries:
        await delivery


def _blocking(config: dict[str, Any], topic: str) -> float:
    with Producer(config) as producer:
        producer.produce(topic, b"first")
        producer.flush()
        began = time.perf_counter()
        for payload in PAYLOADS:
            producer.produce(topic, payload)
        producer.flush()
        seconds = time.perf_counter() - began
    MemoryStore.clear()
    return seconds
