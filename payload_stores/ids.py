"""Payload ids: random, by content, or by record key and content.

An id is one or more URL-safe path segments. Random ids are KIP-1159's default. Content ids let identical payloads
share one object and make a publish idempotent under retries. Keyed ids put all payloads of one record key below one
prefix, which turns the clean-up of a compacted topic into a listing.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from payload_stores.buffers import Buffer
from payload_stores.errors import PayloadStoreError

IdStrategy: TypeAlias = Literal["random", "content", "keyed"]

ID_STRATEGIES: Final = ("random", "content", "keyed")
DIGEST_PREFIX: Final = "sha256:"


def sha256_digest(data: Buffer) -> str:
    """Digest of a payload as used in headers: ``sha256:`` and 64 lower-case hexadecimal digits.

    Example:
        >>> sha256_digest(b"payload")
        'sha256:239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5'
    """
    import hashlib  # together with uuid a tenth of the package's import, and few processes need both

    return DIGEST_PREFIX + hashlib.sha256(data).hexdigest()


def payload_id(
    data: Buffer, strategy: IdStrategy = "random", *, key: bytes | None = None, digest: str | None = None
) -> str:
    """Make the id of a payload.

    Args:
        data: The payload.
        strategy: Source of the id.
        key: The record's encoded key, for ``keyed``.
        digest: The payload's digest if known; the payload is then not read.

    Returns:
        ``<uuid4>``, ``<sha256 of the payload>`` or ``<sha256 of the key>/<sha256 of the payload>``.

    Raises:
        PayloadStoreError: The strategy is ``keyed`` and the record has no key.

    Example:
        >>> payload_id(b"payload", "content")
        '239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5'
    """
    import hashlib

    if strategy == "random":
        import uuid

        return str(uuid.uuid4())
    content = (digest or sha256_digest(data)).removeprefix(DIGEST_PREFIX)
    if strategy == "content":
        return content
    if key is None:
        raise PayloadStoreError(
            "keyed payload ids need the record's key, and this record has none",
            hint="Produce the record with a key, or make ids of the content alone (large.message.id = content)",
        )
    return f"{hashlib.sha256(key).hexdigest()}/{content}"
