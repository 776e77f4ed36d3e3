"""Stores that can list their payloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from payload_stores.base.capability import Capability

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["PayloadInfo", "SupportsList", "SupportsListRange"]


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


@runtime_checkable
class SupportsList(Protocol, metaclass=Capability):
    """A store that can list a topic's payloads.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> isinstance(store, SupportsList) and list(store.list("empty"))
        []
    """

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """Yield the payloads of a topic, in no particular order, a page at a time.

        Args:
            topic: The topic.
            prefix: First characters of the ids to list; may contain ``/``.
            before: List only payloads written or renewed before this time, with time zone.

        Raises:
            PayloadStoreError: The listing is incomplete.
        """


@runtime_checkable
class SupportsListRange(Protocol, metaclass=Capability):
    """A store that lists a range of a topic's ids at the cost of these alone: several readers can share a topic.

    Ids are sorted by their characters. Ranges with common bounds have every payload once.

    Example:
        >>> from payload_stores import PublishContext, open_store
        >>> store = open_store("memory", {})
        >>> for name in ("1", "2", "3"):
        ...     _ = store.publish("ranges", b"payload", PublishContext(payload_id=name))
        >>> [info.reference for info in store.list_range("ranges", after="1", until="2")]
        ['memory:///ranges/2']
    """

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        """Yield the payloads of a topic within a range of ids, in their order, a page at a time.

        Args:
            topic: The topic.
            after: List only ids behind this one.
            until: List only ids up to this one, inclusive; None for all.
            before: List only payloads written or renewed before this time, with time zone.

        Raises:
            PayloadStoreError: The listing is incomplete.
        """
