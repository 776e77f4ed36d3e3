"""The documents with which downloads are answered, written around the payload (BSON 1.1, bsonspec.org)."""

from __future__ import annotations

from collections.abc import Iterable

from payload_stores.hop.record_document import around
from payload_stores.plugins import require

require("bson", "offload-server")

import bson  # noqa: E402  after the check that it is there

__all__ = ["frame", "stored_headers"]


def stored_headers(headers: Iterable[tuple[str, bytes]]) -> bytes:
    """Write headers as the index keeps them: an array of ``[string, binary]`` arrays."""
    return bson.encode({str(at): [name, value] for at, (name, value) in enumerate(headers)})


def frame(size: int, headers: bytes, key: bytes | None, timestamp_ms: int) -> tuple[bytes, bytes]:
    """Write what stands around the payload in the answer to a download.

    hop's published text has ``headers`` and ``key`` beside ``message``; hop-client looks for them, and for
    ``timestamp``, in a document ``metadata``. Both are there.

    Args:
        size: The payload's size in bytes.
        headers: What :func:`stored_headers` made.
        key: The record's key.
        timestamp_ms: When the message was uploaded, in ms since 1970.

    Returns:
        What stands before and what stands behind the payload.
    """
    pairs = list(bson.decode(headers).values())
    keys = {} if key is None else {"key": key}
    metadata = {"headers": pairs, "timestamp": bson.Int64(timestamp_ms), **keys}
    return around(size, {"headers": pairs, **keys, "metadata": metadata})
