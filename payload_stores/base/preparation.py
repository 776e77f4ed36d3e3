"""Stores that create something beside the payloads."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsPreparation"]


@runtime_checkable
class SupportsPreparation(Protocol, metaclass=Capability):
    """A store that makes something beside a topic's payloads, with the first of them.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("kafka", {"bootstrap.servers": "localhost:9092"})  # doctest: +SKIP
        >>> store.unprepared("alerts")  # doctest: +SKIP
        'the payload topic alerts.payloads'
    """

    def unprepared(self, topic: str) -> str | None:
        """Say what is missing yet for a topic's payloads, and would be made; None if nothing is.

        Args:
            topic: The topic.

        Raises:
            PayloadStoreError: The store does not answer, or not to this user.
        """
