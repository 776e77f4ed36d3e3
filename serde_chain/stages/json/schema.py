"""JSON Schemas: from the configuration, or from a registry; with all of their references, and as a check of values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import islice, pairwise
from numbers import Rational
from pathlib import Path
from typing import Any, Final, Self

from payload_stores.options import Option, boolean, listing, path_or_content, text
from payload_stores.plugins import require
from serde_chain.errors import ConfigError, SchemaRegistryError, shape_of
from serde_chain.schemas.registry import RegisteredSchema
from serde_chain.schemas.schema_references import REFERENCES
from serde_chain.stages.json.addresses import Addresses, MissingPartError, UnreachableError, UnresolvedError
from serde_chain.stages.json.schema_documents import Documents, read_file, resolved

Problem = Callable[[Any], str | None]

SCHEMA: Final = Option(
    "json.schema", lambda value: value if isinstance(value, dict) else text(value), None, doc="a JSON Schema"
)
SCHEMA_FILE: Final[Option[str | bytes | None]] = Option(
    "json.schema.file",
    path_or_content,
    None,
    file=lambda path: _joined(path),  # noqa: PLW0108  defined below
    doc="path of a file with the schema; relative references are looked up beside it",
)


def _addresses(value: object) -> tuple[str, ...]:
    addresses = listing(value)
    if not all(address.startswith(("http://", "https://")) for address in addresses):
        raise ValueError("expected addresses such as https://gcn.nasa.gov/schema")
    return addresses


ADDRESSES: Final[Option[Addresses | None]] = Option(
    "json.schema.addresses",
    lambda value: Addresses(_addresses(value)),
    None,
    doc="addresses, or their beginnings, that references may be fetched from",
)
VALIDATE: Final = Option(
    "json.validate", boolean, None, doc="check every value against the schema (default: if one is configured)"
)

# The form in which a schema and the files beside it are sent to Spark's workers.
_DOCUMENTS: Final = "serde-chain:documents"
# The base of relative references in a schema without an address of its own.
_NOWHERE: Final = "serde-chain:///schema"
# The best of so many is told: a record may have one for each of its bytes.
_MOST_VIOLATIONS: Final = 100


@dataclass(frozen=True)
class JsonSchema:
    """A schema with its references.

    Attributes:
        document: The parsed schema.
        text: Its text, as it is registered.
        title: Its title, which is its name in registries; empty without one.
        address: Its address in ``registry``.
        documents: It and the documents that it refers to, by their addresses.
    """

    document: Any
    text: str
    title: str
    address: str
    documents: Mapping[str, Any] = field(repr=False)
    _registry: Any = field(repr=False, default=None)

    @classmethod
    def unfollowed(cls, document: Any, text_: str) -> Self:
        """A schema whose references are not followed, since no value is validated.

        Args:
            document: The parsed schema.
            text_: Its text.
        """
        return cls(document, text_, _title(document), "", {})

    @classmethod
    def of(
        cls,
        document: Any,
        text_: str,
        *,
        named: Mapping[str, Any] | None = None,
        file: Path | None = None,
        addresses: Addresses | None = None,
        address: str | None = None,
    ) -> Self:
        """Resolve all references of a schema.

        Args:
            document: The parsed schema.
            text_: Its text.
            named: As for :class:`.references.Documents`.
            file: Its file.
            addresses: As for :class:`.references.Documents`.
            address: Its address; by default its own, or that of its file.

        Raises:
            UnresolvedError: A reference leads nowhere.
            ForeignPatternError: A pattern is of another language.
            ValueError: It is not a JSON Schema.
        """
        check = partial(_check, default=_kind(document))
        check(document)
        address = address or _address(document, file)
        named = {**(named or {}), address: document}
        documents = Documents(address, named=named, file=file, addresses=addresses, check=check)
        registry = resolved(documents, address)
        return cls(document, text_, _title(document), address, documents.found, registry)

    def problem(self) -> Problem:
        """A function that returns a value's violation of the schema, or None."""
        jsonschema: Any = require("jsonschema", "json")
        kind = _kind(self.document)
        own = {"uniqueItems": _unique_items, "multipleOf": _multiple_of}
        changed = {name: partial(own[name], kind.VALIDATORS[name]) for name in own if name in kind.VALIDATORS}
        kind = jsonschema.validators.extend(kind, changed)
        # By a reference, so that the schema has its address also where it does not give itself one.
        validator = kind({"$ref": self.address}, registry=self._registry)

        def problem(value: Any) -> str | None:
            try:
                error = jsonschema.exceptions.best_match(islice(validator.iter_errors(value), _MOST_VIOLATIONS))
            except RecursionError:
                return "it is nested too deep"
            return None if error is None else _violation(error)

        return problem


