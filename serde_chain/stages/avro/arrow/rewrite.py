"""Avro schemas rewritten so that what fastavro reads goes into Arrow as it is, with no conversion per value.

The bytes of a record do not depend on names, nor on logical types, and a record of one field is encoded as that field.
So a schema can be rewritten into one that reads the same bytes into a more useful form:

- A union of several branches becomes a union of records ``{member0}``, ``{member1}``, …: fastavro then reports which
  branch was written, even where the values alone do not show it (``int`` or ``long``), in the form of Spark's structs.
- Logical types go, since Arrow takes the bare numbers; only decimals stay.
- Named types get fresh names, equal for writer and reader where they match.

For two schemas, resolution (Avro specification, "Schema Resolution") is settled branch by branch and field by field
here, so that fastavro has exactly one way to read every part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from serde_chain.stages.avro.schema import AvroSchema

__all__ = ["bare", "branches", "decimal_of", "kind", "members", "rewritten"]

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
# A definition is one even where a type has such a name: {"type": "record", "name": "record", …}.
_COMPLEX: Final = _NAMED | {"array", "map"}
# The types to which a writer's type may be promoted.
_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
# Unions of these are one type in Spark, the wider of the two.
_ONE_TYPE: Final = ({"int", "long"}, {"float", "double"})

Pair = tuple[Any, Any]


def rewritten(writer: AvroSchema, reader: AvroSchema | None = None) -> tuple[Any, Any | None]:
    """Rewrite the schemas with which records are read.

    Args:
        writer: The schema with which the records were written.
        reader: The schema into which they are read; None for the writer's own.

    Returns:
        Both in the form that fastavro accepts; the second is None where no resolution is needed.
    """
    if reader is None:
        return AvroSchema.parse(_Rewriter(writer.named, {}).alone(writer.parsed)).parsed, None
    rewriter = _Rewriter(writer.named, reader.named)
    plain_writer, plain_reader = rewriter.pair(writer.parsed, reader.parsed)
    parsed = AvroSchema.parse(plain_reader)
    for record, field, default in rewriter.defaults:
        # Set afterwards: the parser refuses defaults that are not JSON, but the reader hands them out as they are.
        next(other for other in parsed.named[record]["fields"] if other["name"] == field)["default"] = default
    return AvroSchema.parse(plain_writer).parsed, parsed.parsed


def bare(schema: Any, named: Mapping[str, Any]) -> Any:
    """A schema with references to named types and nested definitions resolved: a name of a primitive, dict or list."""
    while True:
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        elif isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        elif isinstance(schema, dict) and schema["type"] in named and schema["type"] not in _COMPLEX:
            schema = named[schema["type"]]
        else:
            return schema


def kind(schema: Any) -> str:
    """The type of a bare schema, ``union`` included."""
    return "union" if isinstance(schema, list) else str(schema["type"] if isinstance(schema, dict) else schema)


def branches(union: list[Any], named: Mapping[str, Any]) -> list[Any] | None:
    """The branches of a union that becomes a struct of members, without ``null``; None for all other unions."""
    others = [branch for branch in union if kind(bare(branch, named)) != "null"]
    kinds = [kind(bare(branch, named)) for branch in others]
    return None if len(others) == 1 or (len(kinds) == 2 and set(kinds) in _ONE_TYPE) else others


def members(union: list[Any], named: Mapping[str, Any], fields: Sequence[str]) -> list[Any] | None:
    """The branches of a union, in the order of their struct's fields; None if these fields are not such a struct's."""
    several = branches(union, named)
    return several if several is not None and list(fields) == [f"member{at}" for at in range(len(several))] else None


def decimal_of(schema: Any) -> tuple[int, int] | None:
    """Precision and scale, if a bare schema is a decimal; invalid ones are ignored, as the specification says."""
    if kind(schema) not in {"bytes", "fixed"} or not isinstance(schema, dict) or schema.get("logicalType") != "decimal":
        return None
    precision = schema.get("precision")
    return None if not precision else (precision, schema.get("scale") or 0)


class _Rewriter:
    def __init__(self, writer_named: Mapping[str, Any], reader_named: Mapping[str, Any]) -> None:
        self._writer_named = writer_named
        self._reader_named = reader_named
        self._done: dict[tuple[object, ...], str] = {}
        self._count = 0
        self.defaults: list[tuple[str, str, Any]] = []

    def alone(self, schema: Any, named: Mapping[str, Any] | None = None) -> Any:
        """Rewrite a schema that is read into itself, or skipped."""
        named = self._writer_named if named is None else named
        schema = bare(schema, named)
        if isinstance(schema, list):
            wrapped = branches(schema, named)
            if wrapped is None:
                return [self.alone(branch, named) for branch in schema]
            members = {id(branch): at for at, branch in enumerate(wrapped)}
            return [
                self._member(self._fresh("member"), members[id(branch)], self.alone(branch, named))
                if id(branch) in members
                else "null"
                for branch in schema
            ]
        which = kind(schema)
        if which in _NAMED:
            return self._named_alone(schema, named)
        if which in {"array", "map"}:
            item = "items" if which == "array" else "values"
            return {"type": which, item: self.alone(schema[item], named)}
        return _leaf(schema)

    def _named_alone(self, schema: Any, named: Mapping[str, Any]) -> Any:
        known = self._done.get((id(named), schema["name"]))
        if known is not None:
            return known
        name = self._done[id(named), schema["name"]] = self._fresh(schema["name"])
        if "fields" not in schema:
            return _leaf(schema, name)
        fields = schema["fields"]
        return _record(name, [{"name": field["name"], "type": self.alone(field["type"], named)} for field in fields])

    def pair(self, writer: Any, reader: Any) -> Pair:
        """Rewrite a writer's schema together with the reader's that its values are resolved into."""
        writer, reader = bare(writer, self._writer_named), bare(reader, self._reader_named)
        if isinstance(writer, list):
            pairs = [self._branch_pair(branch, reader) for branch in writer]
            return [pair[0] for pair in pairs], _distinct(pair[1] for pair in pairs if pair[1] is not None)
        plain_writer, plain_reader = self._branch_pair(writer, reader)
        # If the reader's schema cannot match, fastavro raises the error, when such a record comes.
        return plain_writer, self.alone(reader, self._reader_named) if plain_reader is None else plain_reader

    def _branch_pair(self, writer: Any, reader: Any) -> tuple[Any, Any | None]:
        """Rewrite what is not a union on the writer's side; without a reader where the two do not match."""
        writer = bare(writer, self._writer_named)
        if not isinstance(reader, list):
            return (self._same(writer, reader)) if self._rank(writer, reader) else (self.alone(writer), None)
        ranked = [(rank, -at) for at, branch in enumerate(reader) if (rank := self._rank(writer, branch))]
        if not ranked:
            return self.alone(writer), None
        chosen = reader[-max(ranked)[1]]
        inner_writer, inner_reader = self._same(writer, bare(chosen, self._reader_named))
        wrapped = branches(reader, self._reader_named)
        if wrapped is None or kind(writer) == "null":
            return inner_writer, inner_reader
        name = self._fresh("member")
        at = next(at for at, branch in enumerate(wrapped) if branch is chosen)
        return self._member(name, at, inner_writer), self._member(name, at, inner_reader)

    def _rank(self, writer: Any, reader: Any) -> int:
        """How well two types match: 3 by full name or type, 2 by the name alone, 1 by promotion, 0 not at all."""
        reader = bare(reader, self._reader_named)
        which, other = kind(writer), kind(reader)
        if which != other:
            return int(other in _PROMOTIONS.get(which, ()))
        if which not in _NAMED:
            return 3
        if which == "fixed" and writer["size"] != reader["size"]:
            return 0
        aliases = reader.get("aliases", ())
        if writer["name"] == reader["name"] or writer["name"] in aliases:
            return 3
        return 2 * (_short(writer["name"]) in {_short(reader["name"]), *map(_short, aliases)})

    def _same(self, writer: Any, reader: Any) -> Pair:
        """Rewrite two types that match."""
        which = kind(writer)
        if which in {"array", "map"}:
            item = "items" if which == "array" else "values"
            inner_writer, inner_reader = self.pair(writer[item], reader[item])
            return {"type": which, item: inner_writer}, {"type": which, item: inner_reader}
        if which not in _NAMED:
            # The reader's idea of a decimal counts, as for all logical types; it is fastavro's writer that decodes it.
            return (_leaf(reader) if which == kind(reader) else _leaf(writer)), _leaf(reader)
        known = self._done.get((writer["name"], reader["name"]))
        if known is not None:
            return known, known
        name = self._done[writer["name"], reader["name"]] = self._fresh(reader["name"])
        if which == "fixed":
            return _leaf(reader, name), _leaf(reader, name)
        if which == "enum":
            return _leaf(writer, name), _leaf(reader, name)
        return self._record_pair(name, writer, reader)

    def _record_pair(self, name: str, writer: Any, reader: Any) -> Pair:
        targets = {alias: field for field in reader["fields"] for alias in field.get("aliases", ())}
        targets |= {field["name"]: field for field in reader["fields"]}
        missing = {field["name"]: field for field in reader["fields"]}
        writer_fields, reader_fields = [], []
        for field in writer["fields"]:
            target = targets.get(field["name"])
            if target is None or target["name"] not in missing:
                writer_fields.append({"name": self._fresh("skipped"), "type": self.alone(field["type"])})
                continue
            del missing[target["name"]]
            plain_writer, plain_reader = self.pair(field["type"], target["type"])
            # Under the reader's name on both sides, and in one order, so that a type is defined before it is named.
            writer_fields.append({"name": target["name"], "type": plain_writer})
            reader_fields.append({"name": target["name"], "type": plain_reader})
        for field in missing.values():
            filled: dict[str, Any] = {"name": field["name"], "type": "null"}
            if "default" in field:
                filled["default"] = None
                self.defaults.append((name, field["name"], self._default(field["type"], field["default"])))
            reader_fields.append(filled)
        return _record(name, writer_fields), _record(name, reader_fields)

    def _default(self, schema: Any, default: Any) -> Any:
        """A field's default, which the schema has as JSON, in the form in which values are read."""
        schema = bare(schema, self._reader_named)
        if isinstance(schema, list):
            return self._union_default(schema, default)
        which = kind(schema)
        if which in {"record", "error"}:
            given = default or {}
            return {
                field["name"]: self._default(field["type"], given.get(field["name"], field.get("default")))
                for field in schema["fields"]
            }
        if which == "array":
            return [self._default(schema["items"], item) for item in default]
        if which == "map":
            return {key: self._default(schema["values"], value) for key, value in default.items()}
        if which in {"bytes", "fixed"}:
            raw = default.encode("latin-1")
            shape = decimal_of(schema)
            return raw if shape is None else Decimal(int.from_bytes(raw, signed=True)).scaleb(-shape[1])
        return float(default) if which in {"float", "double"} else default

    def _union_default(self, union: list[Any], default: Any) -> Any:
        # The specification: a default is of the first branch; since 1.12, of any.
        matching = (branch for branch in union if _fits(default, kind(bare(branch, self._reader_named))))
        branch = next(matching, union[0])
        value = self._default(branch, default)
        wrapped = branches(union, self._reader_named)
        if wrapped is None or value is None:
            return value
        return {f"member{next(at for at, member in enumerate(wrapped) if member is branch)}": value}

    def _member(self, name: str, at: int, schema: Any) -> dict[str, Any]:
        return _record(name, [{"name": f"member{at}", "type": schema}])

    def _fresh(self, name: str) -> str:
        self._count += 1
        return f"{_short(name)}_{self._count}"


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _leaf(schema: Any, name: str | None = None) -> Any:
    """A type without parts, with only what decides how it is read."""
    plain: dict[str, Any] = {"type": kind(schema)}
    if name is not None:
        plain["name"] = name
        plain |= {key: schema[key] for key in ("symbols", "size", "default") if key in schema}
    shape = decimal_of(schema)
    if shape is not None:
        plain |= {"logicalType": "decimal", "precision": shape[0], "scale": shape[1]}
    return plain["type"] if len(plain) == 1 else plain


def _distinct(schemas: Iterable[Any]) -> list[Any]:
    distinct: list[Any] = []
    for schema in schemas:
        if schema not in distinct:
            distinct.append(schema)
    return distinct


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _fits(default: Any, which: str) -> bool:
    if default is None or isinstance(default, bool):
        return which == ("null" if default is None else "boolean")
    kinds: dict[type, set[str]] = {
        int: {"int", "long", "float", "double"},
        float: {"float", "double"},
        str: {"string", "bytes", "fixed", "enum"},
        list: {"array"},
        dict: {"map", "record", "error"},
    }
    return which in kinds.get(type(default), set())
