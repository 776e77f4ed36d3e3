"""KIP-1159's large-message format.

A placeholder is the UTF-8 text of the reference, marked by the header ``large-message: true``. Two headers, ignored by
plain KIP readers, carry the values to verify on reading: ``large-message-size`` (decimal, in bytes) and
``large-message-digest`` (``sha256:`` and 64 hexadecimal digits). Key chains use separate names (``large-message-key``,
…), which the KIP leaves open: a marker shared by key and value would mark both.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from serde_chain.base import Buffer
from serde_chain.record import Context, get_header, remove_headers, set_header
from serde_chain.wire.reference_format import Reference, ReferenceFormat

__all__ = ["FORMAT", "KEY_MARKER", "MARKER", "MAX_REFERENCE_BYTES"]

MARKER: Final = "large-message"
KEY_MARKER: Final = "large-message-key"
MAX_REFERENCE_BYTES: Final = 8192

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_SIZE: Final = re.compile(rb"\d{1,18}")


class _Kip1159Format(ReferenceFormat):
    marks_inline = False

    def headers(self, *, is_key: bool) -> Collection[str]:
        marker = self.marker(is_key=is_key)
        return marker, f"{marker}-size", f"{marker}-digest"

    def marker(self, *, is_key: bool) -> str:
        return KEY_MARKER if is_key else MARKER

    def write_inline(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Buffer:
        if ctx is not None and ctx.headers and get_header(ctx, self.marker(is_key=is_key)) is not None:
            # The caller's list was used for an earlier large message.
            remove_headers(ctx, self.headers(is_key=is_key))
        return data

    def write_reference(self, reference: Reference, ctx: Context | None, *, is_key: bool) -> bytes:
        marker, size, digest = self.headers(is_key=is_key)
        set_header(ctx, marker, b"true")
        if reference.size is not None:
            set_header(ctx, size, str(reference.size).encode())
        if reference.digest is not None:
            set_header(ctx, digest, reference.digest.encode())
        return reference.url.encode()

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        marker = self.marker(is_key=is_key)
        mark = get_header(ctx, marker)
        if mark is None:
            return None
        _, size_name, digest_name = self.headers(is_key=is_key)
        if mark.lower() == b"false":
            return data
        if mark.lower() != b"true":
            raise ValueError(f"the header {marker} is {mark[:50]!r} instead of true or false")
        if len(data) > MAX_REFERENCE_BYTES:
            raise ValueError(f"the reference has {len(data)} bytes, more than {MAX_REFERENCE_BYTES}")
        try:
            url = str(data, "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError("the reference is not UTF-8") from error
        size = get_header(ctx, size_name)
        if size is not None and not _SIZE.fullmatch(size):
            raise ValueError(f"the header {size_name} is {size[:50]!r} instead of a number of bytes")
        digest = get_header(ctx, digest_name)
        if digest is not None and not _DIGEST.fullmatch(digest.decode("latin-1")):
            raise ValueError(f"the header {digest_name} is {digest[:80]!r} instead of sha256: and 64 hex digits")
        return Reference(url, None if size is None else int(size), None if digest is None else digest.decode())

    def mark(self, ctx: Context | None, *, is_key: bool) -> str | None:
        marker = self.marker(is_key=is_key)
        return marker if (get_header(ctx, marker) or b"").lower() == b"true" else None


FORMAT: Final[ReferenceFormat] = _Kip1159Format()
