"""Stores that read a part of a payload."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsRanges"]


@runtime_checkable
class SupportsRanges(Protocol, metaclass=Capability):
    """A store that returns a part of a payload without reading the rest.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.read_range(store.publish("alerts", b"0123456789"), 2, 3)
        b'234'
    """

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Fetch a part of a payload. In all else as :meth:`PayloadStore.download`.

        Args:
            reference: The reference.
            start: Where the part begins, in bytes.
            length: How many bytes; fewer are returned where the payload ends before, none at or behind its end.

        Raises:
            ValueError: One of the numbers is negative.
        """
