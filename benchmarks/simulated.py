"""A store with a synthetic listing, and a sweep of it by the local engine, in a process that loads nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar, Final

from payload_stores.base import Buffer, PayloadInfo, PayloadStore, PublishContext
from payload_stores.options import Option, integer
from serde_chain import jobs
from tests.memory import peak_bytes

OLD: Final = datetime(2026, 1, 1, tzinfo=UTC)


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


def sweep_locally(answer: Connection, config: dict[str, object], topic: str, manifest: Path) -> None:
    """Sweep in this process, and send the report, the CPU time in seconds, and the peak memory in bytes."""
    before = time.process_time()
    report = jobs.sweep(config, topic, delete=True, manifest=manifest)
    answer.send((report, time.process_time() - before, peak_bytes()))
