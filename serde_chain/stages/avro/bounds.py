"""Checks of Avro bytes before they are decoded, for schemas with which a few bytes could exhaust a reader.

Two kinds of schema let a short input claim unbounded work: recursive ones (each level of nesting takes as little as
one byte, and native readers crash when their stack overflows), and arrays or maps of items with many parts in few
bytes, such as ``null``, empty records, or records of these: an item count of one byte then multiplies all parts of an
item. Records of all other schemas are bounded by their own length and need no check.

A third kind is bounded by its length and still too large: types that use other types twice double at each level.

Parts are counted because they become objects (:mod:`serde_chain.schemas.part_budget`). The schema alone limits how far
the parts of its values may exceed what their bytes pay for (:func:`excess_parts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

from serde_chain.base import Buffer
from serde_chain.schemas.nesting import MAX_DEPTH
from serde_chain.schemas.part_budget import FREE_PARTS, PARTS_PER_BYTE, Budget, TooManyPartsError
from serde_chain.wire import varint

# Nesting of types: the code that reads schemas recurses several frames per level.
MOST_LEVELS: Final = 120

_FIXED_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_VARINTS: Final = {"int", "long", "enum"}


Filled: TypeAlias = Mapping[str, int]
"""Number of parts that a reader's schema adds to each record of a type, by full name: the defaults of new fields."""

_NOTHING: Final[Filled] = {}


def needs_check(schema: Any, named: Mapping[str, Any], excess: int, filled: Filled = _NOTHING) -> bool:
    """Whether records of a schema must pass :func:`check_bounds` first.

    Args:
        schema: A parsed schema.
        named: Full name to definition of the named types in it.
        excess: Its :func:`excess_parts`.
        filled: The parts added by the reader's schema.
    """
    return excess > FREE_PARTS or is_recursive(schema, named) or _has_dense_items(schema, named, filled, {}, set())


def excess_parts(schema: Any, named: Mapping[str, Any], filled: Filled = _NOTHING) -> int:
    """Maximum number of parts of a value beyond those paid for by its own bytes; without items of arrays and maps.

    Args:
        schema: A parsed schema.
        named: Full name to definition of the named types in it.
        filled: The parts added by the reader's schema.

    Returns:
        A number; zero or less if every value pays for itself.
    """
    return _excess(schema, named, filled, {})


def skips_blindly(kept: Iterable[Any], left_out: Collection[Any], named: Mapping[str, Any]) -> bool:
    """Whether fastavro may read a record for ever: it does not notice the end of the data when it skips fixed sizes.

    So it does with an array of such items that the reader's schema leaves out, and with an array of records of which
    it leaves out all that takes bytes: a count has up to 63 bits.

    Args:
        kept: The types of the fields that the reader's schema has.
        left_out: The types of the others.
        named: Full name to definition of the named types in them.
    """
    if any(has_blind_items(each, named) for each in left_out):
        return True
    known: dict[str, bool] = {}
    nothing_else = bool(left_out) and all(_has_fixed_size(each, named, known) for each in left_out)
    return nothing_else and all(_excess(each, named, _NOTHING, {}) > 0 for each in kept)


