"""Stores in which killed writers leave files or uploads behind."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsLeftoverCount", "SupportsLeftovers"]


@runtime_checkable
class SupportsLeftovers(Protocol, metaclass=Capability):
    """A store in which killed writers leave files or uploads behind; listings do not show them.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.remove_leftovers(older_than_ms=3_600_000)  # doctest: +SKIP
        2
    """

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Remove leftovers of killed writers: temporary files, parts of incomplete uploads.

        Args:
            older_than_ms: Minimum age in ms; newer ones stay, since they may belong to a live writer.

        Returns:
            Number of uploads removed.

        Raises:
            PayloadStoreError: Leftovers could not be listed or removed.
        """


@runtime_checkable
class SupportsLeftoverCount(Protocol, metaclass=Capability):
    """A store that counts the leftovers :class:`SupportsLeftovers` would remove, without removing them.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.count_leftovers(older_than_ms=3_600_000)  # doctest: +SKIP
        2
    """

    def count_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Count the leftovers of killed writers.

        Args:
            older_than_ms: Minimum age in ms; newer ones do not count, since they may belong to a live writer.

        Raises:
            PayloadStoreError: Leftovers could not be listed.
        """
