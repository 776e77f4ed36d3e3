"""The part of a schema that some columns need: readers skip all other fields without decoding them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from serde_chain.arrow.selection import Columns, Tree
from serde_chain.stages.avro.bounds import has_blind_items, is_recursive
from serde_chain.stages.avro.resolution import branches
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import bare, kind


def narrowed(schema: AvroSchema, columns: Columns) -> AvroSchema:
    """A schema to read into, with only the fields that some columns need.

    Args:
        schema: The schema to read into.
        columns: The columns.

    Returns:
        The schema of fewer fields; itself if it has no such columns. Arrays of fixed-size items stay, for
        :meth:`Columns.of` to omit: records must be checked before fastavro skips these
        (:func:`~serde_chain.stages.avro.bounds.skips_blindly`), which takes longer than to read them. Those in
        recursive types do not: Arrow has no type for them.
    """
    try:
        return replace(schema, parsed=_Narrowing(schema.named).of(schema.parsed, columns.tree))
    except KeyError:
        return schema  # the columns' own error names those that exist


class _Narrowing:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._count = 0

    def of(self, schema: Any, tree: Tree) -> Any:
        if not tree:
            return schema
        definition = bare(schema, self._named)
        if isinstance(definition, list):
            if branches(definition, self._named) is not None:
                return schema
            return [branch if kind(branch) == "null" else self.of(branch, tree) for branch in definition]
        match kind(definition):
            case "array":
                return {**definition, "items": self.of(definition["items"], tree)}
            case "record" | "error":
                return self._record(definition, tree)
        return schema

    def _record(self, record: Any, tree: Tree) -> Any:
        types = {field["name"]: field["type"] for field in record["fields"]}
        types = {name: self.of(types[name], below) for name, below in tree.items()}
        kept = [field for field in record["fields"] if field["name"] in types or self._is_skipped_late(field["type"])]
        fields = [{**field, "type": types.get(field["name"], field["type"])} for field in kept]
        # A name of its own, since a type may be used twice with other columns; writers' records match the alias.
        self._count += 1
        name, aliases = record["name"], record.get("aliases", ())
        return {**record, "name": f"{name}_columns{self._count}", "aliases": [name, *aliases], "fields": fields}

    def _is_skipped_late(self, schema: Any) -> bool:
        return has_blind_items(schema, self._named) and not is_recursive(schema, self._named)
