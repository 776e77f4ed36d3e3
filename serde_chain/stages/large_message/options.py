"""The keys of ``large-message``, and what both directions make of them."""

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
from serde_chain.catalogue import find_format
from serde_chain.errors import ConfigError, SerializationError
from serde_chain.record import Context
from serde_chain.stages.large_message import offload_codecs
from serde_chain.wire.reference_format import Reference, ReferenceFormat

T = TypeVar("T", bound=SerializationError)

KIP_THRESHOLD_BYTES: Final = 1048576


def _store(value: object) -> Any:
    """A store by name, class, instance or mapping; the store registry tells them apart."""
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
    doc="further payload stores to read from, asked in this order whether a reference is theirs",
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
    doc="larger payloads go to the store (default 1048576); auto: what topic and client accept",
)
TTL: Final = Option(
    "large.message.threshold.ttl.ms", integer(1), 300_000, doc="how long a topic's limit is remembered (auto, hop)"
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
    doc="how references are written: kip1159, hop, bakdata-flag, bakdata-headers, or a format of your own",
)
ACCEPT: Final[Option[tuple[str, ...]]] = Option(
    "large.message.accept",
    listing,
    ("kip1159", "bakdata-headers"),
    doc="formats of references that are read; hop too with its store",
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
    doc="whose payloads a record may refer to: any, same (its own topic's), or a list of topics, same among them",
)
LAZY: Final = "lazy"
FETCH: Final = Option(
    "large.message.fetch",
    choice("eager", LAZY),
    "eager",
    doc="lazy: values are handles (serde_chain.PayloadHandle), whose payloads are fetched when they are asked for",
)
TIMEOUT: Final = PayloadStore.TIMEOUT
CACHE: Final = Option(
    "large.message.store.cache.bytes",
    integer(0),
    0,
    doc="most bytes of downloaded payloads that stay in memory, for records that refer to the same; 0: none",
)
RETRIES: Final = Option(
    "large.message.store.retry.attempts",
    integer(1),
    1,
    doc="attempts for what fails for a while, in all, each with the store's own; 1: only those",
)
UPLOADS_IN_FLIGHT: Final = Option(
    "large.message.uploads.in.flight", integer(1), 8, of_client=True, doc="most uploads of a producer at a time"
)
BUFFER_BYTES: Final = Option(
    "large.message.buffer.bytes",
    integer(1),
    256 << 20,
    of_client=True,
    doc="most bytes of a producer's records that wait for uploads; a record that is larger waits alone",
)
JOURNAL_PATH: Final[Option[Path | None]] = Option(
    "large.message.journal.path",
    lambda value: value if isinstance(value, Path) else Path(text(value)),
    None,
    of_client=True,
    doc="file, one for each producer, with its uploads: its next start deletes what a killed one has not sent",
)
JOURNAL_FSYNC: Final = Option(
    "large.message.journal.fsync",
    boolean,
    False,
    of_client=True,
    doc="force each note to disk, so that the journal counts after a loss of power as well",
)
DOWNLOADS_IN_FLIGHT: Final = Option(
    "large.message.downloads.in.flight",
    integer(1),
    8,
    doc="most downloads at a time, ahead of the reader of a topic or a batch",
)
DOWNLOADS_BYTES: Final = Option(
    "large.message.downloads.max.bytes",
    integer(1),
    64 << 20,
    doc="most bytes that are downloaded ahead of the reader; 256 MiB in consumers where it is not set",
)

OF_ROUTES: Final[tuple[Option[Any], ...]] = (STORE, STORES, THRESHOLD, ID, FORMAT, COMPRESSION, TIMEOUT, CACHE, RETRIES)
"""Keys that may differ from topic to topic."""
OF_WRITERS: Final[tuple[Option[Any], ...]] = (
    *(STORE, THRESHOLD, TTL, ID, FORMAT, COMPRESSION, TIMEOUT, CACHE, RETRIES),
    # Of the producer around the chain.
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
    """The switches of a store; those of most stores are always on."""
    return store if isinstance(store, SupportsOptOut) else _ALWAYS_ON


def murmur3_digest(data: Buffer) -> str:
    """MurmurHash3 (x64, 128 bits, seed 0), one of the ids of bakdata's library: ``murmur3:`` and 32 hexadecimal digits.

    Raises:
        MissingDependencyError: mmh3 is not installed.
    """
    return f"{MURMUR3}:{require('mmh3', 'bakdata').hash_bytes(data).hex()}"


def without_record(kind: type[T]) -> T:
    """The error of a chain that was called with the data alone, as clients do that know no context."""
    error = kind(
        "large-message needs the record around the data: its topic and headers",
        hint="A client that calls serializers with the data alone, as aiokafka and kafka-python do, needs the adapter "
        "serde_chain.clients.aiokafka; elsewhere, pass a RecordContext or SerializationContext",
    )
    error.about_record = False
    return error


class ReferenceTopics:
    """Whose payloads a record may refer to: a reader follows references that every writer may make.

    Args:
        topics: The value of :data:`REFERENCE_TOPICS`.
        stores: The stores that are read.

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
                f"references of the store {silent.scheme} do not contain a topic by which they could be refused",
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
            UntrustedReferenceError: The record may not refer to it.
        """
        if self._any:
            return
        store = store_of(reference.url)
        topic = reference_topic(store, reference.url)
        if topic in self._names or (self._same and ctx is not None and ctx.topic and topic == ctx.topic):
            return
        raise UntrustedReferenceError(
            f"the reference is not followed: it is to a payload of the topic {topic}",
            hint=f"If it is legitimate, add the topic to {REFERENCE_TOPICS.name}",
            store=store.scheme,
            reference=reference.url[:500],
        )


def reference_topic(store: PayloadStore, url: str) -> str | None:
    """The topic in a reference; None where the store's references contain none."""
    return store.topic_of(url) if isinstance(store, SupportsTopics) else None


def format_to_write(config: Mapping[str, object], *, is_key: bool) -> tuple[ReferenceFormat, str]:
    """The format that references are written in, and how ids are made.

    Raises:
        ConfigError: The format is not known, or does not go with ids or compression.
    """
    name = FORMAT.read(config)
    reference_format = find_format(name)
    # Compaction and partitioning compare keys byte by byte, so equal keys need equal references.
    strategy = "content" if is_key else ID.read(config)
    if strategy not in reference_format.id_strategies:
        known = ", ".join(reference_format.id_strategies)
        raise ConfigError(
            f"{ID.name} = {strategy} is not available in the format {name}", hint=f"It has {known}", key=ID.name
        )
    if COMPRESSION.read(config) != "none" and not reference_format.compresses:
        raise ConfigError(
            f"{COMPRESSION.name} is not available in the format {name}",
            hint="Put a compress stage in front of large-message",
            key=COMPRESSION.name,
        )
    return reference_format, strategy
