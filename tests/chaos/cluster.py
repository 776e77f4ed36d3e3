"""Where chaos takes place: a broker, a folder of payloads, and what is in both afterwards."""

from __future__ import annotations

import logging
import multiprocessing
import random
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self
from zlib import crc32

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from payload_stores import SupportsList, open_store
from payload_stores.local.folders import MARKER
from serde_chain.clients.confluent.consumer import Consumer

__all__ = [
    "SECONDS",
    "Broker",
    "ChaosError",
    "Child",
    "Cluster",
    "Outcome",
    "Place",
    "Record",
    "payload",
    "payload_number",
]

SECONDS: Final = 60.0
"""Longest time for anything that a round waits for."""

_HEAD: Final = struct.Struct(">IIQ")
_LARGE: Final = 2_000
_PRELOADED: Final = [
    "tests.chaos.children",
    "serde_chain.clients.confluent.producer",
    "serde_chain.clients.confluent.consumer",
    "serde_chain.clients.journal",
    "serde_chain.stages.large_message.write",
    "serde_chain.stages.large_message.read",
    "payload_stores.local",
]


class ChaosError(AssertionError):
    """Something was lost, doubled, mixed up or damaged.

    Args:
        message: What.
        kind: Of which round.
        seed: Its seed, with which it can be repeated.
    """

    def __init__(self, message: str, kind: str = "", seed: int = 0) -> None:
        super().__init__(message, kind, seed)
        self.message, self.kind, self.seed = message, kind, seed

    def __str__(self) -> str:
        return f"{self.message} [{self.kind}, seed {self.seed}]"


@dataclass
class Outcome:
    """The counts of a round.

    Attributes:
        records: Records in the topic.
        acknowledged: Those that a producer was told of, or that a consumer got.
        killed: Whether a process was killed before it was done.
        deleted: Payloads that were deleted because their records were never sent.
        leftovers: Payloads without a record that are left to a sweep.
    """

    records: int = 0
    acknowledged: int = 0
    killed: bool = False
    deleted: int = 0
    leftovers: int = 0


class Place(NamedTuple):
    """A record's place.

    Attributes:
        partition: Its partition.
        offset: Its offset.
    """

    partition: int
    offset: int


class Record(NamedTuple):
    """A record that was read.

    Attributes:
        place: Its place.
        key: Its key.
        number: Which one it is.
    """

    place: Place
    key: bytes | None
    number: int


def payload(seed: int, number: int, *, large: bool) -> bytes:
    """Make a value that tells whether it is whole, and which one it is."""
    source = random.Random(f"{seed}/{number}")
    body = source.randbytes(source.randrange(_LARGE, 40 * _LARGE) if large else source.randrange(50))
    return _HEAD.pack(number, crc32(body), len(body)) + body


def payload_number(value: bytes) -> int:
    """Check a value, and return which one it is.

    Raises:
        ChaosError: It is not what was written.
    """
    number, digest, size = _HEAD.unpack_from(value)
    body = value[_HEAD.size :]
    if len(body) != size or crc32(body) != digest:
        raise ChaosError(f"the payload of record {number} is damaged")
    return int(number)


