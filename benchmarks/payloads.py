"""Large payloads in records, by a raised ``max.message.bytes``, against payload stores: speed, latency, CPU and memory.

The records are confluent_kafka's, with the limits raised; the stores are used by Producer and Consumer. Settings are
the defaults, except ``linger.ms`` of 0, and ``fetch.wait.max.ms`` of 10, so that no reader waits for the end of an
older request. Broker and S3 server are real and run on the same cores.

Each figure comes from a separate client process; the ways take turns. Memory is measured with a new broker each time.
It starts with a small heap and has moved 64 MB of records before, so that its growth is due to the payloads.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Barrier
from typing import Any, Final, TypeAlias

import confluent_kafka

import serde_chain
from benchmarks.harness import Row, Table, Transfers
from serde_chain.testing.services import KafkaBroker
from tests.memory import peak_bytes, reset_peak
from tests.servers.versitygw import VersityGateway

_RAISED: Final = "raised max.message.bytes"
_STORES: Final = ("local", "s3", "objects", "kafka")
# Payload size in MB, and payloads per turn.
_SIZES: Final = {1: 64, 5: 24, 20: 8, 100: 3}
_ROUNDS: Final = 3
_LATENCIES: Final = 5
# Enough for most threads of the broker: each keeps a buffer as large as the largest record that it has handled.
_ALONE: Final = 12
_PRODUCERS: Final = 8
_PRODUCERS_MB: Final = 20
_WARM_BYTES: Final = 1_200_000
_SECONDS: Final = 120
# 512 MB and records of 100 MB end in "Unknown broker error": the broker has no memory for a fifth thread's buffer.
_BROKER_HEAP: Final = "2g"
# Beside the payload, in a request or a response.
_OVERHEAD: Final = 1 << 20

# Whose memory is measured: figure, and title.
_PARTIES: Final = {"writer": "the writer", "reader": "the reader, payload included", "broker": "the broker"}

Figures: TypeAlias = dict[str, float]
Measure: TypeAlias = "Callable[[_Clients, int], Figures]"
Brokers: TypeAlias = "Callable[[], AbstractContextManager[_Broker]]"


def run(*, quick: bool) -> Iterator[Table]:
    """Speed, latency and CPU by size, in turns; then memory by size, and of several producers at once."""
    sizes = [1] if quick else list(_SIZES)
    with _broker() as broker:
        yield from _speed(broker, sizes, 1 if quick else _ROUNDS)
        brokers: Brokers = (lambda: nullcontext(broker)) if quick else _broker
        # The same code measures all stores.
        stores = _STORES[:1] if quick else _STORES
        yield from _memory(brokers, stores, sizes)
        yield _at_once(brokers, stores)


class _Broker(KafkaBroker):
    """A broker with a small initial heap, whose memory is measured."""

    def _prepare(self, folder: Path) -> list[str]:
        java, *options = super()._prepare(folder)
        return [java, "-Xms32m", *options]

    @property
    def process(self) -> int:
        """Its process id."""
        command = "\0".join([*self._command, ""]).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):  # the process has ended
                if path.read_bytes() == command:
                    return int(path.parent.name)
        raise ProcessLookupError("the broker is not running")


@contextmanager
def _broker() -> Iterator[_Broker]:
    """A broker that has moved ordinary records, and removes the data of deleted topics at once."""
    with _Broker(config={"log.segment.delete.delay.ms": "0"}, memory=_BROKER_HEAP) as broker:
        broker.create_topic("warm")
        config: dict[str, Any] = {**broker.client_config(), "log_level": 0}
        # Idempotent, so that the broker has also loaded the coordinator of the store kafka's producer.
        producer = confluent_kafka.Producer({**config, "enable.idempotence": True})
        for _ in range(640):
            producer.produce("warm", bytes(100_000))
        producer.flush(_SECONDS)
        consumer = confluent_kafka.Consumer({**config, "group.id": "warm", "enable.auto.commit": False})
        _read(consumer, "warm", 0, 640)
        consumer.close()
        yield broker


def _speed(broker: _Broker, sizes: list[int], rounds: int) -> Iterator[Table]:
    figures: dict[tuple[str, int, str], list[float]] = {}
    ways = (_RAISED, *_STORES)
    for number in range(rounds):
        for size in sizes:
            for way in ways[:: -1 if number % 2 else 1]:
                for name, measured in _in_process(_speed_of, broker, way, size).items():
                    figures.setdefault((way, size, name), []).append(measured)
    for figure, title, unit in (
        ("up", "Payloads up", "MB/s"),
        ("down", "Payloads down", "MB/s"),
        ("latency", "One payload at a time, from produce to poll", "ms"),
        ("cpu-up", "Payloads up: CPU of the client", "s/GB"),
        ("cpu-down", "Payloads down: CPU of the client", "s/GB"),
    ):
        rows = [
            Row(store, figures[store, size, figure], _RAISED, figures[_RAISED, size, figure], f"{size} MB")
            for store in _STORES
            for size in sizes
        ]
        yield Table(f"payloads-{figure}", title, unit, rows, axis="payload")


def _memory(brokers: Brokers, stores: tuple[str, ...], sizes: list[int]) -> Iterator[Table]:
    figures = {
        (way, size): _memory_in_process(_memory_of, brokers, way, size) for size in sizes for way in (_RAISED, *stores)
    }
    for party, title in _PARTIES.items():
        rows = [Row(way, [figures[way, size][party]], at=f"{size} MB") for way in (_RAISED, *stores) for size in sizes]
        yield Table(f"payloads-{party}", f"One payload at a time: memory of {title}", "MiB", rows, axis="payload")


def _at_once(brokers: Brokers, stores: tuple[str, ...]) -> Table:
    raised, *of_stores = (
        _memory_in_process(_memory_at_once, brokers, way, _PRODUCERS_MB) for way in (_RAISED, *stores)
    )
    rows = [
        Row(f"{store}, {name}", [figures[name]], _RAISED, [raised[name]])
        for store, figures in zip(stores, of_stores, strict=True)
        for name in _PARTIES
    ]
    title = f"{_PRODUCERS} producers in a process, a payload of {_PRODUCERS_MB} MB each; then a reader of all: memory"
    return Table("payloads-at-once", title, "MiB", rows)


def _memory_in_process(measure: Measure, brokers: Brokers, way: str, size: int) -> Figures:
    """Figures of the client, and how far the broker's memory rose meanwhile, in MiB."""
    with brokers() as broker:
        before = reset_peak(broker.process)
        figures = _in_process(measure, broker, way, size)
        return {**figures, "broker": (peak_bytes(broker.process) - before) / 2**20}


