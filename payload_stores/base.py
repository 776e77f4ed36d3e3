"""The payload store contract (KIP-1159, "PayloadStore"), and small protocols for what not every store can do."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, ClassVar, Final, Protocol, runtime_checkable

from payload_stores import ids
from payload_stores.errors import (
    PayloadIntegrityError,
    PayloadStoreError,
    PayloadTooLargeError,
    UntrustedReferenceError,
)
from payload_stores.ids import Buffer, IdStrategy
from payload_stores.options import Option, integer, listing
from payload_stores.records import StoredRecord

__all__ = [
    "CAPABILITIES",
    "Buffer",
    "PayloadInfo",
    "PayloadStore",
    "PublishContext",
    "RecordWriter",
    "StoredRecord",
    "SupportsDelete",
    "SupportsExpiration",
    "SupportsInfo",
    "SupportsLeftoverCount",
    "SupportsLeftovers",
    "SupportsLinks",
    "SupportsList",
    "SupportsOptOut",
    "SupportsPreparation",
    "SupportsRanges",
    "SupportsRecords",
    "SupportsRetryCount",
    "SupportsStreaming",
    "SupportsTopics",
    "SupportsTransactions",
]

# Kafka's own rule for topic names; it leaves no room for separators or for leaving a folder, save "." and "..".
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class PublishContext:
    """Facts about a payload that a store may want to know beyond its topic.

    Attributes:
        id_strategy: How ids are made; ``content`` and ``keyed`` are deterministic.
        key: The record's encoded key, needed for ``keyed``.
        digest: ``sha256:<hex>`` of the payload if it is known already, so that it is not computed twice.
        is_key: Whether the payload is a record's key rather than its value.
        payload_id: The id itself, where the reference's format makes it.

    Example:
        >>> PublishContext("content").deterministic
        True
    """

    id_strategy: IdStrategy = "random"
    key: bytes | None = None
    digest: str | None = None
    is_key: bool = False
    payload_id: str | None = None

    @property
    def deterministic(self) -> bool:
        """Whether the same payload gets the same id: then an object that is there already need not be written again."""
        return self.id_strategy != "random"


@dataclass(frozen=True, slots=True)
class PayloadInfo:
    """One stored payload, as listings return it.

    Attributes:
        reference: Full reference.
        size: Size in bytes.
        modified: When it was written, with time zone.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> reference = store.publish("listed", b"payload")
        >>> [info.size for info in store.list("listed") if info.reference == reference]
        [7]
    """

    reference: str
    size: int
    modified: datetime


class PayloadStore(ABC):
    """Keeps payloads that are too large for a record, and returns a reference for each.

    References are URLs ``<scheme>://…/<topic>/<id>`` and never change. A store reads only below its own prefix;
    anything else is an :class:`~payload_stores.errors.UntrustedReferenceError`. Stores are used by several threads at
    once. Every error a store raises is a :class:`~payload_stores.errors.PayloadStoreError`.

    Attributes:
        scheme: URL scheme of the references.
        options: The configuration keys that the store reads beside those all stores share.
        trusted_references: Further reference prefixes that may be read (``large.message.trusted.references``).
        max_payload_bytes: Largest payload that is downloaded, in bytes (``large.message.max.payload.bytes``).
        grace_ms: Age in ms from which a sweep may delete payloads without a record (``large.message.grace.ms``).
        stable_references: Whether a payload that is published again with the same id gets the same reference. Where it
            does not, each payload belongs to one record, and keys cannot be put there: equal keys have to stay equal.
        shares_listing: Whether a listing by the first characters of ids costs as much as what it lists, and not as the
            whole topic, so that several readers gain by sharing it.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> reference = store.publish("alerts", b"payload")
        >>> store.download(reference)
        b'payload'
    """

    scheme: str

    TRUSTED: ClassVar[Option[tuple[str, ...]]] = Option(
        "large.message.trusted.references",
        listing,
        (),
        doc="reference prefixes that may be read beside the store's own",
    )
    MAX_PAYLOAD: ClassVar[Option[int]] = Option(
        "large.message.max.payload.bytes", integer(1), 1 << 30, doc="largest payload that is downloaded"
    )

    GRACE: ClassVar[Option[int]] = Option(
        "large.message.grace.ms",
        integer(0),
        86_400_000,
        doc="how old payloads are before a sweep may delete them; ids of the content renew what is half as old",
    )

    TIMEOUT: ClassVar[Option[int]] = Option(
        "large.message.store.timeout.ms", integer(1), 60_000, doc="deadline of one upload or download, retries included"
    )
    """Kept by the stage around its stores; one that asks several stores shares it among them."""

    options: ClassVar[tuple[Option[Any], ...]] = (TRUSTED, MAX_PAYLOAD, GRACE)

    trusted_references: tuple[str, ...] = ()
    max_payload_bytes: int = 1 << 30
    grace_ms: int = 86_400_000
    stable_references: bool = True
    shares_listing: bool = False

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the client's configuration.

        Args:
            config: Flat mapping of dotted keys; keys of other stores and of the client are ignored.

        Raises:
            ConfigError: A required key is missing or a value is wrong.

        Example:
            >>> from payload_stores.memory import MemoryStore
            >>> store = MemoryStore()
            >>> store.configure({"large.message.max.payload.bytes": "1000"})
            >>> store.max_payload_bytes
            1000
        """
        self.trusted_references = self.TRUSTED.read(config)
        self.max_payload_bytes = self.MAX_PAYLOAD.read(config)
        self.grace_ms = self.GRACE.read(config)

    @abstractmethod
    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Store a payload; one of a deterministic id that is there already is relied on, or renewed.

        Args:
            topic: Topic of the record, a part of the reference.
            data: The payload, in bytes.
            context: How to make the id, and what is known about the payload.

        Returns:
            The full reference; the payload can be read from now on.

        Raises:
            PayloadStoreError: It could not be stored; nothing half-written can be read.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).publish("alerts", b"payload", PublishContext(payload_id="1"))
            'memory:///alerts/1'
        """

    @abstractmethod
    def download(self, reference: str) -> bytes:
        """Fetch a payload.

        Args:
            reference: What :meth:`publish` returned.

        Returns:
            The payload, in bytes.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
            PayloadNotFoundError: The payload is gone.
            PayloadTooLargeError: It is larger than ``max_payload_bytes``.
            PayloadStoreError: It could not be fetched.

        Example:
            >>> from payload_stores import open_store
            >>> store = open_store("memory", {})
            >>> store.download(store.publish("alerts", b"payload"))
            b'payload'
        """

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Fetch a payload, and compare it with what was published.

        A store that computes the digest of what arrives may override it; the digest is computed nowhere else.

        Args:
            reference: What :meth:`publish` returned.
            size: The payload's size in bytes; None if it is not known.
            digest: ``sha256:<hex>`` of it, likewise.

        Raises:
            PayloadIntegrityError: Size or digest are not those that were published.
            PayloadStoreError: As in :meth:`download`.

        Example:
            >>> from payload_stores import open_store
            >>> store = open_store("memory", {})
            >>> store.download_verified(store.publish("alerts", b"payload"), size=7)
            b'payload'
        """
        payload = self.download(reference)
        self.verify(payload, reference, size=size, digest=digest)
        return payload

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        """Make the id of a payload; override for ids of another kind (KIP-1159, ``PayloadStore.id``).

        Args:
            data: The payload, in bytes.
            context: Strategy, key and digest.

        Returns:
            The id, a relative URL path.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).id(b"payload", PublishContext("content"))
            '239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5'
        """
        context = context or PublishContext()
        if context.payload_id is not None:
            return context.payload_id
        return ids.payload_id(data, context.id_strategy, key=context.key, digest=context.digest)

    def reference(self, topic: str, payload_id: str) -> str | None:
        """The reference that a payload of a known id gets, before it is published.

        Args:
            topic: Topic of the record.
            payload_id: The id (:attr:`PublishContext.payload_id`).

        Returns:
            The reference; None where only :meth:`publish` knows it.

        Raises:
            PayloadStoreError: The topic is not a Kafka topic name, or the id not one that the store can use.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).reference("alerts", "1")
            'memory:///alerts/1'
        """
        return None

    def worst_case_ms(self) -> int | None:
        """Longest time in ms that one request may take by the store's own timeouts and retries; None if unbounded.

        Compared with ``max.block.ms`` and ``max.poll.interval.ms`` when a client's configuration is read (KIP-1159).

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).worst_case_ms() is None
            True
        """
        return None

    def owns(self, reference: str) -> bool:
        """Whether a reference lies below the store's own prefix or a trusted one, so that this store is to follow it.

        A reader with several stores asks them in order, so that two may have the same scheme. The answer costs no I/O
        and never raises; :meth:`download` raises what is wrong with a reference that the store owns. Stores with a
        prefix inherit another answer (:class:`payload_stores.references.RootedStore`); by default the scheme decides.

        Args:
            reference: The reference as it came from the wire.

        Example:
            >>> from payload_stores import open_store
            >>> store = open_store("memory", {})
            >>> store.owns("memory:///alerts/1"), store.owns("s3://bucket/alerts/1")
            (True, False)
        """
        return reference.startswith(f"{self.scheme}://")

    def claim(self, reference: str) -> int:
        """How closely a reference is the store's: the reader's store with the largest claim follows it.

        So a store whose prefix lies below another's gets its references, in whatever order the two are configured. Like
        :meth:`owns`, it costs no I/O and never raises; stores with a prefix inherit both
        (:class:`payload_stores.references.RootedStore`).

        Args:
            reference: The reference as it came from the wire.

        Returns:
            The number of segments of the longest prefix, its host included; 0 if the store does not own the reference.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).claim("memory:///alerts/1"), open_store("memory", {}).claim("s3://bucket/t/1")
            (1, 0)
        """
        return int(self.owns(reference))

    def close(self) -> None:
        """Release connections and threads. Calling it again does nothing."""

    def check_topic(self, topic: str) -> str:
        """Return the topic if it is a legal Kafka topic name, which makes it a safe path segment too.

        Raises:
            PayloadStoreError: It is not.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).check_topic("../alerts")
            Traceback (most recent call last):
                ...
            payload_stores.errors.PayloadStoreError: '../alerts' is not a Kafka topic name [store=memory]
        """
        if topic in {".", ".."} or not _TOPIC.fullmatch(topic):
            raise PayloadStoreError(f"{topic!r} is not a Kafka topic name", store=self.scheme)
        return topic

    def check_size(self, size: int, reference: str) -> None:
        """Refuse a download above ``max_payload_bytes``, before memory is allocated for it.

        Raises:
            PayloadTooLargeError: It is larger.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).check_size(1000, "memory:///alerts/1")
        """
        if size > self.max_payload_bytes:
            raise PayloadTooLargeError(
                f"the payload has {size} bytes, more than the {self.max_payload_bytes} that may be read",
                hint=f"Raise {self.MAX_PAYLOAD.name} if this is expected",
                store=self.scheme,
                reference=reference,
            )

    def verify(self, payload: Buffer, reference: str, *, size: int | None = None, digest: str | None = None) -> None:
        """Compare a payload with what was published.

        Raises:
            PayloadIntegrityError: Its size or digest is another one.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).verify(b"payload", "memory:///alerts/1", size=7)
        """
        if size is not None and len(payload) != size:
            raise PayloadIntegrityError(
                f"the payload has {len(payload)} bytes, but {size} were published",
                store=self.scheme,
                reference=reference,
            )
        if digest is not None and ids.sha256_digest(payload) != digest:
            raise PayloadIntegrityError(
                "the payload's digest is not the one that was published", store=self.scheme, reference=reference
            )

    def is_stale(self, modified: datetime) -> bool:
        """Whether an object is too old for a new record to rely on, since a sweep may be about to delete it.

        A store that can be listed asks this when a payload of a deterministic id is there already, and then renews the
        object: afterwards it counts as written just now. Half of the grace period is left for a sweep that has listed
        it before.

        Args:
            modified: When the object was written or last renewed, with time zone.

        Example:
            >>> from datetime import UTC, datetime, timedelta
            >>> from payload_stores import open_store
            >>> store = open_store("memory", {"large.message.grace.ms": 3_600_000})
            >>> now = datetime.now(UTC)
            >>> store.is_stale(now), store.is_stale(now - timedelta(minutes=31))
            (False, True)
        """
        return datetime.now(UTC) - modified >= timedelta(milliseconds=self.grace_ms / 2)

    def untrusted(self, reference: str, why: str) -> UntrustedReferenceError:
        """Make the error for a reference that is not followed.

        Args:
            reference: The reference, as it came from the wire.
            why: What is wrong with it.

        Example:
            >>> from payload_stores import open_store
            >>> print(open_store("memory", {}).untrusted("s3://bucket/alerts/1", "its scheme is not memory").message)
            the reference is not followed: its scheme is not memory
        """
        return UntrustedReferenceError(
            f"the reference is not followed: {why}",
            hint="If it is legitimate, add its store to large.message.payload.store.classes, or list its prefix in "
            f"{self.TRUSTED.name}",
            store=self.scheme,
            reference=reference[:500],
        )


