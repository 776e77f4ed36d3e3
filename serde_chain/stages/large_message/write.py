"""``large-message``, writing: publishes payloads above a threshold and sends a reference instead (KIP-1159)."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO, Final, Self, TypeGuard, cast
from uuid import uuid4

from payload_stores.base import (
    PayloadStore,
    PublishContext,
    RecordWriter,
    StoredRecord,
    SupportsDelete,
    SupportsRecords,
    SupportsStreaming,
    SupportsTransactions,
)
from payload_stores.errors import PayloadStoreError
from payload_stores.ids import ID_STRATEGIES, IdStrategy, sha256_digest
from serde_chain.base import Buffer, BufferReader, Data, RecordLimits, Serializer, ShortBytesOnly, is_stream
from serde_chain.errors import ConfigError, EncodeError, MessageTooLargeError
from serde_chain.record import Context, header_pairs, key_of, require_headers, topic_of
from serde_chain.stages.large_message import offload_codecs
from serde_chain.stages.large_message.options import (
    AUTO,
    COMPRESSION,
    FORMAT,
    ID,
    JOURNAL_PATH,
    KIP_THRESHOLD_BYTES,
    MURMUR3,
    OF_WRITERS,
    STORE,
    THRESHOLD,
    TTL,
    format_to_write,
    murmur3_digest,
    opt_out,
    without_record,
)
from serde_chain.stages.large_message.routes import ByTopic, Route, routes_of
from serde_chain.stages.large_message.stores import LargeMessage, without_deadline
from serde_chain.stages.large_message.streams import HELD_BYTES, Source, source_of
from serde_chain.telemetry import Observer, observer
from serde_chain.transfer import Transfer, finish, then
from serde_chain.wire.kip1159 import MAX_REFERENCE_BYTES
from serde_chain.wire.reference_format import Reference

_log: Final = logging.getLogger("serde_chain")

_DIGEST_BYTES: Final = 1 << 20


class LargeMessageSerializer(LargeMessage, Serializer[Buffer]):
    """Publishes payloads above the threshold and replaces them by references.

    The last serializer of a chain, except for stages that declare their ``max_overhead``: the threshold applies to
    the bytes to be sent.

    Attributes:
        most_alone: Bytes of the largest payload that stays in the record whatever else it contains; 0 if none.
    """

    takes = Data.BYTES
    takes_streams = True
    gives = Data.BYTES
    options = OF_WRITERS
    plain: Callable[[Any], Any] | None = None
    most_alone: int = 0
    _limits: RecordLimits | None = None
    _is_in_transactions = False
    _has_warned = False
    _routes: ByTopic[LargeMessageSerializer] = ByTopic()
    _is_routed = False

    def configure(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings and open the payload stores."""
        super().configure(config, is_key)
        routes = routes_of(config)
        self._begin_stores(config, routes)
        try:
            self._read(config, is_key)
            # A route is the same stage with the route's settings and shared stores.
            stages: list[tuple[Route, LargeMessageSerializer]] = []
            for route in routes:
                with route.explained():
                    stage = self._with()
                    stage._read(route.config, is_key)  # noqa: SLF001, of this class
                    stages.append((route, stage))
        except BaseException:
            self.close()
            raise
        self._routes, self._is_routed = ByTopic(stages), bool(stages)
        self.most_alone = min((self.most_alone, *(stage.most_alone for stage in self._routes)))
        self.plain = _plain(self.most_alone)

    def _read(self, config: Mapping[str, object], is_key: bool) -> None:
        """Read the settings of one route's topics, or of all other topics."""
        threshold = THRESHOLD.read(config)
        self._set = threshold if isinstance(threshold, int) else None
        self._threshold = KIP_THRESHOLD_BYTES if self._set is None else self._set
        self._limits_ttl_ms = TTL.read(config)
        self._is_key = is_key
        self._format, self._id_strategy = format_to_write(config, is_key=is_key)
        if self._id_strategy == MURMUR3:
            murmur3_digest(b"")  # report a missing library now
        if self._format.offloads_at_threshold:
            self._threshold -= 1
        compression = COMPRESSION.read(config)
        self._compression = None if compression == "none" else compression
        self._compress = None if self._compression is None else offload_codecs.compressor(self._compression)
        self._store = self._stores.open(STORE.read(config), config)
        self._opt_out = opt_out(self._store)
        # A store that is not told which id to use may derive it from the payload.
        follows = self._store.follows_context
        if JOURNAL_PATH.read(config) is not None and not (follows and self._store.reference("topic", str(uuid4()))):
            _warn_of_journal(self._store.scheme)
        self._has_unique_ids = self._id_strategy == "random" and follows and _makes_unique_ids(self._store)
        # Equal keys have equal references anyway; a store with references of its own shares none.
        may_share = self._id_strategy == "random" and follows and self._store.stable_references
        self._chooses_id = config.get(ID.name) is None and "content" in self._format.id_strategies and may_share
        if config.get(ID.name) not in {None, "random"} and not follows:
            _warn_of_ids(self._store.scheme)
        # hop's clients use the topic's limit, regardless of other formats' threshold.
        self._negotiates = self._opt_out.offloads and (threshold == AUTO or self._format.whole_record)
        if self._format.whole_record:
            self._check_whole_record()
        if is_key and not (self._store.stable_references and _repeats_ids(self._store)):
            raise ConfigError(
                f"the store {self._store.scheme} gives equal keys different references: they become different keys",
                hint=f'Give the key chain another store: {{"class": "large-message", "{STORE.name}": "local", …}}',
                key=STORE.name,
            )
        # Without a client, the first record is where a warning belongs.
        self.most_alone = 0 if self._format.marks_inline or self._negotiates else self._threshold

    def _check_whole_record(self) -> None:
        name = FORMAT.name
        if self._is_key:
            raise ConfigError(
                f"{name} stores whole records, so it is for values only",
                hint=f'Give the key chain another: {{"class": "large-message", "{name}": "kip1159"}}',
                key=name,
            )
        if not isinstance(self._store, SupportsRecords):
            raise ConfigError(
                f"{name} requires a store that keeps whole records; {self._store.scheme} does not",
                hint=f"Set {STORE.name} = hop",
                key=name,
            )

    @property
    def negotiates(self) -> bool:
        """Whether the topic's limit replaces an unset threshold, for at least some topics."""
        return self._negotiates or any(stage.negotiates for stage in self._routes)

    @property
    def limits_ttl_ms(self) -> int:
        """Lifetime of a remembered topic limit, in ms."""
        return self._limits_ttl_ms

    @property
    def store(self) -> PayloadStore:
        """The store for writing."""
        return self._store

    def with_limits(self, limits: RecordLimits) -> Self:
        """The stage with a client's limits: it also offloads payloads that the client would refuse to send.

        Raises:
            ConfigError: The configured threshold exceeds the client's limit.
        """
        # The KIP's default may be spelled out, as in the KIP's own example, and then counts as unset.
        if self._set not in {None, KIP_THRESHOLD_BYTES} and self._threshold > limits.most:
            raise ConfigError(
                f"{THRESHOLD.name} ({self._threshold}) exceeds the largest value that the client sends with "
                f"{limits.setting}: {limits.most} bytes",
                hint="Lower the threshold, leave it out, or raise that setting (and the topic's max.message.bytes)",
                key=THRESHOLD.name,
            )
        # Topic limits are requested if some topics negotiate; the answer applies to those topics only.
        of_client = limits.of_client() if self.negotiates else limits
        own = limits if self._negotiates else of_client
        threshold = sys.maxsize if self._negotiates and self._set is None else self._threshold
        routes = self._routes.map(lambda stage: stage.with_limits(limits if stage.negotiates else of_client))
        alone = 0 if self._format.marks_inline else min(threshold, own.always)
        most = min((alone, *(stage.most_alone for stage in routes)))
        return self._with(_limits=own, _threshold=threshold, most_alone=most, _routes=routes, plain=_plain(most))

    @property
    def joins_transactions(self) -> bool:
        """Whether payloads of at least some topics can be written in a client's transactions."""
        return _joins_transactions(self._store) or any(stage.joins_transactions for stage in self._routes)

    def within(self, writer: RecordWriter) -> Self:
        """The stage with its payloads in a client's transactions, where the store supports that."""
        changes: dict[str, object] = {"_routes": self._routes.map(lambda stage: stage.within(writer))}
        if _joins_transactions(self._store):
            changes |= {"_store": self._store.within(writer), "_is_in_transactions": True}
        return self._with(**changes)

    def is_inline(self, data: Buffer, ctx: Context | None) -> bool:
        """Whether the stage passed its input through: no placeholder, and no mark in the bytes."""
        if (stage := self._for(ctx)) is not self:
            return stage.is_inline(data, ctx)
        if self._format.in_band:
            return False
        content = self._format.read(data, ctx, is_key=self._is_key)
        return content is None or content is data

    def bind(self, before: object | None, after: object | None) -> Self:
        """Note the preceding stage: formats may name its output in a header."""
        content = before.message_format if isinstance(before, Serializer) else None
        if content == self._content:
            return self
        return self._with(_content=content, _routes=self._routes.map(lambda stage: stage.bind(before, after)))

    def __call__(self, data: Buffer | None, ctx: Context | None = None, /) -> Buffer | None:
        """Pass a small payload through; publish a large one."""
        return None if data is None else cast("Buffer", finish(self.begin(data, ctx)))

    def begin(self, data: Any, ctx: Context | None, /) -> Any:
        """Pass a small payload through; return a transfer for a large one.

        Args:
            data: The payload; or the path of a file, or an open binary file, with the payload. A file is read during
                the upload, in constant memory.
            ctx: The record around it.

        Returns:
            The payload, or a :class:`~serde_chain.transfer.Transfer` that resumes with its replacement.

        Raises:
            EncodeError: The context is missing, whatever the payload's size; or the file is unreadable.
        """
        if ctx is None:
            raise without_record(EncodeError)
        is_source = not isinstance(data, (bytes, bytearray, memoryview)) and is_stream(data)
        if self._is_routed and (stage := self._for(ctx)) is not self:
            return stage.begin(data, ctx)
        if isinstance(data, BufferReader) and self._cannot_stream() is not None:
            data, is_source = data.join(), False
        if self._limits is None and self._negotiates and not self._has_warned:
            self._has_warned = True
            _warn_of_no_client(self._threshold)
        limits, size = self._limits, HELD_BYTES if is_source else len(data)
        stays = not is_source and size <= self._threshold
        sent = size + self._format.inline_overhead
        if limits is not None and (question := limits.ask(ctx)) is not None:
            # A small record waits for no answer, which a broker may never give.
            if not (stays and limits.fits_any_topic(sent, ctx)):
                question.size = size  # held until the answer arrives
                return then(question, lambda _: self.begin(data, ctx))
            limits = None
        self._format.prepare(ctx, content=self._content, sender=self._opt_out.sender, is_key=self._is_key)
        if is_source:
            return self._begin_stream(source_of(data), ctx)
        if stays and (limits is None or sent <= limits.largest(ctx)):
            return self._format.write_inline(data, ctx, is_key=self._is_key)
        # As in hop, whose clients request the limit: a user without permission to read it does not offload.
        asks_first = self._format.whole_record and self._opt_out.offloads
        return self._upload(data, ctx, limits.denied(ctx) if limits is not None and asks_first else None)

    def _check_streams(self, source: Source) -> None:
        problem = self._cannot_stream()
        if problem is not None:
            raise EncodeError(f"{source.name} cannot be streamed: {problem}", hint="Pass its content as bytes").marked(
                about_record=False
            )

    def _begin_stream(self, source: Source, ctx: Context) -> Any:
        self._check_streams(source)
        limits, most = self._limits, self._threshold
        if limits is not None:
            most = min(most, limits.largest(ctx) - self._format.inline_overhead)
        small = source.peek(most)
        if small is not None:
            return self._format.write_inline(small, ctx, is_key=self._is_key)
        return self._upload(source, ctx, None)

    def _cannot_stream(self) -> str | None:
        """Why payloads cannot be streamed during the upload; None if they can."""
        if self._format.whole_record:
            return f"the {FORMAT.name} stores whole records"
        if not isinstance(self._store, SupportsStreaming):
            return f"the payload store {self._store.scheme} accepts whole payloads only"
        if self._compress is not None:
            return f"{COMPRESSION.name} requires the whole payload"
        return f"{ID.name} = {MURMUR3} requires the whole payload" if self._id_strategy == MURMUR3 else None

    def offload(self, data: Buffer, ctx: Context | None) -> Transfer[Any]:
        """Publish a payload, whatever its size, even if the store is switched off.

        Args:
            data: The payload.
            ctx: The record around it, with the headers shared by all records of the format.

        Returns:
            A transfer that resumes with the placeholder.
        """
        if (stage := self._for(ctx)) is not self:
            return stage.offload(data, ctx)
        return self._upload(data, ctx, None, optional=False)

    def upload(self, data: Any, ctx: Context | None, *, inline_bytes: int) -> Any:
        """Publish a payload and leave the record to the caller. See :class:`~serde_chain.base.SupportsOffload`."""
        if (stage := self._for(ctx)) is not self:
            return stage.upload(data, ctx, inline_bytes=inline_bytes)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            data = source_of(data)
            self._check_streams(data)
            if (small := data.peek(inline_bytes)) is not None:
                return small
        return self._upload(data, ctx, None, optional=False, gives_reference=True)

    def ask_policy(self, ctx: Context | None) -> Transfer[Any] | None:
        """The question whether the topic is compacted, if ids depend on it. See :class:`SupportsOffload`."""
        if (stage := self._for(ctx)) is not self:
            return stage.ask_policy(ctx)
        return self._limits.ask_policy(ctx) if self._chooses_id and self._limits is not None else None

    def owns(self, reference: str) -> bool:
        """Whether a payload is in one of the stage's stores, and deletable there."""
        return isinstance(self._stores.owner(reference), SupportsDelete)

    def delete(self, reference: str) -> None:
        """Delete an unreferenced payload."""
        owner = self._stores.owner(reference)
        if owner is not None and isinstance(owner, SupportsDelete):
            owner.delete(reference)

    def _for(self, ctx: Context | None) -> LargeMessageSerializer:
        """The stage with the settings of the record's topic."""
        if not self._is_routed or ctx is None:
            return self
        return self._routes.find(str(ctx.topic)) or self

    def _upload(
        self,
        data: Buffer | Source,
        ctx: Context | None,
        denied: str | None,
        *,
        optional: bool = True,
        gives_reference: bool = False,
    ) -> Transfer[Any]:
        topic = topic_of(ctx, "large-message")
        if not self._format.in_band or self._compress is not None:
            require_headers(ctx)  # before the upload, which would be orphaned
        size = None if isinstance(data, Source) else len(data)
        # Here, since the record's trace is that of this thread.
        observe = observer("offload", ctx, size, store=self._store.scheme, id=self._id_strategy)

        def upload(_answer: object) -> _Upload:
            # An open pipe cannot be read twice.
            chooses = self._chooses_id and not (isinstance(data, Source) and not data.is_repeatable)
            is_compacted = chooses and self._limits is not None and self._limits.compacted(ctx)
            order = _Order(
                topic,
                "content" if is_compacted else self._id_strategy,
                key_of(ctx),
                header_pairs(ctx) if self._format.whole_record else (),
                denied,
                optional,
                observe,
            )
            return _Upload(self, data, ctx, order, gives_reference=gives_reference)

        question = self.ask_policy(ctx)
        if question is None:
            return upload(None)
        question.size = HELD_BYTES if size is None else size  # held until the answer arrives
        return cast("Transfer[Any]", then(question, upload))

    def choose_id(self, data: Buffer | Source, order: _Order) -> str | None:
        """Make an id unique to this payload; for the stage's own transfer.

        Returns:
            The id; None if other records may refer to the same payload, or if the payload is not offloaded.
        """
        if order.strategy != "random" or not self._has_unique_ids or self._why_not(order):
            return None
        known = b"" if isinstance(data, Source) else data
        if (payload_id := self._format.object_id(known, "random", "", is_key=self._is_key)) is not None:
            return payload_id
        return self._store.id(known, PublishContext("random", key=order.key, is_key=self._is_key))

    def is_alone(self, order: _Order) -> bool:
        """Whether a payload belongs to its record alone, so that it can be deleted; for the stage's own transfer."""
        if self._is_in_transactions or not isinstance(self._store, SupportsDelete):
            return False
        return not self._store.stable_references or (order.strategy == "random" and self._has_unique_ids)

    def _why_not(self, order: _Order) -> str | None:
        return (self._opt_out.why_not() or order.denied) if order.is_optional else None

    def publish(
        self, store: PayloadStore, data: Buffer | Source, order: _Order, payload_id: str | None = None
    ) -> Reference | _Declined:
        """Publish a payload, in any thread; for the stage's own transfer.

        Args:
            store: The store, with or without its deadline.
            data: The payload, or its source.
            order: The facts about the record.
            payload_id: The id chosen before; None makes one.
        """
        if reason := self._why_not(order):
            return _Declined(reason)
        if isinstance(data, Source):
            return self._publish_stream(store, data, order, payload_id)
        if self._compress is not None:
            data = self._compress(data)
        # No reference contains the digest of a record stored whole.
        unused = self._format.whole_record and order.strategy == "random"
        digest = None if unused else sha256_digest(data)
        context = self._context(data, order, digest, payload_id)
        if isinstance(store, SupportsRecords) and self._format.whole_record:
            record = StoredRecord(data, order.headers, order.key)
            url = order.observe(store.publish_record, order.topic, record, context)
        else:
            url = order.observe(store.publish, order.topic, data, context)
        return Reference(_checked(url, store), len(data), digest, compression=self._compression)

    def _publish_stream(
        self, store: PayloadStore, source: Source, order: _Order, payload_id: str | None
    ) -> Reference | _Declined:
        digest = None
        if order.strategy != "random":
            # The id must be known before the upload and is made from the digest, so the file is read twice.
            with source.reading() as reading:
                while reading.read(_DIGEST_BYTES):
                    pass
            digest = reading.digest
        context = self._context(b"", order, digest, payload_id)
        with source.reading() as reading:
            reading.expected = digest
            reader = cast("BinaryIO", reading)  # stores only read it
            url = order.observe(cast("SupportsStreaming", store).publish_stream, order.topic, reader, context)
        return Reference(_checked(url, store), reading.size, reading.digest)

    def _context(self, data: Buffer, order: _Order, digest: str | None, payload_id: str | None) -> PublishContext:
        """The store's facts about a payload."""
        if payload_id is None:
            known = murmur3_digest(data) if order.strategy == MURMUR3 else digest or ""
            payload_id = self._format.object_id(data, order.strategy, known, is_key=self._is_key)
        return PublishContext(
            # A format's own ids are not random; stores need to know no more.
            cast("IdStrategy", order.strategy if order.strategy in ID_STRATEGIES else "content"),
            key=order.key,
            digest=digest,
            is_key=self._is_key,
            payload_id=payload_id,
        )

    def replace(self, data: Buffer | Source, ctx: Context | None, outcome: Reference | _Declined) -> Buffer:
        """Replace the payload by a placeholder; for the stage's own transfer.

        Args:
            data: The payload, or its source.
            ctx: The record around it.
            outcome: The result of :meth:`publish`.

        Raises:
            MessageTooLargeError: Offloading is not allowed, and the payload is too large to send.
        """
        if isinstance(outcome, Reference):
            return self._format.write_reference(outcome, ctx, is_key=self._is_key)
        if isinstance(data, Source):
            raise MessageTooLargeError(
                f"{data.name} exceeds the threshold, and offloading is not possible: {outcome.reason}"
            )
        limit = None if self._limits is None else self._limits.largest(ctx)
        if limit is not None and len(data) + self._format.inline_overhead > limit:
            field = "key" if self._is_key else "value"
            raise MessageTooLargeError(
                f"the {field} has {len(data)} bytes, at most {limit} can be sent, and offloading is not possible: "
                f"{outcome.reason}"
            )
        return self._format.write_inline(data, ctx, is_key=self._is_key)


