"""The kafka store against plain clients that send and read the same chunks: MB/s, and memory of a stream.

The broker is real, on the same machine and with its defaults. Both sides send with acks = all and idempotence.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import confluent_kafka

from benchmarks.harness import Row, Table, in_turns, per_second
from payload_stores import open_store
from payload_stores.ids import sha256_digest
from payload_stores.kafka.store import KafkaStore
from serde_chain.testing.services import KafkaBroker
from tests.memory import peak_bytes, reset_peak

_TOPIC: Final = "benchmark"
_PAYLOADS: Final = f"{_TOPIC}.payloads"
_PARTITIONS: Final = 4
_ROUNDS: Final = 5
# Bytes per payload, payloads per turn, and payloads in flight.
_CASES: Final = ((1_200_000, 64, 1), (1_200_000, 64, 8), (20_000_000, 8, 1), (20_000_000, 8, 8), (200_000_000, 1, 1))
_STREAM_BYTES: Final = 2 << 30
_SECONDS: Final = 120


def run(*, quick: bool) -> Iterator[Table]:
    """Rates by payload size and number in flight, in turns with plain clients; then memory of a stream."""
    # The broker deletes its data by the megabyte, so that a small disk is enough.
    settings = {"log.retention.bytes": str(1 << 30), "log.segment.bytes": str(128 << 20)}
    with KafkaBroker(config={**settings, "log.retention.check.interval.ms": "1000"}) as broker:
        config: dict[str, Any] = {**broker.client_config(), "log_level": 0}
        for topic in (_TOPIC, _PAYLOADS):
            broker.create_topic(topic, _PARTITIONS)
        yield from _rates(config, _CASES[:1] if quick else _CASES, 1 if quick else _ROUNDS)
        yield _stream(config, _STREAM_BYTES // 16 if quick else _STREAM_BYTES)


def _rates(config: dict[str, Any], cases: Sequence[tuple[int, int, int]], rounds: int) -> Iterator[Table]:
    store = open_store("kafka", config)
    assert isinstance(store, KafkaStore)  # noqa: S101  for mypy
    producer = confluent_kafka.Producer(
        {**config, "enable.idempotence": True, "acks": "all", "linger.ms": 0, "message.max.bytes": 1 << 20}
    )
    rates: list[Row] = []
    loads: list[Row] = []
    for case in cases:
        for table, rows in zip((rates, loads), _case(config, store, producer, case, rounds), strict=True):
            table.extend(rows)
    store.close()
    producer.close()
    yield Table("kafka-store", "Payloads in Kafka, against plain clients and the same chunks", "MB/s", rates)
    yield Table("kafka-store-cpu", "Payloads in Kafka: CPU time of the process", "s/GB", loads)


def _case(
    config: dict[str, Any],
    store: KafkaStore,
    producer: confluent_kafka.Producer,
    case: tuple[int, int, int],
    rounds: int,
) -> tuple[list[Row], list[Row]]:
    """The rates of one case, and the CPU time: also with the digest, which plain clients do not compute."""
    size, count, at_once = case
    payload = os.urandom(size)
    digest = sha256_digest(payload)
    references: list[str] = []
    with ThreadPoolExecutor(at_once) as threads:
        # One at a time is a loop in the thread of the plain clients: memory that another thread frees, the allocator
        # returns to the system sooner, and the next buffer takes new pages.
        each = map if at_once == 1 else threads.map

        def publish() -> None:
            references[:] = each(lambda _: store.publish(_TOPIC, payload), range(count))

        def download(way: Callable[[str], bytes]) -> None:
            assert all(len(data) == size for data in each(way, references))  # noqa: S101

        up = _Turns({"ours": publish, "plain": partial(_send, producer, payload, count)}, rounds)
        publish()
        ways = {
            "ours": partial(download, store.download),
            "plain": partial(_receive, config, references),
            "verified": partial(download, partial(store.download_verified, size=size, digest=digest)),
        }
        down = _Turns(ways, rounds)
    of = f"{count} of {size / 1e6:g} MB, {at_once} at a time"
    rates, loads = [], []
    for way, peer, turns in (("publish", "a plain producer", up), ("download", "a plain consumer", down)):
        speed = [per_second(size * count / 1e6, turns.seconds[side]) for side in ("ours", "plain")]
        used = [turns.per_gb(side, size * count) for side in ("ours", "plain")]
        rates.append(Row(f"{way}, {of}", speed[0], peer, speed[1]))
        loads.append(Row(f"{way}, {of}", used[0], peer, used[1]))
    return rates, [*loads, Row(f"download and verify, {of}", down.per_gb("verified", size * count))]


class _Turns:
    """Wall-clock and CPU seconds of each way in each round."""

    def __init__(self, ways: Mapping[str, Callable[[], object]], rounds: int) -> None:
        self.cpu: dict[str, list[float]] = {name: [] for name in ways}
        self.seconds = in_turns({name: partial(self._timed, name, way) for name, way in ways.items()}, rounds)
        self.cpu = {name: used[1:] for name, used in self.cpu.items()}  # the first round does not count

    def per_gb(self, name: str, size: int) -> list[float]:
        """CPU seconds per GB of each round, for rounds that moved this many bytes."""
        return [used / (size / 1e9) for used in self.cpu[name]]

    def _timed(self, name: str, way: Callable[[], object]) -> None:
        began = time.process_time()
        way()
        self.cpu[name].append(time.process_time() - began)


def _chunks(payload: bytes) -> Iterator[bytes]:
    step = (1 << 20) - 4096
    return (payload[at : at + step] for at in range(0, len(payload), step))


def _send(producer: confluent_kafka.Producer, payload: bytes, count: int) -> None:
    for number in range(count):
        for chunk in _chunks(payload):
            producer.produce(_PAYLOADS, chunk, key=b"plain", partition=number % _PARTITIONS)
    assert producer.flush(_SECONDS) == 0  # noqa: S101


def _receive(config: dict[str, Any], references: list[str]) -> None:
    """Read the same chunks, partition by partition, without inspecting them."""
    wanted: dict[int, list[tuple[int, int]]] = {}
    for reference in references:
        partition, offsets = reference.split("/")[4:6]
        first, _, last = offsets.partition("-")
        wanted.setdefault(int(partition), []).append((int(first), int(last)))
    group = {"group.id": str(uuid.uuid4()), "enable.auto.commit": False, "check.crcs": True}
    consumer = confluent_kafka.Consumer({**config, **group})
    begins = [
        confluent_kafka.TopicPartition(_PAYLOADS, partition, min(first for first, _ in ranges))
        for partition, ranges in wanted.items()
    ]
    ends = {partition: max(last for _, last in ranges) for partition, ranges in wanted.items()}
    consumer.assign(begins)
    while ends:
        message = consumer.poll(_SECONDS)
        assert message is not None  # noqa: S101
        if message.error() is None and (message.offset() or 0) >= ends.get(message.partition() or 0, 1 << 62):
            del ends[message.partition() or 0]
    consumer.close()


def _stream(config: dict[str, Any], size: int) -> Table:
    """Memory of a process that publishes a stream, and reads it again."""
    result = subprocess.run(
        [sys.executable, "-m", "benchmarks.kafka_store", config["bootstrap.servers"], str(size)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=600,
    )
    names = ("publish_stream", "open and read")
    rows = [Row(name, [int(peak) / 2**20]) for name, peak in zip(names, result.stdout.split(), strict=True)]
    return Table("kafka-store-memory", f"Peak memory of a stream of {size >> 20} MiB in Kafka", "MiB", rows)


class _Zeros:
    """A stream of this many bytes."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._block = bytes(1 << 20)

    def read(self, size: int = -1, /) -> bytes:
        count = min(self._left, len(self._block), size if size >= 0 else self._left)
        self._left -= count
        return self._block[:count]


def _measure(servers: str, size: int) -> None:
    config = {"bootstrap.servers": servers, "large.message.max.payload.bytes": size, "log_level": 0}
    store = open_store("kafka", config)
    assert isinstance(store, KafkaStore)  # noqa: S101  for mypy
    reader: Any = _Zeros(8 << 20)
    with store.open(store.publish_stream("streams", reader)) as file:
        file.read(1)
    reader = _Zeros(size)
    before = reset_peak()
    reference = store.publish_stream("streams", reader)
    published = peak_bytes() - before
    before = reset_peak()
    read = 0
    with store.open(reference) as file:
        while block := file.read(1 << 20):
            read += len(block)
    assert read == size  # noqa: S101
    print(published, peak_bytes() - before)
    store.close()


if __name__ == "__main__":
    _measure(sys.argv[1], int(sys.argv[2]))
