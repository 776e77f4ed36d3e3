"""Stores that stat a single payload."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability
from payload_stores.base.listing import PayloadInfo

__all__ = ["SupportsInfo"]


@runtime_checkable
class SupportsInfo(Protocol, metaclass=Capability):
    """A store that returns size and time of one payload, cheaper than by a listing.

    Servers of objects charge a listing of one id like one of a thousand, and some twelve times as much as a question
    about one object.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.info(store.publish("alerts", b"payload")).size
        7
    """

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload.

        The time is that of a listing, or its whole second: an HTTP date (RFC 9110, section 5.6.7) has no fractions. So
        it is never later than in a listing, and less than a second earlier.

        Raises:
            PayloadNotFoundError: The payload is gone.
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: The store did not answer.
        """