def _plain(most: int) -> Callable[[Any], Any] | None:
    """Pass on payloads up to a size, regardless of the record; None if the record always matters."""
    return ShortBytesOnly(most) if most > 0 else None


def _warn_of_no_client(threshold: int) -> None:
    _log.warning(
        "a chain without a client cannot ask a broker for the limit of a topic (%s = %s, or hop's format): payloads "
        "above %d bytes are offloaded",
        *(THRESHOLD.name, AUTO, threshold),
    )


@cache
def _warn_of_journal(scheme: str) -> None:
    """Warn once per process of an unsupported journal: a client opens its stores for each chain and route."""
    _log.warning(
        "%s does not cover the store %s: its references are unknown before a payload is published "
        "(PayloadStore.reference), so the payloads of a killed producer remain there until a sweep",
        *(JOURNAL_PATH.name, scheme),
    )


@cache
def _warn_of_ids(scheme: str) -> None:
    """Warn once per process of ids that the store chooses itself."""
    _log.warning(
        "%s has no effect: the store %s chooses its ids itself (its publish takes no context)", ID.name, scheme
    )


def _joins_transactions(store: PayloadStore) -> TypeGuard[SupportsTransactions]:
    """Whether a store can write in a client's transactions."""
    return isinstance(store, SupportsTransactions) and store.joins_transactions


