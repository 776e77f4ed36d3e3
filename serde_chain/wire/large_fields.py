"""The header ``large-fields``: which fields of a record's value hold references instead of their payloads.

A JSON array with an object for each reference, of exactly these members::

    [{"path": "cutoutScience.stampData", "size": 61243, "digest": "sha256:<64 hexadecimal digits>"}]

Size (in bytes) and digest are those of the stored payload. A path has the names of fields between dots; a position in
an array follows its name in brackets, from 0: ``diaSources[3].stamp``. The field itself holds the reference as text,
UTF-8 in a field of bytes. A field is a reference only if the header names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

HEADER: Final = "large-fields"
MAX_HEADER_BYTES: Final = 1 << 20
MAX_STEPS: Final = 100

Path: TypeAlias = tuple[str | int, ...]
"""Names of fields, and positions in arrays."""

_MEMBERS: Final = frozenset({"path", "size", "digest"})
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_STEP: Final = re.compile(r"([^.\[\]]+)((?:\[(?:0|[1-9][0-9]{0,8})\])*)(\.|\Z)")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_SIZE: Final = 10**18
_SHOWN: Final = 100


class FieldEntry(NamedTuple):
    """A reference in a record.

    Attributes:
        path: Where it is.
        size: Size of the stored payload in bytes.
        digest: ``sha256:<hex>`` of the stored payload.
    """

    path: Path
    size: int
    digest: str


def join(path: Path) -> str:
    """The text of a path.

    Example:
        >>> join(("diaSources", 3, "stamp"))
        'diaSources[3].stamp'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def split(text: str) -> Path:
    """Parse the text of a path.

    Raises:
        ValueError: It is malformed, or has more than 100 names and positions.

    Example:
        >>> split("diaSources[3].stamp")
        ('diaSources', 3, 'stamp')
    """
    path: list[str | int] = []
    at = 0
    while len(path) <= MAX_STEPS and (match := _STEP.match(text, at)):
        path.append(match[1])
        path += map(int, match[2][1:-1].split("][")) if match[2] else ()
        if not match[3] and len(path) <= MAX_STEPS:
            return tuple(path)
        at = match.end()
    if len(path) > MAX_STEPS:
        raise ValueError(f"the path {text[:_SHOWN]!r} has more than {MAX_STEPS} names and positions")
    raise ValueError(f"the path {text[:_SHOWN]!r} is malformed")


def encode(entries: Iterable[FieldEntry]) -> bytes:
    """Make the header of a record.

    Example:
        >>> encode([FieldEntry(("stamp",), 3, "sha256:" + 64 * "0")])[:40]
        b'[{"path":"stamp","size":3,"digest":"sha2'
    """
    listed = [{"path": join(path), "size": size, "digest": digest} for path, size, digest in entries]
    return json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode()


def longest(paths: Iterable[Path]) -> int:
    """Most bytes of the header for fields, before their payloads are stored.

    Example:
        >>> longest([("stamp",)])
        127
    """
    return len(encode(FieldEntry(path, _MAX_SIZE - 1, f"sha256:{64 * '0'}") for path in paths))


def decode(header: bytes) -> list[FieldEntry]:
    """Parse the header of a record.

    Args:
        header: The header's value.

    Raises:
        ValueError: It is malformed, too long, or names a field twice.

    Example:
        >>> decode(b'[{"path": "stamp", "size": 3, "digest": "sha256:%s"}]' % (64 * b"0"))[0].path
        ('stamp',)
    """
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(f"it has {len(header)} bytes, more than {MAX_HEADER_BYTES}")
    try:
        listed = json.loads(header.decode())
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None  # the original error holds the header
    if not isinstance(listed, list):
        raise ValueError("it is not a JSON array")
    entries = [_entry(item) for item in listed]
    seen: set[Path] = set()
    for entry in entries:
        if entry.path in seen:
            raise ValueError(f"it names {join(entry.path)[:_SHOWN]!r} twice")
        seen.add(entry.path)
    return entries


def _entry(item: Any) -> FieldEntry:
    if not isinstance(item, dict) or item.keys() != _MEMBERS:
        raise ValueError("an entry has other members than path, size and digest")
    path, size, digest = item["path"], item["size"], item["digest"]
    if not isinstance(path, str):
        raise ValueError("a path is no text")
    if _SURROGATE.search(path):  # UTF-8 has no such name
        raise ValueError("a path has half of a surrogate pair")
    if type(size) is not int or not 0 <= size < _MAX_SIZE:
        raise ValueError(f"a size is {str(size)[:_SHOWN]!r} instead of a number of bytes")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"a digest is {str(digest)[:_SHOWN]!r} instead of sha256: and 64 hex digits")
    return FieldEntry(split(path), size, digest)
