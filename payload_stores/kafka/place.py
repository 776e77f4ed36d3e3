"""The location of a payload in Kafka, and its references."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from payload_stores import references
from payload_stores.base import PayloadStore
from payload_stores.kafka.chunks import MOST_PATH_BYTES

_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_OFFSETS: Final = re.compile(r"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})")
_MOST_PARTITION: Final = (1 << 31) - 1
_MOST_OFFSET: Final = (1 << 63) - 1
# Chunks of other writers may be between those of a payload. This many would be terabytes.
_MOST_RECORDS: Final = 1 << 22


class Place(NamedTuple):
    """The location of a payload.

    Attributes:
        cluster: Id of the Kafka cluster.
        topic: The payload topic.
        partition: Partition.
        first: Offset of the first chunk.
        last: Offset of the last chunk.
        path: The data topic, and the segments of the payload's id.
    """

    cluster: str
    topic: str
    partition: int
    first: int
    last: int
    path: tuple[str, ...]

    @classmethod
    def of(cls, store: PayloadStore, reference: str) -> Place:
        """Parse a reference.

        Raises:
            UntrustedReferenceError: Not a reference of this store, or impossible offsets.
        """
        location = references.parse(store, reference)
        topic, partition, offsets, *path = (*location.segments, "", "", "")[: max(3, len(location.segments))]
        match = _OFFSETS.fullmatch(offsets)
        if len(path) < 2 or match is None or not _PARTITION.fullmatch(partition):
            raise store.untrusted(
                reference, "it does not have the form kafka://cluster/payload topic/partition/first-last/topic/id"
            )
        first, last = (int(number) for number in match.groups())
        if not (first <= last <= _MOST_OFFSET and last - first < _MOST_RECORDS and int(partition) <= _MOST_PARTITION):
            raise store.untrusted(reference, "no payload can have such offsets")
        if len("/".join(path).encode()) > MOST_PATH_BYTES:
            raise store.untrusted(reference, f"topic and id have more than {MOST_PATH_BYTES} bytes")
        return cls(location.host, topic, int(partition), first, last, tuple(path))

    @property
    def key(self) -> str:
        """Topic and id, the prefix of the keys of the payload's chunks."""
        return "/".join(self.path)

    def url(self, scheme: str) -> str:
        """The reference."""
        offsets = f"{self.first}-{self.last}"
        return references.to_url(scheme, self.cluster, (self.topic, str(self.partition), offsets, *self.path))