def _checked(url: object, store: PayloadStore) -> str:
    """What a store returned for a payload, if it is a reference."""
    if not isinstance(url, str):
        raise PayloadStoreError(
            f"the store returned {type(url).__name__} for a payload, not a reference", store=store.scheme
        )
    # A record with another one could not be sent, or not be read.
    size = len(url.encode(errors="surrogatepass"))
    if not 0 < size <= MAX_REFERENCE_BYTES or any("\ud800" <= character <= "\udfff" for character in url):
        raise PayloadStoreError(
            f"the store returned a reference of {size} bytes, expected UTF-8 of 1 to {MAX_REFERENCE_BYTES}",
            store=store.scheme,
        )
    return url


def _makes_unique_ids(store: PayloadStore) -> bool:
    """Whether a store's random ids are unique: a store with its own ids may derive them from the payload."""
    context = PublishContext("random")
    try:
        return store.id(b"", context) != store.id(b"", context)
    except Exception:  # noqa: BLE001  ids that require a record
        return False


def _repeats_ids(store: PayloadStore) -> bool:
    """Whether a store's ids for keys are the same for equal keys; an id that requires a record is trusted."""
    context = PublishContext("content")
    try:
        return store.id(b"", context) == store.id(b"", context)
    except Exception:  # noqa: BLE001  ids that require a record
        return True


