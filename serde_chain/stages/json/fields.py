"""The fields of a JSON Schema, for stages that move single fields (:class:`~serde_chain.base.FieldType`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import unquote

from serde_chain.base import ANYTHING, FieldType

_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_OF_OBJECTS: Final = frozenset({"properties", "additionalProperties", "patternProperties", "required"})
_OF_ARRAYS: Final = frozenset({"items", "prefixItems", "contains"})
_CLOSED_SETS: Final = frozenset({"enum", "const"})


def field_type(schema: Any) -> FieldType:
    """The type of a schema's values.

    An object with ``properties`` has these, unless ``additionalProperties`` or ``patternProperties`` say more: without
    them, any name is valid JSON, and most likely misspelt.

    Args:
        schema: The parsed schema. References within it are followed; others stand for anything.

    Example:
        >>> body = {"type": ["string", "null"]}
        >>> kind = field_type({"properties": {"body": body, "id": {"type": "integer"}}})
        >>> kind.fields()["body"].holds_text, kind.fields()["id"].holds_text, kind.is_open
        (True, False, False)
    """
    return _Types(schema).of(schema)


class _Types:
    """Types by the branches that they stand for, each made once, since schemas may be recursive.

    Args:
        root: The whole schema.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[frozenset[int], FieldType] = {}

    def of(self, *schemas: Any) -> FieldType:
        """The type of a union of schemas."""
        branches: dict[int, Any] = {}
        for schema in schemas:
            self._collect(schema, branches)
        key = frozenset(branches)
        if key not in self._known:
            self._known[key] = self._made(list(branches.values()))
        return self._known[key]

    def _collect(self, schema: Any, branches: dict[int, Any]) -> None:
        waiting = [schema]
        while waiting:
            schema = waiting.pop()
            if id(schema) in branches:
                continue
            branches[id(schema)] = schema
            if isinstance(schema, Mapping):
                waiting += self._alternatives(schema)

    def _alternatives(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for name in _UNIONS:
            alternatives = schema.get(name)
            if isinstance(alternatives, list):
                yield from alternatives
        if "$ref" in schema:
            yield self._target(schema["$ref"])

    def _target(self, reference: Any) -> Any:
        """What a reference within the schema points to (RFC 6901); True, for anything, if it is another one."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        target = self._root
        for escaped in unquote(reference[1:]).split("/")[1:]:
            step = escaped.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and step in target:
                target = target[step]
            elif isinstance(target, list) and step.isdecimal() and int(step) < len(target):
                target = target[int(step)]
            else:
                return True
        return target

    def _made(self, branches: Sequence[Any]) -> FieldType:
        described = [branch for branch in branches if isinstance(branch, Mapping)]
        if True in branches or any(map(_accepts_anything, described)):
            return ANYTHING
        objects = [branch for branch in described if _may_be(branch, "object", _OF_OBJECTS)]
        arrays = [branch for branch in described if _may_be(branch, "array", _OF_ARRAYS)]
        return FieldType(
            holds_text=any(_may_be(branch, "string", frozenset()) for branch in described),
            fields=cache(lambda: self._fields(objects)),
            items=(lambda: self._items(arrays)) if arrays else None,
            is_open=any(map(_is_open, objects)),
        )

    def _fields(self, objects: Sequence[Mapping[str, Any]]) -> Mapping[str, FieldType]:
        schemas: dict[str, list[Any]] = {}
        for branch in objects:
            for name, schema in _properties(branch).items():
                schemas.setdefault(name, []).append(schema)
        return {name: self.of(*alternatives) for name, alternatives in schemas.items()}

    def _items(self, arrays: Sequence[Mapping[str, Any]]) -> FieldType:
        schemas: list[Any] = []
        for branch in arrays:
            for name in ("items", "prefixItems"):
                items = branch.get(name, True if name == "items" and "prefixItems" not in branch else [])
                schemas += items if isinstance(items, list) else [items]
        return self.of(*schemas)


def _accepts_anything(schema: Mapping[str, Any]) -> bool:
    """Whether a schema accepts values of all types."""
    return not (schema.keys() & {"type", "$ref", *_UNIONS, *_OF_OBJECTS, *_OF_ARRAYS, *_CLOSED_SETS})


def _may_be(schema: Mapping[str, Any], kind: str, signs: frozenset[str]) -> bool:
    if schema.keys() & _CLOSED_SETS:
        return False  # a reference is none of the listed values
    if "type" not in schema:
        return bool(schema.keys() & signs)
    types = schema["type"]
    return kind in types if isinstance(types, list) else types == kind


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Whether objects have properties that are not listed: if they may by name, or none are listed."""
    more = schema.get("additionalProperties")
    if more is False:
        return False
    listed = "properties" in schema or schema.keys() & {"$ref", *_UNIONS}
    return bool(more) or isinstance(more, Mapping) or "patternProperties" in schema or not listed
