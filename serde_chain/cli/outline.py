"""A value's outline, and its printers: JSON, one line, and a tree with types for a page."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from typing import Any, Final
from uuid import UUID

from serde_chain.cli.fits import is_fits, size_in
from serde_chain.cli.output import printable
from serde_chain.handles import PayloadHandle
from serde_chain.models import model_of

_MOST_NODES: Final = 1_000
_MOST_LEVELS: Final = 40
_MOST_TEXT: Final = 500
# A summary: so many fields, each so long, and all together.
_FIELDS: Final = 8
_FIELD_TEXT: Final = 40
_LINE: Final = 160
# A text of JSON, and the items that are looked at for it: an object of some MB may have millions.
_MOST_JSON: Final = 100_000
_MOST_NAMES: Final = 100

_KINDS: Final = (
    (type(None), "null"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "float"),
    (str, "string"),
    (PayloadHandle, "in the store"),
    ((bytes, bytearray, memoryview), "bytes"),
    (Decimal, "decimal"),
    (UUID, "UUID"),
    (datetime, "timestamp"),
    (date, "date"),
    (time, "time"),
    (timedelta, "duration"),
)
_BYTES: Final = (bytes, bytearray, memoryview)
_ITEMS: Final = (list, tuple, set, frozenset)
_OPEN: Final = (*(kind for kind, _ in _KINDS), Mapping, *_ITEMS)


# The outline: a value is bytes, another leaf, or has parts.


def opened(value: Any) -> Any:
    """A mapping, a list or a leaf as it is; models, messages, arrays and other objects in these types."""
    if isinstance(value, _OPEN) and not isinstance(value, Enum):
        return value
    if isinstance(value, Enum):
        return opened(value.value)
    if (model := model_of(type(value))) is not None:
        return {field.name: getattr(value, field.attribute) for field in model.fields}
    if is_array(value) or is_table(value):
        return _shape(value)
    messages: Any = sys.modules.get("google.protobuf.message")  # a package that is not loaded has made no value
    return _of_message(value) if messages is not None and isinstance(value, messages.Message) else str(value)


def _of_message(value: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    found: dict[str, Any] = MessageToDict(value, preserving_proto_field_name=True)
    return found


def _shape(value: Any) -> str:
    """What an array or a table is, without its values."""
    if is_array(value):
        return f"<{str(value.dtype)[:_MOST_NAMES]} array, shape {value.shape}>"
    columns = ", ".join(value.column_names[:_MOST_NAMES])
    return f"<table, {value.num_rows:,} rows of {columns[:_MOST_NAMES]}>"


def is_array(value: object) -> bool:
    """Whether it is an array of NumPy."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_table(value: object) -> bool:
    """Whether it is a table of Arrow."""
    arrow: Any = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(value, arrow.Table)


def parts(value: Any, room: Iterator[object] | None = None) -> Iterator[tuple[str, Any]]:
    """The parts of an opened value, with their names or positions; none of a leaf.

    Args:
        value: A mapping, a list or a leaf.
        room: A part is taken only if this has another item; by default, all are.
    """
    named: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        named = value.items()
    elif isinstance(value, _ITEMS):
        named = enumerate(value)
    # Room is taken only if there is a next part.
    return ((str(name), item) for name, item in (named if room is None else _while(named, room)))


def _while(named: Iterable[tuple[Any, Any]], room: Iterator[object]) -> Iterator[tuple[Any, Any]]:
    return (pair for pair, _ in zip(named, room, strict=False))


def fetched(value: Any) -> Any:
    """A value in whose place is a handle; bytes of all kinds as ``bytes``."""
    if isinstance(value, PayloadHandle):
        value = value.read()
    return bytes(value) if isinstance(value, _BYTES) else value


# JSON


def as_json(value: Any, of_bytes: Callable[[Any], Any] | None = None, room: Iterator[object] | None = None) -> Any:
    r"""A value in JSON's types.

    Args:
        value: A chain's result.
        of_bytes: Converts bytes, and handles; by default to ``{"base64": "…"}``, which :func:`from_json` reads back.
        room: As in :func:`parts`.

    Example:
        >>> as_json({"name": "M 51", "pixels": b"\xff\xd8", "magnitude": float("nan")})
        {'name': 'M 51', 'pixels': {'base64': '/9g='}, 'magnitude': None}
    """
    value = opened(value)
    if isinstance(value, (*_BYTES, PayloadHandle)):
        return (of_bytes or _base64)(value)
    if isinstance(value, Mapping):
        return {name: as_json(item, of_bytes, room) for name, item in parts(value, room)}
    if isinstance(value, _ITEMS):
        return [as_json(item, of_bytes, room) for _, item in parts(value, room)]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, bool, int)):
        return value
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def _base64(data: Any) -> dict[str, str]:
    return {"base64": base64.b64encode(fetched(data)).decode()}


def field_json(value: Any) -> Any:
    r"""A key, a value or a header as JSON: like :func:`as_json`, but bytes that are text become text.

    Example:
        >>> field_json(b"M 51"), field_json(b"\xff\xd8")
        ('M 51', {'base64': '/9g='})
    """
    value = fetched(value)
    text = as_text(value) if isinstance(value, bytes) else None
    return as_json(value) if text is None else text


