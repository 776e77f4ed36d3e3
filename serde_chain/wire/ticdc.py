"""TiCDC's claim checks, ``ticdc``: change events whose record is in a file of the claim-check storage.

==============  ==================================================================================================
protocol        placeholder
==============  ==================================================================================================
canal-json      member ``_tidb.claimCheckLocation`` of the value
simple          member ``claimCheckLocation`` of the value, in JSON
open-protocol   member ``ccl`` in the record's key: eight bytes of version (1), eight of length, and a JSON object
==============  ==================================================================================================

The file has the whole record, ``{"key": <base64>, "value": <base64>}``, or with ``claim-check-raw-value`` the value
alone. Its location is the storage's URI joined with a file name, mostly with one slash: ``s3:/bucket/<uuid>.json``.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from payload_stores.references import to_url
from serde_chain.base import Buffer
from serde_chain.record import Context, RecordContext, key_of
from serde_chain.wire.foreign import MAX_DOCUMENT_BYTES, ForeignFormat, document
from serde_chain.wire.reference_format import Reference

_MARK: Final = re.compile(rb'\{.*"claimCheckLocation"', re.DOTALL)
_KEY_MARK: Final = b'"ccl"'
_VERSION: Final = b"\0\0\0\0\0\0\0\1"
_LENGTH_BYTES: Final = 8
_LOCATION: Final = re.compile(r"([a-z0-9]{2,10}):/{1,3}([^/].{0,2000})", re.DOTALL)
_SCHEMES: Final = {"gcs": "gs", "azure": "az", "azblob": "az"}
# As Go writes it. Matched, not decoded: a file of a hundred megabytes may be anything, and decoded JSON takes more.
_RECORD: Final = re.compile(
    rb'\s{0,8}\{\s{0,8}"key"\s{0,8}:\s{0,8}(?:null|"([A-Za-z0-9+/=]*)")\s{0,8},'
    rb'\s{0,8}"value"\s{0,8}:\s{0,8}(?:null|"([A-Za-z0-9+/=]*)")\s{0,8}\}\s{0,8}'
)


class _TiCdcFormat(ForeignFormat):
    in_band = True
    whole_record = True
    rewrites = True

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        if is_key:
            return None  # the value's reference stands for both
        location = _in_value(data)
        if location is None and (key := key_of(ctx)) is not None:
            location = _in_key(key)
        return None if location is None else Reference(_url(location))

    def restore(self, placeholder: Buffer, payload: Buffer, ctx: Context | None) -> Buffer:
        match = _RECORD.fullmatch(payload)
        if match is None:
            return payload
        try:
            key, value = (None if text is None else base64.b64decode(text, validate=True) for text in match.groups())
        except binascii.Error:
            raise ValueError("the stored record is not base64") from None
        if key is not None and isinstance(ctx, RecordContext):
            ctx.key = key
        return value or b""


def _in_value(data: Buffer) -> object:
    if len(data) > MAX_DOCUMENT_BYTES or not _MARK.match(data):
        return None
    event = document(data) or {}
    extension = event.get("_tidb")
    inner = extension.get("claimCheckLocation") if isinstance(extension, dict) else None
    return inner or event.get("claimCheckLocation") or None


def _in_key(key: bytes) -> object:
    begin = len(_VERSION) + _LENGTH_BYTES
    if not key.startswith(_VERSION) or _KEY_MARK not in key or len(key) > MAX_DOCUMENT_BYTES:
        return None
    length = int.from_bytes(key[len(_VERSION) : begin], "big")
    if length != len(key) - begin:
        return None  # a claim check is alone in its record
    members: dict[str, Any] = document(key[begin:]) or {}
    return members.get("ccl") or None


def _url(location: object) -> str:
    match = _LOCATION.fullmatch(location) if isinstance(location, str) else None
    if match is None:
        raise ValueError("the claim check's location is no URL")
    scheme, host, path = _SCHEMES.get(match[1], match[1]), "", match[2]
    if scheme != "file":
        host, _, path = path.partition("/")
    try:
        host.encode("ascii")
        return to_url(scheme, host, path.split("/"))
    except UnicodeEncodeError:
        raise ValueError("the claim check's location is invalid Unicode") from None


FORMAT: Final = _TiCdcFormat()
