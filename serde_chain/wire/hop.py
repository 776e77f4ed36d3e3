"""hop's large messages (SCiMMA Hopskotch): a placeholder whose record is stored on an offload server.

Every record has the headers ``_id`` (16 bytes of a UUID), ``_sender`` (user name, if known), ``_test`` (``true``, in
test messages only) and ``_format`` (the kind of value: ``json``, ``avro``, ``blob``, …), written after the user's own
headers. A placeholder has the value ``{"url": "<endpoint>/msg/<uuid>"}``, the record's key and only those headers, with
a new ``_id`` and ``_format`` = ``external``. hop-client refuses a placeholder with any other field.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from typing import Final

from serde_chain.base import Buffer
from serde_chain.record import Context, Header, get_header, require_headers
from serde_chain.wire import bounded_json
from serde_chain.wire.reference_format import Reference, ReferenceFormat

__all__ = ["BLOB", "EXTERNAL", "FORMAT", "FORMAT_HEADER", "MAX_PLACEHOLDER_BYTES"]

FORMAT_HEADER: Final = "_format"
EXTERNAL: Final = "external"
BLOB: Final = "blob"
MAX_PLACEHOLDER_BYTES: Final = 8192

_ID: Final = "_id"
_SENDER: Final = "_sender"
_TEST: Final = "_test"
_OWN: Final = frozenset({_ID, _SENDER, _TEST, FORMAT_HEADER})


class _HopFormat(ReferenceFormat):
    whole_record = True

    def headers(self, *, is_key: bool) -> Collection[str]:
        """``_format``, which marks a placeholder; none of the headers is for transport only."""
        return () if is_key else (FORMAT_HEADER,)

    def prepare(self, ctx: Context | None, *, content: str | None, sender: str | None, is_key: bool) -> None:
        # A user who names the format knows better: a circular is JSON too.
        _put(ctx, _named_format(ctx) or (content or BLOB).encode(), sender, keep=True)

    def write_reference(self, reference: Reference, ctx: Context | None, *, is_key: bool) -> bytes:
        sender = get_header(ctx, _SENDER)
        _put(ctx, EXTERNAL.encode(), None if sender is None else sender.decode(), keep=False)
        return json.dumps({"url": reference.url}).encode()

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        if self.mark(ctx, is_key=is_key) is None:
            return None
        placeholder = bounded_json.loads(data, MAX_PLACEHOLDER_BYTES, "the placeholder")
        url = placeholder.get("url") if isinstance(placeholder, dict) else None
        if not isinstance(url, str):
            raise ValueError('the placeholder does not have the form {"url": "…"}')
        return Reference(url, whole_record=True)

    def mark(self, ctx: Context | None, *, is_key: bool) -> str | None:
        is_external = not is_key and (_named_format(ctx) or b"").lower() == EXTERNAL.encode()
        return FORMAT_HEADER if is_external else None

    def content(self, ctx: Context | None) -> str | None:
        name = _named_format(ctx)
        return None if name is None else name.decode("utf-8", "replace").lower()


def _put(ctx: Context | None, content: bytes, sender: str | None, *, keep: bool) -> None:
    """Write hop's own headers, after the user's headers if these are kept."""
    headers = require_headers(ctx)
    is_test = any(name == _TEST for name, _ in _pairs(headers))
    own: list[Header] = [(_ID, uuid.uuid4().bytes)]
    if sender is not None:
        own.append((_SENDER, sender.encode()))
    if is_test:
        own.append((_TEST, b"true"))
    own.append((FORMAT_HEADER, content))
    kept = [header for header in _pairs(headers) if header[0] not in _OWN] if keep else []
    if isinstance(headers, dict):
        headers.clear()
        headers.update([*kept, *own])
    else:
        headers[:] = [*kept, *own]


def _named_format(ctx: Context | None) -> bytes | None:
    """The first such header, as in hop-client; elsewhere in Kafka, the last header of a name counts."""
    headers = ctx.headers if ctx is not None else None
    named = next((value for name, value in _pairs(headers or []) if name == FORMAT_HEADER), None)
    return named.encode() if isinstance(named, str) else named


def _pairs(headers: list[Header] | dict[str, object]) -> list[Header]:
    return list(headers.items()) if isinstance(headers, dict) else headers  # type: ignore[arg-type]


FORMAT: Final[ReferenceFormat] = _HopFormat()
