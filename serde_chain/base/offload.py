"""Serializers that put payloads elsewhere, and the limits that clients give them."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

from payload_stores.base import RecordWriter
from payload_stores.buffers import Buffer
from serde_chain.record import Context
from serde_chain.transfer import Transfer

__all__ = ["RecordLimits", "SupportsOffload"]


class RecordLimits(Protocol):
    """Limits that a client puts on the records that it sends; for stages that can make a record smaller.

    Attributes:
        most: Bytes of the largest value that the client sends at all.
        setting: The key that sets that and its value, for messages: ``message.max.bytes (1000000)``.
        always: Bytes of a field for which every record without headers and with a key of up to 4096 bytes has
            room, whatever its topic; 0 if unknown.
    """

    most: int
    setting: str
    always: int

    def of_client(self) -> RecordLimits:
        """The limits of the client alone, for stages that do not ask for those of topics."""

    def ask(self, ctx: Context | None) -> Transfer[Any] | None:
        """The question that must be answered before the other methods know the record's topic; None if none."""

    def largest(self, ctx: Context | None) -> int:
        """The largest field that client and topic accept, in bytes, the record's key and headers considered."""

    def denied(self, ctx: Context | None) -> str | None:
        """Why the record may not be offloaded, if it may not."""

    def compacted(self, ctx: Context | None) -> bool:
        """Whether the record's topic is compacted."""


@runtime_checkable
class SupportsOffload(Protocol):
    """A serializer that puts payloads elsewhere, and placeholders in their place.

    Attributes:
        negotiates: Whether the stage wants the topic's own limit instead (PIP-36): then it is asked for.
        limits_ttl_ms: How long the topic's limit is remembered, in ms.
        timeout_ms: Deadline of one upload in ms.
        worst_case_ms: Longest time in ms that one request may take by the store's own timeouts and retries.
        joins_transactions: Whether the stage's store can write in a client's transactions.
        most_alone: Bytes of the largest payload that stays in its record, whatever else is in that; 0 if none does.
    """

    @property
    def most_alone(self) -> int: ...  # noqa: D102  described above, as the others are
    @property
    def negotiates(self) -> bool: ...  # noqa: D102
    @property
    def limits_ttl_ms(self) -> int: ...  # noqa: D102
    @property
    def timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def worst_case_ms(self) -> int: ...  # noqa: D102

    @property
    def joins_transactions(self) -> bool: ...  # noqa: D102

    def with_limits(self, limits: RecordLimits) -> Self:
        """The stage with a client's limits: it also offloads what the client would refuse to send.

        Raises:
            ConfigError: A threshold that was set is above what the client sends.
        """

    def within(self, writer: RecordWriter) -> Self:
        """The stage, whose payloads belong to a client's transactions where its store can do that; otherwise itself.

        Args:
            writer: The client's transactional producer.
        """

    def is_inline(self, data: Buffer, ctx: Context | None) -> bool:
        """Whether the stage returned what it was given: neither a placeholder nor marked in its bytes."""

    def offload(self, data: Buffer, ctx: Context | None) -> Transfer[Any]:
        """Offload a payload, whatever its size."""

    def owns(self, reference: str) -> bool:
        """Whether the stage's store has what a reference points to, and can delete it."""

    def delete(self, reference: str) -> None:
        """Delete what a transfer has made for a record that is never sent; one that is gone already is no error.

        Args:
            reference: What :meth:`Transfer.made` or :meth:`Transfer.place` returned.

        Raises:
            PayloadStoreError: It could not be deleted.
        """
