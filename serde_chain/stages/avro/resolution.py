"""Avro schemas rewritten so that fastavro has exactly one way to read each part of a record.

A record's bytes depend neither on names nor on logical types, and a record of one field is encoded as that field. So a
schema can be rewritten into one that reads the same bytes into a more useful form. For Arrow, which accepts the values
directly, without a conversion per value:

- A union of several branches becomes a union of records ``{member0}``, ``{member1}``, …: fastavro then reports which
  branch was written, even if the values alone do not show it (``int`` or ``long``), in the form of Spark's structs.
- Logical types are removed, since Arrow accepts the bare numbers; only decimals stay.
- Named types get fresh names, equal for writer and reader where they match.

For two schemas, resolution (Avro specification, "Schema Resolution") happens here branch by branch and field by field,
for objects and for Arrow. This corrects deviations of fastavro from Avro's Java implementation: fastavro uses defaults
as JSON has them, takes the first branch to which a value may be promoted, applies the writer's logical types, and
never rounds numbers to 32 bits. A value that needs more than a schema can express gets a private logical type, whose
function fastavro calls.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from serde_chain.stages.avro.bounds import skips_blindly
from serde_chain.stages.avro.decimal import logical_readers, read_decimal, read_logical
from serde_chain.stages.avro.defaults import WRONG_DEFAULT, Fitting
from serde_chain.stages.avro.moments import LIMITS, limited
from serde_chain.stages.avro.parsing import marked
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.types import NAMED, bare, decimal_of, kind

# The types to which a writer's type may be promoted.
_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_FLOAT32_BITS: Final = 24
# Unions of these are one type in Spark, the wider one.
_ONE_TYPE: Final = ({"int", "long"}, {"float", "double"})

# Private logical types, and the schema attributes that their functions use.
_PROMOTED: Final = "serde-chain-promoted"
_MEMBER: Final = "serde-chain-member"
_NUMBERED: Final = "serde-chain-numbered"
_FRESH: Final = "serde-chain-fresh"
_FOR: Final = "serde-chain-for"
# In columns, what is left of a logical type: the smallest and the largest number, or nothing for a UUID.
_LIMITS: Final = "serde-chain-limits"

RESOLVABLE: Final = "Give new fields a default, and change types only as Avro's schema resolution allows"
SAME_SCALE: Final = "Use the writer's scale; the precision may be another one"

Pair = tuple[Any, Any]


class Resolution(NamedTuple):
    """The way to read records of one schema into another.

    Attributes:
        writer: The schema of the records, in fastavro's form.
        target: The schema to read into, in the same form; None if no resolution is needed.
        problems: Reasons why some records, or all, are unreadable.
        filled: Number of parts that the reader's defaults add to each record of a type, by the writer's full name.
        skips_blindly: Whether fastavro skips items without looking for the end of the data, so that bytes must be
            checked first.
        hopeless: The first problem that makes all records unreadable; None if some may be readable.
        rescaled: The first decimal whose scale is another one in the reader's schema; None without any.
    """

    writer: Any
    target: Any | None
    problems: tuple[str, ...] = ()
    filled: Mapping[str, int] = {}
    skips_blindly: bool = False
    hopeless: str | None = None
    rescaled: str | None = None

    @property
    def remedy(self) -> str:
        """What to do about the problems."""
        return RESOLVABLE if self.rescaled is None else SAME_SCALE


def rewritten(writer: AvroSchema, reader: AvroSchema | None = None) -> Resolution:
    """Rewrite the schemas for reading records into Arrow.

    Args:
        writer: The schema with which the records were written.
        reader: The schema to read into; None for the writer's.
    """
    if reader is None:
        return Resolution(marked(_Rewriter(writer.named, {}).alone(writer.parsed))[0], None)
    return _resolution(_Rewriter(writer.named, reader.named), writer, reader)


def resolved(writer: AvroSchema, reader: AvroSchema, *, numbered: bool = False) -> Resolution:
    """Rewrite the schemas for reading records into objects, with the reader's logical types.

    Args:
        writer: The schema with which the records were written.
        reader: The schema to read into.
        numbered: Whether a value of a union of several types besides null is read as a tuple: the position of its type
            among these, and the value.
    """
    return _resolution(_Rewriter(writer.named, reader.named, objects=True, numbered=numbered), writer, reader)


def _resolution(rewriter: _Rewriter, writer: AvroSchema, reader: AvroSchema) -> Resolution:
    _register()
    plain_writer, plain_reader = rewriter.pair(writer.parsed, reader.parsed)
    target, named = marked(plain_reader)
    for record, field, default in rewriter.defaults:
        # The reader returns defaults unchanged.
        next(other for other in named[record]["fields"] if other["name"] == field)["default"] = default
    problems = tuple(dict.fromkeys(rewriter.problems))
    return Resolution(
        marked(plain_writer)[0],
        target,
        problems,
        rewriter.filled,
        rewriter.skips_blindly,
        rewriter.hopeless,
        rewriter.rescaled,
    )


def branches(union: list[Any], named: Mapping[str, Any]) -> list[Any] | None:
    """The branches of a union that becomes a struct of members, without ``null``; None for all other unions."""
    others = [branch for branch in union if kind(bare(branch, named)) != "null"]
    kinds = [kind(bare(branch, named)) for branch in others]
    return None if len(others) == 1 or (len(kinds) == 2 and set(kinds) in _ONE_TYPE) else others


class Definitions:
    """The named types of one schema, known from their first occurrence on."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def of(self, schema: Any) -> Any:
        """The definition of a type, if a schema is its name; otherwise the schema."""
        if isinstance(schema, str):
            return self._known.get(schema, schema)
        if isinstance(schema, dict) and schema["type"] in NAMED:
            self._known[schema["name"]] = schema
        return schema


