"""Models: classes whose objects are the values of records, of msgspec, pydantic, attrs and the standard library.

Stages derive schemas from the fields of a model (``avro.type``, ``json.type``). This module is what they share: the
fields of a class, however it declares them, and how an object is made of their values. A library is never imported
here: a class of it proves that it is loaded.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import re
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from payload_stores.options import Option, text
from payload_stores.plugins import import_object
from payload_stores.signals import let_through
from serde_chain.base import MovesFields
from serde_chain.errors import ConfigError, EncodeError

__all__ = [
    "MISSING",
    "AvroType",
    "Duration",
    "Model",
    "ModelField",
    "check_neighbours",
    "is_pydantic",
    "model_of",
    "parse_model",
    "read_model",
    "refusal",
]

MISSING: Final[Any] = dataclasses.MISSING
# Factories whose results are equal each time, so that they are a default in a schema.
_CONSTANT: Final = frozenset({list, dict, set, frozenset, tuple})


@dataclass(frozen=True)
class AvroType:
    """The Avro type of a field, for types that Python's do not tell apart: ``Annotated[bytes, AvroType(...)]``.

    Attributes:
        schema: An Avro schema: the name of a type, or a mapping.

    Example:
        >>> from typing import Annotated
        >>> Price = Annotated[float, AvroType("float")]
        >>> Digest = Annotated[bytes, AvroType({"type": "fixed", "name": "Digest", "size": 32})]
    """

    schema: Any


class Duration(NamedTuple):
    """A value of Avro's logical type ``duration`` (specification, "Duration"): three unsigned 32-bit numbers.

    Attributes:
        months: Months.
        days: Days.
        milliseconds: Milliseconds.

    Example:
        >>> Duration(months=1).days
        0
    """

    months: int = 0
    days: int = 0
    milliseconds: int = 0


class ModelField(NamedTuple):
    """A field of a model.

    Attributes:
        name: Its name in records.
        attribute: Its name in objects.
        argument: Its name for the constructor.
        type: Its type, with annotations.
        default: Its default; ``MISSING`` if it is required, or made anew for each object.
    """

    name: str
    attribute: str
    argument: str
    type: Any
    default: Any = MISSING


class Model(NamedTuple):
    """A class with fields.

    Attributes:
        cls: The class.
        fields: Its fields, in order.
        build: Makes an object of the fields' values, by their arguments.
        values: Returns the fields' values by their attributes, in order; None where the library has no fast way.
    """

    cls: type
    fields: tuple[ModelField, ...]
    build: Callable[[dict[str, Any]], Any]
    values: Callable[[Any], dict[str, Any]] | None = None


def read_model(config: Mapping[str, object], option: Option[Any], *excluded: Option[Any]) -> type | None:
    """Read a model from a configuration.

    Args:
        config: Flat configuration.
        option: The key that holds it: a class, or its dotted path.
        excluded: Keys of schemas, which a model replaces.

    Returns:
        The class, or None if it is not configured.

    Raises:
        ConfigError: It is not a model, or one of the other keys is set too.
    """
    source = option.read(config)
    if source is None:
        return None
    for other in excluded:
        if other.read(config) is not None:
            raise ConfigError(
                f"{option.name} and {other.name} exclude each other",
                hint="The schema is derived from the model; set one of them",
                key=option.name,
            )
    found = import_object(source, "model") if isinstance(source, str) else source
    if not isinstance(found, type) or not _is_model(found):
        raise ConfigError(
            f"{option.name} is not a model, but {_named(found)}",
            hint="Name a class of msgspec.Struct, pydantic.BaseModel, attrs or dataclasses",
            key=option.name,
        )
    return found


def _named(found: object) -> str:
    return f"the class {found.__qualname__}" if isinstance(found, type) else f"of type {type(found).__qualname__}"


def parse_model(value: object) -> Any:
    """Parse the value of a key for a model."""
    return text(value) if isinstance(value, str) else value


def check_neighbours(option: Option[Any], reason: str, *neighbours: object | None) -> None:
    """Refuse a model beside a stage that moves fields.

    Args:
        option: The key of the model.
        reason: Why its values are no dictionaries in which fields can be found.
        neighbours: The stages before and after.

    Raises:
        ConfigError: One of them moves fields.
    """
    if any(isinstance(stage, MovesFields) for stage in neighbours):
        raise ConfigError(
            f"{option.name} does not work beside a stage that moves fields: {reason}",
            hint="Name the schema instead of the class, or offload whole values with large-message",
            key=option.name,
        )


def model_of(cls: Any) -> Model | None:
    """The fields of a class; None if it is not a model.

    Args:
        cls: The class, or any other type.

    Raises:
        ConfigError: A field cannot be set by the constructor.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Image:
        ...     name: str
        >>> model = model_of(Image)
        >>> [field.name for field in model.fields], model.build({"name": "M 51"}).name
        (['name'], 'M 51')
    """
    if not isinstance(cls, type):
        return None
    for is_kind, fields in _KINDS:
        if is_kind(cls):
            build = _validated(cls) if is_kind is is_pydantic else _called(cls)
            try:
                return Model(cls, tuple(fields(cls)), build, _values_of_msgspec() if is_kind is _is_msgspec else None)
            except NameError as error:
                raise ConfigError(
                    f"an annotation of {cls.__qualname__} is unknown: {error}",
                    hint="Annotations are names of the class's module",
                ) from error
    return None


def written(value: Any, cls: type, convert: Callable[[Any], Any], option: Option[Any]) -> Any:
    """An object as a stage writes it; a dictionary, as from a table, is one already.

    Args:
        value: The object.
        cls: Its model.
        convert: Converts objects of the model.
        option: The option that names the model.

    Raises:
        EncodeError: It is not an object of the model, or a part of it is of another type.
    """
    if type(value) is dict:
        return value
    if type(value) is not cls and not isinstance(value, cls):
        raise EncodeError(
            f"the value is of type {type(value).__qualname__}, expected {cls.__qualname__}",
            hint=f"Produce objects of the class that {option.name} names",
        )
    try:
        return convert(value)
    except EncodeError:
        raise
    except Exception as error:
        let_through(error)
        raise EncodeError(f"the object does not match its class {cls.__qualname__}: {error}") from error


def refusal(error: Exception, cls: type) -> str:
    """What a model says of a value that it refuses: where and why, without a part of the value.

    Args:
        error: What its library has raised. Texts of validators of its own are left out: most quote the value.
        cls: The model.
    """
    pydantic, msgspec = (sys.modules.get(name) for name in ("pydantic", "msgspec"))
    name = type(error).__name__
    if pydantic is not None and isinstance(error, pydantic.ValidationError):
        first, *others = error.errors(include_url=False, include_input=False, include_context=False)
        names = _names(cls)
        # Names of unknown members and of a mapping are parts of the value.
        where = ".".join(str(step) if step in names or type(step) is int else "[...]" for step in first["loc"])
        why = first["msg"] if first["type"] in _kinds_of_pydantic() else "refused by a validator"
        return f"{where or 'the value'}: {why}" + (f", and {len(others)} more" if others else "")
    if msgspec is not None and isinstance(error, msgspec.MsgspecError) and error.__cause__ is None:
        return f"{name}: {_QUOTES.sub(_unquoted, str(error))}"[:300]
    return name


# The texts of msgspec that quote the value, and the place that follows.
_QUOTES: Final = re.compile(r"^(Invalid(?: enum)? value|Object contains unknown field) .*?( - at `[^`]*`)?$", re.DOTALL)


def _unquoted(found: re.Match[str]) -> str:
    return found[1] + (found[2] or "")


@cache
def _kinds_of_pydantic() -> frozenset[str]:
    """Errors whose text is pydantic's own, and has no part of the value."""
    kinds = typing.get_args(importlib.import_module("pydantic_core.core_schema").ErrorType)
    return frozenset(kinds) - {"value_error", "assertion_error", "union_tag_invalid"}


