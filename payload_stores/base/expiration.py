"""Stores whose server deletes old payloads."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsExpiration"]


@runtime_checkable
class SupportsExpiration(Protocol, metaclass=Capability):
    """A store whose server deletes payloads by itself when they are old enough.

    Example:
        >>> from datetime import timedelta
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.set_expiration("alerts", timedelta(days=9))  # doctest: +SKIP
        >>> store.expiration("alerts")  # doctest: +SKIP
        datetime.timedelta(days=9)
    """

    def expiration(self, topic: str) -> timedelta | None:
        """The age at which payloads of a topic are deleted by the server, the earliest where several rules apply.

        Returns:
            The age; None if they are kept.

        Raises:
            PayloadStoreError: The rules cannot be read.
        """

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        """Have the server delete payloads of a topic at an age; other rules stay as they are.

        Args:
            topic: The topic.
            age: The age, rounded up to what the server can do (S3: whole days); None removes the topic's rule.

        Raises:
            PayloadStoreError: The rule cannot be set.
        """
