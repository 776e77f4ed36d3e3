"""All payloads of a partition: what is whole, and what writers have left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

from payload_stores.kafka.broker import Broker
from payload_stores.kafka.chunks import Chunk

__all__ = ["Stored", "scan"]


@dataclass
class Stored:
    """The chunks of one publication that are in a partition.

    Attributes:
        path: Topic and id.
        name: Name of the publication.
        offsets: Offsets of its chunks, by their numbers; without those that were deleted.
        modified_ms: When the last of them was written, in ms since the epoch.
        count: How many chunks it has; None where the last was not written.
        size: Size of the payload in bytes; likewise.
    """

    path: str
    name: str
    offsets: dict[int, int] = field(default_factory=dict)
    modified_ms: int = 0
    count: int | None = None
    size: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all chunks are there, one behind the other.

        Chunks that a producer has sent again to a broker that was restarted may lie in another order. Their writer was
        told that it had failed, and no reader finds its way through them.
        """
        if self.count is None or len(self.offsets) != self.count:
            return False
        ordered = [self.offsets.get(index, -1) for index in range(self.count)]
        return all(before < after for before, after in pairwise([-1, *ordered]))


def scan(broker: Broker, name: str, partition: int, **where: str) -> Iterator[Stored]:
    """Read a partition from its beginning to its end, and yield what was published and not deleted.

    Kafka returns keys with their values only: as much is transferred as the partition holds. Tombstones lie behind
    what they delete, so that one entry for each payload is kept until the end.

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
