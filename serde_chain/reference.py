"""The place of an offloaded payload."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Reference"]


@dataclass(frozen=True, slots=True)
class Reference:
    """The place of a payload, and the facts to verify.

    Attributes:
        url: Full reference, as the store returned it.
        size: Size in bytes, if the format carries it.
        digest: ``sha256:<hex>``, if the format carries it.
        whole_record: Whether headers, key and timestamp lie there too.
        compression: Codec with which it is compressed there: gzip, snappy, lz4 or zstd.
    """

    url: str
    size: int | None = None
    digest: str | None = None
    whole_record: bool = False
    compression: str | None = None
