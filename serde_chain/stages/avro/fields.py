"""The fields of an Avro schema, for stages that move single fields (:class:`~serde_chain.base.FieldType`)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

from serde_chain.base import FieldType
from serde_chain.stages.avro.types import bare

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
    """Types by the branches that they stand for, each made once: paths of the wire cost a look-up a step.

    Args:
        named: Definitions of named types.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[frozenset[Hashable], FieldType] = {}

    def of(self, *schemas: Any) -> FieldType:
        """The type of a union of schemas."""
        # Equal branches count once. Otherwise records of recursive unions double with each level.
        branches = {_identity(branch): branch for schema in schemas for branch in self._branches(schema)}
        key = frozenset(branches)
        if key not in self._known:
            self._known[key] = self._made(list(branches.values()))
        return self._known[key]

    def _branches(self, schema: Any) -> Iterator[Any]:
        schema = bare(schema, self._named)
        if isinstance(schema, list):
            for branch in schema:
                yield from self._branches(branch)
        elif schema != "null":
            yield schema

    def _made(self, branches: Sequence[Any]) -> FieldType:
        records = [branch for branch in branches if _kind(branch) in {"record", "error"}]
        items = [branch["items"] for branch in branches if _kind(branch) == "array"]
        leaves = {_kind(branch) for branch in branches if not _is_converted(branch)}
        return FieldType(
            holds_bytes="bytes" in leaves,
            holds_text="string" in leaves,
            fields=cache(lambda: self._fields(records)),
            items=(lambda: self.of(*items)) if items else None,
            renamed=cache(lambda: _renamed(records)),
        )

    def _fields(self, records: Sequence[Any]) -> Mapping[str, FieldType]:
        types: dict[str, list[Any]] = {}
        for record in records:
            for field in record["fields"]:
                types.setdefault(field["name"], []).append(field["type"])
        return {name: self.of(*schemas) for name, schemas in types.items()}


def _identity(branch: Any) -> Hashable:
    return str(branch.get("name", id(branch))) if isinstance(branch, dict) else str(branch)


def _kind(branch: Any) -> Any:
    return branch["type"] if isinstance(branch, dict) else branch


def _is_converted(branch: Any) -> bool:
    return isinstance(branch, dict) and branch.get("logicalType") in _CONVERTED


def _renamed(records: Sequence[Any]) -> Mapping[str, str]:
    return {
        alias: field["name"] for record in records for field in record["fields"] for alias in field.get("aliases", ())
    }
