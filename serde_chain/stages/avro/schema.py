"""Avro schemas from the configuration, parsed once, with derived facts for the stages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from payload_stores.options import Option, path_or_content, text
from payload_stores.plugins import require
from serde_chain.errors import ConfigError
from serde_chain.schemas.nesting import check_depth
from serde_chain.schemas.registry import RegisteredSchema
from serde_chain.schemas.schema_references import REFERENCES
from serde_chain.schemas.schema_registry import is_configured
from serde_chain.stages.avro import bounds as avro_bounds
from serde_chain.stages.avro.decimal import readable, with_decimals
from serde_chain.stages.avro.defaults import WRONG_DEFAULT, writable
from serde_chain.stages.avro.parsing import LookUp, Role, UndefinedTypeError, marked, parse, without_marks
from serde_chain.stages.avro.types import changed

# JSON nesting: the type of a record's field is three levels below the record.
_MOST_NESTED: Final = 3 * avro_bounds.MOST_LEVELS + 10
# For each record of a union on the top level, fastavro looks at all named types of each branch: 0.03 s for so many.
_MOST_BRANCHES: Final = 1000
# Before the text of a schema: white space, or a byte order mark.
_BLANK: Final = "\ufeff \t\r\n"


def _schema(value: object) -> Any:
    if isinstance(value, (dict, list)):
        return value
    source = text(value).lstrip(_BLANK)
    if source[:1] in '{["':
        try:
            return json.loads(source)
        except ValueError as error:
            raise ValueError(f"the schema is not JSON: {error}") from error
    return source  # the name of a primitive type


SCHEMA: Final = Option("avro.schema", _schema, None, doc="the schema, as JSON text")
SCHEMA_FILE: Final[Option[str | bytes | None]] = Option(
    "avro.schema.file",
    path_or_content,
    None,
    file=lambda path: _joined(path),  # noqa: PLW0108, defined below
    doc="path of a file with the schema; types of other files are looked up beside it, as <full name>.avsc",
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
        excess = avro_bounds.excess_parts(self.parsed, self.named, filled)
        unbounded = avro_bounds.needs_check(self.parsed, self.named, excess, filled)
        return replace(self, unbounded=unbounded, excess=excess, filled=filled)

    @classmethod
    def parse(
        cls,
        source: Any,
        references: Iterable[str] = (),
        *,
        role: Role = Role.WRITER,
        look_up: LookUp | None = None,
    ) -> AvroSchema:
        """Parse a schema.

        Args:
            source: JSON text, or the parsed JSON.
            references: Texts of the referenced schemas.
            role: Its role, which decides on its faults (:mod:`.parsing`).
            look_up: Finds the types that are defined in neither.

        Raises:
            ValueError: The source is not an Avro schema.
            MissingDependencyError: fastavro is not installed.
        """
        require("fastavro", "avro")
        try:
            *others, loaded = (*map(_schema, references), _schema(source))
            for each in (*others, loaded):
                _check_size(each)
            parsed, named, is_joined, has_logical_types = parse(loaded, others, role=role, look_up=look_up)
        except ValueError as error:
            raise ValueError(f"not an Avro schema: {error}") from error
        except RecursionError:
            raise ValueError("not a readable Avro schema: it nests too deeply") from None
        name = parsed.get("name") or parsed["type"] if isinstance(parsed, dict) else parsed
        name = "union" if isinstance(name, list) else name  # its text would have all named types in each branch
        try:
            avro_bounds.check_levels(parsed, named)
        except ValueError as error:
            raise ValueError(f"not a readable Avro schema: {error}") from None
        excess = avro_bounds.excess_parts(parsed, named)
        unbounded = avro_bounds.needs_check(parsed, named, excess)
        text_ = _text(source, loaded, parsed, is_joined=is_joined)
        return cls(
            parsed, readable(parsed) if has_logical_types else parsed, text_, str(name), named, unbounded, excess
        )

    @cached_property
    def writable(self) -> Any:
        """The form for writing: defaults of missing fields are values (:mod:`.defaults`), decimals are checked."""
        return with_decimals(writable(self.parsed, self.named))

    @cached_property
    def text_without_wrong_defaults(self) -> str:
        """The text for readers that check defaults also where they are not needed; the text itself if none is wrong."""
        right = changed(self.parsed, lambda part: part.pop(WRONG_DEFAULT, None))
        return self.text if right is self.parsed else json.dumps(without_marks(right))

    @cached_property
    def text_as_ones_own(self) -> str:
        """The text for where one's own schema is checked: without invalid logical types and wrong defaults."""
        try:
            AvroSchema.parse(self.text, role=Role.OWN)
        except ValueError:
            right = changed(self.parsed, lambda part: part.pop(WRONG_DEFAULT, None))
            return json.dumps(without_marks(right))
        return self.text

    @cached_property
    def without_logical_types(self) -> AvroSchema:
        """The schema of the underlying types; itself if it has no logical types."""
        plain = changed(self.parsed, lambda part: part.pop("logicalType", None))
        if plain is self.parsed:
            return self
        parsed, named = marked(without_marks(plain))
        return replace(self, parsed=parsed, readable=parsed, named=named)

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
        The schema; None if it is not configured, or if ``schema.references`` says that the registry has a part of it.

    Raises:
        ConfigError: The schema is unreadable, or both keys are set.
        MissingDependencyError: fastavro is not installed.
    """
    require("fastavro", "avro")
    source, key = option.read(config), option.name
    path = SCHEMA_FILE.read(config) if option is SCHEMA else None
    if source is not None and path is not None:
        raise ConfigError(f"{SCHEMA.name} and {SCHEMA_FILE.name} exclude each other", hint="Set one of them", key=key)
    look_up = None
    if path is not None:
        key = SCHEMA_FILE.name
        source, look_up = _of_file(path)
    if source is None:
        return None
    try:
        return AvroSchema.parse(source, role=Role.READER if option is READER_SCHEMA else Role.OWN, look_up=look_up)
    except (OSError, ValueError) as error:
        is_undefined = _is_undefined(error)
        if is_undefined and option is SCHEMA and is_configured(config) and REFERENCES.read(config):
            return None
        hint = _remedy(key, source, path) if is_undefined else None
        raise ConfigError(f"{key}: {error}", hint=hint, key=key) from error


def check_own(key: str, schema: RegisteredSchema) -> None:
    """Check a schema of one's own that refers to registered ones.

    Args:
        key: The key that has it.
        schema: The schema, with those that it refers to.

    Raises:
        ConfigError: It is not an Avro schema, or uses a type that is defined in none of them.
    """
    try:
        AvroSchema.parse(schema.text, schema.references, role=Role.OWN)
    except ValueError as error:
        hint = f"Name the schema that defines it in {REFERENCES.name}" if _is_undefined(error) else None
        raise ConfigError(f"{key}: {error}", hint=hint, key=key) from error


def _is_undefined(error: Exception) -> bool:
    return isinstance(error.__cause__, UndefinedTypeError)


def _of_file(path: str | bytes) -> tuple[str, LookUp | None]:
    """The text of a schema file, and the files beside it."""
    try:
        if isinstance(path, bytes):
            return path.decode(json.detect_encoding(path)), None
        return _read_file(path), _beside(Path(path))
    except (OSError, ValueError) as error:
        key, named = SCHEMA_FILE.name, "" if isinstance(path, bytes) else f" = {path!r}"
        hint = None if isinstance(path, bytes) else f"It was looked for at {Path(path).absolute()}"
        if isinstance(path, str) and _is_json(path):
            named, hint = "", f"It is the path of a file; for the schema itself, set {SCHEMA.name}"
            error = OSError(error.errno, error.strerror) if isinstance(error, OSError) else error  # without the text
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error  # without the path again
        raise ConfigError(f"{key}{named} cannot be read: {reason}", hint=hint, key=key) from error


def _remedy(key: str, source: Any, path: str | bytes | None) -> str:
    """What to do about a type that is not defined."""
    registered = f"for types in a registry, set {REFERENCES.name}"
    if isinstance(path, str):
        folder = Path(path).absolute().parent
        return f"Types of other files are looked up as <full name>.avsc or <name>.avsc in {folder}; {registered}"
    if isinstance(source, str) and not _is_json(source):
        also = "" if key == SCHEMA.name else f", which is for readers too, instead of {key}"
        return f"For the path of a file, set {SCHEMA_FILE.name}{also}"
    if key == READER_SCHEMA.name:
        return "Define it where it is used first"
    return f"Define it where it is used first; for types in other files, set {SCHEMA_FILE.name}; {registered}"


def _is_json(source: str) -> bool:
    return source.lstrip(_BLANK)[:1] in {"{", "[", '"'}


def _check_size(loaded: Any) -> None:
    check_depth(loaded, _MOST_NESTED)  # native code reads it on a limited stack
    if isinstance(loaded, list) and len(loaded) > _MOST_BRANCHES:
        raise ValueError(f"a union of more than {_MOST_BRANCHES} branches is not read")


def _text(source: Any, loaded: Any, parsed: Any, *, is_joined: bool) -> str:
    """The schema as JSON that needs no other schema."""
    if is_joined:
        return json.dumps(changed(without_marks(parsed), _as_given))
    return source.lstrip(_BLANK) if isinstance(source, str) and _is_json(source) else json.dumps(loaded)


def _as_given(part: dict[str, Any]) -> None:
    if WRONG_DEFAULT in part:
        part["default"] = part.pop(WRONG_DEFAULT)


def _joined(path: str) -> bytes:
    """The schema of a file, with the definitions from files beside it; as it is if others are in a registry."""
    source = _read_file(path)
    try:
        return AvroSchema.parse(source, role=Role.WRITER, look_up=_beside(Path(path))).text.encode()
    except ValueError as error:
        if _is_undefined(error):
            return source.encode()
        raise


def _read_file(path: str | Path) -> str:
    data = Path(path).read_bytes()
    return data.decode(json.detect_encoding(data))


def _beside(path: Path) -> LookUp:
    """Finds definitions in files beside one, by full name, or by the name without its namespace."""

    def look_up(name: str) -> Any:
        for file in (f"{name}.avsc", f"{name.rpartition('.')[2]}.avsc"):
            # A name leads to no other folder.
            place = path.parent / file
            if Path(file).name == file and place.is_file():
                try:
                    loaded = _schema(_read_file(place))
                    _check_size(loaded)
                except ValueError as error:
                    raise ValueError(f"{place}: {error}") from error
                return loaded
        return None

    return look_up


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
    text_, _beside_it = _of_file(path)
    try:
        json.loads(text_)
    except ValueError as error:
        raise ConfigError(f"{SCHEMA_FILE.name} is not JSON: {error}", key=SCHEMA_FILE.name) from error
    return text_
