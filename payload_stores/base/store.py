"""The contract of a payload store (KIP-1159, "PayloadStore"): all that a store's author reads.

Of :class:`PayloadStore`, only ``publish`` and ``download`` are required. Each further ability is a Protocol: a store
has it if it has the methods, and callers ask ``isinstance(store, SupportsDelete)``. A method that takes a reference
raises UntrustedReferenceError if it is not the store's, and one that asks the server PayloadStoreError if that fails.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Protocol, runtime_checkable

from payload_stores.base.capability import Capability, HasCapabilities
from payload_stores.base.checks import Checks
from payload_stores.base.signatures import adapt_methods
from payload_stores.base.values import Lifetimes, PayloadInfo, PublishContext, RecordWriter
from payload_stores.buffers import Buffer
from payload_stores.errors import PayloadStoreError
from payload_stores.options import Option
from payload_stores.records import StoredRecord

if TYPE_CHECKING:
    from datetime import datetime, timedelta  # takes a millisecond, and few processes need it


class PayloadStore(Checks, HasCapabilities, ABC):
    """Stores payloads too large for a record, and returns a reference to each.

    References are URLs ``<scheme>://…/<topic>/<id>`` and never change. A store reads only below its own prefix. Stores
    are thread-safe. A subclass may define the KIP's ``publish(self, topic, data)`` and ``id(self, data)``, which are
    called without the context. ``checks.py`` has the settings of all stores, and what every store checks. Stores with
    a prefix derive from :class:`payload_stores.references.RootedStore`: it has ``owns``, ``claim`` and ``reference``.
    """

    #: Configuration keys of the store, besides those of all stores, which are listed here.
    options: ClassVar[tuple[Option[Any], ...]] = (Checks.TRUSTED, Checks.MAX_PAYLOAD, Checks.GRACE)
    scheme: str  #: URL scheme of the references.
    stable_references: bool = True  #: Whether equal ids have equal references; if not, keys cannot be offloaded.
    follows_context: bool = True  #: Whether ``publish`` takes the context, and so the id; set from its signature.

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        adapt_methods(cls)

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the client's whole configuration: dotted keys. Raises ConfigError if a value is wrong. No I/O."""
        self._read_shared(config)

    @abstractmethod
    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Store a payload; returns its reference, once it is readable. A failed call leaves no partial payload.

        With a deterministic id, an existing object is reused, or renewed if it :meth:`is_stale`.
        """

    @abstractmethod
    def download(self, reference: str) -> bytes:
        """Fetch a payload. Raises PayloadNotFoundError if it is gone, PayloadTooLargeError by :meth:`check_size`."""

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Fetch and :meth:`verify` a payload; override it if a library computes the ``sha256:<hex>`` anyway."""
        with self._expecting(reference, size):
            payload = self.download(reference)
        self.verify(payload, reference, size=size, digest=digest)
        return payload

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        """Make the id of a payload, a relative URL path; override it for other kinds of ids (KIP-1159)."""
        return (context or PublishContext()).make_id(data)

    def reference(self, topic: str, payload_id: str) -> str | None:
        """The reference that ``publish`` will return for an id; None if only ``publish`` can know it."""
        return None

    def worst_case_ms(self) -> int | None:
        """Maximum duration of one request by the store's own timeouts and retries (KIP-1159); None if unbounded."""
        return None

    def owns(self, reference: str) -> bool:
        """Whether the store may follow a reference, by its own prefix or a trusted one. No I/O, no errors."""
        return reference.startswith(f"{self.scheme}://")

    def claim(self, reference: str) -> int:
        """Segments, with the host, of the longest prefix that owns a reference, or 0: the largest claim follows it."""
        return int(self.owns(reference))

    def close(self) -> None:
        """Release connections and threads. Further calls do nothing."""


@runtime_checkable
class SupportsDelete(Protocol, metaclass=Capability):
    """Deletes payloads."""

    def delete(self, reference: str) -> None:
        """Delete a payload; succeeds if it is already gone."""


@runtime_checkable
class SupportsDeleteMany(Protocol, metaclass=Capability):
    """Deletes many payloads at a much lower cost than one by one, such as a thousand per request."""

    def delete_many(self, references: Sequence[str]) -> Mapping[str, PayloadStoreError]:
        """Delete any number; returns the errors of those that stay, by reference. Nothing, if one is untrusted."""


@runtime_checkable
class SupportsInfo(Protocol, metaclass=Capability):
    """Stats one payload, cheaper than by a listing, for which servers may charge twelve times as much."""

    def info(self, reference: str) -> PayloadInfo:
        """Size and time: that of a listing, or its whole second, as in HTTP dates. Raises PayloadNotFoundError."""


