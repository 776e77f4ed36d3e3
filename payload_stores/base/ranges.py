"""Stores that read parts of payloads."""

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
        """Fetch a part of a payload. Otherwise like :meth:`PayloadStore.download`.

        Args:
            reference: The reference.
            start: Start of the part, in bytes.
            length: Number of bytes. Fewer are returned if the payload ends earlier, none at or after its end.

        Raises:
            ValueError: A number is negative.
        """
