"""CloudEvents with their data elsewhere, ``cloudevents`` (CloudEvents 1.0, extension ``dataref``, Kafka binding 1.0).

=============  ====================================================  =======================================
mode           placeholder                                           after reading
=============  ====================================================  =======================================
binary         header ``ce_dataref``, an empty value                 the data; without ``ce_dataref``
structured     header ``content-type: application/cloudevents+json``  the data; attributes as ``ce_`` headers,
               and a member ``dataref`` in the value                 ``datacontenttype`` as ``content-type``
=============  ====================================================  =======================================

Structured events with their data inside are read in the same way, so that readers see one form: JSON data as they are
written, of any size. An event with both data and ``dataref`` is not fetched: the specification wants them equal. A
reference is a URL, or an ARN in S3.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection
from typing import Any, Final

from serde_chain.base import Buffer
from serde_chain.record import Context, get_header, remove_headers, set_headers
from serde_chain.wire.foreign import MAX_DOCUMENT_BYTES, ForeignFormat, document, s3_reference_of_arn
from serde_chain.wire.json_text import take_out
from serde_chain.wire.reference_format import Reference

MAX_URL_BYTES: Final = 8192

_DATAREF: Final = "ce_dataref"
_TYPE: Final = "content-type"
_STRUCTURED: Final = b"application/cloudevents+json"
_DATA: Final = ("data", "data_base64")
_NOT_ATTRIBUTES: Final = frozenset({*_DATA, "dataref", "datacontenttype"})


class _CloudEventsFormat(ForeignFormat):
    def headers(self, *, is_key: bool) -> Collection[str]:
        return () if is_key else (_DATAREF, _TYPE)

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        if is_key:
            return None
        if _is_structured(ctx):
            return _content(*_event(data))
        return data if len(data) and get_header(ctx, _DATAREF) is not None else _in_header(ctx)

    def beside(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | None:
        if is_key:
            return None
        return _in_members(_event(data)[0]) if _is_structured(ctx) else _in_header(ctx)

    def restore_headers(self, placeholder: Buffer, ctx: Context | None, *, is_key: bool) -> None:
        if not _is_structured(ctx):
            remove_headers(ctx, (_DATAREF,))
            return
        event, _ = _event(placeholder)
        attributes: dict[str, bytes] = {}
        if (kind := event.get("datacontenttype")) is not None:
            attributes[_TYPE] = _text(kind, "datacontenttype")
        for name, value in event.items():
            if name not in _NOT_ATTRIBUTES and value is not None:
                _encoded(name, name)  # clients encode names of headers
                attributes[f"ce_{name}"] = _text(value, name)
        remove_headers(ctx, (_TYPE,))
        # At once: a document has room for 100,000 attributes.
        set_headers(ctx, attributes)

    def mark(self, ctx: Context | None, *, is_key: bool) -> str | None:
        return None if is_key or get_header(ctx, _DATAREF) is None else _DATAREF


def _is_structured(ctx: Context | None) -> bool:
    kind = get_header(ctx, _TYPE)
    return kind is not None and kind.partition(b";")[0].strip().lower() == _STRUCTURED


def _event(data: Buffer) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A structured event without its data; and these, as they are written."""
    rest, inside = take_out(data, _DATA, MAX_DOCUMENT_BYTES)
    event = document(rest)
    if event is None:
        raise ValueError("the event is not a JSON object")
    return event, {name: written for name, written in inside.items() if written != b"null"}


def _content(event: dict[str, Any], inside: dict[str, bytes]) -> Reference | bytes:
    """The data of a structured event, or its reference."""
    if (written := inside.get("data_base64")) is not None:
        try:
            return base64.b64decode(json.loads(written), validate=True)
        except (binascii.Error, ValueError, TypeError, RecursionError):
            raise ValueError("the event's data_base64 is not base64") from None
    if (written := inside.get("data")) is None:
        return _in_members(event) or b""
    if not written.startswith(b'"') or _is_json(event.get("datacontenttype")):
        return written
    try:
        text = json.loads(written)
    except ValueError:
        raise ValueError("the event's data is not JSON in UTF-8") from None
    return _encoded(text, "data")


def _in_header(ctx: Context | None) -> Reference | None:
    url = get_header(ctx, _DATAREF)
    return None if url is None else _reference(url.decode("utf-8", "surrogateescape"))


def _in_members(event: dict[str, Any]) -> Reference | None:
    url = event.get("dataref")
    if url is None:
        return None
    if not isinstance(url, str):
        raise ValueError("the event's dataref is not text")
    return _reference(url)


def _is_json(kind: object) -> bool:
    """Whether a member ``data`` of this content type is a JSON value; without one, it is."""
    if not isinstance(kind, str):
        return True
    subtype = kind.partition(";")[0].strip().lower().partition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def _reference(url: str) -> Reference:
    if len(url) > MAX_URL_BYTES:
        raise ValueError(f"the dataref has {len(url)} characters, more than {MAX_URL_BYTES}")
    _encoded(url, "dataref")
    return Reference(s3_reference_of_arn(url) if url.startswith("arn:") else url)


def _text(value: object, name: str) -> bytes:
    """An attribute as in binary mode."""
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, str):
        return _encoded(value, name)
    raise ValueError(f"the event's attribute {name[:50]!r} is neither text, integer nor boolean")


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the event's {name[:50]!r} is invalid Unicode") from None


FORMAT: Final = _CloudEventsFormat()