def own_schema(config: Mapping[str, object], *, follows: bool, has_registry: bool) -> JsonSchema | None:
    """The configured schema; None without one, or if ``schema.references`` says that the registry has a part of it.

    Args:
        config: Flat configuration.
        follows: Whether its references are followed, since values are validated.
        has_registry: Whether there is a registry.

    Raises:
        ConfigError: It is not JSON, or a reference leads nowhere.
    """
    key, document, text_, file, documents = _configured(config)
    if document is None:
        return None
    if not follows:
        return JsonSchema.unfollowed(document, text_)
    addresses = ADDRESSES.read(config)
    try:
        if _DOCUMENTS in documents:
            address = documents["address"]
            return JsonSchema.of(document, text_, named=documents[_DOCUMENTS], address=address, addresses=addresses)
        return JsonSchema.of(document, text_, file=file, addresses=addresses)
    except UnresolvedError as error:
        if has_registry and REFERENCES.read(config):
            return None
        hint = None if isinstance(error, MissingPartError) else _remedy(key)
        raise ConfigError(f"{key}: {error}", hint=hint, key=key) from error
    except ValueError as error:
        raise ConfigError(f"{key} is not a JSON Schema: {error}", key=key) from error


def unresolved_schema(config: Mapping[str, object]) -> tuple[Any, str] | None:
    """The configured schema and its text, without its references; None without one.

    Args:
        config: Flat configuration.

    Raises:
        ConfigError: It is not JSON.
    """
    _, document, text_, _, _ = _configured(config)
    return None if document is None else (document, text_)


def _configured(config: Mapping[str, object]) -> tuple[str, Any, str, Path | None, Mapping[str, Any]]:
    source, path = SCHEMA.read(config), SCHEMA_FILE.read(config)
    key = SCHEMA.name if path is None else SCHEMA_FILE.name
    if source is not None and path is not None:
        raise ConfigError(f"{SCHEMA.name} and {SCHEMA_FILE.name} exclude each other", hint="Set one of them", key=key)
    if isinstance(source, dict):
        return key, source, json.dumps(source), None, {}
    try:
        if path is not None:
            data = path if isinstance(path, bytes) else Path(path).read_bytes()
            source = data.decode(json.detect_encoding(data))
        document = None if source is None else json.loads(source)
    except OSError as error:
        raise ConfigError(
            f"{key} = {path!r} cannot be read: {error.strerror}",
            hint=f"It was looked for at {_absolute(path)}",
            key=key,
        ) from error
    except (ValueError, RecursionError) as error:
        is_path = key == SCHEMA.name and isinstance(source, str) and source.lstrip()[:1] not in {"{", "t", "f"}
        hint = f"For the path of a file, set {SCHEMA_FILE.name}" if is_path else None
        raise ConfigError(f"{key} is not a JSON Schema: {error}", hint=hint, key=key) from error
    if isinstance(path, bytes) and isinstance(document, dict) and _DOCUMENTS in document:
        joined = document
        document = joined[_DOCUMENTS][joined["address"]]
        return key, document, joined["text"], None, joined
    file = Path(path) if isinstance(path, str) else None
    return key, document, source or "", file, {}


