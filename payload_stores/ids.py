"""Payload ids: random, by content, or by record key and content.

An id is one or more URL-safe path segments. Random ids are KIP-1159's default. Content ids let identical payloads
share one object and make a publish idempotent under retries. Keyed ids put all payloads of one record key below one
prefix, which turns the clean-up of a compacted topic into a listing.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Final

from payload_stores.errors import PayloadStoreError

if TYPE_CHECKING:
    from payload_stores.base import Buffer, PublishContext

__all__ = ["DIGEST_PREFIX", "ID_STRATEGIES", "payload_id", "sha256_digest"]

ID_STRATEGIES: Final = ("random", "content", "keyed")
DIGEST_PREFIX: Final = "sha256:"


def sha256_digest(data: Buffer) -> str:
    """Digest of a payload as it travels in headers: ``sha256:`` and 64 lower-case hexadecimal digits."""
    return DIGEST_PREFIX + hashlib.sha256(data).hexdigest()


def payload_id(data: Buffer, context: PublishContext | None = None) -> str:
    """Make the id of a payload as the context asks for it.

    Args:
        data: The payload.
        context: Strategy, record key, and the payload's digest if it is known already; None means random.

    Returns:
        ``<uuid4>``, ``<sha256 of the payload>`` or ``<sha256 of the key>/<sha256 of the payload>``.

    Raises:
        PayloadStoreError: The strategy is ``keyed`` and there is no record key.
    """
    if context is None or context.id_strategy == "random":
        return str(uuid.uuid4())
    content = (context.digest or sha256_digest(data)).removeprefix(DIGEST_PREFIX)
    if context.id_strategy == "content":
        return content
    if context.key is None:
        raise PayloadStoreError(
            "keyed payload ids need the record's key, and this record has none",
            hint="Produce the record with a key, or set large.message.id = content",
        )
    return f"{hashlib.sha256(context.key).hexdigest()}/{content}"
