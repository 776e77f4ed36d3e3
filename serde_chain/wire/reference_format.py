"""Formats of large messages: references and their markers in records.

The ``large-message`` stage knows formats only by this protocol. A new format is a file beside this one and a row in
:mod:`serde_chain.catalogue`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from payload_stores.buffers import Buffer
from payload_stores.ids import ID_STRATEGIES
from serde_chain.record import Context, remove_headers
from serde_chain.reference import Reference

__all__ = ["Reference", "ReferenceFormat"]


class ReferenceFormat(Protocol):
    """Writes and reads the placeholders of one format. Implementations derive from it and are stateless.

    Attributes:
        in_band: Whether the mark is in the data. If no format's is, records without headers need no inspection.
        claims_all: Whether all data is marked, as placeholder or as inline; such a format comes last. The others leave
            data without their mark to the next format.
        writes: Whether the format is written, too; others are only accepted.
        rewrites: Whether :meth:`restore` changes payloads, so that a handle's payload is fetched at once.
        whole_record: Whether the store has the key too, and mostly the headers. Such a format is for values only. To
            write it takes a store with :class:`~payload_stores.SupportsRecords`; the placeholder gets its own headers.
        offloads_at_threshold: Whether payloads of exactly the threshold's size are offloaded.
        marks_inline: Whether :meth:`prepare` or :meth:`write_inline` affects records without headers.
        inline_overhead: Bytes that :meth:`write_inline` adds to a payload.
        compresses: Whether the format supports ``large.message.compression``.
        id_strategies: The supported values of ``large.message.id``.
    """

    in_band: bool = False
    claims_all: bool = False
    writes: bool = True
    rewrites: bool = False
    whole_record: bool = False
    offloads_at_threshold: bool = False
    marks_inline: bool = True
    inline_overhead: int = 0
    compresses: bool = False
    id_strategies: Collection[str] = ID_STRATEGIES

    def object_id(self, data: Buffer, strategy: str, digest: str, *, is_key: bool) -> str | None:
        """The format's own id for a payload, a relative path; None leaves it to the store.

        Args:
            data: The stored bytes.
            strategy: One of ``id_strategies``.
            digest: Digest of the data, ``sha256:<hex>``; with the strategy ``murmur3``, ``murmur3:<hex>``.
            is_key: Whether the payload is a record's key.
        """
        return None

    def prepare(self, ctx: Context | None, *, content: str | None, sender: str | None, is_key: bool) -> None:
        """Add the headers common to all records of this format, before their size is computed.

        Args:
            ctx: The record.
            content: The preceding stage's ``message_format``; None if it declares none.
            sender: The user that the store publishes as.
            is_key: Whether the record's key is being written.

        Raises:
            EncodeError: The record cannot carry headers.
        """
        return

    def headers(self, *, is_key: bool) -> Collection[str]:
        """Names of the format's headers, which are removed from the record for readers."""

    def marker(self, *, is_key: bool) -> str | None:
        """The header of every record for which :meth:`read` returns something.

        Returns:
            None for formats with ``in_band``, which have a mark in all data, and for those that declare no header:
            Spark then reads a record's headers together with its value.
        """
        return None

    def write_inline(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Buffer:
        """Mark a payload that stays in the record; most formats return it unchanged."""
        return data

    def write_reference(self, reference: Reference, ctx: Context | None, *, is_key: bool) -> bytes:
        """Make the placeholder of a payload, and add its headers.

        If the store has the whole record, its headers are replaced.

        Raises:
            EncodeError: The record cannot carry headers.
        """

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        """Read a record's field.

        Returns:
            The reference of a placeholder; the payload of a field marked as inline; None if the field has no mark of
            this format.

        Raises:
            ValueError: The field has the format's mark but is malformed, or has an unknown version.
        """

    def beside(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | None:
        """The reference that a field has beside its payload, for others: what it names is in use.

        Args:
            data: The field, of which :meth:`read` returned a payload.
            ctx: The record.
            is_key: Whether the field is the key.

        Raises:
            ValueError: It is malformed.
        """
        return None

    def restore_headers(self, placeholder: Buffer, ctx: Context | None, *, is_key: bool) -> None:
        """Give a record the headers that its readers see: without the format's own ones, unless it says otherwise.

        Args:
            placeholder: The record's field, of which :meth:`read` made a reference or an inline payload.
            ctx: The record, changed in place.
            is_key: Whether the field is the key.

        Raises:
            ValueError: The placeholder is malformed.
        """
        remove_headers(ctx, self.headers(is_key=is_key))

    def restore(self, placeholder: Buffer, payload: Buffer, ctx: Context | None) -> Buffer:
        """Make the field's data of a fetched payload, which it is in most formats. See ``rewrites``.

        Args:
            placeholder: The record's field, of which :meth:`read` made a reference.
            payload: The fetched payload.
            ctx: The record; a format with ``whole_record`` puts the key into it.

        Raises:
            ValueError: The payload is not of this format.
        """
        return payload

    def mark(self, ctx: Context | None, *, is_key: bool) -> str | None:
        """The header that marks a record's field as a placeholder of this format; None if there is none."""
        return None

    def content(self, ctx: Context | None) -> str | None:
        """The kind of a record's value, by the headers of this format.

        For example ``json`` and ``avro``; ``blob`` requires the writer's own chain; None if the headers do not say.
        """
        return None
