"""The transfer of ``large-message`` that fetches a payload."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from payload_stores.base import PayloadStore, StoredRecord
from serde_chain.base import Buffer
from serde_chain.record import Context
from serde_chain.stages.large_message.stores import without_deadline
from serde_chain.telemetry import observer
from serde_chain.transfer import Transfer
from serde_chain.wire.reference_format import Reference

__all__ = ["Download", "Fetches"]


class Fetches(Protocol):
    """A deserializer, as its transfers use it; safe in any thread."""

    def key_of(self, reference: Reference) -> Hashable:
        """The key that downloads with equal results share."""

    def scheme_of(self, url: str) -> str | None:
        """The scheme of the store to which a reference belongs."""

    def store_of(self, url: str) -> PayloadStore:
        """The store to which a reference belongs."""

    def fetch(self, store: PayloadStore, reference: Reference, topic: str | None) -> Buffer | StoredRecord:
        """Download and verify a payload, or the whole record of which it is a part."""


class Download(Transfer[Buffer | StoredRecord]):
    """Fetches one payload.

    Args:
        stage: The deserializer.
        reference: The payload's reference.
        ctx: The record around it.
        restore: Puts the payload into the record, in the record's thread; gets the payload, the context and the URL.

    Attributes:
        reference: Its reference.
    """

    def __init__(
        self,
        stage: Fetches,
        reference: Reference,
        ctx: Context | None,
        restore: Callable[[Any, Context | None, str], Any],
    ) -> None:
        self._stage = stage
        self._restore = restore
        self.reference = reference
        self._ctx = ctx
        self._topic = None if ctx is None else ctx.topic
        # Includes the topic: another topic's payload may be at fault for one record and not for another.
        self.size, self.key = reference.size, (stage.key_of(reference), self._topic)
        self._observe = observer("fetch", ctx, reference.size, store=stage.scheme_of(reference.url))

    def run(self) -> Buffer | StoredRecord:
        """Download it within the stage's deadline. See :meth:`Transfer.run`."""
        return self._observe(self._stage.fetch, self._stage.store_of(self.reference.url), self.reference, self._topic)

    def work(self) -> Buffer | StoredRecord:
        """Download it. See :meth:`Transfer.work`."""
        store = without_deadline(self._stage.store_of(self.reference.url))
        return self._observe(self._stage.fetch, store, self.reference, self._topic)

    def resume(self, payload: Buffer | StoredRecord, /) -> Any:
        """Put the payload into the record. See :meth:`Transfer.resume`."""
        return self._restore(payload, self._ctx, self.reference.url)
