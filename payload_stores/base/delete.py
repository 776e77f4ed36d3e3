"""Stores that can delete payloads."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability

__all__ = ["SupportsDelete"]


@runtime_checkable
class SupportsDelete(Protocol, metaclass=Capability):
    """A store that can delete a payload.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> if isinstance(store, SupportsDelete):
        ...     store.delete(store.publish("alerts", b"payload"))
    """

    def delete(self, reference: str) -> None:
        """Delete a payload; succeeds if it is already gone.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: It could not be deleted.
        """
