"""A look over Avro bytes before they are decoded, for schemas with which a few bytes could exhaust a reader.

Two kinds of schema let a short input claim unbounded work: recursive ones (each level of nesting takes as little as
one byte, and native readers crash when their stack ends) and arrays or maps of items that take no bytes (``null``,
empty records), whose count alone decides how much memory they take. Records of all other schemas are bounded by their
own length, and need no look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from serde_chain.base import Buffer

__all__ = ["MAX_DEPTH", "MAX_EMPTY_ITEMS", "check_bounds", "check_depth", "needs_check"]

MAX_DEPTH: Final = 200
MAX_EMPTY_ITEMS: Final = 100_000

_FIXED_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS: Final = {"int", "long", "enum"}


def needs_check(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether records of a schema must be looked over with :func:`check_bounds` first.

    Args:
        schema: A parsed schema.
        named: Full name to definition of the named types in it.
    """
    return _recursive(schema, named, (), set()) or _has_empty_items(schema, named, set())


def check_bounds(schema: Any, named: Mapping[str, Any], data: Buffer, start: int = 0) -> None:
    """Refuse bytes that nest too deep or claim too many items that take no bytes.

    Args:
        schema: A parsed schema.
        named: Full name to definition of the named types in it.
        data: The encoded record.
        start: Where it begins.

    Raises:
        ValueError: A bound is exceeded, or the bytes are cut off or foreign.
    """
    _Walk(named, memoryview(data)).skip(schema, start, 0)


def check_depth(value: Any) -> None:
    """Refuse a value that nests deeper than can be read again; native writers crash when their stack ends.

    Args:
        value: What is to be encoded with a recursive schema.

    Raises:
        ValueError: It nests too deep, or contains itself.
    """
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for whole in level for part in _parts(whole) if isinstance(part, (Mapping, list, tuple))]
        if not level:
            return
    raise ValueError(f"the value nests deeper than {MAX_DEPTH} levels")


def _parts(whole: Any) -> Iterable[Any]:
    if isinstance(whole, Mapping):
        return whole.values()
    return whole if isinstance(whole, (list, tuple)) else ()


class _Walk:
    def __init__(self, named: Mapping[str, Any], data: memoryview) -> None:
        self._named = named
        self._data = data
        self._empty_items = 0

    def skip(self, schema: Any, at: int, depth: int) -> int:
        """The position behind one value."""
        if depth > MAX_DEPTH:
            raise ValueError(f"the record nests deeper than {MAX_DEPTH} levels")
        if isinstance(schema, list):
            branch, at = self._long(at)
            if not 0 <= branch < len(schema):
                raise ValueError(f"there is no branch {branch} in a union of {len(schema)}")
            return self.skip(schema[branch], at, depth)
        if isinstance(schema, str) and schema in self._named:
            return self.skip(self._named[schema], at, depth + 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in {"record", "error"}:
            for field in schema["fields"]:
                at = self.skip(field["type"], at, depth)
            return at
        if kind in {"array", "map"}:
            return self._skip_blocks(schema, kind, at, depth)
        if isinstance(kind, (dict, list)):
            return self.skip(kind, at, depth)
        return self._skip_leaf(schema, kind, at)

    def _skip_leaf(self, schema: Any, kind: str, at: int) -> int:
        if kind in _VARINTS:
            return self._long(at)[1]
        if kind in {"bytes", "string"}:
            size, at = self._long(at)
        else:
            size = schema["size"] if kind == "fixed" else _FIXED_SIZES[kind]
        if size < 0 or at + size > len(self._data):
            raise ValueError("a value reaches beyond the end of the data")
        return at + size

    def _skip_blocks(self, schema: Any, kind: str, at: int, depth: int) -> int:
        items = schema["items"] if kind == "array" else schema["values"]
        while True:
            count, at = self._long(at)
            if count == 0:
                return at
            if count < 0:
                count, at = -count, self._long(at)[1]
            for _ in range(count):
                before = at
                at = self.skip("string", at, depth) if kind == "map" else at
                at = self.skip(items, at, depth)
                if at == before:  # then so do all the others
                    self._empty_items += count
                    break
            if self._empty_items > MAX_EMPTY_ITEMS:
                raise ValueError(f"the record claims {self._empty_items} items that take no bytes")

    def _long(self, at: int) -> tuple[int, int]:
        value = shift = 0
        while shift < 70 and at < len(self._data):
            byte = self._data[at]
            value |= (byte & 0x7F) << shift
            at += 1
            shift += 7
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), at
        raise ValueError("a number is cut off")


def _children(schema: Any, named: Mapping[str, Any]) -> list[Any]:
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        return [named[schema]] if schema in named else []
    kind = schema["type"]
    if kind in {"record", "error"}:
        return [field["type"] for field in schema["fields"]]
    if kind in {"array", "map"}:
        return [schema["items"] if kind == "array" else schema["values"]]
    return [kind] if isinstance(kind, (dict, list)) else []


def _recursive(schema: Any, named: Mapping[str, Any], above: tuple[str, ...], done: set[str]) -> bool:
    """Whether a type contains itself; ``above`` are the named types around it, ``done`` those known not to."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    name = schema.get("name") if isinstance(schema, dict) else None
    if name is None or name in done:
        return name is None and any(_recursive(child, named, above, done) for child in _children(schema, named))
    if name in above:
        return True
    found = any(_recursive(child, named, (*above, name), done) for child in _children(schema, named))
    done.add(name)
    return found


def _has_empty_items(schema: Any, named: Mapping[str, Any], seen: set[str]) -> bool:
    if isinstance(schema, str):
        if schema in seen:
            return False
        seen.add(schema)
    if isinstance(schema, dict) and schema["type"] == "array" and _may_be_empty(schema["items"], named, {}):
        return True
    return any(_has_empty_items(child, named, seen) for child in _children(schema, named))


def _may_be_empty(schema: Any, named: Mapping[str, Any], known: dict[str, bool]) -> bool:
    """Whether a value may take no bytes; unions and maps take at least their index or count."""
    if schema == "null":
        return True
    if isinstance(schema, str):
        if schema in named and schema not in known:
            known[schema] = False  # while it is looked into: what contains itself is not empty
            known[schema] = _may_be_empty(named[schema], named, known)
        return known.get(schema, False)
    if isinstance(schema, list):
        return False
    kind = schema["type"]
    if kind == "fixed":
        return bool(schema["size"] == 0)
    if kind in {"record", "error"}:
        return all(_may_be_empty(field["type"], named, known) for field in schema["fields"])
    return isinstance(kind, (str, dict)) and kind not in {"array", "map", "enum"} and _may_be_empty(kind, named, known)
