"""Stores that create resources besides the payloads."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsPreparation"]


@runtime_checkable
class SupportsPreparation(Protocol, metaclass=Capability):
    """A store that creates a further resource with the first payload of a topic.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("kafka", {"bootstrap.servers": "localhost:9092"})  # doctest: +SKIP
        >>> store.unprepared("alerts")  # doctest: +SKIP
        'the payload topic alerts.payloads'
    """

    def unprepared(self, topic: str) -> str | None:
        """The missing resource that the first payload of a topic would create; None if nothing is missing.

        Args:
            topic: The topic.

        Raises:
            PayloadStoreError: The store did not answer, or denied access.
        """
