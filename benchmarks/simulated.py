"""A store with a synthetic listing, and a sweep of it by the local engine, in a process that loads nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

import confluent_kafka

from payload_stores.base import Buffer, PayloadInfo, PayloadStore, PublishContext
from payload_stores.options import Option, integer
from serde_chain import jobs
from serde_chain.wire.kip1159 import MARKER
from tests.memory import peak_bytes

if TYPE_CHECKING:
    from serde_chain.testing.services import KafkaBroker

OLD: Final = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS: Final = 4
_PLAIN: Final = b"x" * 200


class Simulated(PayloadStore):
    """Lists a given number of payloads, none of which exists."""

    scheme = "simulated"
    OBJECTS: ClassVar[Option[int]] = Option("simulated.objects", integer(0), 0, doc="how many there are")
    options = (*PayloadStore.options, OBJECTS)

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the number."""
        super().configure(config)
        self._count = self.OBJECTS.read(config)

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Not called."""
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        """Not called."""
        raise NotImplementedError

    def reference(self, topic: str, payload_id: str) -> str:
        """The reference of an id."""
        return f"simulated:///{topic}/{payload_id}"

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """All of them, regardless of age."""
        return (PayloadInfo(reference(topic, at), 4096, OLD) for at in range(self._count))

    def info(self, reference: str) -> PayloadInfo:
        """As listed."""
        return PayloadInfo(reference, 4096, OLD)

    def delete(self, reference: str) -> None:
        """Nothing is there."""


def reference(topic: str, at: int) -> str:
    """The reference of an object."""
    return f"simulated:///{topic}/{at * 0x9E3779B97F4A7C15 % 2**128:032x}"


def config_of(client: Mapping[str, object], objects: int) -> dict[str, object]:
    """The configuration of a sweep over a number of objects."""
    return {
        **client,
        "value.deserializers": "large-message",
        "large.message.payload.store.class": Simulated,
        "simulated.objects": objects,
    }


def fill(broker: KafkaBroker, topic: str, objects: int, *, plain: int = 0) -> None:
    """Create a topic that refers to all but every hundredth object, with some plain records after each reference."""
    broker.create_topic(topic, PARTITIONS)
    producer = confluent_kafka.Producer({**broker.client_config(), "linger.ms": 50, "queue.buffering.max.messages": 0})
    for at in range(objects):
        if at % 100:
            url = reference(topic, at).encode()
            producer.produce(topic, url, partition=at % PARTITIONS, headers=[(MARKER, b"true")])
        for _ in range(plain):
            producer.produce(topic, _PLAIN, partition=at % PARTITIONS)
        if at % (10_000 // (1 + plain)) == 0:
            producer.flush()
    producer.flush()


def sweep_locally(answer: Connection, config: dict[str, object], topic: str, manifest: Path) -> None:
    """Sweep in this process, and send the report, the CPU time in seconds, and the peak memory in bytes."""
    before = time.process_time()
    report = jobs.sweep(config, topic, delete=True, manifest=manifest)
    answer.send((report, time.process_time() - before, peak_bytes()))
