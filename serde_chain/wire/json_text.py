"""Members of a JSON object as they are written: every digit of their numbers, and no objects in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Final

from serde_chain.base import Buffer

# Possessive: a string without an end is looked at once.
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_NAME: Final = re.compile(rb"(" + _STRING + rb")[ \t\n\r]*:[ \t\n\r]*", re.DOTALL)
_TOKEN: Final = re.compile(_STRING + rb'|["{}\[\]]', re.DOTALL)
_SCALAR: Final = re.compile(rb"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_OPEN: Final = re.compile(rb"[ \t\n\r]*\{[ \t\n\r]*")
_COMMA: Final = re.compile(rb"[ \t\n\r]*,[ \t\n\r]*")


def take_out(text: Buffer, names: Collection[str], most_bytes: int | None = None) -> tuple[bytes, dict[str, bytes]]:
    """Take members out of an object.

    Args:
        text: JSON in UTF-8. Other types than objects are returned whole, and malformed text is not repaired. In the
            members taken out, only strings and brackets are checked.
        names: Names of the members.
        most_bytes: Where to stop: so many bytes outside of these members, as of a document that is refused anyway.

    Returns:
        The text with null in their place; and their values as written, of several with one name the last.

    Example:
        >>> take_out(b'{"id": 1, "data": {"flux": 1.10}}', ["data"])
        (b'{"id": 1, "data": null}', {'data': b'{"flux": 1.10}'})
    """
    view, kept, outside = memoryview(text), 0, 0
    rest: list[Buffer] = []
    taken: dict[str, bytes] = {}
    separator = _OPEN.match(text)
    while separator is not None and (most_bytes is None or outside <= most_bytes):
        name = _NAME.match(text, separator.end())
        end = None if name is None else _end(text, name.end())
        if name is None or end is None:
            break
        label = _label(name[1])
        outside += (name.end() if label in names else end) - separator.start()
        if label in names:
            rest += [view[kept : name.end()], b"null"]
            taken[label], kept = bytes(view[name.end() : end]), end
        separator = _COMMA.match(text, end)
    return b"".join([*rest, view[kept:]]), taken


def _label(quoted: bytes) -> str:
    text = str(quoted, "utf-8", "replace")
    if "\\" not in text:
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:
        return ""


def _end(text: Buffer, start: int) -> int | None:
    """The end of a value; None if it has none."""
    scalar = _SCALAR.match(text, start)
    if scalar is not None:
        return scalar.end()
    depth = 0
    for token in _TOKEN.finditer(text, start):
        at, end = token.span()
        mark = text[at]
        if (not depth and at > start) or (mark == ord('"') and end == at + 1):
            return None
        depth += (mark in b"{[") - (mark in b"}]")
        if depth <= 0:
            return None if depth else end
    return None
