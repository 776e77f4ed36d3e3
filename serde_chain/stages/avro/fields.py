"""The fields of an Avro schema, for stages that move single fields (:class:`~serde_chain.base.FieldType`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from serde_chain.base import NO_FIELDS, FieldType
from serde_chain.stages.avro.resolution import bare

__all__ = ["field_type"]

# Values of these types are neither bytes nor strings.
_CONVERTED: Final = frozenset({"decimal", "uuid"})


def field_type(schema: Any, named: Mapping[str, Any]) -> FieldType:
    """The type of a schema's values.

    Args:
        schema: The parsed schema.
        named: Definitions of its named types.

    Example:
        >>> cutout = {"name": "cutout", "type": ["null", "bytes"]}
        >>> kind = field_type({"type": "record", "name": "Alert", "fields": [cutout]}, {})
        >>> kind.fields()["cutout"].holds_bytes
        True
    """
    return _Types(named).of(schema)


class _Types:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, FieldType] = {}

    def of(self, schema: Any) -> FieldType:
        schema = bare(schema, self._named)
        if isinstance(schema, list):
            kinds = [self.of(branch) for branch in schema if bare(branch, self._named) != "null"]
            return kinds[0] if len(kinds) == 1 else _union(kinds)
        if isinstance(schema, str):
            return FieldType(holds_bytes=schema == "bytes", holds_text=schema == "string")
        kind = schema["type"]
        if kind in {"record", "error"}:
            return self._record(schema)
        if kind == "array":
            return FieldType(items=lambda: self.of(schema["items"]))
        if schema.get("logicalType") in _CONVERTED:
            return NO_FIELDS
        return FieldType(holds_bytes=kind == "bytes", holds_text=kind == "string")

    def _record(self, schema: Any) -> FieldType:
        name = schema["name"]
        if name not in self._known:
            self._known[name] = FieldType(
                fields=lambda: {field["name"]: self.of(field["type"]) for field in schema["fields"]},
                renamed=lambda: {
                    alias: field["name"] for field in schema["fields"] for alias in field.get("aliases", ())
                },
            )
        return self._known[name]


def _union(kinds: list[FieldType]) -> FieldType:
    def merged() -> Mapping[str, FieldType]:
        fields: dict[str, list[FieldType]] = {}
        for kind in kinds:
            for name, child in kind.fields().items():
                fields.setdefault(name, []).append(child)
        return {name: children[0] if len(children) == 1 else _union(children) for name, children in fields.items()}

    arrays = [kind.items for kind in kinds if kind.items is not None]
    return FieldType(
        any(kind.holds_bytes for kind in kinds),
        any(kind.holds_text for kind in kinds),
        merged,
        (lambda: _union([items() for items in arrays])) if arrays else None,
        lambda: {alias: name for kind in kinds for alias, name in kind.renamed().items()},
    )