@dataclass(frozen=True, slots=True)
class _Order:
    """An upload without its record.

    Attributes:
        topic: Topic of the record.
        strategy: The id strategy.
        key: The record's encoded key.
        headers: The record's headers, if they are stored too.
        denied: Why this user may not offload.
        is_optional: Whether the payload stays in the record if the store is switched off.
        observe: Observes the store's call.
    """

    topic: str
    strategy: str
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    denied: str | None
    is_optional: bool
    observe: Observer


@dataclass(frozen=True, slots=True)
class _Declined:
    """The reason not to offload a payload."""

    reason: str


class _Upload(Transfer["Reference | _Declined"]):
    """Publishes the payload of one record.

    Args:
        stage: The stage.
        data: The payload, or its source.
        ctx: The record around it.
        order: The facts about the record.
        gives_reference: Whether it resumes with the reference instead of a placeholder.
    """

    def __init__(
        self,
        stage: LargeMessageSerializer,
        data: Buffer | Source,
        ctx: Context | None,
        order: _Order,
        *,
        gives_reference: bool,
    ) -> None:
        self._stage = stage
        self._data = data
        self._ctx = ctx
        self._order = order
        self._gives_reference = gives_reference
        self._payload_id: str | None = None
        self.size = HELD_BYTES if isinstance(data, Source) else len(data)

    def places(self) -> tuple[str, ...]:
        self._payload_id = self._stage.choose_id(self._data, self._order)
        if self._payload_id is None:
            return ()
        place = self._stage.store.reference(self._order.topic, self._payload_id)
        return () if place is None else (place,)

    def made(self, outcome: Reference | _Declined, /) -> tuple[str, ...]:
        return (outcome.url,) if isinstance(outcome, Reference) and self._stage.is_alone(self._order) else ()

    def run(self) -> Reference | _Declined:
        return self._stage.publish(self._stage.store, self._data, self._order, self._payload_id)

    def work(self) -> Reference | _Declined:
        return self._stage.publish(without_deadline(self._stage.store), self._data, self._order, self._payload_id)

    def resume(self, outcome: Reference | _Declined, /) -> Any:
        if self._gives_reference:
            return outcome
        return self._stage.replace(self._data, self._ctx, outcome)