def _absolute(path: str | bytes | None) -> str:
    return str(Path(path).absolute()) if isinstance(path, str) else "the file"


def _remedy(key: str) -> str:
    beside = "" if key == SCHEMA_FILE.name else f"; set {SCHEMA_FILE.name} for documents beside a file"
    return f"Name servers that may be asked in {ADDRESSES.name}, or registered schemas in {REFERENCES.name}{beside}"


def registered_schema(
    registered: RegisteredSchema, addresses: Addresses | None, *, named_by_record: bool = False
) -> JsonSchema:
    """A registered schema.

    Args:
        registered: The schema.
        addresses: Fetches referenced documents from named addresses.
        named_by_record: Whether a record has named it.

    Raises:
        SchemaRegistryError: It is not a JSON Schema; or a reference leads nowhere, which is never a record's fault.
    """
    try:
        return _of_registered(registered, addresses)
    except UnresolvedError as error:
        raise SchemaRegistryError(
            f"schema {registered.key} of the registry: {error}",
            hint=None
            if isinstance(error, MissingPartError)
            else f"Register it with its references, or name servers that may be asked in {ADDRESSES.name}",
        ).marked(transient=isinstance(error, UnreachableError), about_record=False) from error
    except (ValueError, RecursionError) as error:
        raise _not_a_schema(registered, error, named_by_record=named_by_record) from error


def _of_registered(registered: RegisteredSchema, addresses: Addresses | None) -> JsonSchema:
    named = dict(zip(registered.names, map(json.loads, registered.references), strict=True))
    return JsonSchema.of(json.loads(registered.text), registered.text, named=named, addresses=addresses)