@cache
def _names(cls: type) -> frozenset[str]:
    """The names of all fields of a model, and of the models within."""
    names: set[str] = set()
    seen: list[Any] = []
    waiting: list[Any] = [cls]
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.append(kind)
        waiting += typing.get_args(kind)
        with contextlib.suppress(ConfigError):
            for field in (model_of(kind) or Model(cls, (), cls)).fields:
                names |= {field.name, field.argument}
                waiting.append(field.type)
    return frozenset(names)


def _is_model(cls: type) -> bool:
    return any(is_kind(cls) for is_kind, _ in _KINDS)


def _called(cls: type) -> Callable[[dict[str, Any]], Any]:
    return lambda values: cls(**values)


def _validated(cls: Any) -> Callable[[dict[str, Any]], Any]:
    validate: Callable[[dict[str, Any]], Any] = cls.model_validate
    return validate


def is_pydantic(cls: type) -> bool:
    """Whether a class is a model of pydantic."""
    pydantic: Any = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


def _is_msgspec(cls: type) -> bool:
    msgspec: Any = sys.modules.get("msgspec")
    return msgspec is not None and issubclass(cls, msgspec.Struct)


def _values_of_msgspec() -> Callable[[Any], dict[str, Any]]:
    msgspec: Any = sys.modules["msgspec"]
    values: Callable[[Any], dict[str, Any]] = msgspec.structs.asdict
    return values


