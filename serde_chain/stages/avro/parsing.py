"""Schemas as JSON into the form with which fastavro reads and writes (Avro specification, "Schema Declaration").

A schema that others have registered, or put into a file, is a fact: their records exist. So it is read as the
specification says: a logical type that is invalid or unknown is ignored, and the underlying type counts; defaults and
names mean nothing to the reader of records. One's own schema is checked, and the error names the field.

Names may be defined anywhere: in the schema, after their first use too; in the schemas to which a registered one
refers; in files beside the schema's. Each is defined in the result where it is used first, and used by name from then
on, so the result needs no other schema.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from payload_stores.options import nearest
from serde_chain.stages.avro.decimal import PRIVATE
from serde_chain.stages.avro.defaults import WRONG_DEFAULT, Fitting
from serde_chain.stages.avro.types import COMPLEX, NAMED, PRIMITIVES

# Attributes that are rewritten; all others are kept. fastavro's marks would make it skip parts of their contents.
_MARKS: Final = frozenset({"__fastavro_parsed", "__named_schemas"})
_REWRITTEN: Final = _MARKS | {
    "type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "aliases", "logicalType",
    WRONG_DEFAULT,
}  # fmt: skip
# Hyphens are not in the specification, but in published schemas, and readers do not mind them.
_SYMBOL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# The underlying types of the specification's logical types; decimals have a rule of their own.
_UNDERLYING: Final[Mapping[str, str]] = {
    "date": "int",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-millis": "long",
    "local-timestamp-micros": "long",
}
# Names less like a primitive type are those of other types: bite is bytes, but Date is not double.
_NEAR_PRIMITIVE: Final = 0.7

LookUp: TypeAlias = Callable[[str], Any]
"""Finds the definition of a type elsewhere, by its full name, as JSON; None if there is none."""


class Role(Enum):
    """What a schema is, which decides about its faults.

    Attributes:
        OWN: Of records that one writes: checked.
        READER: To read into: checked, but for defaults, which count where a writer's schema lacks the field.
        WRITER: Of records that others wrote: a fact.
    """

    OWN = "own"
    READER = "reader"
    WRITER = "writer"


class SchemaError(ValueError):
    """A schema is none; the message names the field."""


class UndefinedTypeError(SchemaError):
    """A schema uses a type that is defined nowhere."""


class Parsed(NamedTuple):
    """A schema in fastavro's form.

    Attributes:
        schema: The schema.
        named: Definitions of its named types, by full name.
        is_joined: Whether it contains definitions from elsewhere, so that its own text is not all of it.
        has_logical_types: Whether one of its types has a logical type.
    """

    schema: Any
    named: Mapping[str, Any]
    is_joined: bool
    has_logical_types: bool


def parse(
    source: Any, references: Iterable[Any] = (), *, role: Role = Role.WRITER, look_up: LookUp | None = None
) -> Parsed:
    """Parse a schema.

    Args:
        source: The schema as JSON.
        references: The schemas to which it refers, as JSON.
        role: What it is.
        look_up: Finds the types that are defined in neither.

    Raises:
        SchemaError: It is not a schema.
        RecursionError: It nests too deeply.

    Example:
        >>> customer = {"type": "record", "name": "shop.Customer", "fields": []}
        >>> parse(["null", "shop.Customer"], [customer]).schema[1]["name"]
        'shop.Customer'
    """
    parser = _Parser(role, look_up)
    parser.know(source, is_own=True)
    for other in references:
        parser.know(other, is_fact=True)
    schema = parser.parsed(source)
    return Parsed(_marked(schema, parser.named), parser.named, parser.is_joined, parser.has_logical_types)


def marked(schema: Any) -> tuple[Any, dict[str, Any]]:
    """A schema made of parsed ones, in fastavro's form, and its named types.

    Args:
        schema: A schema without namespaces, in which each type is defined once, before it is used.
    """
    named: dict[str, Any] = {}
    _collect(schema, named)
    return _marked(schema, named), named


def _collect(schema: Any, named: dict[str, Any]) -> None:
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, named)
    elif isinstance(schema, dict):
        if "name" in schema:
            named[schema["name"]] = schema
        for inner in (schema.get("items"), schema.get("values"), *(each["type"] for each in schema.get("fields", ()))):
            _collect(inner, named)


def _marked(schema: Any, named: Mapping[str, Any]) -> Any:
    """A schema that fastavro takes as it is; definitions in ``named`` are not marked, which would be a cycle."""
    if isinstance(schema, list):
        return [_marked(branch, named) if isinstance(branch, dict) else branch for branch in schema]
    return {**schema, "__fastavro_parsed": True, "__named_schemas": named} if isinstance(schema, dict) else schema


def without_marks(schema: Any) -> Any:
    """A parsed schema as JSON."""
    if isinstance(schema, list):
        return list(map(without_marks, schema))
    return {key: schema[key] for key in schema if key not in _MARKS} if isinstance(schema, dict) else schema


class _Found(NamedTuple):
    """A definition that is not parsed yet.

    Attributes:
        definition: The definition.
        space: The namespace around it.
        is_own: Whether it is in the schema itself.
        is_fact: Whether a registry has it, so that it is not checked.
    """

    definition: Any
    space: str
    is_own: bool
    is_fact: bool


class _Parser:
    def __init__(self, role: Role, look_up: LookUp | None) -> None:
        self._role = role
        self._look_up = look_up
        self._found: dict[str, _Found] = {}
        self._sources: dict[str, Any] = {}
        self._path: list[str] = []
        self._defaults: list[tuple[dict[str, Any], str, Role]] = []
        self.named: dict[str, Any] = {}
        self.is_joined = self.has_logical_types = False

    def know(self, schema: Any, space: str = "", *, is_own: bool = False, is_fact: bool = False) -> None:
        """Remember the definitions in a schema; the first of a name counts."""
        if isinstance(schema, list):
            for branch in schema:
                self.know(branch, space, is_own=is_own, is_fact=is_fact)
        elif isinstance(schema, dict):
            kind = schema.get("type")
            if isinstance(kind, (dict, list)):
                self.know(kind, space, is_own=is_own, is_fact=is_fact)
                return
            if kind in NAMED and isinstance(schema.get("name"), str):
                name, within = _full_name(schema, space)
                self._found.setdefault(name, _Found(schema, space, is_own, is_fact))
                space = within
            fields = schema.get("fields") if kind in {"record", "error"} else None
            for field in fields if isinstance(fields, list) else ():
                if isinstance(field, dict):
                    self.know(field.get("type"), space, is_own=is_own, is_fact=is_fact)
            if kind in {"array", "map"}:
                inner = schema.get("items" if kind == "array" else "values")
                self.know(inner, space, is_own=is_own, is_fact=is_fact)

    def parsed(self, source: Any) -> Any:
        """The whole schema, with checked defaults."""
        schema = self._of(source, "")
        fitting = Fitting(self.named)
        for field, path, role in self._defaults:
            if not fitting.fits(field["type"], field["default"]):
                if role is Role.OWN:
                    raise SchemaError(f"{path}: its default has the wrong type")
                field[WRONG_DEFAULT] = field.pop("default")
        return schema

    def _of(self, schema: Any, space: str) -> Any:
        if isinstance(schema, list):
            return [self._of(branch, space) for branch in schema]
        if isinstance(schema, str):
            return schema if schema in PRIMITIVES else self._by_name(schema, space)
        if not isinstance(schema, dict):
            raise self._error(f"a type is {type(schema).__name__}, expected a name, a list or an object")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self._of(kind, space)
        if not isinstance(kind, str):
            raise self._error("a type has no attribute type")
        if kind in NAMED:
            return self._definition(schema, kind, space)
        if kind not in PRIMITIVES and kind not in COMPLEX:
            return self._by_name(kind, space)
        parsed = self._attributes(schema, kind)
        if kind in {"array", "map"}:
            inner = "items" if kind == "array" else "values"
            parsed[inner] = self._of(self._required(schema, inner), space)
        return kind if len(parsed) == 1 else parsed

    def _by_name(self, name: str, space: str) -> Any:
        full = f"{space}.{name}" if space and "." not in name else name
        # A name without a namespace may be one in none, as in Avro's Java implementation.
        for each in dict.fromkeys((full, name)):
            if each in self.named:
                return each
            found = self._found.get(each)
            if found is not None:
                return self._found_elsewhere(found)
        for each in dict.fromkeys((full, name)):
            found = None if self._look_up is None else self._look_up(each)
            if found is not None:
                self.know(found)
                if each not in self._found:
                    raise self._error(f"the definition found for the type {each} is of another")
                return self._found_elsewhere(self._found[each])
        near = nearest(name, PRIMITIVES, cutoff=_NEAR_PRIMITIVE)
        meant = f"; did you mean {near}?" if near else ""
        raise self._error(f"the type {full} is not defined{meant}", UndefinedTypeError)

    def _found_elsewhere(self, found: _Found) -> Any:
        self.is_joined |= not found.is_own
        role, self._role = self._role, Role.WRITER if found.is_fact else self._role
        parsed = self._of(found.definition, found.space)
        self._role = role
        return parsed

    def _definition(self, schema: Mapping[str, Any], kind: str, space: str) -> Any:
        if not isinstance(self._required(schema, "name"), str) or not schema["name"]:
            raise self._error("the name of a type is not a text")
        name, space = _full_name(schema, space)
        if name in PRIMITIVES:
            # Readers disagree on the meaning of such a name, and therefore on the size of a record.
            raise self._error(f"a type is named {name}")
        if name in self.named:
            # Used before it was defined; or defined once more, which changes nothing.
            if self._sources[name] == schema:
                return name
            raise self._error(f"the type {name} is defined twice")
        # An error is a record, to readers and writers.
        parsed = self.named[name] = self._attributes(schema, "record" if kind == "error" else kind)
        self._sources[name] = schema
        parsed["name"] = name
        aliases = self._aliases(schema)
        if aliases:
            parsed["aliases"] = [f"{space}.{each}" if space and "." not in each else each for each in aliases]
        if kind == "enum":
            self._enum(parsed, schema)
        elif kind == "fixed":
            parsed["size"] = self._required(schema, "size")
            if type(parsed["size"]) is not int or parsed["size"] < 0:
                raise self._error(f"the size of {name} is not a number of bytes")
            self._check_decimal(parsed)
        else:
            parsed["fields"] = [self._field(field, space) for field in self._list(schema.get("fields", []), "fields")]
            self._check_names(parsed)
        return parsed

    def _enum(self, parsed: dict[str, Any], schema: Mapping[str, Any]) -> None:
        symbols = parsed["symbols"] = list(self._list(self._required(schema, "symbols"), "symbols"))
        if not all(isinstance(symbol, str) for symbol in symbols):
            raise self._error(f"a symbol of {parsed['name']} is not a text")
        if self._role is not Role.WRITER:
            if len(set(symbols)) < len(symbols):
                raise self._error(f"a symbol of {parsed['name']} occurs twice")
            if self._role is Role.OWN and (wrong := next((x for x in symbols if not _SYMBOL.fullmatch(x)), None)):
                raise self._error(f"the symbol {wrong!r} of {parsed['name']} does not begin with a letter, or has more "
                                  "than letters, digits, hyphens and underscores")  # fmt: skip
        if "default" in schema:
            if schema["default"] in symbols:
                parsed["default"] = schema["default"]
            elif self._role is not Role.WRITER:
                raise self._error(f"the default of {parsed['name']} is not one of its symbols")

    def _check_names(self, record: Mapping[str, Any]) -> None:
        """Refuse two fields of a name, of which a value has one."""
        names = Counter(field["name"] for field in record["fields"])
        if self._role is not Role.WRITER and (twice := next((name for name in names if names[name] > 1), None)):
            raise self._error(f"{record['name']} has two fields {twice}")

    def _field(self, field: Any, space: str) -> dict[str, Any]:
        if not isinstance(field, dict):
            raise self._error(f"a field is {type(field).__name__}, expected an object")
        name = self._required(field, "name")
        if not isinstance(name, str):
            raise self._error("the name of a field is not a text")
        self._path.append(name)
        parsed = {key: value for key, value in field.items() if key not in _REWRITTEN or key == "logicalType"}
        parsed["name"] = name
        parsed["type"] = self._of(self._required(field, "type"), space)
        if "aliases" in field and (aliases := self._aliases(field)):
            parsed["aliases"] = aliases
        if "default" in field:
            parsed["default"] = field["default"]
            self._defaults.append((parsed, ".".join(self._path), self._role))
        self._path.pop()
        return parsed

    def _aliases(self, schema: Mapping[str, Any]) -> list[str]:
        aliases = schema.get("aliases")
        if isinstance(aliases, list) and all(isinstance(each, str) for each in aliases):
            return list(aliases)
        if aliases is not None and self._role is not Role.WRITER:
            raise self._error("aliases are not a list of names")
        return []

    def _attributes(self, schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
        parsed = {key: value for key, value in schema.items() if key not in _REWRITTEN}
        parsed["type"] = kind
        logical = schema.get("logicalType")
        if isinstance(logical, str) and not logical.startswith(PRIVATE) and _UNDERLYING.get(logical, kind) == kind:
            parsed["logicalType"] = logical
            self.has_logical_types = True
        if kind != "fixed":
            self._check_decimal(parsed)
        return parsed

    def _check_decimal(self, parsed: dict[str, Any]) -> None:
        """Ignore an invalid decimal, or refuse it in one's own schema."""
        if parsed.get("logicalType") != "decimal":
            return
        problem = _problem_of_decimal(parsed)
        if problem is None:
            return
        if self._role is not Role.WRITER and parsed["type"] in {"bytes", "fixed"}:
            raise self._error(problem)
        del parsed["logicalType"]

    def _required(self, schema: Mapping[str, Any], key: str) -> Any:
        if key not in schema:
            named = schema.get("name")
            raise self._error(f"{named} has no {key}" if isinstance(named, str) else f"the attribute {key} is missing")
        return schema[key]

    def _list(self, value: Any, what: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._error(f"{what} are not a list")
        return value

    def _error(self, what: str, kind: type[SchemaError] = SchemaError) -> SchemaError:
        return kind(f"{'.'.join(self._path)}: {what}" if self._path else what)


def _full_name(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """The full name of a definition, and the namespace of what it contains."""
    name, given = schema["name"], schema.get("namespace")
    if "." in name:
        return name, name.rpartition(".")[0]
    space = given if isinstance(given, str) else space
    return (f"{space}.{name}" if space else name), space


def _problem_of_decimal(schema: Mapping[str, Any]) -> str | None:
    """The reason why a decimal is invalid (specification, "Decimal"); None if it is valid."""
    if schema["type"] not in {"bytes", "fixed"}:
        return f"a decimal is {schema['type']}, neither bytes nor fixed"
    precision, scale = schema.get("precision"), schema.get("scale")
    scale = 0 if scale is None else scale
    if type(precision) is not int or precision <= 0:
        return "the precision of a decimal is not a positive number"
    if type(scale) is not int or scale < 0:
        return "the scale of a decimal is not a number of digits"
    if scale > precision:
        return f"a decimal has the scale {scale}, more than its precision of {precision}"
    if schema["type"] == "fixed":
        most = math.floor(math.log10(2) * (8 * schema["size"] - 1))
        if precision > most:
            return f"a decimal of {precision} digits does not fit into {schema['size']} bytes"
    return None
