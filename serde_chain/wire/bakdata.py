"""The formats of bakdata's Java library ``kafka-large-message-serde``: ``bakdata-flag`` and ``bakdata-headers``.

=================  =============================================  =============================================
format             inline                                         offloaded
=================  =============================================  =============================================
bakdata-flag       ``00`` and the payload                         ``01`` and the URI in UTF-8
bakdata-headers    the payload, and the header                    the URI in UTF-8, and the header
                   ``__large.message.backed.value``: ``00``       ``__large.message.backed.value``: ``01``
=================  =============================================  =============================================

Keys use ``__large.message.backed.key``. An offloaded payload may be compressed; one header names the compression for
key and value. Its name had two dots up to release 3.2.1 and has one since 4.0.0; both are written. Objects are stored
under ``<topic>/values/<id>`` and ``<topic>/keys/<id>``.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Final

from serde_chain.base import Buffer
from serde_chain.errors import EncodeError
from serde_chain.record import Context, get_header, set_header
from serde_chain.wire.reference_format import Reference, ReferenceFormat

__all__ = ["COMPRESSION_HEADERS", "FLAG", "HEADERS", "MAX_URI_BYTES"]

COMPRESSION_HEADERS: Final = ("__large.message.backed..compression", "__large.message.backed.compression")
MAX_URI_BYTES: Final = 8192

_CODECS: Final = {0: None, 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_NUMBERS: Final = {codec: bytes((number,)) for number, codec in _CODECS.items()}
_INLINE: Final = b"\x00"
_BACKED: Final = b"\x01"


class _Bakdata(ReferenceFormat):
    """Ids and compression, shared by both formats."""

    offloads_at_threshold = True
    compresses = True
    id_strategies = ("random", "content", "murmur3")

    def object_id(self, data: Buffer, strategy: str, digest: str, *, is_key: bool) -> str:
        name = str(uuid.uuid4()) if strategy == "random" else digest.partition(":")[2]
        return f"{'keys' if is_key else 'values'}/{name}"

    def headers(self, *, is_key: bool) -> Collection[str]:
        # The value is read after the key and may need the header too.
        return () if is_key else COMPRESSION_HEADERS


class _FlagFormat(_Bakdata):
    in_band = claims_all = True
    inline_overhead = 1

    def write_inline(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> bytes:
        return b"".join((_INLINE, data))

    def write_reference(self, reference: Reference, ctx: Context | None, *, is_key: bool) -> bytes:
        _write_compression(reference, ctx)
        return _BACKED + reference.url.encode()

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        flag = bytes(data[:1])
        if flag == _INLINE:
            return data[1:]
        if flag == _BACKED:
            return _reference(data[1:], ctx)
        raise ValueError(f"the data begins with {flag.hex() or 'nothing'} instead of 00 or 01")


class _HeadersFormat(_Bakdata):
    def marker(self, *, is_key: bool) -> str:
        return f"__large.message.backed.{'key' if is_key else 'value'}"

    def headers(self, *, is_key: bool) -> Collection[str]:
        return self.marker(is_key=is_key), *super().headers(is_key=is_key)

    def prepare(self, ctx: Context | None, *, content: str | None, sender: str | None, is_key: bool) -> None:
        set_header(ctx, self.marker(is_key=is_key), _INLINE)

    def write_reference(self, reference: Reference, ctx: Context | None, *, is_key: bool) -> bytes:
        _write_compression(reference, ctx)
        set_header(ctx, self.marker(is_key=is_key), _BACKED)
        return reference.url.encode()

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        marker = self.marker(is_key=is_key)
        mark = get_header(ctx, marker)
        if mark is None:
            return None
        if mark == _INLINE:
            return data
        if mark == _BACKED:
            return _reference(data, ctx)
        raise ValueError(f"the header {marker} is {mark[:50]!r} instead of 00 or 01")

    def mark(self, ctx: Context | None, *, is_key: bool) -> str | None:
        marker = self.marker(is_key=is_key)
        return marker if get_header(ctx, marker) == _BACKED else None


def _write_compression(reference: Reference, ctx: Context | None) -> None:
    number = _NUMBERS[reference.compression]
    for name in COMPRESSION_HEADERS:
        other = get_header(ctx, name)
        if other is not None and other != number:
            raise EncodeError(
                f"the header {name} already exists with another value",
                hint="Key and value share this header: give both the same large.message.compression",
            )
        if reference.compression is not None:
            set_header(ctx, name, number)


def _reference(data: Buffer, ctx: Context | None) -> Reference:
    if len(data) > MAX_URI_BYTES:
        raise ValueError(f"the URI has {len(data)} bytes, more than {MAX_URI_BYTES}")
    try:
        url = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("the URI is not UTF-8") from error
    number = next((value for name in COMPRESSION_HEADERS if (value := get_header(ctx, name)) is not None), _INLINE)
    if len(number) != 1 or number[0] not in _CODECS:
        raise ValueError(f"the compression is {number[:50]!r} instead of one of {sorted(_CODECS)}")
    return Reference(url, compression=_CODECS[number[0]])


FLAG: Final[ReferenceFormat] = _FlagFormat()
HEADERS: Final[ReferenceFormat] = _HeadersFormat()