def members(union: list[Any], named: Mapping[str, Any], fields: Sequence[str]) -> list[Any] | None:
    """The branches of a union in the order of its struct's fields; None if the fields do not form such a struct."""
    several = branches(union, named)
    return several if several is not None and list(fields) == [f"member{at}" for at in range(len(several))] else None


_LONGEST_ADVICE: Final = 100


def _advice(schema: Any) -> str:
    """What to write for a new field without a default."""
    if isinstance(schema, list) and schema[:1] == ["null"]:
        return 'add "default": null'
    if isinstance(schema, list) and "null" in schema:
        return 'put "null" first in its type, and add "default": null'
    branches = schema if isinstance(schema, list) else [schema]
    names = [branch.get("name", branch["type"]) if isinstance(branch, dict) else branch for branch in branches]
    return f'write "type": {json.dumps(["null", *names])[:_LONGEST_ADVICE]}, "default": null'


class _DefaultError(Exception):
    """A field has no default, or one of the wrong type."""


class _Rewriter:
    def __init__(
        self,
        writer_named: Mapping[str, Any],
        reader_named: Mapping[str, Any],
        *,
        objects: bool = False,
        numbered: bool = False,
    ) -> None:
        self._writer_named = writer_named
        self._reader_named = reader_named
        self._fitting = Fitting(reader_named)
        self._objects = objects
        self._numbered = numbered
        self._done: dict[tuple[object, ...], str] = {}
        self._count = 0
        self._path: list[str] = []
        self.defaults: list[tuple[str, str, Any]] = []
        self._optional = 0
        self.problems: list[str] = []
        self.hopeless: str | None = None
        self.rescaled: str | None = None
        self.filled: dict[str, int] = {}
        self.skips_blindly = False

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
        if which in NAMED:
            return self._named_alone(schema, named)
        if which in {"array", "map"}:
            item = "items" if which == "array" else "values"
            return {"type": which, item: self.alone(schema[item], named)}
        return self._leaf(schema)

    def _named_alone(self, schema: Any, named: Mapping[str, Any]) -> Any:
        known = self._done.get((id(named), schema["name"]))
        if known is not None:
            return known
        name = self._done[id(named), schema["name"]] = self._fresh(schema["name"])
        if "fields" not in schema:
            return self._leaf(schema, name)
        fields = schema["fields"]
        return _record(name, [{"name": field["name"], "type": self.alone(field["type"], named)} for field in fields])

    def pair(self, writer: Any, reader: Any) -> Pair:
        """Rewrite a writer's schema together with the reader's schema to resolve into."""
        writer, reader = bare(writer, self._writer_named), bare(reader, self._reader_named)
        if isinstance(writer, list):
            several = sum(kind(bare(branch, self._writer_named)) != "null" for branch in writer) > 1
            with self._in_some_records():
                pairs = [self._branch_pair(branch, reader, several=several) for branch in writer]
            matching = _distinct(pair[1] for pair in pairs if pair[1] is not None)
            # An empty union would not be resolved at all; no type matches one whose name the writer lacks.
            return [pair[0] for pair in pairs], matching or [_record(self._fresh("nothing"), [])]
        plain_writer, plain_reader = self._branch_pair(writer, reader)
        # If the reader's schema cannot match, fastavro raises the error at such a record.
        return plain_writer, self.alone(reader, self._reader_named) if plain_reader is None else plain_reader

    def _branch_pair(self, writer: Any, reader: Any, *, several: bool = False) -> tuple[Any, Any | None]:
        """Rewrite a writer's schema that is not a union; without a reader if the two do not match."""
        writer = bare(writer, self._writer_named)
        if not isinstance(reader, list):
            return (
                self._same(writer, reader, several=several)
                if self._rank(writer, reader)
                else self._no_match(writer, reader)
            )
        ranked = [(rank, -at) for at, branch in enumerate(reader) if (rank := self._rank(writer, branch))]
        if not ranked:
            return self._no_match(writer, reader)
        chosen = reader[-max(ranked)[1]]
        inner_writer, inner_reader = self._same(writer, bare(chosen, self._reader_named), several=several)
        wrapped = branches(reader, self._reader_named)
        if wrapped is None or kind(writer) == "null":
            return inner_writer, inner_reader
        name = self._fresh("member")
        at = next(at for at, branch in enumerate(wrapped) if branch is chosen)
        return self._member(name, at, inner_writer), self._member(name, at, inner_reader)

    def _no_match(self, writer: Any, reader: Any) -> tuple[Any, None]:
        self._problem(f"{_described(writer)} cannot be read as {_described(reader)}")
        options = [bare(branch, self._reader_named) for branch in (reader if isinstance(reader, list) else [reader])]
        if not any(_differ_in_scale(writer, option) for option in options):
            return self.alone(writer), None
        self.rescaled = self.rescaled or self.problems[-1]
        # fastavro does not compare scales, but names; a record has no more bytes than its field.
        return _record(self._fresh("rescaled"), [{"name": "value", "type": self.alone(writer)}]), None

    def _problem(self, what: str) -> None:
        problem = f"{'.'.join(self._path)}: {what}" if self._path else what
        self.problems.append(problem)
        if not self._optional and self.hopeless is None:
            self.hopeless = problem

    @contextmanager
    def _in_some_records(self) -> Iterator[None]:
        """Parts that records may lack, such as the items of an array."""
        self._optional += 1
        yield
        self._optional -= 1

    @contextmanager
    def _within(self, field: str) -> Iterator[None]:
        self._path.append(field)
        yield
        self._path.pop()

    def _rank(self, writer: Any, reader: Any) -> int:
        """The quality of a match: 3 by full name or type, 2 by the name alone, 1 by promotion, 0 none."""
        reader = bare(reader, self._reader_named)
        which, other = kind(writer), kind(reader)
        if which != other:
            return int(other in _PROMOTIONS.get(which, ()))
        if _differ_in_scale(writer, reader):
            return 0
        if which not in NAMED:
            return 3
        if which == "fixed" and writer["size"] != reader["size"]:
            return 0
        aliases = reader.get("aliases", ())
        if writer["name"] == reader["name"] or writer["name"] in aliases:
            return 3
        return 2 * (_short(writer["name"]) in {_short(reader["name"]), *map(_short, aliases)})

    def _same(self, writer: Any, reader: Any, *, several: bool) -> Pair:
        """Rewrite two matching types; ``several`` if the writer's is one of a union."""
        which = kind(writer)
        if which in {"array", "map"}:
            item = "items" if which == "array" else "values"
            with self._in_some_records():
                inner_writer, inner_reader = self.pair(writer[item], reader[item])
            return {"type": which, item: inner_writer}, {"type": which, item: inner_reader}
        if which not in NAMED:
            return self._same_leaf(which, reader, several=several)
        known = self._done.get((writer["name"], reader["name"]))
        if known is not None:
            return known, known
        name = self._done[writer["name"], reader["name"]] = self._fresh(reader["name"])
        if which == "fixed":
            return self._leaf(reader, name), self._leaf(reader, name)
        if which == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if missing and "default" not in reader:
                with self._in_some_records():
                    self._problem(f"{reader['name']} has neither the symbol {missing[0]} nor a default")
            return self._leaf(writer, name), self._leaf(reader, name)
        return self._record_pair(name, writer, reader)

    def _same_leaf(self, which: str, reader: Any, *, several: bool) -> Pair:
        # The reader's precision counts, as for all logical types; fastavro decodes by the writer's schema.
        target = self._leaf(reader)
        if which == kind(reader):
            return target, target
        # fastavro promotes most values correctly, but a union's values into the first type that accepts them.
        is_plain = not several and isinstance(target, str) and target != "float"
        return which if is_plain else {"type": which, "logicalType": _PROMOTED, _FOR: target}, target

    def _record_pair(self, name: str, writer: Any, reader: Any) -> Pair:
        targets = {alias: field for field in reader["fields"] for alias in field.get("aliases", ())}
        targets |= {field["name"]: field for field in reader["fields"]}
        missing = {field["name"]: field for field in reader["fields"]}
        names = frozenset(missing)
        writer_fields, reader_fields = [], []
        kept, left_out = [], []
        for field in writer["fields"]:
            target = targets.get(field["name"])
            if target is None or target["name"] not in missing:
                skipped = self._fresh("skipped", other_than=names)
                left_out.append(field["type"])
                writer_fields.append({"name": skipped, "type": self.alone(field["type"])})
                continue
            kept.append(field["type"])
            del missing[target["name"]]
            with self._within(target["name"]):
                plain_writer, plain_reader = self.pair(field["type"], target["type"])
            # The reader's names on both sides, in one order, so that a type is defined before its first reference.
            writer_fields.append({"name": target["name"], "type": plain_writer})
            reader_fields.append({"name": target["name"], "type": plain_reader})
        self.skips_blindly |= skips_blindly(kept, left_out, self._writer_named)
        fresh, parts = [], 0
        for field in missing.values():
            filled: dict[str, Any] = {"name": field["name"], "type": "null"}
            try:
                default = self._default_of(field)
            except _DefaultError as error:
                written = {each["name"] for each in writer["fields"]}
                taken = next((alias for alias in field.get("aliases", ()) if alias in written), None)
                lacks = "lacks it" if taken is None else f"has only its alias {taken}, which belongs to another field"
                with self._within(field["name"]):
                    self._problem(f"the writer's schema {lacks}, and {error}")
            else:
                filled["default"] = None
                parts += _parts(default)
                self.defaults.append((name, field["name"], default))
                if isinstance(default, (dict, list, tuple)):
                    fresh.append(field["name"])
            reader_fields.append(filled)
        if parts > self.filled.get(writer["name"], 0):
            self.filled[writer["name"]] = parts
        plain_writer = _record(name, writer_fields)
        if fresh and self._objects:
            plain_writer |= {"logicalType": _FRESH, _FOR: fresh}
        return plain_writer, _record(name, reader_fields)

    def _default_of(self, field: Any) -> Any:
        if WRONG_DEFAULT in field:
            raise _DefaultError("its default has the wrong type")
        if "default" not in field:
            raise _DefaultError(f"it has no default: {_advice(field['type'])}")
        try:
            return self._default(field["type"], field["default"])
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
            raise _DefaultError("its default has the wrong type") from error

    def _default(self, schema: Any, default: Any) -> Any:
        """A field's JSON default in the form in which values are read."""
        schema = bare(schema, self._reader_named)
        if isinstance(schema, list):
            return self._union_default(schema, default)
        which = kind(schema)
        if which in {"record", "error"}:
            return {
                field["name"]: self._default(field["type"], default[field["name"]])
                if field["name"] in default
                else self._default_of(field)
                for field in schema["fields"]
            }
        if which == "array":
            return [self._default(schema["items"], item) for item in default]
        if which == "map":
            return {key: self._default(schema["values"], value) for key, value in default.items()}
        if which in {"bytes", "fixed"}:
            default = default.encode("latin-1")
            return read_decimal(default, schema) if decimal_of(schema) is not None else default
        if which in {"float", "double"}:
            default = float(default) if isinstance(default, str) else default
            default = float32(default) if which == "float" else float(default)
        return read_logical(default, schema) if self._objects else default

    def _union_default(self, union: list[Any], default: Any) -> Any:
        # The specification: a default belongs to the first branch; since 1.12, to any.
        matching = (branch for branch in union if self._fitting.fits(branch, default))
        branch = next(matching, union[0])
        value = self._default(branch, default)
        wrapped = branches(union, self._reader_named)
        if wrapped is None or value is None or (self._objects and not self._numbered):
            return value
        at = next(at for at, member in enumerate(wrapped) if member is branch)
        return (at, value) if self._numbered else {f"member{at}": value}

    def _member(self, name: str, at: int, schema: Any) -> dict[str, Any]:
        member = _record(name, [{"name": f"member{at}", "type": schema}])
        return {**member, "logicalType": _NUMBERED if self._numbered else _MEMBER} if self._objects else member

    def _leaf(self, schema: Any, name: str | None = None) -> Any:
        """A type without parts, reduced to the attributes that affect reading."""
        plain: dict[str, Any] = {"type": kind(schema)}
        if name is not None:
            plain["name"] = name
            plain |= {key: schema[key] for key in ("symbols", "size", "default") if key in schema}
        shape = decimal_of(schema)
        if shape is not None:
            plain |= {"logicalType": "decimal", "precision": shape[0], "scale": shape[1]}
        elif self._objects and isinstance(schema, dict) and schema.get("logicalType") not in {None, "decimal"}:
            plain["logicalType"] = schema["logicalType"]
        elif not self._objects and (logical := limited(schema)) is not None:
            plain[_LIMITS] = list(LIMITS.get(logical, ()))
        return plain["type"] if len(plain) == 1 else plain

    def _fresh(self, name: str, *, other_than: Collection[str] = ()) -> str:
        while True:
            self._count += 1
            fresh = f"{_short(name)}_{self._count}"
            if fresh not in other_than:
                return fresh


