"""Deserializers that follow references to payloads, or only read the references."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from payload_stores.base import PayloadStore
from payload_stores.buffers import Buffer
from serde_chain.handles import PayloadHandle
from serde_chain.record import Context
from serde_chain.reference import Reference
from serde_chain.transfer import Transfer

__all__ = ["SupportsDownloads", "SupportsFetch", "SupportsReferences"]


@runtime_checkable
class SupportsFetch(Protocol):
    """A deserializer that fetches the payloads of placeholders.

    Attributes:
        restores_records: Whether a placeholder may replace a whole record, with headers, key and timestamp.
        timeout_ms: Deadline of one download, in ms.
        worst_case_ms: Longest duration in ms of one request, by the store's own timeouts and retries.
        downloads_in_flight: Most downloads at a time, for readers that fetch ahead; 0 if there are none.
        downloads_bytes: Most bytes fetched ahead.
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
        """Headers at least one of which every placeholder has; None if placeholders may be marked in their bytes."""


@runtime_checkable
class SupportsDownloads(SupportsFetch, Protocol):
    """A deserializer that fetches payloads for a stage that has found their references itself."""

    def check(self, reference: Reference, ctx: Context | None) -> bool:
        """Refuse a reference that may not be followed, before any request.

        Args:
            reference: The reference.
            ctx: The record around it.

        Returns:
            Whether it is followed; False if its store is switched off for reading.

        Raises:
            UntrustedReferenceError: No configured store owns it, or the record may not refer to it.
            PayloadTooLargeError: The payload is larger than allowed.
        """

    def download(self, reference: Reference, ctx: Context | None) -> Transfer[Buffer]:
        """Fetch and verify a payload; the transfer resumes with it."""

    def handle(self, reference: Reference, ctx: Context | None) -> PayloadHandle:
        """A handle that fetches a payload on request."""


@runtime_checkable
class SupportsReferences(Protocol):
    """A deserializer that reads placeholders without following them, for jobs that clean or check stores.

    Attributes:
        stores: The configured stores.
    """

    @property
    def stores(self) -> tuple[PayloadStore, ...]: ...  # noqa: D102  described above

    def references_in(self, data: Any, ctx: Context | None) -> tuple[Reference, ...]:
        """The references in a record's field, whether or not a reader may follow them.

        Args:
            data: Output of the previous stage.
            ctx: The record around it; not changed.

        Returns:
            The references: one for a placeholder, any number for an object; none for an inline payload.

        Raises:
            DecodeError: A reference is malformed.
        """
