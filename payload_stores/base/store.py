"""The payload store contract (KIP-1159, "PayloadStore"): required and default methods of every store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from payload_stores import ids
from payload_stores.base.capability import HasCapabilities
from payload_stores.base.checks import Checks
from payload_stores.base.context import PublishContext
from payload_stores.base.signatures import adapt_methods
from payload_stores.buffers import Buffer
from payload_stores.options import Option, integer, listing

__all__ = ["PayloadStore", "PublishContext"]


class PayloadStore(Checks, HasCapabilities, ABC):
    """Stores payloads too large for a record, and returns a reference to each.

    References are URLs ``<scheme>://…/<topic>/<id>`` and never change. A store reads only below its own prefix; other
    references raise :class:`~payload_stores.errors.UntrustedReferenceError`. Stores are thread-safe. Every error is a
    :class:`~payload_stores.errors.PayloadStoreError`. ``publish`` and ``download`` are required. A subclass may define
    the KIP's methods with the KIP's arguments: ``publish(self, topic, data)`` and ``id(self, data)`` are called without
    the context.

    Attributes:
        scheme: URL scheme of the references.
        options: Configuration keys of the store, besides those shared by all stores.
        trusted_references: Further reference prefixes it may read (``large.message.trusted.references``).
        max_payload_bytes: Largest payload it downloads, in bytes (``large.message.max.payload.bytes``).
        grace_ms: Age in ms from which a sweep may delete payloads without a record (``large.message.grace.ms``).
        stable_references: Whether publishing a payload again with the same id returns the same reference. If not, each
            payload belongs to one record, and keys cannot be offloaded: equal keys must stay equal.
        follows_context: Whether ``publish`` takes the context, with the id that it asks for. If not, the store chooses
            its ids itself, and ``large.message.id`` has no effect on them. Determined from the signature.

    Example:
        >>> from payload_stores import open_store
        >>> store = open_store("memory", {})
        >>> store.download(store.publish("alerts", b"payload"))
        b'payload'
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
    options: ClassVar[tuple[Option[Any], ...]] = (TRUSTED, MAX_PAYLOAD, GRACE)

    scheme: str
    trusted_references: tuple[str, ...] = ()
    max_payload_bytes: int = 1 << 30
    grace_ms: int = 86_400_000
    stable_references: bool = True
    follows_context: bool = True

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        adapt_methods(cls)

    def configure(self, config: Mapping[str, object]) -> None:
        """Read the configuration: dotted keys, including those of other stores and the client.

        Raises:
            ConfigError: A required key is missing or a value is wrong.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {"large.message.max.payload.bytes": "1000"}).max_payload_bytes
            1000
        """
        self.trusted_references = self.TRUSTED.read(config)
        self.max_payload_bytes = self.MAX_PAYLOAD.read(config)
        self.grace_ms = self.GRACE.read(config)

    @abstractmethod
    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        """Store a payload. With a deterministic id, reuse an existing object, or renew it (``is_stale``).

        Args:
            topic: Topic of the record, part of the reference.
            data: The payload.
            context: How to make the id, and known facts about the payload.

        Returns:
            The full reference; from now on, the payload is readable.

        Raises:
            PayloadStoreError: Storing failed; no partial payload is readable.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).publish("alerts", b"payload", PublishContext(payload_id="1"))
            'memory:///alerts/1'
        """

    @abstractmethod
    def download(self, reference: str) -> bytes:
        """Fetch a payload by the reference returned by :meth:`publish`.

        Raises:
            UntrustedReferenceError: The reference is not this store's.
            PayloadNotFoundError: The payload is gone.
            PayloadTooLargeError: The payload is larger than ``max_payload_bytes``.
            PayloadStoreError: Fetching failed.

        Example:
            >>> from payload_stores import open_store
            >>> store = open_store("memory", {})
            >>> store.download(store.publish("alerts", b"payload"))
            b'payload'
        """

    def download_verified(self, reference: str, *, size: int | None = None, digest: str | None = None) -> bytes:
        """Fetch a payload and verify it. Override it if a library already computes the digest.

        A payload larger than published is refused by :meth:`check_size`, before it is fetched.

        Args:
            reference: The reference returned by :meth:`publish`.
            size: Published size in bytes; None if unknown.
            digest: Published ``sha256:<hex>``; None if unknown.

        Raises:
            PayloadIntegrityError: Size or digest differ.
            PayloadStoreError: As :meth:`download`.

        Example:
            >>> from payload_stores import open_store
            >>> store = open_store("memory", {})
            >>> store.download_verified(store.publish("alerts", b"payload"), size=7)
            b'payload'
        """
        with self._expecting(reference, size):
            payload = self.download(reference)
        self.verify(payload, reference, size=size, digest=digest)
        return payload

    def id(self, data: Buffer, context: PublishContext | None = None) -> str:
        """Make the id of a payload, a relative URL path; override it for other kinds of ids (KIP-1159).

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
        """The reference that ``publish`` will return for an id; None if only ``publish`` can know it.

        Raises:
            PayloadStoreError: Not a Kafka topic name, or an id unusable for this store.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).reference("alerts", "1")
            'memory:///alerts/1'
        """
        return None

    def worst_case_ms(self) -> int | None:
        """Maximum duration of one request in ms, from the store's own timeouts and retries; None if unbounded.

        Compared with ``max.block.ms`` and ``max.poll.interval.ms`` when a client is configured (KIP-1159).

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).worst_case_ms() is None
            True
        """
        return None

    def owns(self, reference: str) -> bool:
        """Whether the store may follow a reference: whether it is below its own prefix or a trusted one.

        Performs no I/O and raises nothing: for a bad reference below the prefix, :meth:`download` raises. By default
        the scheme decides; stores with a prefix derive from :class:`payload_stores.references.RootedStore`.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).owns("memory:///alerts/1"), open_store("memory", {}).owns("s3://bucket/t/1")
            (True, False)
        """
        return reference.startswith(f"{self.scheme}://")

    def claim(self, reference: str) -> int:
        """Number of segments, host included, of the longest prefix that owns a reference; 0 if none does.

        Of a reader's stores, the one with the largest claim follows the reference: prefixes may nest, and the order of
        the stores does not matter. Performs no I/O and raises nothing; ``RootedStore`` implements it.

        Example:
            >>> from payload_stores import open_store
            >>> open_store("memory", {}).claim("memory:///alerts/1"), open_store("memory", {}).claim("s3://bucket/t/1")
            (1, 0)
        """
        return int(self.owns(reference))

    def close(self) -> None:
        """Release connections and threads. Further calls do nothing."""
