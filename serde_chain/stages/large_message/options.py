"""The keys of ``large-message``, and the parsing shared by both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from payload_stores.base import PayloadStore, SupportsOptOut, SupportsTopics
from payload_stores.errors import UntrustedReferenceError
from payload_stores.ids import ID_STRATEGIES
from payload_stores.options import Option, boolean, choice, integer, listing, text
from payload_stores.plugins import require
from serde_chain.base import Buffer
from serde_chain.catalogue import find_format, settings_of
from serde_chain.errors import ConfigError, SerializationError
from serde_chain.record import Context
from serde_chain.stages.large_message import offload_codecs
from serde_chain.wire.reference_format import Reference, ReferenceFormat

T = TypeVar("T", bound=SerializationError)

KIP_THRESHOLD_BYTES: Final = 1048576


def _store(value: object) -> Any:
    """A store by name, class, instance or mapping; the store registry distinguishes them."""
    return text(value) if isinstance(value, str) else value


def _several_stores(value: object) -> tuple[Any, ...]:
    return listing(value) if isinstance(value, str) else tuple(value) if isinstance(value, (list, tuple)) else (value,)


STORE: Final = Option(
    "large.message.payload.store.class",
    _store,
    None,
    required=True,
    doc="a store (memory, local, s3, objects, kafka, hop, mirror), a class, or a mapping with its own options",
)
STORES: Final[Option[tuple[Any, ...]]] = Option(
    "large.message.payload.store.classes",
    _several_stores,
    (),
    doc="further payload stores to read from; the first one that owns a reference is used",
)
AUTO: Final = "auto"


def _threshold(value: object) -> int | str:
    if isinstance(value, str) and value.strip().lower() == AUTO:
        return AUTO
    try:
        return integer(0)(value)
    except ValueError as error:
        raise ValueError(f"{error}, or auto") from None


THRESHOLD: Final = Option(
    "large.message.threshold.bytes",
    _threshold,
    None,
    doc="larger payloads go to the store (default 1048576); auto: the topic's limit, or message.max.bytes if set lower",
)
TTL: Final = Option(
    "large.message.threshold.ttl.ms", integer(1), 300_000, doc="lifetime of a remembered topic limit (auto, hop)"
)
MURMUR3: Final = "murmur3"
ID: Final = Option(
    "large.message.id",
    choice(*ID_STRATEGIES, MURMUR3),
    "random",
    doc="ids: random, content, keyed; bakdata: murmur3 too",
)
COMPRESSION: Final = Option(
    "large.message.compression",
    choice("none", *offload_codecs.NAMES),
    "none",
    doc="compression of payloads in bakdata's formats: none, gzip, snappy, lz4 or zstd",
)
FORMAT: Final = Option(
    "large.message.format",
    text,
    "kip1159",
    doc="format of written references: kip1159, hop, bakdata-flag, bakdata-headers, or your own",
)
ACCEPT: Final[Option[tuple[str, ...]]] = Option(
    "large.message.accept",
    listing,
    ("kip1159", "bakdata-headers"),
    doc="accepted reference formats: those of large.message.format, and aws-extended, cloudevents, eventbridge, "
    "kafscale and ticdc; with its store, hop too",
)
ANY: Final = "any"
SAME: Final = "same"


def _topics(value: object) -> tuple[str, ...]:
    topics = listing(value)
    if not topics or (ANY in topics and len(topics) > 1):
        raise ValueError("expected any, same, or a list of topics")
    return topics


REFERENCE_TOPICS: Final[Option[tuple[str, ...]]] = Option(
    "large.message.reference.topics",
    _topics,
    (ANY,),
    doc="topics whose payloads a record may refer to: any, same (its own topic), or a list (may include same)",
)
LAZY: Final = "lazy"
FETCH: Final = Option(
    "large.message.fetch",
    choice("eager", LAZY),
    "eager",
    doc="lazy: values are handles (serde_chain.PayloadHandle) that fetch their payloads on request",
)
TIMEOUT: Final = PayloadStore.TIMEOUT
CACHE: Final = Option(
    "large.message.store.cache.bytes",
    integer(0),
    0,
    doc="maximum bytes of downloaded payloads cached for records with the same reference; 0: no cache",
)
RETRIES: Final = Option(
    "large.message.store.retry.attempts",
    integer(1),
    1,
    doc="total attempts after transient failures, on top of the store's own retries; 1: only those",
)
UPLOADS_IN_FLIGHT: Final = Option(
    "large.message.uploads.in.flight", integer(1), 8, of_client=True, doc="maximum concurrent uploads of a producer"
)
BUFFER_BYTES: Final = Option(
    "large.message.buffer.bytes",
    integer(1),
    256 << 20,
    of_client=True,
    doc="maximum bytes of a producer's records waiting for uploads; a larger record waits alone",
)
JOURNAL_PATH: Final[Option[Path | None]] = Option(
    "large.message.journal.path",
    lambda value: value if isinstance(value, Path) else Path(text(value)),
    None,
    of_client=True,
    doc="journal of uploads, one file per producer: after a crash, the next start deletes the unsent payloads",
)
JOURNAL_FSYNC: Final = Option(
    "large.message.journal.fsync",
    boolean,
    False,
    of_client=True,
    doc="force each journal entry to disk, so that the journal survives a power failure",
)
DOWNLOADS_IN_FLIGHT: Final = Option(
    "large.message.downloads.in.flight",
    integer(1),
    8,
    doc="maximum concurrent downloads ahead of the reader of a topic or batch",
)
DOWNLOADS_BYTES: Final = Option(
    "large.message.downloads.max.bytes",
    integer(1),
    64 << 20,
    doc="maximum bytes downloaded ahead of the reader; the default in consumers is 256 MiB",
)

OF_ROUTES: Final[tuple[Option[Any], ...]] = (STORE, STORES, THRESHOLD, ID, FORMAT, COMPRESSION, TIMEOUT, CACHE, RETRIES)
"""Keys that may differ per topic."""
OF_WRITERS: Final[tuple[Option[Any], ...]] = (
    *(STORE, THRESHOLD, TTL, ID, FORMAT, COMPRESSION, TIMEOUT, CACHE, RETRIES),
    # Belong to the producer around the chain.
    *(UPLOADS_IN_FLIGHT, BUFFER_BYTES, JOURNAL_PATH, JOURNAL_FSYNC),
)
OF_READERS: Final[tuple[Option[Any], ...]] = (
    *(STORE, STORES, ACCEPT, REFERENCE_TOPICS, FETCH, TIMEOUT, CACHE, RETRIES, DOWNLOADS_IN_FLIGHT, DOWNLOADS_BYTES),
)


class _AlwaysOn:
    """:class:`~payload_stores.SupportsOptOut` for a store that cannot be switched off."""

    sender: str | None = None
    offloads = True
    fetches = True

    def why_not(self) -> str | None:
        return None


_ALWAYS_ON: Final = _AlwaysOn()


def opt_out(store: PayloadStore) -> SupportsOptOut:
    """The switches of a store; always on for most stores."""
    return store if isinstance(store, SupportsOptOut) else _ALWAYS_ON


def murmur3_digest(data: Buffer) -> str:
    """MurmurHash3 (x64, 128 bits, seed 0), one of the ids of bakdata's library: ``murmur3:`` and 32 hexadecimal digits.

    Raises:
        MissingDependencyError: mmh3 is not installed.
    """
    return f"{MURMUR3}:{require('mmh3', 'bakdata').hash_bytes(data).hex()}"


def without_record(kind: type[T]) -> T:
    """The error of a chain called with the data alone, by a client without contexts."""
    return kind(
        "large-message requires the record around the data: its topic and headers",
        hint="With aiokafka, use the clients of serde_chain.clients.aiokafka; with kafka-python, the serializers of "
        "serde_chain.clients.kafka_python; elsewhere, pass a RecordContext or SerializationContext",
    ).marked(about_record=False)


class ReferenceTopics:
    """The topics whose payloads a record may refer to: any writer can create a reference, and readers follow it.

    Args:
        topics: The value of :data:`REFERENCE_TOPICS`.
        stores: The stores to read from.

    Raises:
        ConfigError: A store's references do not contain the topic.
    """

    def __init__(self, topics: tuple[str, ...], stores: Iterable[PayloadStore]) -> None:
        self._any = topics == (ANY,)
        self._same = SAME in topics
        self._names = frozenset(topics) - {SAME}
        silent = next((store for store in stores if not isinstance(store, SupportsTopics)), None)
        if silent is not None and not self._any:
            raise ConfigError(
                f"references of the store {silent.scheme} do not contain a topic, so they cannot be restricted",
                hint=f"Leave {REFERENCE_TOPICS.name} at {ANY}",
                key=REFERENCE_TOPICS.name,
            )

    def check(self, reference: Reference, ctx: Context | None, store_of: Callable[[str], PayloadStore]) -> None:
        """Refuse a reference to a payload of another topic.

        Args:
            reference: The reference.
            ctx: The record around it.
            store_of: Returns the store of a reference's URL.

        Raises:
            UntrustedReferenceError: The record may not refer to this payload.
        """
        if self._any:
            return
        store = store_of(reference.url)
        topic = reference_topic(store, reference.url)
        if topic in self._names or (self._same and ctx is not None and ctx.topic and topic == ctx.topic):
            return
        raise UntrustedReferenceError(
            f"the reference is not followed: its payload belongs to the topic {topic}",
            hint=f"If it is legitimate, add the topic to {REFERENCE_TOPICS.name}",
            store=store.scheme,
            reference=reference.url[:500],
        )


def reference_topic(store: PayloadStore, url: str) -> str | None:
    """The topic in a reference; None if the store's references contain none."""
    return store.topic_of(url) if isinstance(store, SupportsTopics) else None