@runtime_checkable
class SupportsList(Protocol, metaclass=Capability):
    """Lists the payloads of a topic, completely or with an error. ``delete`` must accept each listed reference."""

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """Yield payloads, unordered, a page at a time: of ids that begin so, last written or renewed before a time."""


@runtime_checkable
class SupportsListRange(Protocol, metaclass=Capability):
    """Lists a range of ids at the cost of these alone, so that several readers can share a topic."""

    def list_range(
        self, topic: str, *, after: str = "", until: str | None = None, before: datetime | None = None
    ) -> Iterator[PayloadInfo]:
        """Like ``list``, sorted by the characters of the ids: those behind ``after``, up to and with ``until``."""


@runtime_checkable
class SupportsStreaming(Protocol, metaclass=Capability):
    """Streams payloads in constant memory."""

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Store the contents of a binary reader. Otherwise like :meth:`PayloadStore.publish`."""

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading; the caller closes it. Same errors as :meth:`PayloadStore.download`."""


@runtime_checkable
class SupportsRanges(Protocol, metaclass=Capability):
    """Reads a part of a payload without the rest."""

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Fetch ``length`` bytes, fewer at the end, none after it. ValueError if a number is negative."""


@runtime_checkable
class SupportsRecords(Protocol, metaclass=Capability):
    """Stores whole records: payload, headers and key."""

    def publish_record(self, topic: str, record: StoredRecord, context: PublishContext | None = None) -> str:
        """Store a record. Otherwise like :meth:`PayloadStore.publish`."""

    def download_record(self, reference: str) -> StoredRecord:
        """Fetch a record. Otherwise like :meth:`PayloadStore.download`."""


@runtime_checkable
class SupportsTopics(Protocol, metaclass=Capability):
    """Has the topic of a payload in its reference."""

    def topic_of(self, reference: str) -> str:
        """The topic in a reference; below a trusted prefix, the first segment."""


@runtime_checkable
class SupportsTransactions(Protocol, metaclass=Capability):
    """Makes payloads visible together with the record referring to them."""

    joins_transactions: bool  #: Whether it writes to the client's own cluster, as transactions require.

    def within(self, writer: RecordWriter) -> PayloadStore:
        """The same store, writing by a client's transactional producer. Aborted payloads need no deletion."""


@runtime_checkable
class SupportsClock(Protocol, metaclass=Capability):
    """Its server tells the time with which it stamps payloads, so that ages do not depend on other clocks."""

    def now(self) -> datetime:
        """The server's time, with time zone, at a resolution of a second or better; never later than it is there."""


@runtime_checkable
class SupportsExpiration(Protocol, metaclass=Capability):
    """Its server deletes payloads at a configured age."""

    def expiration(self, topic: str) -> timedelta | None:
        """The age at which payloads of a topic are deleted; the lowest, if several rules apply; None if kept."""

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        """Configure the age, rounded up to the server's resolution (S3: whole days); None removes the topic's rule."""


@runtime_checkable
class SupportsLifetimes(Protocol, metaclass=Capability):
    """Its server deletes payloads by rules, which may differ among the payloads of a topic."""

    def lifetimes(self, topic: str) -> Lifetimes:
        """The lowest age at which payloads of a topic are deleted, as ``expiration`` returns it, and the highest."""


@runtime_checkable
class SupportsLeftovers(Protocol, metaclass=Capability):
    """Killed writers leave temporary files or incomplete uploads behind, which listings do not show."""

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Remove leftovers of at least this age, since newer ones may be a live writer's; returns their number."""


@runtime_checkable
class SupportsLeftoverCount(Protocol, metaclass=Capability):
    """Counts the leftovers that :class:`SupportsLeftovers` would remove."""

    def count_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """The number of leftovers of at least this age, in ms."""


@runtime_checkable
class SupportsPreparation(Protocol, metaclass=Capability):
    """Creates a further resource with the first payload of a topic."""

    def unprepared(self, topic: str) -> str | None:
        """The missing resource that the first payload would create; None if nothing is missing."""


@runtime_checkable
class SupportsRetryCount(Protocol, metaclass=Capability):
    """Counts its retries."""

    retries: int  #: Number of retried requests since the store was opened.


@runtime_checkable
class SupportsOptOut(Protocol, metaclass=Capability):
    """Can be switched off, by its user or its broker."""

    sender: str | None  #: User name the store publishes as, for formats that record it; None if it has none.
    offloads: bool  #: Whether to publish payloads; otherwise records stay unchanged.
    fetches: bool  #: Whether to follow references; otherwise readers get the references themselves.

    def why_not(self) -> str | None:
        """Why it can publish nothing at all; None if it can. Asked before each payload: at most a request."""
