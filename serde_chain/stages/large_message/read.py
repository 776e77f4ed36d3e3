"""``large-message``, reading: fetches payloads from their stores (KIP-1159)."""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self, cast

from payload_stores.base import (
    PayloadStore,
    StoredRecord,
    SupportsOptOut,
    SupportsRanges,
    SupportsRecords,
    SupportsStreaming,
)
from payload_stores.errors import (
    PayloadIntegrityError,
    PayloadStoreError,
    PayloadTooLargeError,
    UntrustedReferenceError,
)
from payload_stores.foreign_errors import translated
from payload_stores.probes import is_refused, see_others
from serde_chain.base import Buffer, Data, Deserializer, RemovedHeaders, untouched
from serde_chain.catalogue import find_format
from serde_chain.errors import ConfigError, DecodeError, ForeignFormatError
from serde_chain.handles import InlineHandle, PayloadHandle
from serde_chain.record import Context, put_record
from serde_chain.stages.large_message import offload_codecs
from serde_chain.stages.large_message.lazy import LazyHandle
from serde_chain.stages.large_message.options import (
    ACCEPT,
    DOWNLOADS_BYTES,
    DOWNLOADS_IN_FLIGHT,
    FETCH,
    LAZY,
    OF_READERS,
    REFERENCE_TOPICS,
    STORE,
    STORES,
    ReferenceTopics,
    reference_topic,
    without_record,
)
from serde_chain.stages.large_message.routes import Route, routes_of
from serde_chain.stages.large_message.stores import LargeMessage, without_deadline
from serde_chain.telemetry import observer
from serde_chain.transfer import Transfer, finish
from serde_chain.wire.reference_format import Reference, ReferenceFormat

if TYPE_CHECKING:
    from serde_chain.arrow import BatchForm

_REFERENCE: Final = "the large-message reference"


