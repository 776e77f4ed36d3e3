"""Stores whose server deletes old payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from payload_stores.base.capability import Capability

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["SupportsExpiration"]


@runtime_checkable
class SupportsExpiration(Protocol, metaclass=Capability):
    """A store whose server deletes payloads at a configured age.

    Example:
        >>> from datetime import timedelta
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.set_expiration("alerts", timedelta(days=9))  # doctest: +SKIP
        >>> store.expiration("alerts")  # doctest: +SKIP
        datetime.timedelta(days=9)
    """

    def expiration(self, topic: str) -> timedelta | None:
        """The age at which the server deletes payloads of a topic; the lowest, if several rules apply.

        Returns:
            The age; None if they are kept.

        Raises:
            PayloadStoreError: The rules cannot be read.
        """

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        """Configure the server to delete payloads of a topic at an age; other rules do not change.

        Args:
            topic: The topic.
            age: The age, rounded up to the server's resolution (S3: whole days); None removes the topic's rule.

        Raises:
            PayloadStoreError: The rule cannot be set.
        """