@runtime_checkable
class SupportsDelete(Protocol):
    """A store that can delete a payload.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> if isinstance(store, SupportsDelete):
        ...     store.delete(store.publish("alerts", b"payload"))
    """

    def delete(self, reference: str) -> None:
        """Delete a payload; deleting one that is gone already succeeds.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: It could not be deleted.
        """


@runtime_checkable
class SupportsList(Protocol):
    """A store that can list a topic's payloads.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> isinstance(store, SupportsList) and list(store.list("empty"))
        []
    """

    def list(self, topic: str, *, prefix: str = "", before: datetime | None = None) -> Iterator[PayloadInfo]:
        """Yield the payloads of a topic, in no particular order, a page at a time.

        Args:
            topic: The topic.
            prefix: The first characters of the ids that are wanted, so that several readers can share a large topic;
                it may contain ``/``.
            before: Only what was written or renewed earlier than this, with time zone.

        Raises:
            PayloadStoreError: The listing is not complete.
        """


@runtime_checkable
class SupportsInfo(Protocol):
    """A store that looks at one payload without reading it, for less than a listing costs.

    Where a listing by the first characters of an id is one request, a store does not need it.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.info(store.publish("alerts", b"payload")).size
        7
    """

    def info(self, reference: str) -> PayloadInfo:
        """Size and time of a payload, as a listing has them.

        Raises:
            PayloadNotFoundError: It is gone.
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: The store does not say.
        """


