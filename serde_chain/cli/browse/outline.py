"""A value's outline: one line for a list, and a tree with types for a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final
from uuid import UUID

from serde_chain.cli.values import as_json, as_size, as_text
from serde_chain.handles import PayloadHandle

__all__ = ["Node", "cut", "summary", "tree"]

_MOST_NODES: Final = 1_000
_MOST_LEVELS: Final = 40
_MOST_TEXT: Final = 500
# A summary: so many fields, each so long, and all together.
_FIELDS: Final = 8
_FIELD_TEXT: Final = 40
_LINE: Final = 160

_KINDS: Final = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "float"),
    (str, "string"),
    (Decimal, "decimal"),
    (UUID, "UUID"),
    (datetime, "timestamp"),
    (date, "date"),
    (time, "time"),
    (timedelta, "duration"),
)


@dataclass
class Node:
    """A part of a value.

    Attributes:
        name: Its field's name, or its position in an array; empty for the value itself.
        kind: Its type.
        text: Its value, if it has no parts; may be cut.
        parts: Its parts.
        missing: How many of its parts are not in the tree.
    """

    name: str
    kind: str
    text: str | None = None
    parts: list[Node] = field(default_factory=list)
    missing: int = 0


def tree(value: Any) -> Node:
    """The parts of a value with their types, up to 1,000 of them, and 40 levels.

    Args:
        value: A chain's result.

    Example:
        >>> node = tree({"id": 51, "pixels": bytes(2000)})
        >>> [(part.name, part.kind, part.text) for part in node.parts]
        [('id', 'integer', '51'), ('pixels', 'bytes', '<2,000 bytes>')]
    """
    return _node("", value, iter(range(_MOST_NODES)), _MOST_LEVELS)


def _node(name: str, value: Any, room: Iterator[int], levels: int) -> Node:
    value = _plain(value)
    if not isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return Node(name, _kind(value), _text(value))
    named: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else enumerate(value)
    node = Node(name, f"{'record' if isinstance(value, Mapping) else 'array'} ({len(value):,})")
    if levels:
        # The next part is taken only if there is room for it, and room only if there is a next part.
        for (part, item), _ in zip(named, room, strict=False):
            node.parts.append(_node(str(part), item, room, levels - 1))
    node.missing = len(value) - len(node.parts)
    return node


def _plain(value: Any) -> Any:
    """Messages and other objects in JSON's types."""
    known = (Mapping, Sequence, set, frozenset, memoryview, PayloadHandle, type(None), *(kind for kind, _ in _KINDS))
    return value if isinstance(value, known) else as_json(value, as_size)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, PayloadHandle):
        return "in the store"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "bytes"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), type(value).__name__)


def _text(value: Any) -> str:
    if isinstance(value, PayloadHandle):
        return "" if value.size is None else _size(value.size)
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = as_text(bytes(value[:_MOST_TEXT]))
        return _size(len(value)) if text is None else cut(text, _MOST_TEXT)
    if isinstance(value, float):
        return repr(value)  # not a number included
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return cut(str(as_json(value, as_size)), _MOST_TEXT)


def summary(value: Any) -> str:
    """A value on one line: the first fields of an object that are short, or the beginning of a text.

    Args:
        value: A chain's result.

    Example:
        >>> summary({"id": 51, "pixels": bytes(2000), "sources": [1, 2]})
        'id 51 · pixels <2,000 bytes> · sources [2]'
    """
    value = _plain(value)
    if isinstance(value, Mapping):
        parts = (f"{name} {_short(item)}" for name, item in islice(value.items(), _FIELDS))
        return cut(" · ".join(parts) + (" · …" if len(value) > _FIELDS else ""), _LINE)
    return cut(_short(value, _LINE), _LINE)


def _short(value: Any, most: int = _FIELD_TEXT) -> str:
    value = _plain(value)
    if isinstance(value, Mapping):
        return f"{{{len(value):,}}}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{len(value):,}]"
    return cut(_text(value), most)


def cut(text: str, most: int) -> str:
    """A text up to a number of characters, with an ellipsis if more follow."""
    return text if len(text) <= most else f"{text[:most]}…"


def _size(count: int) -> str:
    """The representation of so many bytes that are not shown."""
    return f"<{count:,} bytes>"
