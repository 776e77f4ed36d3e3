"""Avro schemas from the configuration, parsed once, with derived facts for the stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from payload_stores.options import Option, path_or_content, text
from payload_stores.plugins import require
from serde_chain.errors import ConfigError
from serde_chain.schemas.nesting import check_depth
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.decimal import readable

__all__ = ["READER_SCHEMA", "SCHEMA", "SCHEMA_FILE", "AvroSchema", "read_schema", "unparsed_schema"]


# The specification, "Names": no type may have these names. Readers disagree on the meaning of such a name, and
# therefore on the size of a record.
_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

# JSON nesting: the type of a record's field is three levels below the record.
_MOST_NESTED: Final = 3 * avro_bounds.MOST_LEVELS + 10
# For each record of a union on the top level, fastavro looks at all named types of each branch: 0.03 s for so many.
_MOST_BRANCHES: Final = 1000


def _schema(value: object) -> Any:
    if isinstance(value, (dict, list)):
        return value
    source = text(value)
    if source[0] in '{["':
        try:
            return json.loads(source)
        except ValueError as error:
            raise ValueError(f"the schema is not JSON: {error}") from error
    return source  # the name of a primitive type


SCHEMA: Final = Option("avro.schema", _schema, None, doc="the schema, as JSON text")
SCHEMA_FILE: Final[Option[str | bytes | None]] = Option(
    "avro.schema.file", path_or_content, None, file=True, doc="path of a file with the schema"
)
READER_SCHEMA: Final = Option("avro.reader.schema", _schema, None, doc="schema to read into, as JSON text")


@dataclass(frozen=True)
class AvroSchema:
    """A parsed schema.

    Attributes:
        parsed: The schema in fastavro's form.
        readable: The form for reading: decimals are bounded (:mod:`.decimal`).
        text: The schema as JSON.
        name: Full name of a record, enum or fixed schema; the type's name otherwise.
        named: Definitions of its named types.
        unbounded: Whether records must be checked before they are decoded (:mod:`serde_chain.stages.avro.bounds`).
        excess: Maximum parts of a record beyond those paid for by its bytes; zero or less for most schemas.
        filled: The parts that a reader's schema adds to its records; ``unbounded`` and ``excess`` include them.
    """

    parsed: Any
    readable: Any
    text: str
    name: str
    named: Mapping[str, Any]
    unbounded: bool
    excess: int
    filled: avro_bounds.Filled = field(default_factory=dict)

    def with_filled(self, filled: avro_bounds.Filled) -> AvroSchema:
        """The schema, for records to which a reader's schema adds parts."""
        return replace(
            self,
            unbounded=avro_bounds.needs_check(self.parsed, self.named, filled),
            excess=avro_bounds.excess_parts(self.parsed, self.named, filled),
            filled=filled,
        )

    @classmethod
    def parse(cls, source: Any, references: Iterable[str] = ()) -> AvroSchema:
        """Parse a schema.

        Args:
            source: JSON text, or the parsed JSON.
            references: Texts of the referenced schemas, each after those that it refers to.

        Raises:
            ValueError: The source is not an Avro schema.
            MissingDependencyError: fastavro is not installed.
        """
        fastavro: Any = require("fastavro", "avro")
        named: dict[str, Any] = {}
        try:
            *others, loaded = (*map(json.loads, references), _schema(source))
            check_depth([*others, loaded], _MOST_NESTED)  # native code reads them on a limited stack
            if isinstance(loaded, list) and len(loaded) > _MOST_BRANCHES:
                raise ValueError(f"a union of more than {_MOST_BRANCHES} branches is not read")
            for other in others:
                fastavro.parse_schema(other, named_schemas=named)
            parsed = fastavro.parse_schema(loaded, named_schemas=named)
        except (fastavro.schema.SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not an Avro schema: {type(error).__name__}: {error}") from error
        except RecursionError:
            raise ValueError("not a readable Avro schema: it nests too deeply") from None
        _check_named(named)
        name = parsed.get("name") or parsed["type"] if isinstance(parsed, dict) else parsed
        name = "union" if isinstance(name, list) else name  # its text would have all named types in each branch
        text_ = source if isinstance(source, str) else json.dumps(source)
        try:
            avro_bounds.check_levels(parsed, named)
        except ValueError as error:
            raise ValueError(f"not a readable Avro schema: {error}") from None
        unbounded, excess = avro_bounds.needs_check(parsed, named), avro_bounds.excess_parts(parsed, named)
        return cls(parsed, readable(parsed), text_, str(name), named, unbounded, excess)

    @property
    def fingerprint(self) -> bytes:
        """CRC-64-AVRO of the canonical form, 8 bytes, little-endian, as in single-object encoding."""
        fastavro: Any = require("fastavro", "avro")
        canonical = fastavro.schema.to_parsing_canonical_form(self.parsed)
        # fastavro returns the bytes in wire order.
        return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def read_schema(config: Mapping[str, object], option: Option[Any] = SCHEMA) -> AvroSchema | None:
    """Read a schema from a configuration.

    Args:
        config: Flat configuration.
        option: The key that holds it; for ``avro.schema``, ``avro.schema.file`` is read as well.

    Returns:
        The schema, or None if it is not configured.

    Raises:
        ConfigError: The schema is unreadable, or both keys are set.
        MissingDependencyError: fastavro is not installed.
    """
    require("fastavro", "avro")
    source, key = option.read(config), option.name
    path = SCHEMA_FILE.read(config) if option is SCHEMA else None
    if source is not None and path is not None:
        raise ConfigError(f"{SCHEMA.name} and {SCHEMA_FILE.name} exclude each other", hint="Set one of them", key=key)
    if path is not None:
        key = SCHEMA_FILE.name
        try:
            source = (path if isinstance(path, bytes) else Path(path).read_bytes()).decode()
        except (OSError, ValueError) as error:
            named = "" if isinstance(path, bytes) else f" = {path!r}"
            raise ConfigError(f"{key}{named} cannot be read: {error}", key=key) from error
    if source is None:
        return None
    try:
        return AvroSchema.parse(source)
    except ValueError as error:
        is_path = key == SCHEMA.name and isinstance(source, str) and not source.lstrip().startswith(("{", "[", '"'))
        hint = f"For the path of a file, set {SCHEMA_FILE.name}" if is_path else None
        raise ConfigError(f"{key}: {error}", hint=hint, key=key) from error


def unparsed_schema(config: Mapping[str, object]) -> str | None:
    """The text of a schema with names that only the registry defines, by ``schema.references``.

    Args:
        config: Flat configuration.

    Returns:
        JSON text; None if no schema is configured.

    Raises:
        ConfigError: The file is unreadable, or the text is not JSON.
    """
    path = SCHEMA_FILE.read(config)
    if path is None:
        source = SCHEMA.read(config)
        return None if source is None else json.dumps(source)
    try:
        text_ = (path if isinstance(path, bytes) else Path(path).read_bytes()).decode("utf-8-sig")
        json.loads(text_)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{SCHEMA_FILE.name} cannot be read: {error}", key=SCHEMA_FILE.name) from error
    return text_


def _check_named(named: Mapping[str, Any]) -> None:
    """Refuse types that fastavro accepts but readers interpret differently."""
    if taken := _PRIMITIVES & named.keys():
        raise ValueError(f"not an Avro schema: a type is named {', '.join(sorted(taken))}")
    for name, definition in named.items():
        if definition["type"] == "fixed" and not (type(definition["size"]) is int and definition["size"] >= 0):
            raise ValueError(f"not an Avro schema: the size of {name} is not a number of bytes")
