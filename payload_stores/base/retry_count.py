"""Stores that repeat requests."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsRetryCount"]


@runtime_checkable
class SupportsRetryCount(Protocol, metaclass=Capability):
    """A store that repeats requests, and counts them.

    Attributes:
        retries: How many requests it has repeated since it was opened.

    Example:
        >>> from payload_stores import open_store
        >>> from payload_stores.middleware import Retry
        >>> Retry(open_store("memory", {})).retries
        0
    """

    retries: int