def from_json(value: Any) -> Any:
    r"""Undo :func:`as_json` for bytes.

    Example:
        >>> from_json({"name": "M 51", "pixels": {"base64": "/9g="}})
        {'name': 'M 51', 'pixels': b'\xff\xd8'}
    """
    if isinstance(value, dict):
        if value.keys() == {"base64"} and isinstance(value["base64"], str):
            return base64.b64decode(value["base64"], validate=True)
        return {name: from_json(item) for name, item in value.items()}
    return [from_json(item) for item in value] if isinstance(value, list) else value


def json_text(value: Any) -> tuple[str | None, bool]:
    """A value as text of at most 100,000 characters, and whether it is cut: objects as JSON, line by line.

    Args:
        value: A chain's result; None is returned for bytes that are not text.
    """
    if isinstance(value, _BYTES):
        text = as_text(bytes(value))
    elif isinstance(value, str):
        text = value
    else:
        # Piece by piece: an object's text may be far larger than the object.
        pieces, length = [], 0
        shown = as_json(value, as_size, iter(range(_MOST_JSON)))
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(shown):
            pieces.append(piece)
            length += len(piece)
            if length > _MOST_JSON:
                break
        text = "".join(pieces)
    return (None, False) if text is None else (text[:_MOST_JSON], len(text) > _MOST_JSON)


# Lines


def as_line(value: Any) -> str:
    """A value for people: text unchanged except for control characters; objects as JSON; other bytes by their size.

    Example:
        >>> as_line(b"M 51"), as_line(bytes(2000)), as_line({"pixels": bytes(2000)})
        ('M 51', '<2,000 bytes>', '{"pixels": "<2,000 bytes>"}')
    """
    value = fetched(value)
    if isinstance(value, bytes):
        text = as_text(value)
        return as_size(value) if text is None else printable(text)
    return printable(value if isinstance(value, str) else json.dumps(as_json(value, as_size), ensure_ascii=False))


def as_text(data: bytes) -> str | None:
    r"""Bytes as text; None if they are not text.

    Example:
        >>> as_text(b"M 51"), as_text(b"\xff\xd8")
        ('M 51', None)
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    # Far faster than checking each character.
    return text if text.replace("\n", "").replace("\r", "").replace("\t", "").isprintable() else None


def as_size(data: Any) -> str:
    """The representation of bytes, or of a handle, that are not shown.

    Example:
        >>> as_size(bytes(2000))
        '<2,000 bytes>'
    """
    if isinstance(data, PayloadHandle):
        return "<in the store>" if data.size is None else f"<{data.size:,} bytes in the store>"
    size = size_in(data) if isinstance(data, bytes) else None
    image = "" if size is None else f"FITS, {size[0]:,} \N{MULTIPLICATION SIGN} {size[1]:,}, "
    return f"<{image}{len(data):,} bytes>"


def summary(value: Any) -> str:
    """A value on one line: the first fields of an object that are short, or the beginning of a text.

    Args:
        value: A chain's result.

    Example:
        >>> summary({"id": 51, "pixels": bytes(2000), "sources": [1, 2]})
        'id 51 · pixels <2,000 bytes> · sources [2]'
    """
    value = opened(value)
    if not isinstance(value, Mapping):
        return _short(value, _LINE)
    line = ""
    for name, item in islice(value.items(), _FIELDS):
        part = f"{name} {_short(item, _FIELD_TEXT)}"
        if len(line) + len(part) > _LINE and line:
            return f"{line} · …"
        line += f" · {part}" if line else part
    return f"{line} · …" if len(value) > _FIELDS else line


def _short(value: Any, most: int) -> str:
    value = opened(value)
    if isinstance(value, Mapping):
        return f"{{{len(value):,}}}"
    return f"[{len(value):,}]" if isinstance(value, _ITEMS) else _text(value, most)


def cut(text: str, most: int) -> str:
    """A text up to a number of characters, with an ellipsis if more follow."""
    return text if len(text) <= most else f"{text[:most]}…"


# A tree


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
    value = opened(value)
    if not isinstance(value, (Mapping, *_ITEMS)):
        kind = next((word for types, word in _KINDS if isinstance(value, types)), type(value).__name__)
        return Node(name, kind, _text(value, _MOST_TEXT))
    node = Node(name, f"{'record' if isinstance(value, Mapping) else 'array'} ({len(value):,})")
    if levels:
        node.parts += (_node(part, item, room, levels - 1) for part, item in parts(value, room))
    node.missing = len(value) - len(node.parts)
    return node


def _beginning(data: bytes, most: int) -> bytes:
    """The first bytes, without a part of a letter of UTF-8 at the cut."""
    end = min(most, len(data))
    while most - 3 < end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def _text(value: Any, most: int) -> str:
    """A leaf, cut, except for the size of what is not shown."""
    if isinstance(value, PayloadHandle):
        return as_size(value)
    if isinstance(value, _BYTES):
        data = bytes(value)
        text = None if is_fits(data) else as_text(_beginning(data, 4 * (most + 1)))  # letters have up to four
        return as_size(data) if text is None else cut(text, most)
    if isinstance(value, (float, Decimal)):
        return cut(str(value) if isinstance(value, Decimal) else repr(value), most)  # not a number included
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    return cut(str(as_json(value)), most)