@runtime_checkable
class SupportsRetryCount(Protocol):
    """A store that repeats requests, and counts them.

    Attributes:
        retries: How many requests it has repeated since it was opened.

    Example:
        >>> from payload_stores import open_store
        >>> from payload_stores.middleware import Retry
        >>> Retry(open_store("memory", {})).retries
        0
    """

    retries: int


@runtime_checkable
class SupportsLeftovers(Protocol):
    """A store in which writers that are killed leave something behind that no listing shows.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.remove_leftovers(older_than_ms=3_600_000)  # doctest: +SKIP
        2
    """

    def remove_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Remove what writers have left behind: temporary files, parts of uploads that were never completed.

        Args:
            older_than_ms: What is more recent may belong to a writer that is alive, and stays; in ms.

        Returns:
            How many uploads were removed.

        Raises:
            PayloadStoreError: They could not be listed or removed.
        """


@runtime_checkable
class SupportsLeftoverCount(Protocol):
    """A store that counts what :class:`SupportsLeftovers` would remove, and leaves it.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.count_leftovers(older_than_ms=3_600_000)  # doctest: +SKIP
        2
    """

    def count_leftovers(self, older_than_ms: int = 86_400_000) -> int:
        """Count what writers have left behind.

        Args:
            older_than_ms: What is more recent may belong to a writer that is alive, and does not count; in ms.

        Raises:
            PayloadStoreError: It could not be listed.
        """


@runtime_checkable
class SupportsStreaming(Protocol):
    """A store that stores and returns payloads piece by piece, in constant memory.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("local", {"local.path": "/srv/payloads"})  # doctest: +SKIP
        >>> with open("image.fits", "rb") as file:  # doctest: +SKIP
        ...     reference = store.publish_stream("images", file)
    """

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        """Store all that a binary reader returns. In all else as :meth:`PayloadStore.publish`."""

    def open(self, reference: str) -> BinaryIO:
        """Open a payload for reading; the caller closes it. Errors as in :meth:`PayloadStore.download`."""


@runtime_checkable
class SupportsRanges(Protocol):
    """A store that returns a part of a payload without reading the rest.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.read_range(store.publish("alerts", b"0123456789"), 2, 3)
        b'234'
    """

    def read_range(self, reference: str, start: int, length: int) -> bytes:
        """Fetch a part of a payload. In all else as :meth:`PayloadStore.download`.

        Args:
            reference: The reference.
            start: Where the part begins, in bytes.
            length: How many bytes; fewer are returned where the payload ends before, none at or behind its end.

        Raises:
            ValueError: One of the numbers is negative.
        """


@runtime_checkable
class SupportsLinks(Protocol):
    """A store whose server lets others fetch a payload by a link, without credentials, for a while.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.link(reference, seconds=600)  # doctest: +SKIP
        'https://payloads.s3.amazonaws.com/alerts/1?X-Amz-Signature=…'
    """

    def link(self, reference: str, seconds: int = 3600) -> str:
        """Make a link to a payload; a secret until it expires. Nothing is sent, so that the payload may be gone.

        Args:
            reference: The reference.
            seconds: How long the link is valid.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
            PayloadStoreError: The store cannot sign it, or not for so long.
        """


@runtime_checkable
class SupportsExpiration(Protocol):
    """A store whose server deletes payloads by itself when they are old enough.

    Example:
        >>> from datetime import timedelta
        >>> from payload_stores import open_store
        >>> store = open_store("s3", {"s3.bucket": "payloads"})  # doctest: +SKIP
        >>> store.set_expiration("alerts", timedelta(days=9))  # doctest: +SKIP
        >>> store.expiration("alerts")  # doctest: +SKIP
        datetime.timedelta(days=9)
    """

    def expiration(self, topic: str) -> timedelta | None:
        """The age at which payloads of a topic are deleted by the server, the earliest where several rules apply.

        Returns:
            The age; None if they are kept.

        Raises:
            PayloadStoreError: The rules cannot be read.
        """

    def set_expiration(self, topic: str, age: timedelta | None) -> None:
        """Have the server delete payloads of a topic at an age; other rules stay as they are.

        Args:
            topic: The topic.
            age: The age, rounded up to what the server can do (S3: whole days); None removes the topic's rule.

        Raises:
            PayloadStoreError: The rule cannot be set.
        """


@runtime_checkable
class SupportsRecords(Protocol):
    """A store that keeps whole records: headers and key beside the payload.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("hop", {"hop.offload.url": "https://offload.example.org"})  # doctest: +SKIP
        >>> store.download_record(reference).key  # doctest: +SKIP
        b'M 51'
    """

    def publish_record(self, topic: str, record: StoredRecord, context: PublishContext | None = None) -> str:
        """Store a record. In all else as :meth:`PayloadStore.publish`."""

    def download_record(self, reference: str) -> StoredRecord:
        """Fetch a record. In all else as :meth:`PayloadStore.download`."""


@runtime_checkable
class SupportsTopics(Protocol):
    """A store whose references contain the topic for which a payload was published.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.topic_of("memory:///alerts/1")
        'alerts'
    """

    def topic_of(self, reference: str) -> str:
        """The topic in a reference; below a trusted prefix, it is the first segment.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
        """


class RecordWriter(Protocol):
    """A client's producer, for a store that writes into the same transaction.

    Attributes:
        max_record_bytes: Largest record that it sends, key, headers and their frame included.

    Example:
        >>> writer.write("alerts.payloads", 0, [(b"id/0", b"first", ()), (b"id/1", b"second", ())])  # doctest: +SKIP
        (17, 18)
    """

    max_record_bytes: int

    def write(
        self,
        topic: str,
        partition: int,
        records: Iterable[tuple[bytes, Buffer | None, tuple[tuple[str, bytes], ...]]],
    ) -> tuple[int, ...]:
        """Send records to one partition, in order, and wait until they are written.

        Args:
            topic: The topic.
            partition: The partition.
            records: Key, value and headers of each; a value of None makes a tombstone.

        Returns:
            The records' offsets, in order.

        Raises:
            PayloadStoreError: One of them was not written.
        """


@runtime_checkable
class SupportsTransactions(Protocol):
    """A store that can make payloads visible together with the record that refers to them.

    Attributes:
        joins_transactions: Whether it writes to the client's own cluster, where the transactions are.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("kafka", {"bootstrap.servers": "localhost:9092"})  # doctest: +SKIP
        >>> store.within(writer).publish("alerts", b"payload")  # doctest: +SKIP
        'kafka://5L6g3nShT-eMCtK--X86sw/alerts.payloads/0/17-17/6c8f2c2e-5d0c-4f5e-9d8e-0a6f2f1f3b7a'
    """

    joins_transactions: bool

    def within(self, writer: RecordWriter) -> PayloadStore:
        """The store, writing by a client's transactional producer; it shares all else with this one.

        What it publishes for a transaction that is aborted is never seen, and need not be deleted.

        Args:
            writer: The client's producer.
        """


@runtime_checkable
class SupportsOptOut(Protocol):
    """A store that may be switched off, by its user or by what its broker says.

    Attributes:
        sender: Name of the user as which the store publishes, for formats that write it down; None if it has none.
        offloads: Whether payloads are to be published; if not, records stay as they are.
        fetches: Whether references are to be followed; if not, readers get the references themselves.

    Example:
        >>> from payload_stores import open_store
        >>> config = {"hop.offload.url": "https://offload.example.org", "automatic_offload": False}
        >>> store = open_store("hop", config)  # doctest: +SKIP
        >>> store.why_not()  # doctest: +SKIP
        'automatic_offload is off'
    """

    sender: str | None
    offloads: bool
    fetches: bool

    def why_not(self) -> str | None:
        """Say why nothing can be published here at all; None if it can.

        Asked before a payload is published. Records then stay as they are, and the client refuses what is too large.
        May take as long as a request, within time limits of the store's own. A reason that is not the user's own wish
        is logged, once, as a warning.
        """


@runtime_checkable
class SupportsPreparation(Protocol):
    """A store that makes something beside a topic's payloads, with the first of them.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("kafka", {"bootstrap.servers": "localhost:9092"})  # doctest: +SKIP
        >>> store.unprepared("alerts")  # doctest: +SKIP
        'the payload topic alerts.payloads'
    """

    def unprepared(self, topic: str) -> str | None:
        """Say what is missing yet for a topic's payloads, and would be made; None if nothing is.

        Args:
            topic: The topic.

        Raises:
            PayloadStoreError: The store does not answer, or not to this user.
        """


CAPABILITIES: Final[tuple[type, ...]] = (
    SupportsDelete,
    SupportsExpiration,
    SupportsInfo,
    SupportsLeftoverCount,
    SupportsLeftovers,
    SupportsLinks,
    SupportsList,
    SupportsOptOut,
    SupportsPreparation,
    SupportsRanges,
    SupportsRecords,
    SupportsRetryCount,
    SupportsStreaming,
    SupportsTopics,
    SupportsTransactions,
)
"""All that a store may have beyond :class:`PayloadStore`; a store around another has what the inner one has."""
