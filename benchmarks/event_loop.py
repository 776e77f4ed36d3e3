"""``AsyncProducer`` against ``Producer`` with large payloads, and how long the event loop stands still meanwhile."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.table import Table

from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Producer
from serde_chain.testing.services import KafkaBroker

PAYLOADS = [os.urandom(20_000_000) for _ in range(8)]
CHAINS = ("bytes, large-message", "bytes, zstd, large-message")
ROUNDS = 7
WANTED_RATIO = 0.9
WANTED_MS = 20.0


def run() -> bool:
    """Print the table; returns whether the targets are reached."""
    table = Table(title=f"{len(PAYLOADS)} payloads of {len(PAYLOADS[0]) // 1_000_000} MB", title_justify="left")
    for heading in ("chain", "AsyncProducer, s", "Producer, s", "rate", "wanted", "loop stands still, ms", "wanted"):
        table.add_column(heading, justify="left" if heading == "chain" else "right")
    reached = True
    with KafkaBroker() as broker:
        for at, chain in enumerate(CHAINS):
            topic = f"loop-{at}"
            broker.create_topic(topic)
            config = {
                **broker.client_config(),
                "value.serializers": chain,
                "large.message.payload.store.class": "memory",
            }
            turns = [(asyncio.run(_on_loop(config, topic)), _blocking(config, topic)) for _ in range(ROUNDS)]
            ours, theirs = (statistics.median(each) for each in ([t[0][0] for t in turns], [t[1] for t in turns]))
            still_ms = 1000 * statistics.median(turn[0][1] for turn in turns)
            reached &= theirs / ours >= WANTED_RATIO and still_ms <= WANTED_MS
            table.add_row(
                chain,
                *(f"{ours:.3f}", f"{theirs:.3f}"),
                *(_mark(f"{theirs / ours:.2f}", is_good=theirs / ours >= WANTED_RATIO), f"≥ {WANTED_RATIO}"),
                *(_mark(f"{still_ms:.1f}", is_good=still_ms <= WANTED_MS), f"≤ {WANTED_MS:g}"),
            )
    Console().print(table)
    return reached


def _mark(text: str, *, is_good: bool) -> str:
    return f"[{'green' if is_good else 'bold red'}]{text}[/]"


async def _on_loop(config: dict[str, Any], topic: str) -> tuple[float, float]:
    """Seconds for all payloads, and the longest time in which nothing else could run."""
    pauses: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before - 0.001)

    async with AsyncProducer(config) as producer:
        await (await producer.produce(topic, b"first"))
        watching = asyncio.create_task(watch())
        began = time.perf_counter()
        await _all([await producer.produce(topic, payload) for payload in PAYLOADS])
        seconds = time.perf_counter() - began
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
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
