"""Stores in which killed writers leave something behind."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsLeftoverCount", "SupportsLeftovers"]


@runtime_checkable
class SupportsLeftovers(Protocol, metaclass=Capability):
    """A store in which writers that are killed leave something behind that no listing shows.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.remove_leftovers(older_than_ms=3_600_000)  # doctest: +SKIP
        2
    """

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Remove what writers have left behind: temporary files, parts of uploads that were never completed.

        Args:
            older_than_ms: What is more recent may belong to a writer that is alive, and stays; in ms.

        Returns:
            How many uploads were removed.

        Raises:
            PayloadStoreError: They could not be listed or removed.
        """


@runtime_checkable
class SupportsLeftoverCount(Protocol, metaclass=Capability):
    """A store that counts what :class:`SupportsLeftovers` would remove, and leaves it.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.count_leftovers(older_than_ms=3_600_000)  # doctest: +SKIP
        2
    """

    def count_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Count what writers have left behind.

        Args:
            older_than_ms: What is more recent may belong to a writer that is alive, and does not count; in ms.

        Raises:
            PayloadStoreError: It could not be listed.
        """