def check_own(key: str, addresses: Addresses | None, schema: RegisteredSchema) -> None:
    """Check a schema of one's own that refers to registered ones.

    Args:
        key: The key that has it.
        addresses: Fetches referenced documents from named addresses.
        schema: The schema, with those that it refers to.

    Raises:
        ConfigError: It is not a JSON Schema, or a reference leads nowhere.
        SchemaRegistryError: A named address does not answer.
    """
    try:
        _of_registered(schema, addresses)
    except UnreachableError as error:
        raise SchemaRegistryError(f"{key}: {error}").marked(transient=True) from error
    except UnresolvedError as error:
        raise ConfigError(
            f"{key}: {error}", hint=f"Check {REFERENCES.name}, whose names are those in $ref", key=key
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{key} is not a JSON Schema: {str(error)[:500]}", key=key) from error


def _not_a_schema(registered: RegisteredSchema, error: Exception, *, named_by_record: bool) -> SchemaRegistryError:
    """The error of a registered text that is not a JSON Schema, or of one that Python cannot validate with."""
    if isinstance(error, ForeignPatternError):
        return SchemaRegistryError(
            f"schema {registered.key} of the registry: {error}", hint=f"Set {VALIDATE.name} = false"
        ).marked(about_record=False)
    return SchemaRegistryError(
        f"schema {registered.key} of the registry is not a JSON Schema: {str(error)[:500]}",
        # the registry has answered, and other records name other schemas
    ).marked(about_record=named_by_record)


class ForeignPatternError(ValueError):
    """A schema is valid elsewhere: regular expressions of JSON Schema are JavaScript's, and its readers' own."""


def _kind(document: Any, default: Any = None) -> Any:
    """The validator of a document's dialect; the newest for none, or an unknown one."""
    validators: Any = require("jsonschema", "json").validators
    default = default or validators.Draft202012Validator
    dialect = document.get("$schema") if isinstance(document, dict) else None
    return validators.validator_for({"$schema": dialect}, default=default) if isinstance(dialect, str) else default


def _check(document: Any, default: Any) -> None:
    """Check that a document is a JSON Schema.

    Args:
        document: The document.
        default: The validator of documents without a dialect.

    Raises:
        ForeignPatternError: A pattern is of another language.
        ValueError: It is not a JSON Schema.
    """
    jsonschema: Any = require("jsonschema", "json")
    try:
        _kind(document, default).check_schema(document)
    except jsonschema.SchemaError as error:
        if (error.validator, error.validator_value) == ("format", "regex"):
            pattern = repr(error.instance)[:200]
            raise ForeignPatternError(f"the pattern {pattern} is no regular expression of Python's") from None
        raise ValueError(f"{error.json_path}: {error.message}"[:500]) from error
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _title(document: Any) -> str:
    title = document.get("title") if isinstance(document, dict) else None
    return title if isinstance(title, str) else ""


def _joined(path: str) -> bytes:
    """A file and those beside it to which it refers, for machines that do not have them."""
    file = Path(path)
    text_ = file.read_bytes().decode("utf-8-sig")
    document = read_file(file)
    address = _address(document, file)
    check = partial(_check, default=_kind(document))
    documents = Documents(address, named={address: document}, file=file, check=check)
    resolved(documents, address, all_of_them=False)  # the others are at addresses, or in the registry
    return json.dumps({_DOCUMENTS: documents.found, "address": address, "text": text_}).encode()


def _address(document: Any, file: Path | None) -> str:
    own = document.get("$id", document.get("id")) if isinstance(document, dict) else None
    if isinstance(own, str) and ":" in own:
        return own.partition("#")[0]
    return _NOWHERE if file is None else file.absolute().as_uri()


def _unique_items(original: Any, validator: Any, wanted: Any, array: Any, schema: Any) -> Iterator[Any]:
    """``uniqueItems`` by sorted texts. jsonschema compares each two objects: 3,000 of 12 bytes take it 9 s."""
    if wanted and validator.is_type(array, "array"):
        try:
            texts = {json.dumps(_comparable(item), sort_keys=True) for item in array}
        except (TypeError, ValueError, OverflowError):  # objects that are not JSON; these are only written
            pass
        else:
            if len(texts) == len(array):
                return
            # The error quotes these; it gets the array that it is about from the validator.
            array = [0, 0]
    yield from original(validator, wanted, array, schema)


def _multiple_of(original: Any, validator: Any, divisor: Any, number: Any, schema: Any) -> Iterator[Any]:
    """``multipleOf`` of decimal fractions, as in Java: 19.99 is a multiple of 0.01, unlike their binary fractions."""
    if not validator.is_type(number, "number"):
        return
    try:
        quotient = _fraction(number) / _fraction(divisor)
    except (TypeError, ValueError, ArithmeticError):  # infinite, or of a type of its own; these are only written
        yield from original(validator, divisor, number, schema)
        return
    if quotient.denominator != 1:
        # The error quotes these; it gets the number that it is about from the validator.
        yield from original(validator, 2, 1, schema)


def _fraction(number: Any) -> Fraction:
    """Raises TypeError for other numbers than JSON's: the exponent of a ``Decimal`` may have any size."""
    if isinstance(number, float):
        return Fraction(str(number))
    if not isinstance(number, Rational):
        raise TypeError
    return Fraction(number)


def _comparable(value: Any) -> Any:
    """A value in which equal numbers are alike: 1.0 is 1 in JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    return list(map(_comparable, value)) if isinstance(value, list) else value


def _violation(error: Any) -> str:
    """What a ``jsonschema.ValidationError`` reports, in words of the schema: its message quotes the value."""
    names = {name for key, name in pairwise(error.absolute_schema_path) if key == "properties"}
    # Other names are a part of the value.
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step}" if step in names else "[...]"
        for step in error.absolute_path
    )
    where = "".join(("$", *steps))[:300]
    if error.validator == "required":
        return f"{where}: {error.message[:300]}"  # a name in the schema
    if error.validator is None:
        return f"{where} is not allowed"
    wanted = json.dumps(error.validator_value, default=str)
    return f"{where} is {shape_of(error.instance)}, against {error.validator}: {wanted[:200]}"
