"""All payloads of a partition: complete ones, and leftovers of killed writers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

from payload_stores.kafka.broker import Broker
from payload_stores.kafka.chunks import Chunk


@dataclass
class Stored:
    """The chunks of one publication in a partition.

    Attributes:
        path: Topic and id.
        name: Name of the publication.
        offsets: Offsets of its chunks by number, without deleted ones.
        modified_ms: When the latest was written, in ms since the epoch.
        count: Number of chunks; None if the last was not written.
        size: Size of the payload in bytes; None if the last was not written.
    """

    path: str
    name: str
    offsets: dict[int, int] = field(default_factory=dict)
    modified_ms: int = 0
    count: int | None = None
    size: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all chunks exist, in order.

        Chunks sent again after a broker restart may be in another order. Their writer got an error, and readers cannot
        read them.
        """
        if self.count is None or len(self.offsets) != self.count:
            return False
        ordered = [self.offsets.get(index, -1) for index in range(self.count)]
        return all(before < after for before, after in pairwise([-1, *ordered]))


def scan(broker: Broker, name: str, partition: int, **where: str) -> Iterator[Stored]:
    """Read a whole partition, and yield payloads published and not deleted.

    Kafka returns keys only with their values, so the whole partition is transferred. Tombstones come after the chunks
    they delete, so one entry per payload is kept until the end.

    Args:
        broker: The store's clients.
        name: The payload topic.
        partition: The partition.
        **where: For errors.
    """
    seen: dict[tuple[str, str], Stored] = {}
    with closing(broker.read_all(name, partition, **where)) as messages:
        for message in messages:
            chunk = Chunk.of(message)
            if chunk is None:
                continue
            stored = seen.setdefault((chunk.path, chunk.publication), Stored(chunk.path, chunk.publication))
            value = message.value()
            if value is None:
                stored.offsets.pop(chunk.index, None)
                continue
            if not chunk.fits(len(value)):
                continue
            stored.offsets[chunk.index] = message.offset() or 0
            stored.modified_ms = max(stored.modified_ms, message.timestamp()[1])
            if chunk.count is not None:
                stored.count, stored.size = chunk.count, chunk.size
    yield from (stored for stored in seen.values() if stored.offsets)
