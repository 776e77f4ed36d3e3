"""Stores that store headers and keys too."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability
from payload_stores.base.context import PublishContext
from payload_stores.records import StoredRecord

__all__ = ["SupportsRecords"]


@runtime_checkable
class SupportsRecords(Protocol, metaclass=Capability):
    """A store for whole records: payload, headers and key.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("hop", {"hop.offload.url": "https://offload.example.org"})  # doctest: +SKIP
        >>> store.download_record(reference).key  # doctest: +SKIP
        b'M 51'
    """

    def publish_record(self, topic: str, record: StoredRecord, context: PublishContext | None = None) -> str:
        """Store a record. Otherwise like :meth:`PayloadStore.publish`."""

    def download_record(self, reference: str) -> StoredRecord:
        """Fetch a record. Otherwise like :meth:`PayloadStore.download`."""
