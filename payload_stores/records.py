"""Whole records, as some stores keep them; in a separate module, since each client checks for one."""

from __future__ import annotations

from typing import NamedTuple

from payload_stores.buffers import Buffer


class StoredRecord(NamedTuple):
    """A whole record, for stores that keep more than payloads.

    Attributes:
        value: The payload, in bytes.
        headers: The record's headers, in order.
        key: The record's encoded key.
        timestamp: The record's creation time, in ms since the epoch; stores may set it themselves.

    Example:
        >>> record = StoredRecord(b"payload", headers=(("telescope", b"blanco"),), key=b"M 51")
        >>> dict(record.headers)["telescope"]
        b'blanco'
    """

    value: Buffer
    headers: tuple[tuple[str, bytes | None], ...] = ()
    key: bytes | None = None
    timestamp: int | None = None
