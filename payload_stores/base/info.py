"""Stores that stat a single payload."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability
from payload_stores.base.listing import PayloadInfo

__all__ = ["SupportsInfo"]


@runtime_checkable
class SupportsInfo(Protocol, metaclass=Capability):
    """A store that returns size and time of one payload, cheaper than by a listing.

    A store that can list by an id's first characters in one request does not need it.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.info(store.publish("alerts", b"payload")).size
        7
    """

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload, as in a listing.

        Raises:
            PayloadNotFoundError: The payload is gone.
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: The store did not answer.
        """
