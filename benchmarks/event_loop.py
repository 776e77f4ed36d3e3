"""``AsyncProducer`` against ``Producer`` with large payloads, and the longest blocking of the event loop.

With more hashing threads than cores, the loop's thread has to wait for a core, with any client. So its pauses are
compared with those of the same work by hand, in as many threads.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import time
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import confluent_kafka
import zstandard

from benchmarks.harness import Row, Table, per_second
from payload_stores.memory import MemoryStore
from serde_chain import AsyncProducer, Producer
from serde_chain.testing.services import KafkaBroker

PAYLOADS = [os.urandom(20_000_000) for _ in range(8)]
CHAINS = ("bytes, large-message", "bytes, zstd, large-message")
SMALL = [bytes(100)] * 10_000
ROUNDS = 15
# large.message.uploads.in.flight
UPLOADS = 8
BY_HAND = "the library calls by hand, in as many threads"


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
            compress = zstandard.ZstdCompressor().compress if "zstd" in chain else None
            turns = [
                (
                    asyncio.run(_on_loop(config, topic, PAYLOADS)),
                    _blocking(config, topic),
                    1e3 * asyncio.run(_by_hand(broker.client_config(), topic, compress)),
                )
                for _ in range(rounds)
            ]
            small = [asyncio.run(_on_loop(config, topic, SMALL)) for _ in range(rounds)]
            total = sum(map(len, PAYLOADS)) / 1e6
            ours, theirs = (per_second(total, seconds) for seconds in ([t[0][0] for t in turns], [t[1] for t in turns]))
            rates.append(Row(f"chain: {chain}", ours, "Producer", theirs))
            pauses.append(
                Row(f"chain: {chain}", [1e3 * turn[0][1] for turn in turns], BY_HAND, [turn[2] for turn in turns])
            )
            pauses.append(Row(f"chain: {chain}, {len(SMALL):,} small records", [1e3 * turn[1] for turn in small]))
    title = f"AsyncProducer, {len(PAYLOADS)} payloads of {len(PAYLOADS[0]) // 1_000_000} MB"
    yield Table("event-loop", title, "MB/s", rates)
    yield Table("event-loop-pauses", f"{title}: how long the event loop stands still", "ms", pauses)


async def _on_loop(config: dict[str, Any], topic: str, payloads: Sequence[bytes]) -> tuple[float, float]:
    """Seconds for all payloads, and the longest time in which nothing else could run."""
    async with AsyncProducer(config) as producer:
        for _ in range(2):  # afterwards, small records are encoded on the loop
            await (await producer.produce(topic, b"first"))
        async with _watched() as pauses:
            began = time.perf_counter()
            await _all([await producer.produce(topic, payload) for payload in payloads])
            seconds = time.perf_counter() - began
    MemoryStore.clear()
    return seconds, max(pauses)


async def _by_hand(config: dict[str, Any], topic: str, compress: Any) -> float:
    """The same with hashlib, zstandard, a dictionary as the store, and the plain client; records keep their order."""
    loop, stored = asyncio.get_running_loop(), {}
    producer = confluent_kafka.Producer(config)
    producer.produce(topic, b"first")
    producer.flush()

    def keep(data: bytes) -> tuple[str, str]:
        reference = f"memory:///{topic}/{uuid.uuid4()}"
        stored[reference] = data
        return reference, hashlib.sha256(data).hexdigest()

    with ThreadPoolExecutor(1) as encoding, ThreadPoolExecutor(UPLOADS) as uploading:
        async with _watched() as pauses:
            uploads = []
            for payload in PAYLOADS:
                data = await loop.run_in_executor(encoding, compress, payload) if compress else payload
                uploads.append(loop.run_in_executor(uploading, keep, data))
            for upload in uploads:
                reference, digest = await upload
                producer.produce(topic, reference, headers=[("large-message-digest", digest)])
            await loop.run_in_executor(encoding, producer.flush)
    return max(pauses)


@asynccontextmanager
async def _watched() -> AsyncIterator[list[float]]:
    """The pauses of the loop, in seconds.

    Excludes Python's garbage collector, which takes as long with any client: it scans all objects of the program.
    """
    pauses: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before - 0.001)

    gc.collect()
    gc.freeze()
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)  # now it watches, also what comes before the next pause of the task
    try:
        yield pauses
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        gc.unfreeze()


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
