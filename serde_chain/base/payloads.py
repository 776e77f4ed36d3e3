"""What the library's stages with a payload store offer clients, jobs and each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:  # clients without a store import none
    from payload_stores.base import PayloadStore, RecordWriter
    from payload_stores.buffers import Buffer
    from serde_chain.handles import PayloadHandle
    from serde_chain.record import Context
    from serde_chain.reference import Reference
    from serde_chain.transfer import Transfer


class RecordLimits(Protocol):
    """A client's limits on record size, for stages that can make a record smaller.

    Attributes:
        most: Bytes of the largest value that the client sends.
        setting: The key and value of this limit, for messages: ``message.max.bytes (1000000)``.
        always: Bytes of the largest field that fits into every record without headers and with a key of up to 4096
            bytes, regardless of topic; 0 if unknown.
    """

    most: int
    setting: str
    always: int

    def of_client(self) -> RecordLimits:
        """The client's own limits, for stages that ignore those of topics."""

    def ask(self, ctx: Context | None) -> Transfer[Any] | None:
        """The question that the other methods need answered about the record's topic; None if it is known."""

    def fits_any_topic(self, size: int, ctx: Context | None) -> bool:
        """Whether a field of ``size`` bytes fits into a record of any topic, so that no question is needed."""

    def largest(self, ctx: Context | None) -> int:
        """The largest field in bytes that client and topic accept, given the record's key and headers."""

    def denied(self, ctx: Context | None) -> str | None:
        """Why the record must not be offloaded; None if it may be."""

    def ask_policy(self, ctx: Context | None) -> Transfer[Any] | None:
        """The question that :meth:`compacted` needs answered about the record's topic; None if it is known.

        Unlike :meth:`ask`, it is independent of the topic's limit: the limits of the client alone have it too.
        """

    def compacted(self, ctx: Context | None) -> bool:
        """Whether the record's topic is known to be compacted."""


@runtime_checkable
class SupportsUploads(Protocol):
    """A serializer that publishes payloads to a store, for clients that send its records.

    Attributes:
        negotiates: Whether the stage uses the topic's own limit (PIP-36), which is then asked for.
        limits_ttl_ms: How long the topic's limit is remembered, in ms.
        timeout_ms: Deadline of one upload, in ms.
        worst_case_ms: Longest duration in ms of one request, by the store's own timeouts and retries.
        joins_transactions: Whether the stage's store can write within a client's transactions.
    """

    @property
    def negotiates(self) -> bool: ...  # noqa: D102  described above, as the others are
    @property
    def limits_ttl_ms(self) -> int: ...  # noqa: D102
    @property
    def timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def worst_case_ms(self) -> int: ...  # noqa: D102

    @property
    def joins_transactions(self) -> bool: ...  # noqa: D102

    def with_limits(self, limits: RecordLimits) -> Self:
        """The stage with a client's limits: it also offloads records that the client would refuse.

        Raises:
            ConfigError: The configured threshold is above the client's limit.
        """

    def within(self, writer: RecordWriter) -> Self:
        """The stage with payloads in a client's transactions, if its store supports that; otherwise the stage itself.

        Args:
            writer: The client's transactional producer.
        """

    def owns(self, reference: str) -> bool:
        """Whether the stage's store owns a reference and can delete its payload."""

    def delete(self, reference: str) -> None:
        """Delete a payload that a transfer made for a record that is never sent; an absent payload is no error.

        Args:
            reference: One of :meth:`Transfer.made` or :meth:`Transfer.places`.

        Raises:
            PayloadStoreError: It could not be deleted.
        """


@runtime_checkable
class SupportsOffload(SupportsUploads, Protocol):
    """A serializer that moves whole payloads to a store and leaves placeholders.

    Attributes:
        most_alone: Bytes of the largest payload that stays in its record, regardless of headers; 0 if none does.
    """

    @property
    def most_alone(self) -> int: ...  # noqa: D102  described above

    def is_inline(self, data: Buffer, ctx: Context | None) -> bool:
        """Whether the stage returned its input: neither a placeholder nor marked bytes."""

    def offload(self, data: Buffer, ctx: Context | None) -> Transfer[Any]:
        """Offload a payload, regardless of its size."""

    def ask_policy(self, ctx: Context | None) -> Transfer[Any] | None:
        """The question to be answered before payloads of a record are uploaded; None if there is none.

        It is whether the topic is compacted, where that decides on the ids of payloads. A stage that uploads several
        payloads of a record asks once, before :meth:`upload`.
        """

    def upload(self, data: Any, ctx: Context | None, *, inline_bytes: int) -> Any:
        """Publish a payload for a stage that keeps the reference itself.

        Args:
            data: The payload: bytes, or a file (:func:`~serde_chain.base.is_stream`).
            ctx: The record around it; gets no headers.
            inline_bytes: A file of up to this size is not published.

        Returns:
            A transfer that resumes with the :class:`~serde_chain.reference.Reference`; the content of a small file.

        Raises:
            EncodeError: The record has no topic, or the file cannot be read or streamed.
        """