class LargeMessageDeserializer(LargeMessage, Deserializer[Buffer | PayloadHandle]):
    """Downloads the payload of a reference and verifies its size and digest.

    Follows references only to configured stores, and there only below the store's own prefix.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = OF_READERS
    plain: Callable[[Any], Any] | None = None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload stores."""
        super().configure(config, is_key)
        self._is_key = is_key
        routes = routes_of(config)
        self._begin_stores(config, routes)
        try:
            self._open(config, routes)
            self._topics = ReferenceTopics(REFERENCE_TOPICS.read(config), self._stores.all)
        except BaseException:
            self.close()
            raise
        # Computed once: per record, this check alone would cost more than the rest of the stage.
        self._switched = [store for store in self._stores.all if isinstance(store, SupportsOptOut)]
        accepted = ACCEPT.read(config)
        if config.get(ACCEPT.name) is None and any(isinstance(store, SupportsRecords) for store in self._stores.all):
            accepted = (*accepted, "hop")
        # Looking at the data costs more than looking for a header, and a format that claims all data comes last.
        self._formats = sorted(
            (find_format(name) for name in accepted), key=lambda each: (each.in_band, each.claims_all)
        )
        self._in_band = any(reference_format.in_band for reference_format in self._formats)
        # The last readable payload of each topic, shared by the stage's copies in several chains.
        self._fetched: dict[str, str] = {}
        self._needs_headers = not all(reference_format.in_band for reference_format in self._formats)
        # Without headers, only the bytes can carry a mark.
        self.gives_handles = FETCH.read(config) == LAZY and not is_key
        self.plain = None if self._in_band else InlineHandle if self.gives_handles else untouched
        self.downloads_in_flight = DOWNLOADS_IN_FLIGHT.read(config)
        self.downloads_bytes = DOWNLOADS_BYTES.read(config)

    def _open(self, config: Mapping[str, object], routes: Iterable[Route]) -> None:
        """Open the stores to read from: those of the configuration and of its routes."""
        for spec in (STORE.read(config), *STORES.read(config)):
            self._stores.open(spec, config)
        for route in routes:
            with route.explained():
                specs = (STORE.read(route.config), *STORES.read(route.own))
                for spec in specs:
                    self._stores.open(spec, route.config)

    def bind(self, before: object | None, after: object | None) -> Self:
        """Note the next stage: records whose header names another format are not for it.

        Such headers describe values.

        Raises:
            ConfigError: Fetching is lazy, and the next stage requires bytes.
        """
        if self.gives_handles and after is not None and not (isinstance(after, Deserializer) and after.takes_handles):
            raise ConfigError(
                f"{FETCH.name} = {LAZY} requires large-message to be the last deserializer: the next stage works on "
                "the payloads' bytes and would fetch them all",
                hint=f"Leave {FETCH.name} at eager, or end the chain here and process the handles yourself",
                key=FETCH.name,
            )
        if after is None or self._is_key:
            return self._with_content(None)
        return self._with_content((after.message_format if isinstance(after, Deserializer) else None) or "blob")

    @property
    def restores_records(self) -> bool:
        """Whether references may stand for whole records, with headers, key and timestamp."""
        return any(each.whole_record for each in self._formats)

    def marker_headers(self) -> frozenset[str] | None:
        """Headers of which every placeholder has at least one; None if the mark may be in the bytes."""
        if self._in_band:
            return None
        return frozenset(name for each in self._formats for name in each.headers(is_key=self._is_key))

    @property
    def removed_headers(self) -> tuple[RemovedHeaders, ...] | None:
        """The headers of the formats; None if stored records bring headers, or if some references are not followed.

        See :class:`~serde_chain.base.DeclaresHeaders`.
        """
        if self.restores_records or not all(store.fetches for store in self._switched):
            return None
        removed: list[RemovedHeaders] = []
        marks: frozenset[str] = frozenset()
        for each in self._formats:
            marker = each.marker(is_key=self._is_key)
            if marker is None and not each.claims_all:
                return None
            removed.append(RemovedHeaders(marker, frozenset(each.headers(is_key=self._is_key)), marks))
            if marker is None:
                break  # it reads all other records
            marks |= {marker}
        return tuple(removed)

    def batch_form(self) -> BatchForm:
        """The form for whole columns; it always fetches the payloads."""
        from serde_chain.stages.large_message.batch import LargeMessageBatch

        # Columns hold bytes.
        stage = self._with(gives_handles=False, plain=None if self._in_band else untouched)
        return LargeMessageBatch(stage, stage.begin)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | PayloadHandle | None:
        """Pass an inline payload through and fetch a large one, or return handles for both."""
        return None if data is None else cast("Buffer | PayloadHandle", finish(self.begin(data, ctx)))

    def begin(self, data: Buffer, ctx: Context | None, /) -> Any:
        """Pass an inline payload through; return a transfer for a placeholder.

        Returns:
            The payload, or a :class:`~serde_chain.transfer.Transfer` that resumes with it. For a whole record, it
            then puts headers, key and timestamp into the context.

        Raises:
            DecodeError: The context is missing, or the placeholder is malformed.
        """
        if ctx is None and self._needs_headers:
            raise without_record(DecodeError)
        if not (self._in_band or (ctx is not None and ctx.headers)):
            return self._given(data)  # by far the most records are unmarked
        located = self._locate(data, ctx)
        if located is None:
            return self._given(self._checked(data, ctx))
        reference_format, content = located
        if not isinstance(content, Reference):
            return self.restore(reference_format, data, content, ctx)
        download = _Download(self, content, ctx, partial(self.restore, reference_format, data))
        # The headers and key of a whole record are in the store too, and are needed now.
        if not self.gives_handles or content.whole_record or reference_format.rewrites:
            return download
        with _malformed(_REFERENCE):
            reference_format.restore_headers(data, ctx, is_key=self._is_key)
        return LazyHandle(self.open, self.scheme_of, download.run, content, ctx)

    def check(self, reference: Reference, ctx: Context | None) -> bool:
        """Refuse a reference before any request. See :class:`~serde_chain.base.SupportsDownloads`."""
        # A single store would refuse it only when it is asked.
        store = self._stores.owner(reference.url)
        if store is None:
            raise self._untrusted(reference.url)
        if not self._fetches(reference):
            return False
        self._topics.check(reference, ctx, self.store_of)
        self._check(store, reference)
        return True

    def download(self, reference: Reference, ctx: Context | None) -> Transfer[Any]:
        """Fetch a payload for another stage. See :class:`~serde_chain.base.SupportsDownloads`."""
        return _Download(self, reference, ctx, lambda payload, _ctx, _url: payload)

    def handle(self, reference: Reference, ctx: Context | None) -> PayloadHandle:
        """A handle for another stage. See :class:`~serde_chain.base.SupportsDownloads`."""
        return LazyHandle(self.open, self.scheme_of, self.download(reference, ctx).run, reference, ctx)

    def _given(self, data: Buffer, reference: str | None = None) -> Buffer | PayloadHandle:
        return InlineHandle(data, reference) if self.gives_handles else data

    def restore(
        self,
        reference_format: ReferenceFormat,
        placeholder: Buffer,
        payload: Buffer | StoredRecord,
        ctx: Context | None,
        reference: str | None = None,
    ) -> Buffer | PayloadHandle:
        """Replace a placeholder by its payload; for the stage's own transfer.

        Args:
            reference_format: The format of the placeholder.
            placeholder: The placeholder.
            payload: The payload, or the whole record around it.
            ctx: The record around it.
            reference: Its reference.
        """
        if isinstance(payload, StoredRecord):
            put_record(ctx, payload.headers, payload.key, payload.timestamp)
            return self._given(self._checked(payload.value, ctx), reference)
        with _malformed("the large message"):
            if reference is not None and reference_format.rewrites:
                payload = reference_format.restore(placeholder, payload, ctx)
            reference_format.restore_headers(placeholder, ctx, is_key=self._is_key)
        return self._given(payload, reference)

    def _checked(self, data: Buffer, ctx: Context | None) -> Buffer:
        """The data, unless a header names a format that the later stages cannot read."""
        if self._content is not None:
            for reference_format in self._formats:
                content = reference_format.content(ctx)
                if content is not None and content != self._content:
                    raise ForeignFormatError(
                        f"the record has the format {content[:50]!r}, not {self._content}"
                    ).with_data(self._given(data))
        return data

    @property
    def stores(self) -> tuple[PayloadStore, ...]:
        """The stores to read from, behind their deadlines. See :class:`~serde_chain.base.SupportsReferences`."""
        return self._stores.all

    def references_in(self, data: Buffer, ctx: Context | None) -> tuple[Reference, ...]:
        """The reference in a placeholder. See :class:`~serde_chain.base.SupportsReferences`."""
        for reference_format in self._formats:
            content = self._read(reference_format, data, ctx)
            if content is not None:
                return self._named(reference_format, content, data, ctx)
        return ()

    def _named(
        self, reference_format: ReferenceFormat, content: Reference | Buffer, data: Buffer, ctx: Context | None
    ) -> tuple[Reference, ...]:
        if isinstance(content, Reference):
            return (content,)
        with _malformed(_REFERENCE):
            beside = reference_format.beside(data, ctx, is_key=self._is_key)
        return () if beside is None else (beside,)

    def _read(self, reference_format: ReferenceFormat, data: Buffer, ctx: Context | None) -> Reference | Buffer | None:
        with _malformed(_REFERENCE):
            return reference_format.read(data, ctx, is_key=self._is_key)

    def _locate(self, data: Buffer, ctx: Context | None) -> tuple[ReferenceFormat, Reference | Buffer] | None:
        """The format whose mark a record carries, and its content."""
        for reference_format in self._formats:
            content = self._read(reference_format, data, ctx)
            if isinstance(content, Reference):
                if not self._fetches(content):
                    return None
                self._topics.check(content, ctx, self.store_of)
            if content is not None:
                return reference_format, content
        return None

    def _fetches(self, reference: Reference) -> bool:
        """Whether the reference's store is switched on for reading; a reference of no store fails later."""
        return all(store.fetches for store in self._switched if store is self._owner(reference.url))

    def fetch(self, store: PayloadStore, reference: Reference, topic: str | None) -> Buffer | StoredRecord:
        """Download and verify a payload or whole record, in any thread.

        Args:
            store: The reference's store, with or without its deadline.
            reference: The reference of a placeholder.
            topic: Topic of the record, if known. A refusal is the record's fault if other payloads of its topic are
                readable.

        Raises:
            PayloadStoreError: The payload is gone, unreachable, or not the published one.
        """
        self._check(store, reference)
        try:
            payload = self._fetch(store, reference, topic)
        except PayloadStoreError as error:
            if not (error.about_record or error.transient or error.is_translated) and topic is not None:
                error.about_record = self._is_alone(error, store, reference.url, topic)
            raise
        if topic is not None:
            self._fetched[topic] = reference.url
        return payload

    def _is_alone(self, error: PayloadStoreError, store: PayloadStore, url: str, topic: str) -> bool:
        """Whether a refused payload is named by this record only: any writer can make such a record."""
        if error.about_topic:
            return reference_topic(store, url) != topic
        known = self._fetched.get(topic)
        others = () if known is None or not store.owns(known) else (known,)
        if not (see_others(store, topic, url, others) and is_refused(store, url)):
            return False
        error.hint = "Other payloads of the topic are readable, so only this one is affected"
        return True

    def _fetch(self, store: PayloadStore, reference: Reference, topic: str | None) -> Buffer | StoredRecord:
        if reference.whole_record:
            if not isinstance(store, SupportsRecords):
                raise UntrustedReferenceError(
                    "the reference is not followed: its store does not store records",
                    store=store.scheme,
                    reference=reference.url,
                )
            return store.download_record(reference.url)
        try:
            payload = store.download_verified(reference.url, size=reference.size, digest=reference.digest)
        except UntrustedReferenceError:
            if (other := self._other_owner(store, reference.url)) is None:
                raise
            return self.fetch(other, reference, topic)
        with translated(store.scheme, reference=reference.url):
            memoryview(payload).release()  # TypeError for a store that returns no bytes
        if reference.compression is not None:
            return offload_codecs.decompress(reference.compression, payload, self._max_bytes)
        return payload

    def open(self, reference: Reference) -> BinaryIO:
        """Open a payload; for the stage's own handles, which verify it.

        Raises:
            PayloadStoreError: As in :meth:`fetch`.
        """
        store = self.store_of(reference.url)
        self._check(store, reference)
        if isinstance(store, SupportsStreaming):
            try:
                return store.open(reference.url)
            except UntrustedReferenceError:
                if self._other_owner(store, reference.url) is None:
                    raise
                return self.open(reference)
        if isinstance(store, SupportsRanges) and reference.size is not None:
            return _open_ranges(store, reference.url, reference.size)
        return io.BytesIO(store.download_verified(reference.url, size=reference.size))

    def _other_owner(self, store: PayloadStore, url: str) -> PayloadStore | None:
        """Another owner of a refused reference: a store learns which Kafka cluster it belongs to only by asking."""
        owner = self._owner(url)
        return None if owner is None or without_deadline(owner) is without_deadline(store) else owner

    def _check(self, store: PayloadStore, reference: Reference) -> None:
        """Refuse a disallowed download before the store is asked for it."""
        if self.is_closed:
            raise PayloadStoreError(
                "the payload cannot be fetched any more: its reader is closed",
                hint="Read payloads before you close the consumer or chain that their handles come from",
                store=store.scheme,
                reference=reference.url,
            )
        if reference.size is not None and reference.size > self._max_bytes:
            raise PayloadTooLargeError(
                f"the payload has {reference.size} bytes, more than the allowed {self._max_bytes}",
                hint=f"Raise {PayloadStore.MAX_PAYLOAD.name} if this is expected",
                store=store.scheme,
                reference=reference.url,
            )

    def key_of(self, reference: Reference) -> Hashable:
        """The identity of a download's result: stages with other stores, prefixes or limits have other keys."""
        return id(self._stores), reference

    def store_of(self, url: str) -> PayloadStore:
        """The store of a reference; raises UntrustedReferenceError if it has none."""
        store = self._owner(url)
        if store is None:
            raise self._untrusted(url)
        return store

    def _untrusted(self, url: str) -> UntrustedReferenceError:
        return UntrustedReferenceError(
            "the reference is not followed: it belongs to none of the configured payload stores "
            f"({', '.join(store.scheme for store in self._stores.all)})",
            hint="If it is legitimate, correct the store's address in the configuration, add its store to "
            f"{STORES.name}, or list its prefix in {PayloadStore.TRUSTED.name}",
            reference=url[:500],
        )

    def scheme_of(self, url: str) -> str | None:
        """The scheme of a reference's store; None if it has none."""
        owner = self._owner(url)
        return None if owner is None else owner.scheme

    def _owner(self, url: str) -> PayloadStore | None:
        """The store of a reference, by its prefix; a single store raises its own refusal."""
        stores = self._stores
        return stores.all[0] if len(stores.all) == 1 else stores.owner(url)


class _Download(Transfer[Buffer | StoredRecord]):
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
        stage: LargeMessageDeserializer,
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


@contextmanager
def _malformed(what: str) -> Iterator[None]:
    """Raise a format's errors as the stage's."""
    try:
        yield
    except ValueError as error:
        raise DecodeError(f"{what} is malformed: {error}") from error


def _open_ranges(store: SupportsRanges, url: str, size: int) -> BinaryIO:
    """Open a payload of a store with ranges but without files."""
    from payload_stores.multipart import open_ranges  # imports thread pools, which few readers need

    # Only a range behind the published end shows that the payload is larger.
    is_compared = False

    def fill(view: memoryview, start: int) -> None:
        nonlocal is_compared
        is_compared = is_compared or store.read_range(url, size, 1) == b""
        part = store.read_range(url, start, len(view)) if is_compared else b""
        if len(part) != len(view):
            raise PayloadIntegrityError(
                f"the payload does not have the {size} bytes that were published", reference=url
            )
        view[:] = part

    return open_ranges(size, fill)