class Child:
    """A process that tells what it does.

    Args:
        target: Its function: ``(connection, *arguments)``.
        *arguments: Further arguments.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        self._ours, theirs = context.Pipe(duplex=False)
        self.process: ForkServerProcess = context.Process(
            target=_quietly, args=(target, theirs, *arguments), daemon=True
        )
        self.process.start()
        theirs.close()
        self.told: list[Any] = []

    def listen(self, seconds: float) -> bool:
        """Take what it tells, up to a time.

        Returns:
            Whether it may tell more: it is alive.
        """
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                if self._ours.poll(left):
                    self.told.append(self._ours.recv())
            except (EOFError, OSError):
                return False
        return True

    def end(self) -> list[Any]:
        """Wait until it ends, and return all that it has told."""
        if self.listen(SECONDS):
            self.kill()
            raise ChaosError("a process did not end")
        self.process.join(SECONDS)
        self._ours.close()
        return self.told

    def kill(self) -> None:
        """End it as SIGKILL does."""
        self.process.kill()
        self.process.join(SECONDS)

    @property
    def was_killed(self) -> bool:
        """Whether it was killed, by itself or from outside."""
        return self.process.exitcode == -9


def _quietly(target: Callable[..., None], *arguments: Any) -> None:
    """Run a function without the warnings that its faults are worth elsewhere."""
    logging.disable(logging.WARNING)
    target(*arguments)


class Broker(Protocol):
    """A broker that can be killed, as :class:`serde_chain.testing.services.KafkaBroker`."""

    def kill(self) -> None:
        """End it as SIGKILL does."""

    def restart(self) -> object:
        """Start it again, with its data and its port."""


@dataclass
class Cluster:
    """A broker and a folder.

    Args:
        client: Settings of clients.
        folder: Folder for payloads and journals; each round has its own in it.
        broker: The broker, for rounds that kill it; None if it cannot be.
    """

    client: Mapping[str, Any]
    folder: Path
    broker: Broker | None = None
    _admin: Any = field(init=False, default=None)

    def __enter__(self) -> Self:
        self._admin = AdminClient({**self.client, "log_level": 0})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin = None

    def new_topic(self, partitions: int = 1, **settings: str) -> str:
        """Make a topic of its own for a round."""
        name = f"chaos-{uuid.uuid4()}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        (made,) = self._admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
        made.result(SECONDS)
        return name

    def set_limit(self, topic: str, limit: int) -> None:
        """Change the largest batch that a topic takes, in bytes."""
        entry = ConfigEntry("max.message.bytes", str(limit), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (changed,) = self._admin.incremental_alter_configs([resource]).values()
        changed.result(SECONDS)

    def config(self, topic: str, **more: Any) -> dict[str, Any]:
        """The configuration of a round's clients."""
        return {
            **self.client,
            "log_level": 0,
            "linger.ms": 1,
            "enable.idempotence": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "value.serializers": "bytes, large-message",
            "value.deserializers": "large-message, bytes",
            "large.message.payload.store.class": "local",
            "large.message.threshold.bytes": 1_000,
            "local.path": str(self.folder / topic),
            "local.fsync": False,
            **more,
        }

    def read(self, topic: str, partitions: int = 1, **more: Any) -> list[Record]:
        """Read a topic to its end; each payload has to be there, and whole.

        Args:
            topic: The topic.
            partitions: How many it has.
            **more: Further keys of the configuration.

        Raises:
            SerializationError: A record cannot be read.
            ChaosError: A value is damaged.
        """
        more |= {"group.id": f"{topic}-{uuid.uuid4()}", "enable.partition.eof": True}
        config = self.config(topic, **more)
        with Consumer(config) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
            return list(self._all(lambda: consumer.consume(100, 0.2), partitions))

    def _all(self, consume: Callable[[], list[Any]], partitions: int) -> Iterable[Record]:
        ends = 0
        until = time.monotonic() + SECONDS
        while ends < partitions:
            if time.monotonic() > until:
                raise ChaosError("the end of the topic did not come")
            for message in consume():
                error = message.error()
                if error is None:
                    place = Place(message.partition(), message.offset())
                    yield Record(place, message.key(), payload_number(message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends += 1
                else:
                    raise ChaosError(f"reading failed: {error}")

    def references(self, topic: str, partitions: int = 1) -> set[str]:
        """All references in the log, in records of whatever transaction."""
        settings: dict[str, Any] = {
            **self.client,
            "log_level": 0,
            "group.id": f"{topic}-{uuid.uuid4()}",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
        }
        reader = confluent_kafka.Consumer(settings)
        references: set[str] = set()
        ends = 0
        until = time.monotonic() + SECONDS
        try:
            reader.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
            while ends < partitions and time.monotonic() < until:
                for message in reader.consume(100, 0.2):
                    if message.error() is not None:
                        ends += 1
                    elif message.headers():
                        references.add((message.value() or b"").decode())
        finally:
            reader.close()
        return references

    def stored(self, topic: str) -> dict[str, bytes]:
        """All payloads of a topic; each has to be whole.

        Raises:
            ChaosError: One is not.
        """
        with_payloads: dict[str, bytes] = {}
        store = open_store("local", {"local.path": str(self.folder / topic)})
        try:
            # A process may have been killed before its first payload made the store.
            if not (self.folder / topic / MARKER).exists() or not isinstance(store, SupportsList):
                return {}
            for info in store.list(topic):
                with_payloads[info.reference] = data = store.download(info.reference)
                payload_number(data)
        finally:
            store.close()
        return with_payloads