def _is_attrs(cls: type) -> bool:
    attrs: Any = sys.modules.get("attr")
    return attrs is not None and attrs.has(cls)


def _default(default: Any, missing: Any, factory: Any) -> Any:
    """A default that is the same for each object; ``MISSING`` otherwise."""
    if default is not missing:
        return default
    return factory() if factory in _CONSTANT else MISSING


def _of_msgspec(cls: type) -> typing.Iterator[ModelField]:
    msgspec: Any = sys.modules["msgspec"]
    for field in msgspec.structs.fields(cls):
        default = _default(field.default, msgspec.NODEFAULT, field.default_factory)
        yield ModelField(field.encode_name, field.name, field.name, field.type, default)


def _of_pydantic(cls: Any) -> typing.Iterator[ModelField]:
    pydantic: Any = sys.modules["pydantic"]
    for name, field in cls.model_fields.items():
        read = field.validation_alias or field.alias or name
        if not isinstance(read, str):
            raise _unsettable(cls, name, "its validation_alias is not a name")
        kind = typing.Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        # What `default` is without one is pydantic's private constant.
        default = MISSING if field.is_required() else field.default
        if field.default_factory is not None:
            default = _default(pydantic, pydantic, field.default_factory)
        yield ModelField(field.serialization_alias or field.alias or name, name, read, kind, default)


def _of_attrs(cls: type) -> typing.Iterator[ModelField]:
    attrs: Any = sys.modules["attr"]
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in attrs.fields(cls):
        if not field.init:
            raise _unsettable(cls, field.name, "it has init=False")
        factory = None
        if isinstance(field.default, attrs.Factory):
            factory = None if field.default.takes_self else field.default.factory
        default = _default(
            attrs.NOTHING if isinstance(field.default, attrs.Factory) else field.default, attrs.NOTHING, factory
        )
        yield ModelField(field.name, field.name, field.alias, hints.get(field.name, Any), default)


def _of_dataclass(cls: Any) -> typing.Iterator[ModelField]:
    hints = typing.get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        if not field.init:
            raise _unsettable(cls, field.name, "it has init=False")
        default = _default(field.default, MISSING, field.default_factory)
        yield ModelField(field.name, field.name, field.name, hints[field.name], default)


def _unsettable(cls: type, name: str, why: str) -> ConfigError:
    return ConfigError(
        f"the field {name} of {cls.__qualname__} cannot be set by the constructor: {why}",
        hint="Readers make objects by the constructor: make it a property, or give it a name there",
    )


_KINDS: Final[tuple[tuple[Callable[[type], bool], Callable[[Any], typing.Iterator[ModelField]]], ...]] = (
    (_is_msgspec, _of_msgspec),
    (is_pydantic, _of_pydantic),
    (_is_attrs, _of_attrs),
    (dataclasses.is_dataclass, _of_dataclass),
)