def _in_process(measure: Measure, broker: _Broker, way: str, size: int) -> Figures:
    """Figures of a separate process."""
    with _settings(broker, way, size) as settings:
        result = subprocess.run(
            [sys.executable, "-m", "benchmarks.payloads", measure.__name__, str(size)],
            input=json.dumps(settings),
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            timeout=300,
        )
    figures: Figures = json.loads(result.stdout)
    return figures


@contextmanager
def _settings(broker: _Broker, way: str, size: int) -> Iterator[dict[str, Any]]:
    """Settings of the clients, with a store and a topic for them alone."""
    topic = f"payloads-{time.monotonic_ns()}"
    config: dict[str, Any] = {"topic": topic, **broker.client_config(), "log_level": 0}
    limits = {}
    if way == _RAISED:
        largest = max(size * 10**6, _WARM_BYTES) + _OVERHEAD
        limits = {"max.message.bytes": str(largest)}
        config["message.max.bytes"] = largest
        config["receive.message.max.bytes"] = max(100_000_000, largest)
    else:
        config["large.message.payload.store.class"] = way
    broker.create_topic(topic, config=limits)
    with ExitStack() as stack:
        if way == "local":
            config["local.path"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="serde-chain-benchmark-"))
        elif way in {"s3", "objects"}:
            server = stack.enter_context(VersityGateway())
            bucket = server.create_bucket()
            config |= server.store_config(bucket) if way == "s3" else server.objects_config(bucket)
        yield config
    topics = [topic, *([f"{topic}.payloads"] if way == "kafka" else [])]
    admin = broker.admin()  # held until the answers arrive
    for deleted in admin.delete_topics(topics, operation_timeout=_SECONDS).values():
        deleted.result()


# In the client's process:


