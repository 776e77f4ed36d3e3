"""Stores that can list their payloads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from payload_stores.base.capability import Capability

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["PayloadInfo", "SupportsList"]


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
            prefix: First characters of the ids to list, so that several readers can share a large topic; may contain
                ``/``.
            before: List only payloads written or renewed before this time, with time zone.

        Raises:
            PayloadStoreError: The listing is incomplete.
        """
