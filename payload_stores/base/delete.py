"""Stores that can delete payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability
from payload_stores.errors import PayloadStoreError

__all__ = ["SupportsDelete", "SupportsDeleteMany"]


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


@runtime_checkable
class SupportsDeleteMany(Protocol, metaclass=Capability):
    """A store that deletes many payloads at a much lower cost than one by one, such as a thousand per request.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> references = [store.publish("alerts", b"payload") for _ in range(3)]
        >>> if isinstance(store, SupportsDeleteMany):
        ...     store.delete_many(references)
        {}
    """

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete payloads; those that are already gone count as deleted.

        Args:
            references: Any number of references.

        Returns:
            The errors of those that could not be deleted, by reference.

        Raises:
            UntrustedReferenceError: A reference is not this store's; nothing was deleted.
            PayloadStoreError: A request failed as a whole; some of the payloads may be deleted.
        """
