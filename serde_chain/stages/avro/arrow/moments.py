"""The rule of :mod:`serde_chain.stages.avro.moments` for columns: dates, times and UUIDs that records cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from payload_stores.plugins import require
from serde_chain.stages.avro.moments import LIMITS, UUID_TYPE, Beyond, is_uuid, limited
from serde_chain.stages.avro.resolution import branches
from serde_chain.stages.avro.types import bare, kind

_CANONICAL: Final = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}


class _Leaf(NamedTuple):
    path: tuple[str, ...]
    logical: str


class _Struct(NamedTuple):
    children: tuple[tuple[int, _Node], ...]


class _Items(NamedTuple):
    item: _Node


_Node = _Leaf | _Struct | _Items


class Moments:
    """Finds the rows with values that are not read.

    Args:
        schema: The parsed schema of the column, of which Arrow has a type.
        named: Definitions of its named types.
    """

    def __init__(self, schema: Any, named: Mapping[str, Any]) -> None:
        self._named = named
        self._root = self._node(schema, ())

    def refused(self, array: Any) -> dict[int, Beyond]:
        """The rows with such values, in order, and the first value of each.

        Args:
            array: ``pyarrow.Array`` of the column, with times in any unit.
        """
        if self._root is None or not _may_have(self._root, array):
            return {}
        rows = require("pyarrow", "arrow").array(range(len(array)), "int64")
        found: dict[int, Beyond] = {}
        for row, value in _found(self._root, array, rows):
            found.setdefault(row, value)
        return dict(sorted(found.items()))

    def _node(self, schema: Any, path: tuple[str, ...]) -> _Node | None:
        schema = bare(schema, self._named)
        if isinstance(schema, list):
            return self._union(schema, path)
        match kind(schema):
            case "record":
                fields = schema["fields"]
                return _struct([self._node(field["type"], (*path, field["name"])) for field in fields])
            case "array" | "map":
                item = self._node(schema["items" if kind(schema) == "array" else "values"], path)
                return None if item is None else _Items(item)
        logical = limited(schema)
        return None if logical is None else _Leaf(path, logical)

    def _union(self, union: list[Any], path: tuple[str, ...]) -> _Node | None:
        members = branches(union, self._named)
        if members is not None:
            return _struct([self._node(branch, path) for branch in members])
        others = [branch for branch in union if kind(bare(branch, self._named)) != "null"]
        return self._node(others[0], path) if len(others) == 1 else None


def _struct(children: list[_Node | None]) -> _Struct | None:
    kept = tuple((at, child) for at, child in enumerate(children) if child is not None)
    return _Struct(kept) if kept else None


def _may_have(node: _Node, array: Any) -> bool:
    """Whether a column may have such values; what nulls hide is looked at too, since that is faster."""
    if isinstance(node, _Struct):
        return any(_may_have(child, array.field(at)) for at, child in node.children)
    if isinstance(node, _Items):
        return _may_have(node.item, _items(array))
    compute: Any = require("pyarrow.compute", "arrow")
    if node.logical == UUID_TYPE:
        return not compute.all(compute.match_substring_regex(array, _CANONICAL)).as_py() if len(array) else False
    numbers = _numbers(array)
    least, most = _bounds(node.logical, array.type)
    ends = compute.min_max(numbers)
    low = ends["min"].as_py()
    return low is not None and not (least <= low and ends["max"].as_py() <= most)


def _found(node: _Node, array: Any, rows: Any) -> Iterator[tuple[int, Beyond]]:
    """The values that are not read; ``rows`` are the rows to which the array's values belong."""
    compute: Any = require("pyarrow.compute", "arrow")
    if isinstance(node, _Struct):
        children = array.flatten()
        for at, child in node.children:
            yield from _found(child, children[at], rows)
    elif isinstance(node, _Items):
        lists = _as_list(array)
        yield from _found(node.item, lists.flatten(), rows.take(compute.list_parent_indices(lists)))
    elif node.logical == UUID_TYPE:
        for row, text in zip(rows.to_pylist(), array.to_pylist(), strict=True):
            if text is not None and not is_uuid(text):
                yield row, Beyond(node.path, node.logical)
    else:
        least, most = _bounds(node.logical, array.type)
        numbers = _numbers(array)
        mask = compute.or_(compute.less(numbers, least), compute.greater(numbers, most))
        for row in rows.filter(mask).to_pylist():
            yield row, Beyond(node.path, node.logical)


def _items(array: Any) -> Any:
    types: Any = require("pyarrow.types", "arrow")
    return array.items if types.is_map(array.type) else array.values


def _as_list(array: Any) -> Any:
    """A list of the values of maps; a null map has none."""
    arrow: Any = require("pyarrow", "arrow")
    return arrow.ListArray.from_arrays(array.offsets, array.items) if arrow.types.is_map(array.type) else array


def _numbers(array: Any) -> Any:
    arrow: Any = require("pyarrow", "arrow")
    if arrow.types.is_integer(array.type):
        return array
    return array.view(arrow.int32() if array.type.bit_width == 32 else arrow.int64())


def _bounds(logical: str, type_: Any) -> tuple[int, int]:
    """The limits of a logical type, in a column's unit."""
    least, most = LIMITS[logical]
    types: Any = require("pyarrow.types", "arrow")
    if not types.is_timestamp(type_):
        return least, most
    own, per_second = 1000 if logical.endswith("millis") else 1_000_000, _PER_SECOND[type_.unit]
    return least * per_second // own, (most + 1) * per_second // own - 1
