"""The location of an offloaded payload."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """The location of a payload, and the facts to verify.

    Attributes:
        url: Full reference, as the store returned it.
        size: Size in bytes, if the format carries it.
        digest: ``sha256:<hex>``, if the format carries it.
        whole_record: Whether the store has the headers, key and timestamp too.
        compression: Codec of the stored payload: gzip, snappy, lz4 or zstd.
    """

    url: str
    size: int | None = None
    digest: str | None = None
    whole_record: bool = False
    compression: str | None = None
