"""Stores that look at one payload without reading it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability
from payload_stores.base.listing import PayloadInfo

__all__ = ["SupportsInfo"]


@runtime_checkable
class SupportsInfo(Protocol, metaclass=Capability):
    """A store that looks at one payload without reading it, for less than a listing costs.

    Where a listing by the first characters of an id is one request, a store does not need it.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.info(store.publish("alerts", b"payload")).size
        7
    """

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload, as a listing has them.

        Raises:
            PayloadNotFoundError: It is gone.
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: The store does not say.
        """
