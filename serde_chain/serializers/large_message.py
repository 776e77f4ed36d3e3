"""``large-message``: payloads above a threshold go to a payload store, and a reference travels (KIP-1159)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from payload_stores.base import PayloadStore, PublishContext, StoredRecord, SupportsRecords
from payload_stores.errors import PayloadIntegrityError, PayloadTooLargeError, UntrustedReferenceError
from payload_stores.ids import ID_STRATEGIES, sha256_digest
from payload_stores.middleware import Deadline
from payload_stores.options import Option, choice, integer, listing, text
from payload_stores.registry import open_store, store_class
from serde_chain.base import Buffer, Data, Deserializer, Serializer, Stage
from serde_chain.errors import ConfigError, DecodeError, ForeignFormatError, MessageTooLargeError
from serde_chain.record import Context, header_pairs, put_record, remove_headers, require_headers, topic_of
from serde_chain.wire.reference_format import Reference, ReferenceFormat, find_format

__all__ = [
    "DOWNLOADS_BYTES",
    "DOWNLOADS_IN_FLIGHT",
    "KIP_THRESHOLD_BYTES",
    "THRESHOLD",
    "TIMEOUT",
    "LargeMessageDeserializer",
    "LargeMessageSerializer",
]

KIP_THRESHOLD_BYTES: Final = 1048576


def _store(value: object) -> Any:
    """A store by name, class or instance; which of these it is, the store registry finds out."""
    return text(value) if isinstance(value, str) else value


def _several_stores(value: object) -> tuple[Any, ...]:
    return listing(value) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else (value,)


STORE: Final = Option(
    "large.message.payload.store.class",
    _store,
    None,
    required=True,
    doc="Name a payload store: memory, local, s3, hop, or a class",
)
STORES: Final[Option[tuple[Any, ...]]] = Option(
    "large.message.payload.store.classes", _several_stores, (), doc="further payload stores to read from"
)
THRESHOLD: Final = Option(
    "large.message.threshold.bytes", integer(0), None, doc="larger payloads go to the store (default 1048576)"
)
ID: Final = Option("large.message.id", choice(*ID_STRATEGIES), "random", doc="ids: random, content or keyed")
FORMAT: Final = Option("large.message.format", text, "kip1159", doc="how references are written")
ACCEPT: Final[Option[tuple[str, ...]]] = Option(
    "large.message.accept", listing, ("kip1159",), doc="formats of references that are read; hop too with its store"
)
TIMEOUT: Final = Option(
    "large.message.store.timeout.ms", integer(1), 60_000, doc="deadline of one upload or download, retries included"
)
DOWNLOADS_IN_FLIGHT: Final = Option(
    "large.message.downloads.in.flight", integer(1), 8, doc="most downloads at a time, where records come in batches"
)
DOWNLOADS_BYTES: Final = Option(
    "large.message.downloads.max.bytes",
    integer(1),
    64 << 20,
    doc="most bytes that are downloaded ahead of their reader, where records come in batches",
)


class _LargeMessage(Stage):
    """What both directions share: stores behind a deadline."""

    moves_payloads = True
    _stores: dict[str, PayloadStore]
    """By the schemes that they read; one that reads several is there several times."""

    @classmethod
    def options_for(cls, config: Mapping[str, object]) -> tuple[Option[Any], ...]:
        """The stage's own keys, and those of the stores that the configuration names."""
        specs = [spec for spec in (STORE.read({STORE.name: "memory", **config}), *STORES.read(config)) if spec]
        classes = [type(spec) if isinstance(spec, PayloadStore) else store_class(spec) for spec in specs]
        return (*cls.options, *PayloadStore.options, *(option for found in classes for option in found.options))

    @property
    def timeout_ms(self) -> int:
        """Deadline of one upload or download, in ms."""
        return self._timeout_ms

    @property
    def worst_case_ms(self) -> int:
        """Longest time in ms that one request of a store may take by the store's own timeouts and retries."""
        return max((store.worst_case_ms() or 0 for store in self._stores.values()), default=0)

    def _open(self, config: Mapping[str, object], *specs: Any) -> None:
        self._timeout_ms = TIMEOUT.read(config)
        self._max_bytes = PayloadStore.MAX_PAYLOAD.read(config)
        self._stores = {}
        try:
            for spec in specs:
                store = open_store(spec, config)
                taken = next((scheme for scheme in store.schemes if scheme in self._stores), None)
                if taken is not None:
                    store.close()
                    raise ConfigError(f"two payload stores have the scheme {taken}", key=STORES.name)
                self._stores |= dict.fromkeys(store.schemes, Deadline(store, self._timeout_ms))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the stores."""
        for store in set(getattr(self, "_stores", {}).values()):
            store.close()


class LargeMessageSerializer(_LargeMessage, Serializer[Buffer]):
    """Publishes payloads above the threshold and puts a reference in their place.

    The last serializer of a chain, save for stages that declare their ``max_overhead``: the threshold is compared with
    the bytes that are about to be sent.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (STORE, THRESHOLD, ID, FORMAT, TIMEOUT)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload store."""
        super().configure(config, is_key)
        threshold = THRESHOLD.read(config)
        self._threshold = KIP_THRESHOLD_BYTES if threshold is None else threshold
        self._client_limit: Callable[[Context | None], int] | None = None
        self._content: str | None = None
        self._format = find_format(FORMAT.read(config))
        self._is_key = is_key
        # Compaction and partitioning compare keys byte by byte, so equal keys need equal references.
        strategy = "content" if is_key else ID.read(config)
        self._id_strategy = cast(Literal["random", "content", "keyed"], strategy)
        self._open(config, STORE.read(config))
        (self._store,) = set(self._stores.values())
        if self._format.whole_record:
            self._check_whole_record()

    def _check_whole_record(self) -> None:
        name = FORMAT.name
        problem = None
        if self._is_key:
            problem = ConfigError(
                f"{name} stores whole records, which is for values only",
                hint=f'Give the key chain another: {{"class": "large-message", "{name}": "kip1159"}}',
                key=name,
            )
        elif not isinstance(self._store, SupportsRecords):
            problem = ConfigError(
                f"{name} needs a store that keeps whole records, which {self._store.scheme} does not",
                hint=f"Set {STORE.name} = hop",
                key=name,
            )
        if problem is not None:
            self.close()
            raise problem

    @property
    def threshold_bytes(self) -> int:
        """Payloads of more bytes go to the store."""
        return self._threshold

    def limit_by(self, client_limit: Callable[[Context | None], int]) -> None:
        """Also offload what the client would refuse to send.

        Args:
            client_limit: Gives the largest field in bytes that the client takes for a record, its key and headers
                considered.
        """
        self._client_limit = client_limit

    @property
    def whole_records(self) -> bool:
        """Whether the format puts whole records into the store."""
        return self._format.whole_record

    def follow(self, stage: object) -> None:
        """Learn which stage comes before: formats may say in a header what it gives."""
        self._content = getattr(stage, "message_format", None)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        """Pass a small payload through; publish a large one."""
        if data is None:
            return None
        self._format.prepare(ctx, content=self._content, sender=self._store.sender)
        size = len(data)
        if size <= self._threshold and (self._client_limit is None or size <= self._client_limit(ctx)):
            return self._format.write_inline(data, ctx, is_key=self._is_key)
        topic = topic_of(ctx, "large-message")
        require_headers(ctx)  # before the upload, which would be orphaned
        if (reason := self._store.why_not()) is not None:
            return self._inline_after_all(data, ctx, reason)
        # Of records that lie in the store whole, nobody writes the digest down.
        unused = self._format.whole_record and self._id_strategy == "random"
        digest = None if unused else sha256_digest(data)
        context = PublishContext(self._id_strategy, key=getattr(ctx, "key", None), digest=digest, is_key=self._is_key)
        if isinstance(self._store, SupportsRecords) and self._format.whole_record:
            url = self._store.publish_record(topic, StoredRecord(data, header_pairs(ctx), context.key), context)
        else:
            url = self._store.publish(topic, data, context)
        return self._format.write_reference(Reference(url, size, digest), ctx, is_key=self._is_key)

    def _inline_after_all(self, data: Buffer, ctx: Context | None, reason: str) -> Buffer:
        """What to do with a large payload where nothing can be offloaded: the client sends it, or nobody does."""
        limit = None if self._client_limit is None else self._client_limit(ctx)
        if limit is not None and len(data) > limit:
            field = "key" if self._is_key else "value"
            raise MessageTooLargeError(
                f"the {field} has {len(data)} bytes, no more than {limit} can be sent, and none are offloaded: {reason}"
            )
        return self._format.write_inline(data, ctx, is_key=self._is_key)


class LargeMessageDeserializer(_LargeMessage, Deserializer[Buffer]):
    """Downloads what a reference stands for, and verifies size and digest.

    Follows references only to the stores that are configured, and there only below their own prefix.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (STORE, STORES, ACCEPT, TIMEOUT, DOWNLOADS_IN_FLIGHT, DOWNLOADS_BYTES)
    batch_form = "serde_chain.serializers.large_message_batch:LargeMessageBatch"

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload stores."""
        super().configure(config, is_key)
        self._is_key = is_key
        self._open(config, STORE.read(config), *STORES.read(config))
        accepted = ACCEPT.read(config)
        if config.get(ACCEPT.name) is None and any(
            isinstance(store, SupportsRecords) for store in self._stores.values()
        ):
            accepted = (*accepted, "hop")
        self._formats = [find_format(name) for name in accepted]
        self._content: str | None = None
        self._in_band = any(reference_format.in_band for reference_format in self._formats)

        self.downloads_in_flight = DOWNLOADS_IN_FLIGHT.read(config)
        self.downloads_bytes = DOWNLOADS_BYTES.read(config)

    def precede(self, stage: object) -> None:
        """Learn which stage comes next: what a header calls something else than that reads is not for it."""
        self._content = getattr(stage, "message_format", None) or "blob"

    @property
    def restores_records(self) -> bool:
        """Whether references may stand for whole records, with headers, key and timestamp."""
        return any(found.whole_record for found in self._formats)

    def marker_headers(self) -> frozenset[str] | None:
        """Headers of which every placeholder has at least one; None if a placeholder may be marked in its bytes."""
        if self._in_band:
            return None
        return frozenset(name for found in self._formats for name in found.headers(is_key=self._is_key))

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
                if isinstance(found, Reference) and not self._fetches(found):
                    return None
                return reference_format, found
        return None

    def _fetches(self, reference: Reference) -> bool:
        """Whether references of the store are to be followed; one that is in no store's hands is an error later."""
        store = self._stores.get(reference.url.partition(":")[0])
        return store is None or store.fetches

    def download(self, reference: Reference) -> Buffer | StoredRecord:
        """Download a payload, or the whole record that it belongs to, and verify it.

        Raises:
            PayloadStoreError: It is gone, out of reach, or not what was published.
        """
        store = self._store_of(reference.url)
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
