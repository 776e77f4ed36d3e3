"""Stores that write within a client's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from payload_stores.base.capability import Capability
from payload_stores.base.store import PayloadStore
from payload_stores.buffers import Buffer

__all__ = ["RecordWriter", "SupportsTransactions"]


class RecordWriter(Protocol):
    """A client's producer, for a store that writes within its transaction.

    Attributes:
        max_record_bytes: Largest record it sends, including key, headers and framing.

    Example:
        >>> writer.write("alerts.payloads", 0, [(b"id/0", b"first", ()), (b"id/1", b"second", ())])  # doctest: +SKIP
        (17, 18)
    """

    max_record_bytes: int

    def write(
        self,
        topic: str,
        partition: int,
        records: Iterable[tuple[bytes, Buffer | None, tuple[tuple[str, bytes], ...]]],
    ) -> tuple[int, ...]:
        """Send records to one partition, in order, and wait until they are written.

        Args:
            topic: The topic.
            partition: The partition.
            records: Key, value and headers of each; None as the value makes a tombstone.

        Returns:
            The records' offsets, in order.

        Raises:
            PayloadStoreError: A record was not written.
        """


@runtime_checkable
class SupportsTransactions(Protocol, metaclass=Capability):
    """A store that can make payloads visible together with the record referring to them.

    Attributes:
        joins_transactions: Whether it writes to the client's own cluster, as transactions require.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("kafka", {"bootstrap.servers": "localhost:9092"})  # doctest: +SKIP
        >>> store.within(writer).publish("alerts", b"payload")  # doctest: +SKIP
        'kafka://5L6g3nShT-eMCtK--X86sw/alerts.payloads/0/17-17/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a'
    """

    joins_transactions: bool

    def within(self, writer: RecordWriter) -> PayloadStore:
        """The same store, writing through a client's transactional producer; everything else is shared.

        Payloads published for an aborted transaction never become visible and need no deletion.

        Args:
            writer: The client's producer.
        """
