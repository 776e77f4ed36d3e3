"""``entry-metadata``: timestamp and index in front of the payload, byte for byte as Pulsar's brokers do (PIP-70).

The frame may surround a ``large-message`` placeholder, and is then readable without a download. Kafka's brokers do not
write it: this stage does within one producer, ``serde-chain stamp`` for a whole topic.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from payload_stores.options import Option, boolean
from serde_chain.base import Buffer, Data, Deserializer, RemovedHeaders, Serializer
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.record import (
    ENTRY_INDEX,
    ENTRY_TIMESTAMP,
    Context,
    RecordContext,
    remove_headers,
    require_headers,
    set_headers,
    topic_of,
)
from serde_chain.wire import entry_metadata as wire

NAME: Final = "entry-metadata"

TIMESTAMP: Final = Option("entry.metadata.timestamp", boolean, True, doc="write the time in ms since the epoch")
INDEX: Final = Option(
    "entry.metadata.index", boolean, False, doc="count the records of each partition; requires the partition to be set"
)
REQUIRED: Final = Option("entry.metadata.required", boolean, False, doc="refuse records without metadata")
HEADERS: Final = Option(
    "entry.metadata.headers",
    boolean,
    False,
    doc=f"readers add a value's time and index to its headers: {ENTRY_TIMESTAMP}, {ENTRY_INDEX}, in decimal digits",
)


class EntryMetadataSerializer(Serializer[Buffer]):
    """Frames every payload, so that reading is unambiguous regardless of the payload's first bytes.

    The time never goes backwards within one stage, even if the clock does. The index counts the records framed by this
    stage for a partition, from 0; it restarts with the producer, and an undelivered record leaves a gap. The index of
    the relay ``serde-chain stamp`` survives both.
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (TIMESTAMP, INDEX)
    max_overhead = wire.MAX_OVERHEAD
    plain: Callable[[Buffer], bytes] | None

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read ``entry.metadata.timestamp`` and ``entry.metadata.index``."""
        super().configure(config, is_key)
        self._with_timestamp = TIMESTAMP.read(config)
        self._with_index = INDEX.read(config)
        if self._with_timestamp or self._with_index:
            self.varies = f"Remove it from the key chain, or set {TIMESTAMP.name} and {INDEX.name} = false there"
        self._lock = threading.Lock()
        self._latest_ms = 0
        self._next: Counter[tuple[str, int]] = Counter()
        # Without an index, the record is irrelevant.
        self.plain = None if self._with_index else self._frame

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> bytes | None:
        """Frame one payload."""
        if data is None:
            return None
        return self._frame(data, _partition(ctx) if self._with_index else None)

    def _frame(self, data: Buffer, place: tuple[str, int] | None = None) -> bytes:
        timestamp = index = None
        with self._lock:
            if self._with_timestamp:
                timestamp = self._latest_ms = max(self._latest_ms, time.time_ns() // 1_000_000)
            if place is not None:
                index = self._next[place]
                self._next[place] = index + 1
        return wire.frame(data, broker_timestamp=timestamp, index=index)


class EntryMetadataDeserializer(Deserializer[bytes]):
    """Removes the metadata; :func:`serde_chain.wire.entry_metadata.peek` reads it.

    Payloads without metadata pass through, unless ``entry.metadata.required`` is set. With ``entry.metadata.headers``,
    a reader gets both values as headers, as Pulsar's gets them by ``getBrokerPublishTime`` and ``getIndex`` of a
    message (PIP-70; apache/pulsar#11553).

    Example:
        >>> from serde_chain import DeserializerChain, RecordContext
        >>> config = {"value.deserializers": "entry-metadata, string", "entry.metadata.headers": True}
        >>> ctx = RecordContext("events", "value", headers=[])
        >>> DeserializerChain.from_config(config)(wire.frame(b"M 51", index=41), ctx), ctx.headers
        ('M 51', [('serde-chain-entry-index', b'41')])
    """

    takes = Data.BYTES
    gives = Data.BYTES
    options = (REQUIRED, HEADERS)
    unwraps_placeholders = True
    plain: Callable[[Buffer], bytes] | None
    removed_headers: tuple[RemovedHeaders, ...] | None = ()

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read ``entry.metadata.required`` and ``entry.metadata.headers``."""
        super().configure(config, is_key)
        peek, strip, required = wire.peek, wire.strip, REQUIRED.read(config)

        def take_off(data: Buffer) -> bytes:
            if peek(data) is not None:
                # Bytes instead of a view: the result may reach the user.
                return bytes(strip(data))
            if required:
                raise _missing(bytes(data[:2]))
            return bytes(data)

        self._take_off = self.plain = take_off
        # Equal keys have equal bytes, so they have neither time nor index.
        if HEADERS.read(config) and not is_key:
            self.plain = self.removed_headers = None
            self.own_headers = frozenset({ENTRY_TIMESTAMP, ENTRY_INDEX})

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> bytes | None:
        """Remove the metadata of one payload."""
        if data is None:
            return None
        payload = self._take_off(data)
        if self.own_headers:
            self._hand_on(wire.peek(data) or wire.EntryMetadata(), ctx)
        return payload

    def _hand_on(self, metadata: wire.EntryMetadata, ctx: Context | None) -> None:
        # A record that large-message has restored before this stage brings headers, too.
        remove_headers(ctx, self.own_headers)
        values = {ENTRY_TIMESTAMP: metadata.broker_timestamp, ENTRY_INDEX: metadata.index}
        known = {name: b"%d" % value for name, value in values.items() if value is not None}
        if not known:
            return
        try:
            require_headers(ctx)
        except EncodeError:
            raise DecodeError(
                "time and index cannot be added as headers: the record was passed without a list of headers",
                hint=f"Pass a RecordContext, use serde_chain.Consumer, or set {HEADERS.name} = false",
            ).marked(about_record=False) from None
        set_headers(ctx, known)


def _partition(ctx: Context | None) -> tuple[str, int]:
    partition: int | None = ctx.partition if isinstance(ctx, RecordContext) else None
    if partition is None or partition < 0:  # librdkafka's "any partition" is -1
        raise EncodeError(
            "the index requires the record's partition, which is unknown before the partitioner chooses it",
            hint=f"Pass partition= to produce(), switch {INDEX.name} off, or let `serde-chain stamp` write the index",
        )
    return topic_of(ctx, NAME), partition


def _missing(head: bytes) -> DecodeError:
    if head[:1] == wire.MAGIC[:1] and len(head) == 2:
        return DecodeError(
            f"unknown version {head.hex().upper()} of the entry metadata, expected {wire.MAGIC.hex().upper()}",
            hint="Read it with a newer release of serde-chain",
        )
    return DecodeError(
        f"the record has no entry metadata: it begins with {head.hex() or 'nothing'} instead of {wire.MAGIC.hex()}",
        hint=f"If records without them are expected, set {REQUIRED.name} = false",
    )
