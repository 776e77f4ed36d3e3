"""Whole records, as some stores keep them; apart from the stores, since every client looks whether it has one."""

from __future__ import annotations

from dataclasses import dataclass

from payload_stores.buffers import Buffer

__all__ = ["StoredRecord"]


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A whole record, as stores keep it that keep more than payloads.

    Attributes:
        value: The payload, in bytes.
        headers: The record's headers, in order.
        key: The record's encoded key.
        timestamp: When the record was made, in ms since the epoch; stores may set it by themselves.

    Example:
        >>> record = StoredRecord(b"payload", headers=(("telescope", b"blanco"),), key=b"M 51")
        >>> dict(record.headers)["telescope"]
        b'blanco'
    """

    value: Buffer
    headers: tuple[tuple[str, bytes | None], ...] = ()
    key: bytes | None = None
    timestamp: int | None = None
