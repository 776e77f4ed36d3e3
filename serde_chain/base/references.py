"""Deserializers that follow references to payloads, or read them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from payload_stores.base import PayloadStore
from payload_stores.buffers import Buffer
from serde_chain.record import Context
from serde_chain.reference import Reference

__all__ = ["SupportsFetch", "SupportsReferences"]


@runtime_checkable
class SupportsFetch(Protocol):
    """A deserializer that fetches what placeholders stand for.

    Attributes:
        restores_records: Whether placeholders may stand for whole records, with headers, key and timestamp.
        timeout_ms: Deadline of one download in ms.
        worst_case_ms: Longest time in ms that one request may take by the store's own timeouts and retries.
        downloads_in_flight: Most downloads at a time, for those who fetch ahead; 0 where there are none.
        downloads_bytes: Most bytes that they fetch ahead.
    """

    @property
    def restores_records(self) -> bool: ...  # noqa: D102  described above, as the others are
    @property
    def timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def worst_case_ms(self) -> int: ...  # noqa: D102
    @property
    def downloads_in_flight(self) -> int: ...  # noqa: D102
    @property
    def downloads_bytes(self) -> int: ...  # noqa: D102

    def marker_headers(self) -> frozenset[str] | None:
        """Headers of which every placeholder has at least one; None if a placeholder may be marked in its bytes."""


@runtime_checkable
class SupportsReferences(Protocol):
    """A deserializer that reads placeholders without following them, for jobs that clean and check stores.

    Attributes:
        stores: The stores that its configuration names.
    """

    @property
    def stores(self) -> tuple[PayloadStore, ...]: ...  # noqa: D102  described above

    def reference_in(self, data: Buffer, ctx: Context | None) -> Reference | None:
        """What a record's field refers to, whether or not a reader may follow it.

        Args:
            data: What the stage before returned.
            ctx: The record around it; it is not changed.

        Returns:
            The reference; None for a payload that is in the record itself.

        Raises:
            DecodeError: The placeholder is malformed.
        """