def format_to_write(config: Mapping[str, object], *, is_key: bool) -> tuple[ReferenceFormat, str]:
    """The format of written references, and the id strategy.

    Raises:
        ConfigError: The format is unknown, or incompatible with the ids or the compression.
    """
    name = FORMAT.read(config)
    reference_format = find_format(name)
    if not reference_format.writes:
        raise ConfigError(
            f"the format {name} is only read", hint=f"Name it in {ACCEPT.name}, and write another one", key=FORMAT.name
        )
    # Compaction and partitioning compare keys byte by byte, so equal keys require equal references.
    strategy = "content" if is_key else ID.read(config)
    if strategy not in reference_format.id_strategies:
        known = ", ".join(reference_format.id_strategies)
        raise ConfigError(
            f"{ID.name} = {strategy} is not available in the format {name}", hint=f"Available: {known}", key=ID.name
        )
    if COMPRESSION.read(config) != "none" and not reference_format.compresses:
        raise ConfigError(
            f"{COMPRESSION.name} is not available in the format {name}",
            hint="Put a compress stage in front of large-message",
            key=COMPRESSION.name,
        )
    return reference_format, strategy


def with_content_ids(config: Mapping[str, object]) -> dict[str, object]:
    """A configuration whose default are content ids, if its format has them: repeated writes share their objects."""
    of_values = settings_of(config, is_key=False)
    if of_values.get(ID.name) is None and "content" in find_format(FORMAT.read(of_values)).id_strategies:
        return {**config, ID.name: "content"}
    return dict(config)
