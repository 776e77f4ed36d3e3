"""What the methods of a store take and return."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from payload_stores import ids
from payload_stores.buffers import Buffer

if TYPE_CHECKING:
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class PublishContext:
    """Facts about a payload, beyond its topic, that a store may need.

    Attributes:
        id_strategy: How to make ids; ``content`` and ``keyed`` are deterministic.
        key: The record's encoded key, required for ``keyed``.
        digest: ``sha256:<hex>`` of the payload, if known.
        is_key: Whether the payload is a record's key rather than its value.
        payload_id: The id itself, if the reference format sets it.

    Example:
        >>> PublishContext("content").deterministic
        True
    """

    id_strategy: ids.IdStrategy = "random"
    key: bytes | None = None
    digest: str | None = None
    is_key: bool = False
    payload_id: str | None = None

    @property
    def deterministic(self) -> bool:
        """Whether equal payloads get equal ids, so that an existing object need not be written again."""
        return self.id_strategy != "random"

    def with_digest(self, digest: Callable[[], str]) -> PublishContext:
        """This context, with the payload's digest if a deterministic id requires it.

        Args:
            digest: Computes it, ``sha256:<hex>``; called only if it is required and unknown.

        Example:
            >>> PublishContext("content").with_digest(lambda: ids.sha256_digest(b"payload")).digest
            'sha256:239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5'
        """
        if self.digest is not None or not self.deterministic:
            return self
        return replace(self, digest=digest())

    def make_id(self, data: Buffer) -> str:
        """The id of a payload, by the strategy, unless the reference format has set it."""
        if self.payload_id is not None:
            return self.payload_id
        return ids.payload_id(data, self.id_strategy, key=self.key, digest=self.digest)


@dataclass(frozen=True, slots=True)
class PayloadInfo:
    """One stored payload, as returned by listings.

    Attributes:
        reference: Full reference.
        size: Size in bytes.
        modified: When it was written, with time zone.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> reference = store.publish("listed", b"payload")
        >>> [info.size for info in store.list("listed") if info.reference == reference]
        [7]
    """

    reference: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class Lifetimes:
    """The ages at which a server deletes the payloads of a topic.

    Attributes:
        shortest: The lowest age at which it deletes any of them: records that live longer lose their payloads. None if
            it deletes none.
        longest: The age at which it has deleted all of them. None if some stay forever, such as those that no rule
            covers.
        rules: What the server's rules delete and what they leave, in its own terms, for people.
        hint: What to do about payloads that stay, if :meth:`SupportsExpiration.set_expiration` does not help.

    Example:
        >>> from datetime import timedelta
        >>> rules = ("rule 'old' (after 9 days), only keys that begin with 'alerts/a'",)
        >>> Lifetimes(timedelta(days=9), None, rules).longest is None
        True
    """

    shortest: timedelta | None
    longest: timedelta | None
    rules: tuple[str, ...] = ()
    hint: str | None = None


class RecordWriter(Protocol):
    """A client's producer, for a store that writes within its transaction.

    Attributes:
        max_record_bytes: Largest record it sends, including key, headers and framing.

    Example:
        >>> writer.write("alerts.payloads", 0, [(b"id/0", b"first", ()), (b"id/1", b"second", ())])  # doctest: +SKIP
        (17, 18)
    """

    max_record_bytes: int

    def write(
        self, topic: str, partition: int, records: Iterable[tuple[bytes, Buffer | None, tuple[tuple[str, bytes], ...]]]
    ) -> tuple[int, ...]:
        """Send records to one partition, in order, and wait until they are written.

        Args:
            topic: The topic.
            partition: The partition.
            records: Key, value and headers of each; None as the value makes a tombstone.

        Returns:
            The records' offsets, in order.

        Raises:
            PayloadStoreError: A record was not written.
        """
