"""Formats of large messages: how a reference and its marker stand in a record.

The ``large-message`` stage knows formats by this protocol only. A new one is a file beside this one and a row in
:mod:`serde_chain.catalogue`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from payload_stores.buffers import Buffer
from payload_stores.ids import ID_STRATEGIES
from serde_chain.record import Context
from serde_chain.reference import Reference

__all__ = ["Reference", "ReferenceFormat"]


class ReferenceFormat(Protocol):
    """How one format writes and reads placeholders. Implementations derive from it and keep no state.

    Attributes:
        in_band: Whether the mark is in the data. Where no format's is, records without headers need no look.
        whole_record: Whether the store gets headers and key as well, and the placeholder headers of its own. Such a
            format is for values only, and needs a store with :class:`~payload_stores.SupportsRecords`.
        offloads_at_threshold: Whether payloads of just the threshold's size are offloaded already.
        marks_inline: Whether :meth:`prepare` or :meth:`write_inline` does something with records without headers.
        inline_overhead: What :meth:`write_inline` adds to a payload, in bytes.
        compresses: Whether ``large.message.compression`` is for this format.
        id_strategies: The values that ``large.message.id`` may have.
    """

    in_band: bool = False
    whole_record: bool = False
    offloads_at_threshold: bool = False
    marks_inline: bool = True
    inline_overhead: int = 0
    compresses: bool = False
    id_strategies: Collection[str] = ID_STRATEGIES

    def object_id(self, data: Buffer, strategy: str, digest: str, *, is_key: bool) -> str | None:
        """The id of a payload, a relative path, where the format makes it; None leaves it to the store.

        Args:
            data: What is stored.
            strategy: One of ``id_strategies``.
            digest: Of the data, ``sha256:<hex>``; ``murmur3:<hex>`` where that is the strategy.
            is_key: Whether it is a record's key.
        """
        return None

    def prepare(self, ctx: Context | None, *, content: str | None, sender: str | None, is_key: bool) -> None:
        """Add the headers that all records of this format have, before their size is computed.

        Args:
            ctx: The record.
            content: The format of what the stage before returns, its ``message_format``; None if it declares none.
            sender: The user as whom the store publishes.
            is_key: Whether the record's key is about to be written.

        Raises:
            EncodeError: The record has nowhere to put headers.
        """
        return

    def headers(self, *, is_key: bool) -> Collection[str]:
        """Names of the headers that the format adds, to be removed from what a reader sees."""

    def write_inline(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Buffer:
        """Mark a payload that stays in the record; most formats return it as it is."""
        return data

    def write_reference(self, reference: Reference, ctx: Context | None, *, is_key: bool) -> bytes:
        """Make the placeholder of a payload, and add the headers that go with it.

        Where the store has the whole record, its headers are replaced.

        Raises:
            EncodeError: The record has nowhere to put headers.
        """

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        """Read a record's field.

        Returns:
            The reference of a placeholder; the payload of a field that is marked as inline; None if the field bears no
            mark of this format.

        Raises:
            ValueError: It bears the format's mark and is malformed, or of an unknown version.
        """

    def mark(self, ctx: Context | None, *, is_key: bool) -> str | None:
        """The header by which a record says that its field is a placeholder of this format; None if none says so."""
        return None

    def content(self, ctx: Context | None) -> str | None:
        """Kind of a record's value, by the headers of this format.

        Such as ``json`` and ``avro``; ``blob`` is what needs the writer's own chain; None where the headers do not say.
        """
        return None
