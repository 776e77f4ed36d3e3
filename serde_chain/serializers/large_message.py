"""``large-message``: payloads above a threshold go to a payload store, and a reference travels (KIP-1159)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Self, cast
from urllib.parse import urlsplit

from payload_stores.base import PayloadStore, PublishContext, StoredRecord, SupportsRecords
from payload_stores.errors import PayloadIntegrityError, PayloadTooLargeError, UntrustedReferenceError
from payload_stores.ids import ID_STRATEGIES, IdStrategy, sha256_digest
from payload_stores.middleware import Deadline
from serde_chain.base import Buffer, Data, Deserializer, Serializer
from serde_chain.errors import ConfigError, DecodeError, ForeignFormatError, MessageTooLargeError
from serde_chain.record import Context, header_pairs, put_record, remove_headers, require_headers, topic_of
from serde_chain.serializers import offload_codecs
from serde_chain.serializers.large_message_parts import (
    ACCEPT,
    AUTO,
    COMPRESSION,
    DOWNLOADS_BYTES,
    DOWNLOADS_IN_FLIGHT,
    FORMAT,
    ID,
    KIP_THRESHOLD_BYTES,
    REFERENCE_TOPICS,
    STORE,
    STORES,
    THRESHOLD,
    TIMEOUT,
    TTL,
    LargeMessage,
    ReferenceTopics,
    format_to_write,
    own_method,
)
from serde_chain.wire.reference_format import Reference, ReferenceFormat, find_format

__all__ = [
    "ACCEPT",
    "DOWNLOADS_BYTES",
    "DOWNLOADS_IN_FLIGHT",
    "KIP_THRESHOLD_BYTES",
    "THRESHOLD",
    "TIMEOUT",
    "TTL",
    "LargeMessageDeserializer",
    "LargeMessageSerializer",
]


class LargeMessageSerializer(LargeMessage, Serializer[Buffer]):
    """Publishes payloads above the threshold and puts a reference in their place.

    The last serializer of a chain, save for stages that declare their ``max_overhead``: the threshold is compared with
    the bytes that are about to be sent.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (STORE, THRESHOLD, TTL, ID, FORMAT, COMPRESSION, TIMEOUT)

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload store."""
        super().configure(config, is_key)
        threshold = THRESHOLD.read(config)
        self._is_set = isinstance(threshold, int)
        self._threshold = threshold if isinstance(threshold, int) else KIP_THRESHOLD_BYTES
        self._client_limit: Callable[[Context | None], int] | None = None
        self._denied: Callable[[Context | None], str | None] | None = None
        self._is_key = is_key
        self._format, self._id_strategy = format_to_write(config, is_key=is_key)
        self._chooses_id = config.get(ID.name) is None and "content" in self._format.id_strategies
        self._compacted: Callable[[Context | None], bool] | None = None
        # By far the most records are small, and most formats do nothing with these.
        self._prepare = own_method(self._format, "prepare")
        self._write_inline = own_method(self._format, "write_inline")
        if self._format.offloads_at_threshold:
            self._threshold -= 1
        compression = COMPRESSION.read(config)
        self._compression = None if compression == "none" else compression
        self._compress = None if self._compression is None else offload_codecs.compressor(self._compression)
        self._open(config, STORE.read(config))
        (self._store,) = set(self._stores.values())
        # hop's clients take the limit of the topic, whatever the threshold of others is.
        self.negotiates = self._store.offloads and (threshold == AUTO or self._format.whole_record)
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

    def limit_by(
        self,
        client_limit: Callable[[Context | None], int],
        denied: Callable[[Context | None], str | None] | None = None,
        compacted: Callable[[Context | None], bool] | None = None,
    ) -> None:
        """Also offload what the client would refuse to send.

        Where the stage negotiates, this limit takes the place of a threshold that is not set.

        Args:
            client_limit: Gives the largest field in bytes that client and topic take for a record, its key and headers
                considered.
            denied: Says why a record may not be offloaded, if it may not.
            compacted: Says whether the record's topic is compacted: ids are of the content there, where nothing else
                is set (KIP-1159), so that a record that is written again shares its payload.
        """
        self._client_limit, self._denied = client_limit, denied
        self._compacted = compacted if self._chooses_id else None
        if self.negotiates and not self._is_set:
            self._threshold = sys.maxsize

    @property
    def whole_records(self) -> bool:
        """Whether the format puts whole records into the store."""
        return self._format.whole_record

    def is_inline(self, data: Buffer, ctx: Context | None) -> bool:
        """Whether what the stage gave is what it was given: neither a placeholder nor marked in its bytes."""
        if self._format.in_band:
            return False
        found = self._format.read(data, ctx, is_key=self._is_key)
        return found is None or found is data

    def bind(self, before: object | None, after: object | None) -> Self:
        """Learn which stage comes before: formats may say in a header what it gives."""
        return self._with_content(before.message_format if isinstance(before, Serializer) else None)

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        """Pass a small payload through; publish a large one."""
        if data is None:
            return None
        if self._prepare is not None:
            self._prepare(ctx, content=self._content, sender=self._store.sender, is_key=self._is_key)
        size = len(data)
        if size <= self._threshold and (
            self._client_limit is None or size + self._format.inline_overhead <= self._client_limit(ctx)
        ):
            return data if self._write_inline is None else self._write_inline(data, ctx, is_key=self._is_key)
        reason = self._store.why_not() or (self._denied(ctx) if self._denied is not None else None)
        return self.offload(data, ctx) if reason is None else self._inline_after_all(data, ctx, reason)

    def offload(self, data: Buffer, ctx: Context | None) -> bytes:
        """Publish a payload, whatever its size.

        Args:
            data: The payload.
            ctx: The record around it, with the headers that all records of the format have.

        Returns:
            The placeholder.
        """
        topic = topic_of(ctx, "large-message")
        if not self._format.in_band or self._compress is not None:
            require_headers(ctx)  # before the upload, which would be orphaned
        if self._compress is not None:
            data = self._compress(data)
        strategy = "content" if self._compacted is not None and self._compacted(ctx) else self._id_strategy
        # Of records that lie in the store whole, nobody writes the digest down.
        unused = self._format.whole_record and strategy == "random"
        digest = None if unused else sha256_digest(data)
        context = PublishContext(
            # A format's own way is not random, which is all that stores want to know of it.
            cast(IdStrategy, strategy if strategy in ID_STRATEGIES else "content"),
            key=getattr(ctx, "key", None),
            digest=digest,
            is_key=self._is_key,
            payload_id=self._format.object_id(data, strategy, digest or "", is_key=self._is_key),
        )
        if isinstance(self._store, SupportsRecords) and self._format.whole_record:
            url = self._store.publish_record(topic, StoredRecord(data, header_pairs(ctx), context.key), context)
        else:
            url = self._store.publish(topic, data, context)
        reference = Reference(url, len(data), digest, compression=self._compression)
        return self._format.write_reference(reference, ctx, is_key=self._is_key)

    def _inline_after_all(self, data: Buffer, ctx: Context | None, reason: str) -> Buffer:
        """What to do with a large payload where nothing can be offloaded: the client sends it, or it is not sent."""
        limit = None if self._client_limit is None else self._client_limit(ctx)
        if limit is not None and len(data) + self._format.inline_overhead > limit:
            field = "key" if self._is_key else "value"
            raise MessageTooLargeError(
                f"the {field} has {len(data)} bytes, no more than {limit} can be sent, and none are offloaded: {reason}"
            )
        return self._format.write_inline(data, ctx, is_key=self._is_key)


class LargeMessageDeserializer(LargeMessage, Deserializer[Buffer]):
    """Downloads what a reference stands for, and verifies size and digest.

    Follows references only to the stores that are configured, and there only below their own prefix.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (STORE, STORES, ACCEPT, REFERENCE_TOPICS, TIMEOUT, DOWNLOADS_IN_FLIGHT, DOWNLOADS_BYTES)
    batch_form = "serde_chain.serializers.large_message_batch:LargeMessageBatch"

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