@runtime_checkable
class SupportsFetch(Protocol):
    """A deserializer that fetches the payloads of placeholders.

    Attributes:
        restores_records: Whether a placeholder may replace a whole record, with headers, key and timestamp.
        timeout_ms: Deadline of one download, in ms.
        worst_case_ms: Longest duration in ms of one request, by the store's own timeouts and retries.
        downloads_in_flight: Most downloads at a time, for readers that fetch ahead; 0 if there are none.
        downloads_bytes: Most bytes fetched ahead.
    """

    @property
    def restores_records(self) -> bool: ...  # noqa: D102  described above, as the others are
    @property
    def timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def worst_case_ms(self) -> int: ...  # noqa: D102
    @property
    def downloads_in_flight(self) -> int: ...  # noqa: D102
    @property
    def downloads_bytes(self) -> int: ...  # noqa: D102

    def marker_headers(self) -> frozenset[str] | None:
        """Headers at least one of which every placeholder has; None if placeholders may be marked in their bytes."""


@runtime_checkable
class SupportsDownloads(SupportsFetch, Protocol):
    """A deserializer that fetches payloads for a stage that has found their references itself."""

    def check(self, reference: Reference, ctx: Context | None) -> bool:
        """Refuse a reference that may not be followed, before any request.

        Args:
            reference: The reference.
            ctx: The record around it.

        Returns:
            Whether it is followed; False if its store is switched off for reading.

        Raises:
            UntrustedReferenceError: No configured store owns it, or the record may not refer to it.
            PayloadTooLargeError: The payload is larger than allowed.
        """

    def download(self, reference: Reference, ctx: Context | None) -> Transfer[Buffer]:
        """Fetch and verify a payload; the transfer resumes with it."""

    def handle(self, reference: Reference, ctx: Context | None) -> PayloadHandle:
        """A handle that fetches a payload on request."""


@runtime_checkable
class SupportsReferences(Protocol):
    """A deserializer that reads placeholders without following them, for jobs that clean or check stores.

    Attributes:
        stores: The configured stores.
    """

    @property
    def stores(self) -> tuple[PayloadStore, ...]: ...  # noqa: D102  described above

    def references_in(self, data: Any, ctx: Context | None) -> tuple[Reference, ...]:
        """The references in a record's field, whether or not a reader may follow them.

        Args:
            data: Output of the previous stage.
            ctx: The record around it; not changed.

        Returns:
            The references: one for a placeholder, any number for an object; none for an inline payload.

        Raises:
            DecodeError: A reference is malformed.
        """


@runtime_checkable
class MovesFields(Protocol):
    """A stage from object to object that moves fields to a store, or fetches them.

    Attributes:
        authenticates_fields: Whether the fields' payloads pass a stage that ``authenticates``. In a chain with such a
            stage, they must.
    """

    @property
    def authenticates_fields(self) -> bool: ...  # noqa: D102  described above


class ModelOfRecords(Protocol):
    """A class whose objects are the values of records."""

    def write(self, value: Any, /) -> Any:
        """An object as a dictionary; a dictionary unchanged.

        Raises:
            EncodeError: It is not an object of the class.
        """

    def read(self, value: Any, /) -> Any:
        """An object of a dictionary.

        Raises:
            DecodeError: The class refuses it.
        """


@runtime_checkable
class SupportsModels(Protocol):
    """A typed stage whose values may be objects of a class.

    Next to a stage that moves fields, its values are dictionaries, and that stage converts them: a class never sees a
    reference in place of a field.
    """

    def model(self) -> ModelOfRecords | None:
        """The class; None if values are dictionaries anyway."""
