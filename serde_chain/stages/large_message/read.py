"""``large-message``, reading: payloads come back from where references say they are (KIP-1159)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from payload_stores.base import PayloadStore, StoredRecord, SupportsRecords
from payload_stores.errors import PayloadIntegrityError, PayloadTooLargeError, UntrustedReferenceError
from payload_stores.ids import sha256_digest
from payload_stores.middleware import Deadline
from serde_chain.base import Buffer, Data, Deserializer
from serde_chain.catalogue import find_format
from serde_chain.errors import DecodeError, ForeignFormatError
from serde_chain.record import Context, put_record, remove_headers
from serde_chain.stages.large_message import codecs as offload_codecs
from serde_chain.stages.large_message.options import (
    ACCEPT,
    DOWNLOADS_BYTES,
    DOWNLOADS_IN_FLIGHT,
    REFERENCE_TOPICS,
    STORE,
    STORES,
    TIMEOUT,
    LargeMessage,
    ReferenceTopics,
)
from serde_chain.wire.reference_format import Reference, ReferenceFormat

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

__all__ = ["LargeMessageDeserializer"]


class LargeMessageDeserializer(LargeMessage, Deserializer[Buffer]):
    """Downloads what a reference stands for, and verifies size and digest.

    Follows references only to the stores that are configured, and there only below their own prefix.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (STORE, STORES, ACCEPT, REFERENCE_TOPICS, TIMEOUT, DOWNLOADS_IN_FLIGHT, DOWNLOADS_BYTES)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload stores."""
        super().configure(config, is_key)
        self._is_key = is_key
        self._open(config, STORE.read(config), *STORES.read(config))
        try:
            self._topics = ReferenceTopics(REFERENCE_TOPICS.read(config), self._stores.values())
        except BaseException:
            self.close()
            raise
        accepted = ACCEPT.read(config)
        if config.get(ACCEPT.name) is None and any(
            isinstance(store, SupportsRecords) for store in self._stores.values()
        ):
            accepted = (*accepted, "hop")
        # What is marked in the data claims all of it, so it comes last.
        self._formats = sorted((find_format(name) for name in accepted), key=lambda found: found.in_band)
        self._in_band = any(reference_format.in_band for reference_format in self._formats)

        self.downloads_in_flight = DOWNLOADS_IN_FLIGHT.read(config)
        self.downloads_bytes = DOWNLOADS_BYTES.read(config)

    def bind(self, before: object | None, after: object | None) -> Self:
        """Learn which stage comes next: what a header calls something else than that reads is not for it.

        Such headers are about values.
        """
        if after is None or self._is_key:
            return self._with_content(None)
        return self._with_content((after.message_format if isinstance(after, Deserializer) else None) or "blob")

    @property
    def restores_records(self) -> bool:
        """Whether references may stand for whole records, with headers, key and timestamp."""
        return any(found.whole_record for found in self._formats)

    def marker_headers(self) -> frozenset[str] | None:
        """Headers of which every placeholder has at least one; None if a placeholder may be marked in its bytes."""
        if self._in_band:
            return None
        return frozenset(name for found in self._formats for name in found.headers(is_key=self._is_key))

    def batch_form(self) -> BatchForm:
        """The form of whole columns."""
        from serde_chain.stages.large_message.batch import LargeMessageBatch

        return LargeMessageBatch(self)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        """Pass an inline payload through; fetch a large one."""
        if not (self._in_band or (ctx is not None and ctx.headers)):
            return data  # by far the most records: nothing marks them
        return self.read(data, ctx, self.download)

    def read(
        self, data: Buffer | None, ctx: Context | None, download: Callable[[Reference], Buffer | StoredRecord]
    ) -> Buffer | None:
        """Do what calling the stage does, with payloads that come from elsewhere.

        Of a whole record, headers, key and timestamp are put into the context.

        Args:
            data: What came from the broker.
            ctx: The record around it.
            download: Gives the payload of a reference, as :meth:`download` does, perhaps fetched ahead.
        """
        found = None if data is None else self._locate(data, ctx)
        if found is None:
            return self._checked(data, ctx)
        reference_format, what = found
        payload = download(what) if isinstance(what, Reference) else what
        if isinstance(payload, StoredRecord):
            put_record(ctx, payload.headers, payload.key, payload.timestamp)
            return self._checked(payload.value, ctx)
        remove_headers(ctx, reference_format.headers(is_key=self._is_key))
        return payload

    def _checked(self, data: Buffer | None, ctx: Context | None) -> Buffer | None:
        """The data, unless a header says that the stages to come do not read it."""
        if self._content is not None and data is not None:
            for found in self._formats:
                content = found.content(ctx)
                if content is not None and content != self._content:
                    error = ForeignFormatError(f"the record is of the format {content[:50]!r}, not {self._content}")
                    error.data = data
                    raise error
        return data

    def reference(self, data: Buffer, ctx: Context | None) -> Reference | None:
        """What a placeholder refers to; None if the payload is in the record.

        Raises:
            DecodeError: The reference is malformed.
        """
        found = self._locate(data, ctx)
        return found[1] if found is not None and isinstance(found[1], Reference) else None

    def _locate(self, data: Buffer, ctx: Context | None) -> tuple[ReferenceFormat, Reference | Buffer] | None:
        """The format whose mark a record bears, and what is in it."""
        if not (self._in_band or (ctx is not None and ctx.headers)):
            return None
        for reference_format in self._formats:
            try:
                found = reference_format.read(data, ctx, is_key=self._is_key)
            except ValueError as error:
                raise DecodeError(f"the large-message reference is malformed: {error}") from error
            if found is not None:
                if isinstance(found, Reference):
                    if not self._fetches(found):
                        return None
                    self._topics.check(found, ctx, self._store_of)
                return reference_format, found
        return None

    def _fetches(self, reference: Reference) -> bool:
        """Whether references of the store are to be followed; one that is in no store's hands is an error later."""
        store = self._stores.get(reference.url.partition(":")[0])
        return store is None or store.fetches

    def download(self, reference: Reference, *, deadline: bool = True) -> Buffer | StoredRecord:
        """Download a payload, or the whole record that it belongs to, and verify it.

        Args:
            reference: What a placeholder refers to.
            deadline: Whether to keep the deadline here; otherwise what waits for it has one.

        Raises:
            PayloadStoreError: It is gone, out of reach, or not what was published.
        """
        store = self._store_of(reference.url)
        if not deadline and isinstance(store, Deadline):
            store = store.store
        context = {"store": store.scheme, "reference": reference.url}
        if reference.size is not None and reference.size > self._max_bytes:
            raise PayloadTooLargeError(
                f"the payload has {reference.size} bytes, more than the {self._max_bytes} that may be read",
                hint=f"Raise {PayloadStore.MAX_PAYLOAD.name} if this is expected",
                **context,
            )
        if reference.whole_record:
            if not isinstance(store, SupportsRecords):
                raise UntrustedReferenceError("the reference is not followed: its store keeps no records", **context)
            return store.download_record(reference.url)
        payload = store.download(reference.url)
        if reference.size is not None and len(payload) != reference.size:
            raise PayloadIntegrityError(
                f"the payload has {len(payload)} bytes, but {reference.size} were published", **context
            )
        if reference.digest is not None and sha256_digest(payload) != reference.digest:
            raise PayloadIntegrityError("the payload's digest is not the one that was published", **context)
        if reference.compression is not None:
            return offload_codecs.decompress(reference.compression, payload, self._max_bytes)
        return payload

    def _store_of(self, url: str) -> PayloadStore:
        try:
            scheme = urlsplit(url).scheme
        except ValueError:
            scheme = ""
        store = self._stores.get(scheme)
        if store is None:
            raise UntrustedReferenceError(
                f"the reference is not followed: no store for the scheme {scheme[:20]!r} is configured, "
                f"only for {', '.join(self._stores)}",
                hint=f"If it is legitimate, add its store to {STORES.name}",
                reference=url[:500],
            )
        return store