class _Clients:
    """Producers and consumers of one way."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.topic: str = settings.pop("topic")
        self._settings = settings
        self._plain = "large.message.payload.store.class" not in settings

    def producer(self) -> Any:
        """A producer that has sent a payload."""
        settings = {**self._settings, "linger.ms": 0}
        settings.pop("receive.message.max.bytes", None)
        if self._plain:
            producer: Any = confluent_kafka.Producer(settings)
        else:
            producer = serde_chain.Producer({**settings, "value.serializers": "bytes, large-message"})
        self.send(producer, os.urandom(_WARM_BYTES))
        return producer

    def consumer(self) -> Any:
        """A consumer that has read the first payload."""
        settings = {**self._settings, "group.id": self.topic, "enable.auto.commit": False, "fetch.wait.max.ms": 10}
        settings.pop("message.max.bytes", None)
        if self._plain:
            consumer: Any = confluent_kafka.Consumer(settings)
        else:
            consumer = serde_chain.Consumer({**settings, "value.deserializers": "large-message, bytes"})
        _read(consumer, self.topic, 0, 1)
        return consumer

    def send(self, producer: Any, payload: bytes, count: int = 1) -> None:
        """Send a payload several times, and wait until all are delivered."""
        errors: list[Any] = []
        for _ in range(count):
            producer.produce(self.topic, payload, on_delivery=lambda error, _: errors.append(error))
        producer.flush(_SECONDS)
        # Not by ==: comparing a KafkaError with None leaves a TypeError behind.
        if len(errors) < count or any(error is not None for error in errors):
            raise RuntimeError(f"not all of {count} payloads were delivered: {errors}")


def _read(consumer: Any, topic: str, first: int, count: int) -> int:
    """Read records one after the other; returns the size of the last one."""
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, first)])
    size = 0
    for _ in range(count):
        size = _poll(consumer)
    consumer.unassign()
    return size


def _poll(consumer: Any) -> int:
    message = consumer.poll(_SECONDS)
    if message is None or message.error() is not None:
        raise TimeoutError(f"a payload did not come: {message and message.error()}")
    return len(message.value())


def _speed_of(clients: _Clients, size: int) -> Figures:
    """Up, down, and one at a time."""
    count = _SIZES[size]
    payload = os.urandom(size * 10**6)
    # The consumer first: it would begin to download earlier records, and continue after a rebalance.
    producer, consumer = clients.producer(), clients.consumer()
    up, down = Transfers(count * len(payload)), Transfers(count * len(payload))
    with up.turn():
        clients.send(producer, payload, count)
    with down.turn():
        read = _read(consumer, clients.topic, 1, count)
    if read != len(payload):
        raise AssertionError(f"a payload of {read} bytes")
    consumer.assign([confluent_kafka.TopicPartition(clients.topic, 0, count + 1)])
    seconds = []
    for _ in range(_LATENCIES + 1):
        began = time.perf_counter()
        clients.send(producer, payload)
        _poll(consumer)
        seconds.append(time.perf_counter() - began)
    consumer.close()
    producer.close()
    return {
        "up": up.rates()[0],
        "down": down.rates()[0],
        "latency": 1e3 * statistics.median(seconds[1:]),  # the first finds the consumer unprepared
        "cpu-up": up.cpu_per_gb()[0],
        "cpu-down": down.cpu_per_gb()[0],
    }


def _memory_of(clients: _Clients, size: int) -> Figures:
    """How far the memory rises while one payload is sent, and while it is read; the most of several."""
    producer = clients.producer()
    consumer = clients.consumer()
    payload = os.urandom(size * 10**6)
    risen: dict[str, list[int]] = {"writer": [], "reader": []}
    for number in range(_ALONE):
        before = reset_peak()
        clients.send(producer, payload)
        risen["writer"].append(peak_bytes() - before)
        before = reset_peak()
        _read(consumer, clients.topic, number + 1, 1)
        risen["reader"].append(peak_bytes() - before)
    consumer.close()
    producer.close()
    return {name: max(each) / 2**20 for name, each in risen.items()}


def _memory_at_once(clients: _Clients, size: int) -> Figures:
    """How far the memory rises while all producers send, and while a consumer reads what they sent."""
    producers = [clients.producer() for _ in range(_PRODUCERS)]
    consumer = clients.consumer()
    payload = os.urandom(size * 10**6)
    ready = Barrier(_PRODUCERS)

    def send(producer: Any) -> None:
        ready.wait()
        clients.send(producer, payload)

    with ThreadPoolExecutor(_PRODUCERS) as threads:
        before = reset_peak()
        list(threads.map(send, producers))
        writer = peak_bytes() - before
    before = reset_peak()
    _read(consumer, clients.topic, _PRODUCERS, _PRODUCERS)
    reader = peak_bytes() - before
    consumer.close()
    for producer in producers:
        producer.close()
    return {"writer": writer / 2**20, "reader": reader / 2**20}


if __name__ == "__main__":
    _measure = {each.__name__: each for each in (_speed_of, _memory_of, _memory_at_once)}[sys.argv[1]]
    print(json.dumps(_measure(_Clients(json.load(sys.stdin)), int(sys.argv[2]))))
