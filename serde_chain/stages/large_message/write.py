"""``large-message``, writing: payloads above a threshold go to a payload store, and a reference travels (KIP-1159)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Self, cast

from payload_stores.base import PublishContext, StoredRecord, SupportsRecords
from payload_stores.ids import ID_STRATEGIES, IdStrategy, sha256_digest
from serde_chain.base import Buffer, Data, Serializer
from serde_chain.errors import ConfigError, MessageTooLargeError
from serde_chain.record import Context, header_pairs, require_headers, topic_of
from serde_chain.stages.large_message import codecs as offload_codecs
from serde_chain.stages.large_message.options import (
    AUTO,
    COMPRESSION,
    FORMAT,
    ID,
    KIP_THRESHOLD_BYTES,
    STORE,
    THRESHOLD,
    TIMEOUT,
    TTL,
    LargeMessage,
    format_to_write,
    opt_out,
    own_method,
)
from serde_chain.wire.reference_format import Reference

__all__ = ["LargeMessageSerializer"]


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
        (self._store,) = self._stores
        self._opt_out = opt_out(self._store)
        # hop's clients take the limit of the topic, whatever the threshold of others is.
        self.negotiates = self._opt_out.offloads and (threshold == AUTO or self._format.whole_record)
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
            self._prepare(ctx, content=self._content, sender=self._opt_out.sender, is_key=self._is_key)
        size = len(data)
        if size <= self._threshold and (
            self._client_limit is None or size + self._format.inline_overhead <= self._client_limit(ctx)
        ):
            return data if self._write_inline is None else self._write_inline(data, ctx, is_key=self._is_key)
        reason = self._opt_out.why_not() or (self._denied(ctx) if self._denied is not None else None)
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
