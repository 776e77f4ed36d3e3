"""Latency of one record at a time, by percentile: until its delivery is reported, and until it is polled.

The broker is real, with its defaults; ``linger.ms`` is 0. Contenders take turns record by record.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, Final, NamedTuple

import confluent_kafka

import serde_chain
from benchmarks.harness import Row, Table
from serde_chain.testing.services import KafkaBroker

_BYTES: Final = 1_000
_LARGE_BYTES: Final = 1_200_000
_RECORDS: Final = 1_000  # per round
_ROUNDS: Final = 5
_SECONDS: Final = 30
_PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_PLAIN: Final = "confluent_kafka"
_STORE: Final = {"large.message.payload.store.class": "memory"}
_WAYS: Final = ("delivery", "poll")


class Contender(NamedTuple):
    """One way to send and read records.

    Attributes:
        name: Its line.
        producer: A producer.
        consumer: A consumer positioned at the end of the topic.
        topic: A separate topic, so that each reads its own records.
        value: The value to send.
    """

    name: str
    producer: Any
    consumer: Any
    topic: str
    value: bytes


def run(*, quick: bool) -> Iterator[Table]:
    """A plain client, ours with chains, and ours with offloaded payloads."""
    rounds: dict[tuple[str, str], list[list[float]]] = {}
    with KafkaBroker() as broker, ExitStack() as stack:
        contenders = _contenders(broker, stack)
        for number in range((1 if quick else _ROUNDS) + 1):  # the first round opens connections
            taken = _round(contenders, 50 if quick else _RECORDS)
            if number:
                for key, seconds in taken.items():
                    rounds.setdefault(key, []).append([1e3 * each for each in seconds])
    for way, title in zip(_WAYS, ("Produce to delivery", "Produce to poll"), strict=True):
        rows = []
        for each in contenders[1:]:
            plain = _PLAIN if each.value == contenders[0].value else ""
            for percentile in _PERCENTILES:
                ours, theirs = (
                    [_percentile(figures, percentile) for figures in rounds[name, way]] for name in (each.name, _PLAIN)
                )
                rows.append(Row(each.name, ours, plain, theirs if plain else (), f"{percentile:g} %"))
        yield Table(f"latency-{way}", f"{title}, one record of 1 KB at a time", "ms", rows, axis="percentile")


def _contenders(broker: KafkaBroker, stack: ExitStack) -> list[Contender]:
    """The plain client first."""
    common: dict[str, Any] = {**broker.client_config(), "log_level": 0, "linger.ms": 0}
    reading = {"group.id": "latency", "enable.auto.commit": False}
    small, large = bytes(_BYTES), bytes(_LARGE_BYTES)
    made = [
        Contender(
            _PLAIN, confluent_kafka.Producer(common), confluent_kafka.Consumer({**common, **reading}), "plain", small
        )
    ]
    chains = {
        "chain: bytes": ("bytes", "bytes", small),
        "chain: bytes, zstd, large-message": ("bytes, zstd, large-message", "large-message, zstd, bytes", small),
        "the same, 1.2 MB offloaded to memory": ("bytes, large-message", "large-message, bytes", large),
    }
    for number, (name, (write, read, value)) in enumerate(chains.items()):
        store = _STORE if "large" in write else {}
        producer = serde_chain.Producer({**common, "value.serializers": write, **store})
        consumer = serde_chain.Consumer({**common, **reading, "value.deserializers": read, **store})
        made.append(Contender(name, producer, consumer, f"chain-{number}", value))
    for each in made:
        stack.enter_context(closing(each.producer))
        stack.enter_context(closing(each.consumer))
        broker.create_topic(each.topic)
        each.consumer.assign([confluent_kafka.TopicPartition(each.topic, 0, 0)])
    return made


def _round(contenders: list[Contender], records: int) -> dict[tuple[str, str], list[float]]:
    """Seconds of each record, by contender and way."""
    taken: dict[tuple[str, str], list[float]] = {(each.name, way): [] for each in contenders for way in _WAYS}
    for number in range(records):
        for each in contenders[:: -1 if number % 2 else 1]:
            for way, seconds in zip(_WAYS, _send_and_read(each), strict=True):
                taken[each.name, way].append(seconds)
    return taken


def _send_and_read(contender: Contender) -> tuple[float, float]:
    delivered: list[float] = []
    begun = time.perf_counter()
    contender.producer.produce(
        contender.topic, contender.value, on_delivery=lambda *_: delivered.append(time.perf_counter())
    )
    while not delivered:
        contender.producer.poll(_SECONDS)
        if time.perf_counter() - begun > _SECONDS:
            raise TimeoutError(f"{contender.name}: a record was not delivered")
    message = contender.consumer.poll(_SECONDS)
    polled = time.perf_counter()
    if message is None or message.error() is not None:
        raise TimeoutError(f"{contender.name}: a record did not come")
    return delivered[0] - begun, polled - begun


def _percentile(figures: list[float], percentile: float) -> float:
    return statistics.quantiles(figures, n=1000, method="inclusive")[round(10 * percentile) - 1]
