"""Stores that count their retries."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsRetryCount"]


@runtime_checkable
class SupportsRetryCount(Protocol, metaclass=Capability):
    """A store that retries requests and counts the retries.

    Attributes:
        retries: Number of retried requests since the store was opened.

    Example:
        >>> from payload_stores import open_store
        >>> from payload_stores.middleware import Retry
        >>> Retry(open_store("memory", {})).retries
        0
    """

    retries: int
