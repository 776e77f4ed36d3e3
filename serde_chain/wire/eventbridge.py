"""Events of EventBridge's Kafka connector with a part in S3, ``eventbridge``.

The connector takes a part of an event's ``detail``, named by a JSON path below ``$.detail.value``, puts it into an
object and adds ``dataref``, the object's ARN, and ``datarefJsonPath``, the path (``datarefPath`` in an earlier class).
It writes to EventBridge, so a bridge brings such events back to Kafka: whole, or their ``detail`` alone. Reading puts
the part back.

A part that was text is an object without quotes, and one that was a number the same; it is read as text unless it
begins as a JSON object or array does. The rest of the event is written anew, without spaces; its numbers keep their
digits.
"""

from __future__ import annotations

import codecs
import json
import re
import secrets
from collections.abc import Iterator
from typing import Any, Final

from serde_chain.base import Buffer
from serde_chain.record import Context
from serde_chain.wire.foreign import MAX_DOCUMENT_BYTES, ForeignFormat, document, s3_reference_of_arn
from serde_chain.wire.reference_format import Reference

_MARK: Final = re.compile(rb'\{.*"dataref"', re.DOTALL)
_PATHS: Final = ("datarefJsonPath", "datarefPath")
_ROOT: Final = ("detail", "value")
_STEP: Final = re.compile(r"\.([A-Za-z_][\w-]*)|\[\s*'([^'\\]*)'\s*\]|\[\s*\"([^\"\\]*)\"\s*\]|\[\s*(\d{1,9})\s*\]")
_MAX_PATH: Final = 2000
_PIECE_BYTES: Final = 1 << 16


class _EventBridgeFormat(ForeignFormat):
    in_band = True
    rewrites = True

    def read(self, data: Buffer, ctx: Context | None, *, is_key: bool) -> Reference | Buffer | None:
        if is_key or len(data) > MAX_DOCUMENT_BYTES or not _MARK.match(data):
            return None
        detail = _detail(document(data))
        if detail is None:
            return None
        if not isinstance(detail["dataref"], str):
            raise ValueError("the event's dataref is not text")
        _path(detail)
        return Reference(s3_reference_of_arn(detail["dataref"]))

    def restore(self, placeholder: Buffer, payload: Buffer, ctx: Context | None) -> Buffer:
        token = secrets.token_hex(16)
        # Floats would lose digits.
        event = document(placeholder, parse_float=f"{token}{{}}".format)
        detail = _detail(event)
        if detail is None:
            raise ValueError("the event has no dataref")
        *parents, last = _path(detail)
        del detail["dataref"]
        for name in _PATHS:
            detail.pop(name, None)
        # The part is put into the text, not into the objects: they would take many times its size.
        _put(detail, parents, last, token)
        try:
            text = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except ValueError:
            raise ValueError("the event is not JSON in UTF-8") from None
        text = re.sub(rb'"%s([^"]+)"' % token.encode(), rb"\1", text)
        before, _, after = text.partition(f'"{token}"'.encode())
        return b"".join((before, *_part(payload), after))


def _detail(event: dict[str, Any] | None) -> dict[str, Any] | None:
    """The object with the reference: the event, or its detail."""
    for found in (event, None if event is None else event.get("detail")):
        if isinstance(found, dict) and "dataref" in found and any(name in found for name in _PATHS):
            return found
    return None


def _path(detail: dict[str, Any]) -> list[str | int]:
    """The steps to the part, from the detail."""
    path = next(detail[name] for name in _PATHS if name in detail)
    if not (isinstance(path, str) and path.startswith("$") and len(path) <= _MAX_PATH):
        raise ValueError("the event's path does not begin with $")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            raise ValueError(f"the event's path has a step that is no name and no position: {path[at : at + 50]!r}")
        names, position = match.groups()[:3], match[4]
        steps.append(next(name for name in names if name is not None) if position is None else int(position))
        at = match.end()
    if tuple(steps[: len(_ROOT)]) != _ROOT:
        raise ValueError("the event's path is not below $.detail.value")
    return steps[1:]


def _put(detail: Any, parents: list[str | int], last: str | int, token: str) -> None:
    here = detail
    for step in parents:
        fits = isinstance(here, dict) if isinstance(step, str) else isinstance(here, list) and step < len(here)
        if not fits or (isinstance(step, str) and step not in here):
            raise ValueError(f"the event has no place for its part: there is no {step!r}")
        here = here[step]
    if isinstance(last, str) and isinstance(here, dict):
        here[last] = token
    elif isinstance(last, int) and isinstance(here, list):
        here.insert(last, token)
    else:
        raise ValueError(f"the event has no place for its part: {last!r} is of another kind")


def _part(payload: Buffer) -> Iterator[Buffer]:
    """A part as JSON: its own, or text.

    Text is quoted piece by piece: as a whole, one character beyond the basic plane makes it four bytes each.
    """
    if bytes(payload[:1]) in {b"{", b"["}:
        yield payload
        return
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    view = memoryview(payload)
    yield b'"'
    for start in range(0, len(view), _PIECE_BYTES):
        yield _escaped(decode(view[start : start + _PIECE_BYTES]))
    yield _escaped(decode(b"", final=True)) + b'"'


def _escaped(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


FORMAT: Final = _EventBridgeFormat()
