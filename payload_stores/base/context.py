"""What a store may know about a payload, beyond its topic."""

from __future__ import annotations

from dataclasses import dataclass

from payload_stores.ids import IdStrategy

__all__ = ["PublishContext"]


@dataclass(frozen=True, slots=True)
class PublishContext:
    """Facts about a payload, beyond its topic, that a store may need.

    Attributes:
        id_strategy: How to make ids; ``content`` and ``keyed`` are deterministic.
        key: The record's encoded key, required for ``keyed``.
        digest: ``sha256:<hex>`` of the payload, if known.
        is_key: Whether the payload is a record's key rather than its value.
        payload_id: The id itself, if the reference format sets it.

    Example:
        >>> PublishContext("content").deterministic
        True
    """

    id_strategy: IdStrategy = "random"
    key: bytes | None = None
    digest: str | None = None
    is_key: bool = False
    payload_id: str | None = None

    @property
    def deterministic(self) -> bool:
        """Whether equal payloads get equal ids, so that an existing object need not be written again."""
        return self.id_strategy != "random"