def _record(name: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": fields}


def _described(schema: Any) -> str:
    """A type's name in messages."""
    if isinstance(schema, list):
        return " or ".join(map(_described, schema))
    name = schema.get("name") if isinstance(schema, dict) else None
    what = f"{kind(schema)} {name}" if name else kind(schema)
    shape = decimal_of(schema)
    return what if shape is None else f"{what} with a decimal of the scale {shape[1]}"


def _differ_in_scale(writer: Any, reader: Any) -> bool:
    """Whether both are decimals of one type with the point at other places, which no value tells.

    By the specification ("Decimal"), such types do not match. Other precisions are taken, since each value is checked.
    """
    if kind(writer) != kind(reader) or (own := decimal_of(writer)) is None or (other := decimal_of(reader)) is None:
        return False
    return own[1] != other[1]


def float32(number: float) -> float:
    """A number rounded to 32 bits; a whole number is rounded once, as in Java, and not to 64 bits first.

    Example:
        >>> float32(2**60 + 2**36 + 1) == 2**60 + 2**37, float32(1e300)
        (True, inf)
    """
    if isinstance(number, int) and (beyond := number.bit_length() - _FLOAT32_BITS) > 0:
        high, low = number >> beyond, number & ((1 << beyond) - 1)
        half = 1 << (beyond - 1)
        number = (high + (low > half or (low == half and high & 1 == 1))) << beyond
    try:
        (rounded,) = struct.unpack("f", struct.pack("f", number))
    except OverflowError:
        return math.copysign(math.inf, number)
    return float(rounded)


_PROMOTING: Final[Mapping[str, Callable[[Any], Any]]] = {
    "long": int,
    "float": float32,
    "double": float,
    "bytes": str.encode,
    "string": bytes.decode,
}


def _promoted(value: Any, schema: Any, _target: Any = None) -> Any:
    target = schema[_FOR]
    return read_logical(_PROMOTING[kind(target)](value), target)


def _of_member(record: dict[str, Any], _schema: Any, _target: Any = None) -> Any:
    (value,) = record.values()
    return value


def _of_numbered(record: dict[str, Any], _schema: Any, _target: Any = None) -> tuple[int, Any]:
    ((name, value),) = record.items()
    return int(name.removeprefix("member")), value


def _with_fresh(record: dict[str, Any], schema: Any, _target: Any = None) -> dict[str, Any]:
    """A record with its own copies of mutable defaults."""
    for name in schema[_FOR]:
        record[name] = _copied(record[name])
    return record


def _parts(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_parts, items))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return type(value)(map(_copied, value)) if isinstance(value, (list, tuple)) else value


def _register() -> None:
    """Register our functions with fastavro; the names are process-wide, and no other schema uses them."""
    readers = logical_readers()
    readers |= {f"{which}-{_PROMOTED}": _promoted for which in _PROMOTIONS}
    readers |= {f"record-{_MEMBER}": _of_member, f"record-{_NUMBERED}": _of_numbered, f"record-{_FRESH}": _with_fresh}


def _distinct(schemas: Iterable[Any]) -> list[Any]:
    # Compared by text instead of pairwise: a union may have many thousand branches.
    return list({repr(schema): schema for schema in schemas}.values())


def _short(name: str) -> str:
    return name.rpartition(".")[2]