def has_blind_items(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether a type contains an array of items of a fixed size; see :func:`skips_blindly`."""
    return _has_blind_items(schema, named, set(), {})


def is_recursive(schema: Any, named: Mapping[str, Any]) -> bool:
    """Whether a type contains itself, or another that does, so that its values are unbounded in depth."""
    return _recursive(schema, named, (), set())


def _has_blind_items(schema: Any, named: Mapping[str, Any], seen: set[str], known: dict[str, bool]) -> bool:
    if isinstance(schema, str):
        if schema in seen:
            return False
        seen.add(schema)
    is_array = isinstance(schema, dict) and schema["type"] == "array"
    if is_array and _has_fixed_size(schema["items"], named, known):
        return True
    return any(_has_blind_items(child, named, seen, known) for child in _children(schema, named))


def _has_fixed_size(schema: Any, named: Mapping[str, Any], known: dict[str, bool]) -> bool:
    """Whether a type takes the same number of bytes for all values; ``known`` has the named types seen so far."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict):
        return _has_fixed_size(kind, named, known)
    if isinstance(kind, list) or kind in {"array", "map"}:
        return False
    name = schema if isinstance(schema, str) else schema.get("name")
    if name not in named:
        return kind in _FIXED_SIZES
    if name not in known:
        known[name] = False  # within itself
        fields = named[name].get("fields")
        known[name] = (
            named[name]["type"] == "fixed"
            if fields is None
            else all(_has_fixed_size(field["type"], named, known) for field in fields)
        )
    return known[name]


def check_levels(schema: Any, named: Mapping[str, Any]) -> None:
    """Refuse a schema with too deeply nested types; a type within itself counts once.

    Args:
        schema: A parsed schema.
        named: Full name to definition of the named types in it.

    Raises:
        ValueError: The types nest too deeply.
    """
    _levels(schema, named, {}, 0)


def _levels(schema: Any, named: Mapping[str, Any], known: dict[str, int], above: int) -> int:
    """The number of levels of a type; ``known`` has those of named types."""
    if above > MOST_LEVELS:
        raise ValueError(f"its types nest deeper than {MOST_LEVELS} levels")
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    name = schema.get("name") if isinstance(schema, dict) else None
    if name is not None and name in known:
        levels = known[name]
    else:
        if name is not None:
            known[name] = 0
        children = _children(schema, named)
        levels = 1 + max((_levels(child, named, known, above + 1) for child in children), default=0)
        if name is not None:
            known[name] = levels
    if above + levels > MOST_LEVELS:
        raise ValueError(f"its types nest deeper than {MOST_LEVELS} levels")
    return levels


def weight(schema: Any, named: Mapping[str, Any], known: dict[str, int] | None = None) -> int:
    """The number of types in a schema; named types used twice count twice, since they may double at each level.

    A name within its own definition counts as nothing: the record's bytes determine its depth.

    Args:
        schema: A parsed schema.
        named: Full name to definition of the named types in it.
        known: Weights of the named types seen so far.
    """
    known = {} if known is None else known
    if isinstance(schema, list):
        return sum(weight(branch, named, known) for branch in schema)
    if isinstance(schema, str):
        if schema not in named:
            return 1
        if schema not in known:
            known[schema] = 0
            known[schema] = weight(named[schema], named, known)
        return known[schema]
    kind = schema["type"]
    if kind in {"record", "error"}:
        name = schema["name"]
        known.setdefault(name, 0)
        known[name] = 1 + sum(weight(field["type"], named, known) for field in schema["fields"])
        return known[name]
    if kind in {"array", "map"}:
        return 1 + weight(schema["items" if kind == "array" else "values"], named, known)
    return weight(kind, named, known) if isinstance(kind, (dict, list)) else 1


def check_bounds(  # noqa: PLR0917, as the function that calls it has them
    schema: Any, named: Mapping[str, Any], data: Buffer, start: int, budget: Budget, filled: Filled = _NOTHING
) -> int:
    """Refuse bytes that nest too deeply or claim many more parts than they have bytes.

    Args:
        schema: A parsed schema.
        named: Full name to definition of the named types in it.
        data: The encoded record.
        start: Start of the record.
        budget: Maximum number of parts.
        filled: The parts added by the reader's schema.

    Returns:
        The record's number of parts.

    Raises:
        ValueError: A bound is exceeded, or the bytes are truncated or foreign.
    """
    walk = _Walk(named, memoryview(data), budget, len(data) - start, filled)
    walk.skip(schema, start, 0)
    return walk.parts


class _Walk:
    def __init__(self, named: Mapping[str, Any], data: memoryview, budget: Budget, size: int, filled: Filled) -> None:
        self._named = named
        self._filled = filled
        self._data = data
        self._budget, self._size = budget, size
        self._most = budget.of(size)
        self._empty = 0
        self.parts = 0

    def skip(self, schema: Any, at: int, depth: int) -> int:
        """The position after one value."""
        if depth > MAX_DEPTH:
            raise ValueError(f"the record nests deeper than {MAX_DEPTH} levels")
        if isinstance(schema, list):
            branch, at = self._long(at)
            if not 0 <= branch < len(schema):
                raise ValueError(f"branch {branch} does not exist in a union of {len(schema)}")
            return self.skip(schema[branch], at, depth)
        if isinstance(schema, str) and schema in self._named:
            return self.skip(self._named[schema], at, depth + 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self.skip(kind, at, depth)
        self._count(1)
        if kind in {"record", "error"}:
            if self._filled:
                self._count(self._filled.get(schema["name"], 0))
            for field in schema["fields"]:
                at = self.skip(field["type"], at, depth)
            return at
        if kind in {"array", "map"}:
            return self._skip_blocks(schema, kind, at, depth)
        return self._skip_leaf(schema, kind, at)

    def _skip_leaf(self, schema: Any, kind: str, at: int) -> int:
        if kind in _VARINTS:
            return self._long(at)[1]
        if kind in {"bytes", "string"}:
            size, at = self._long(at)
        else:
            size = schema["size"] if kind == "fixed" else _FIXED_SIZES[kind]
        if size < 0 or at + size > len(self._data):
            raise ValueError("a value extends beyond the end of the data")
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
                before, parts = at, self.parts
                at = self.skip("string", at, depth) if kind == "map" else at
                at = self.skip(items, at, depth)
                if at == before:  # then the remaining items are empty too
                    parts = self.parts - parts
                    self._empty += parts * count
                    if self._empty > max(FREE_PARTS, self._budget.most or 0):
                        raise TooManyPartsError(f"the record claims {self._empty} parts in items that take no bytes")
                    self._count(parts * (count - 1))
                    break

    def _count(self, parts: int) -> None:
        self.parts += parts
        if self.parts > self._most:
            raise self._budget.exceeded(self._size)

    def _long(self, at: int) -> tuple[int, int]:
        number, end = varint.read(self._data, at)
        return varint.from_zigzag(number), end


def _children(schema: Any, named: Mapping[str, Any]) -> list[Any]:
    if isinstance(schema, list):
        return schema
    if isinstance(schema, str):
        return [named[schema]] if schema in named else []
    kind = schema["type"]
    if kind in {"record", "error"}:
        types = [field["type"] for field in schema["fields"]]
        # Each name once: most fields have one of few. In their order, on which the levels of recursive types depend.
        names = dict.fromkeys(each for each in types if isinstance(each, str))
        return [*names, *(each for each in types if not isinstance(each, str))]
    if kind in {"array", "map"}:
        return [schema["items"] if kind == "array" else schema["values"]]
    return [kind] if isinstance(kind, (dict, list)) else []


def _recursive(schema: Any, named: Mapping[str, Any], above: tuple[str, ...], done: set[str]) -> bool:
    """Whether a type contains itself; ``above`` are the enclosing named types, ``done`` those known not to."""
    schema = named.get(schema, schema) if isinstance(schema, str) else schema
    name = schema.get("name") if isinstance(schema, dict) else None
    if name is None or name in done:
        return name is None and any(_recursive(child, named, above, done) for child in _children(schema, named))
    if name in above:
        return True
    recursive = any(_recursive(child, named, (*above, name), done) for child in _children(schema, named))
    done.add(name)
    return recursive


def _has_dense_items(
    schema: Any, named: Mapping[str, Any], filled: Filled, known: dict[str, int], seen: set[str]
) -> bool:
    """Whether the schema has arrays or maps whose items may have more parts than their bytes pay for."""
    if isinstance(schema, str):
        if schema in seen:
            return False
        seen.add(schema)
    kind = schema["type"] if isinstance(schema, dict) else None
    if kind == "array" and _excess(schema["items"], named, filled, known) > 0:
        return True
    if kind == "map":
        key, value = (_excess(each, named, filled, known) for each in ("string", schema["values"]))
        if key + value > 0:
            return True
    return any(_has_dense_items(child, named, filled, known, seen) for child in _children(schema, named))


def _excess(schema: Any, named: Mapping[str, Any], filled: Filled, known: dict[str, int]) -> int:
    """See :func:`excess_parts`; ``known`` has the named types seen so far."""
    if isinstance(schema, list):
        return max((_excess(branch, named, filled, known) for branch in schema), default=0) - PARTS_PER_BYTE
    if isinstance(schema, str) and schema in named:
        if schema not in known:
            known[schema] = 0  # during its own check; a recursive type is always checked
            known[schema] = _excess(named[schema], named, filled, known)
        return known[schema]
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, (dict, list)):
        return _excess(kind, named, filled, known)
    if kind in {"record", "error"}:
        own = 1 + filled.get(schema["name"], 0)
        return own + sum(_excess(field["type"], named, filled, known) for field in schema["fields"])
    # Varints and length prefixes take at least a byte.
    size = schema["size"] if kind == "fixed" else _FIXED_SIZES.get(kind, 1)
    return 1 - PARTS_PER_BYTE * int(size)
