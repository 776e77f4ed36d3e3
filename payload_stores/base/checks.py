"""What all stores share: their settings, and checks of topics, sizes, digests, ages and references."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar, Final

from payload_stores import ids
from payload_stores.buffers import Buffer
from payload_stores.errors import (
    PayloadIntegrityError,
    PayloadStoreError,
    PayloadTooLargeError,
    UntrustedReferenceError,
)
from payload_stores.options import Option, integer, listing

if TYPE_CHECKING:
    from datetime import datetime

# Kafka's rule for topic names. It excludes path separators; only "." and ".." could leave a folder.
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")

# Of the download in progress in this thread: store, reference and published size. KIP-1159's ``download`` takes only a
# reference. The store is included because an inner one may hold another form of the payload.
_published: Final[ContextVar[tuple[Checks, str, int] | None]] = ContextVar("_published", default=None)


class Checks:
    """Settings of all stores, and methods for a store to call, not to override.

    Attributes:
        trusted_references: Further reference prefixes it may read (``large.message.trusted.references``).
        max_payload_bytes: Largest payload it downloads, in bytes (``large.message.max.payload.bytes``).
        grace_ms: Age in ms from which a sweep may delete payloads without a record (``large.message.grace.ms``).
    """

    TRUSTED: ClassVar[Option[tuple[str, ...]]] = Option(
        "large.message.trusted.references",
        listing,
        (),
        doc="reference prefixes that may be read besides the store's own",
    )
    MAX_PAYLOAD: ClassVar[Option[int]] = Option(
        "large.message.max.payload.bytes", integer(1), 1 << 30, doc="largest payload that is downloaded"
    )
    GRACE: ClassVar[Option[int]] = Option(
        "large.message.grace.ms",
        integer(0),
        86_400_000,
        doc="age at which a sweep may delete payloads; content ids renew payloads at half of it",
    )
    # The stage enforces it; a store made of several stores divides it among them.
    TIMEOUT: ClassVar[Option[int]] = Option(
        "large.message.store.timeout.ms", integer(1), 60_000, doc="deadline of one upload or download, retries included"
    )

    scheme: str
    trusted_references: tuple[str, ...] = ()
    max_payload_bytes: int = 1 << 30
    grace_ms: int = 86_400_000

    def _read_shared(self, config: Mapping[str, object]) -> None:
        """Read the settings of all stores."""
        self.trusted_references = self.TRUSTED.read(config)
        self.max_payload_bytes = self.MAX_PAYLOAD.read(config)
        self.grace_ms = self.GRACE.read(config)

    def check_topic(self, topic: str) -> str:
        """Return the topic if it is a legal Kafka topic name, which makes it a safe path segment too.

        Raises:
            PayloadStoreError: The name is not legal.

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
        """Refuse a download above ``max_payload_bytes`` or the published size, before memory is allocated for it.

        Args:
            size: Size of the payload in bytes, or of the part read so far.
            reference: The payload's reference.

        Raises:
            PayloadIntegrityError: It is larger than published.
            PayloadTooLargeError: It is larger than the limit.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).check_size(1000, "memory:///alerts/1")
        """
        published = _published.get()
        if published is not None and published[:2] == (self, reference) and size > published[2]:
            raise self._other_size(size, reference, published[2])
        if size > self.max_payload_bytes:
            raise PayloadTooLargeError(
                f"the payload has {size} bytes, more than the {self.max_payload_bytes} that may be read",
                hint=f"Raise {self.MAX_PAYLOAD.name} if this is expected",
                store=self.scheme,
                reference=reference,
            )

    @contextmanager
    def _expecting(self, reference: str, size: int | None) -> Iterator[None]:
        """Have :meth:`check_size` refuse a larger payload than was published, in this block and thread."""
        before = _published.set(None if size is None else (self, reference, size))
        try:
            yield
        finally:
            _published.reset(before)

    def verify(
        self,
        payload: Buffer,
        reference: str,
        *,
        size: int | None = None,
        digest: str | None = None,
        computed: str | None = None,
    ) -> None:
        """Compare a payload with what was published.

        Args:
            payload: The payload.
            reference: Its reference.
            size: The published size in bytes, if known.
            digest: The published digest, ``sha256:<hex>``, if known.
            computed: The payload's own digest, if it was computed as the payload arrived.

        Raises:
            PayloadIntegrityError: Size or digest differ.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).verify(b"payload", "memory:///alerts/1", size=7)
        """
        if size is not None and len(payload) != size:
            raise self._other_size(len(payload), reference, size)
        if digest is not None and (computed or ids.sha256_digest(payload)) != digest:
            raise PayloadIntegrityError(
                "the payload's digest is not the one that was published", store=self.scheme, reference=reference
            )

    def _other_size(self, size: int, reference: str, published: int) -> PayloadIntegrityError:
        return PayloadIntegrityError(
            f"the payload has {size} bytes, but {published} were published", store=self.scheme, reference=reference
        )

    def is_stale(self, modified: datetime) -> bool:
        """Whether an object is too old to reuse for a new record, because a sweep may be about to delete it.

        A store that can list calls this when a payload with the same deterministic id exists, and renews a stale
        object, which then counts as just written. A sweep that listed the object before still has half of the grace
        period.

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
        from datetime import UTC, datetime, timedelta  # few processes list payloads

        return datetime.now(UTC) - modified >= timedelta(milliseconds=self.grace_ms / 2)

    def untrusted(self, reference: str, why: str) -> UntrustedReferenceError:
        """Make the error for a reference that must not be followed.

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
            hint="If it is legitimate, correct the store's address in the configuration, add its store to "
            f"large.message.payload.store.classes, or list its prefix in {self.TRUSTED.name}",
            store=self.scheme,
            reference=reference[:500],
        )
