"""The documents in answers to downloads, written around the payload (BSON 1.1, bsonspec.org)."""

from __future__ import annotations

from collections.abc import Iterable

from payload_stores.hop.record_document import around
from payload_stores.plugins import require

require("bson", "offload-server")

import bson  # noqa: E402  after the check that it is there


def stored_headers(headers: Iterable[tuple[str, bytes]]) -> bytes:
    """Encode headers for the index: an array of ``[string, binary]`` arrays."""
    return bson.encode({str(at): [name, value] for at, (name, value) in enumerate(headers)})


def frame(size: int, headers: bytes, key: bytes | None, timestamp_ms: int) -> tuple[bytes, bytes]:
    """Write the bytes around the payload in the answer to a download.

    hop's specification has ``headers`` and ``key`` next to ``message``; hop-client looks for them, and for
    ``timestamp``, in a document ``metadata``. The answer contains both.

    Args:
        size: The payload's size in bytes.
        headers: The result of :func:`stored_headers`.
        key: The record's key.
        timestamp_ms: Upload time of the message, in ms since 1970.

    Returns:
        The bytes before and after the payload.
    """
    pairs = list(bson.decode(headers).values())
    keys = {} if key is None else {"key": key}
    metadata = {"headers": pairs, "timestamp": bson.Int64(timestamp_ms), **keys}
    return around(size, {"headers": pairs, **keys, "metadata": metadata})
