"""Protobuf's message classes: from a generated module, a file of descriptors, or a schema registry."""

from __future__ import annotations

import base64
import binascii
import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from payload_stores.options import Option, path_or_content, text
from payload_stores.plugins import import_object, require
from serde_chain.errors import ConfigError
from serde_chain.schemas.parts import Budget
from serde_chain.wire import varint

__all__ = [
    "DESCRIPTOR_SET",
    "MESSAGE_CLASS",
    "MESSAGE_NAME",
    "check_bytes",
    "check_parts",
    "class_at",
    "descriptor_text",
    "has_maps",
    "indexes_of",
    "is_known",
    "is_map",
    "is_recursive",
    "is_repeated",
    "message_class",
    "parse_file",
    "to_dict",
]

MESSAGE_CLASS: Final[Option[Any]] = Option(
    "protobuf.message.class",
    lambda value: text(value) if isinstance(value, str) else value,
    None,
    doc="the message class that protoc generated, or its dotted path",
)
DESCRIPTOR_SET: Final[Option[Any]] = Option(
    "protobuf.descriptor.set.file",
    path_or_content,
    None,
    file=True,
    doc="file that protoc --descriptor_set_out --include_imports wrote",
)
MESSAGE_NAME: Final = Option(
    "protobuf.message.name", text, None, doc="full name of the message in protobuf.descriptor.set.file"
)

# Files that every program has, by the packages that have them: registries are not sent them.
_KNOWN: Final = {
    "google/protobuf/": "google.protobuf.",
    "google/type/": "google.type.",
    "confluent/": "confluent_kafka.schema_registry.confluent.",
}
_KNOWN_FILE: Final = re.compile(rf"({'|'.join(_KNOWN)})((?:[a-z_]+/)*[a-z_]+)\.proto")

# Bytes of an object in memory for each field of its type, and how many of them are worth a look before.
_WORD: Final = 8
_MUCH: Final = 256 << 20
# Of messages within each other, as the parser has it; then types of the wire format, and the sizes of two.
_MOST_DEPTH: Final = 100
_SIZED: Final = 2
_GROUP: Final = 3
_GROUP_END: Final = 4
_FIXED: Final = {1: 8, 5: 4}

_FAILURES: Final = (TypeError, ValueError, KeyError)


def message_class(config: Mapping[str, object]) -> Any | None:
    """The message class that a configuration names; None if it names none.

    Raises:
        ConfigError: It cannot be found, or is not a message class.
        MissingDependencyError: protobuf is not installed.
    """
    spec, path, name = (option.read(config) for option in (MESSAGE_CLASS, DESCRIPTOR_SET, MESSAGE_NAME))
    if spec is not None and path is not None:
        raise ConfigError(f"{MESSAGE_CLASS.name} and {DESCRIPTOR_SET.name} exclude each other", key=MESSAGE_CLASS.name)
    if (path is None) != (name is None):
        raise ConfigError(
            f"{DESCRIPTOR_SET.name} and {MESSAGE_NAME.name} belong together",
            key=(MESSAGE_NAME if name is None else DESCRIPTOR_SET).name,
        )
    if path is not None and name is not None:
        return _from_descriptor_set(path, name)
    if spec is None:
        return None
    class_ = import_object(spec, "message class") if isinstance(spec, str) else spec
    base: Any = require("google.protobuf.message", "protobuf").Message
    if not (isinstance(class_, type) and issubclass(class_, base)) or getattr(class_, "DESCRIPTOR", None) is None:
        raise ConfigError(f"{MESSAGE_CLASS.name} is not a class of messages that protoc made", key=MESSAGE_CLASS.name)
    return class_


def _from_descriptor_set(source: bytes | str, name: str) -> Any:
    descriptors: Any = require("google.protobuf.descriptor_pb2", "protobuf")
    message: Any = require("google.protobuf.message", "protobuf")
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        files = descriptors.FileDescriptorSet.FromString(data).file
        pool = _pool(files)
        return _class_of(pool.FindMessageTypeByName(name))
    except (OSError, message.DecodeError, *_FAILURES) as error:
        raise ConfigError(
            f"the message {name} cannot be loaded from {'the descriptors' if isinstance(source, bytes) else source}: "
            f"{_said(error)}",
            hint="Write the file with protoc --include_imports --descriptor_set_out",
            key=DESCRIPTOR_SET.name,
        ) from error


def parse_file(name: str, encoded: str) -> Any:
    """A ``FileDescriptorProto`` as registries have it in base64.

    Args:
        name: Its name, as others import it.
        encoded: The text.

    Raises:
        ValueError: It is not base64 of a descriptor.
    """
    descriptors: Any = require("google.protobuf.descriptor_pb2", "protobuf")
    message: Any = require("google.protobuf.message", "protobuf")
    try:
        file = descriptors.FileDescriptorProto.FromString(base64.b64decode(encoded, validate=True))
    except (binascii.Error, message.DecodeError) as error:
        raise ValueError(f"it is not a serialized descriptor: {error}") from error
    file.name = name
    return file


def descriptor_text(file: Any) -> str:
    """A file's descriptor as registries expect it: base64, as Confluent's own serializers send it."""
    return base64.b64encode(file.serialized_pb).decode()


def is_known(name: str) -> bool:
    """Whether a file belongs to protobuf itself, or to Google's or Confluent's types: registries are not sent these."""
    return name.startswith(tuple(_KNOWN))


def class_at(files: Iterable[Any], indexes: Iterable[int]) -> Any:
    """The class of the message to which indexes lead.

    Args:
        files: ``FileDescriptorProto`` objects of the message's file, which comes last, and of what it imports.
        indexes: The message among those of the file, the one nested in it, and so on.

    Raises:
        ValueError: The files do not fit together, or do not have the message.
    """
    files = list(files)
    try:
        file = _pool(files).FindFileByName(files[-1].name)
        messages = list(file.message_types_by_name.values())
        message: Any = None
        for index in indexes:
            if index >= len(messages):
                raise ValueError(f"there is no message {index} among {len(messages)}")
            message = messages[index]
            messages = list(message.nested_types)
        return _class_of(message)
    except _FAILURES as error:
        raise ValueError(_said(error)) from error


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """The way to a message's type within its file."""
    indexes = []
    while descriptor.containing_type is not None:
        outer = descriptor.containing_type
        indexes.append([nested.name for nested in outer.nested_types].index(descriptor.name))
        descriptor = outer
    indexes.append(list(descriptor.file.message_types_by_name).index(descriptor.name))
    return tuple(reversed(indexes))


def has_maps(descriptor: Any) -> bool:
    """Whether a message, or one within it, has map fields, whose order differs from writing to writing."""
    return any(inner.GetOptions().map_entry for inner in _within(descriptor))


def is_recursive(descriptor: Any) -> bool:
    """Whether a message, or one within it, can contain itself, and so nest without end."""
    return any(inner in _within(inner) for inner in (descriptor, *_within(descriptor)))


def _within(descriptor: Any) -> list[Any]:
    """The messages within a message, at any depth; itself too if it is among them."""
    reached: list[Any] = []
    waiting = [descriptor]
    while waiting:
        inner = [field.message_type for field in waiting.pop().fields if field.message_type is not None]
        fresh = [message for message in dict.fromkeys(inner) if message not in reached]
        reached += fresh
        waiting += fresh
    return reached


def is_map(field: Any) -> bool:
    """Whether a field is a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    """Whether a field is a list, or a map."""
    # Older releases have no is_repeated, and newer ones warn about label.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def check_parts(message: Any, size: int, budget: Budget) -> None:
    """Refuse a message with more parts than may be built of its bytes: fields without presence are there in any case.

    Args:
        message: The message.
        size: Its bytes.
        budget: How many parts it may have.

    Raises:
        TooManyPartsError: It has more.
    """
    most = budget.of(size)
    own, nested = _widths(message.DESCRIPTOR)
    # A message within it takes two bytes at least, and a value one.
    if 1 + own + (size // 2) * (1 + nested) + size > most and _count(message, most) < 0:
        raise budget.exceeded(size)


def check_bytes(descriptor: Any, data: memoryview, budget: Budget) -> None:
    """Refuse bytes of a message whose parser would take far more memory than they have: by fields that are not set.

    A message within another takes two bytes, and in memory a word for each field that its type has. Only where that
    might be much are the bytes looked over.

    Args:
        descriptor: The message's descriptor.
        data: Its bytes.
        budget: How many parts it may have; fields that are not set count.

    Raises:
        TooManyPartsError: It has more.
    """
    if (len(data) // 2) * _WORD * _widest(descriptor) > _MUCH and _walk(descriptor, data, budget.of(len(data)), 0) < 0:
        raise budget.exceeded(len(data))


def _walk(descriptor: Any, data: memoryview, left: int, depth: int) -> int:
    """What is left of a number of parts; the parser itself refuses what is no message, or nests too deep."""
    left -= 1 + len(descriptor.fields)
    at, fields, around = 0, descriptor.fields_by_number, []
    while at < len(data) and left >= 0 and depth <= _MOST_DEPTH:
        try:
            tag, at = varint.read(data, at)
            kind, field = tag & 7, fields.get(tag >> 3)
            inner = None if field is None else field.message_type
            if kind == _SIZED:
                size, at = varint.read(data, at)
                if inner is not None:
                    left = _walk(inner, data[at : at + size], left, depth + 1)
                at += size
            elif kind == _GROUP:
                around.append(fields)
                fields = {} if inner is None else inner.fields_by_number
                left -= 1 + len(fields)
            elif kind == _GROUP_END:
                fields = around.pop() if around else fields
            else:
                at = varint.read(data, at)[1] if kind == 0 else at + _FIXED.get(kind, 0)
        except ValueError:
            break
    return left


@lru_cache(1000)
def _widest(descriptor: Any) -> int:
    """How many fields a message within a message has at most."""
    return 1 + max((len(inner.fields) for inner in _within(descriptor)), default=0)


def _count(message: Any, left: int) -> int:
    """What is left of a number of parts; less than zero as soon as nothing is."""
    left -= 1 + _widths(message.DESCRIPTOR)[0]
    for field, value in message.ListFields():
        several = is_repeated(field)
        left -= len(value) if several else 1
        of_map = field.message_type.fields_by_name["value"].message_type if is_map(field) else None
        if of_map is None and (is_map(field) or field.message_type is None):
            continue
        for inner in (value[key] for key in value) if of_map is not None else value if several else (value,):
            if left < 0:
                return left
            left = _count(inner, left)
    return left


@lru_cache(1000)
def _widths(descriptor: Any) -> tuple[int, int]:
    """How many fields a message has without presence, and the most that one within it has."""
    widths = [sum(not field.has_presence for field in inner.fields) for inner in (descriptor, *_within(descriptor))]
    return widths[0], max(widths[1:], default=0)


def to_dict(message: Any, nameless: Callable[[int], Any] = int) -> dict[str, Any]:
    """A message as a dictionary of Python's own values, which the message's class accepts as keywords.

    Enum values are their names, or their numbers where the schema has no name. Fields with presence
    are included only if they are set.

    Args:
        message: The message.
        nameless: Makes the value of an enum's number that has no name.
    """
    return {
        field.name: convert(getattr(message, field.name))
        for field, convert in _conversions(message.DESCRIPTOR, nameless)
        if not field.has_presence or message.HasField(field.name)
    }


_Convert = Callable[[Any], Any]


@lru_cache(1000)
def _conversions(descriptor: Any, nameless: Callable[[int], Any]) -> list[tuple[Any, _Convert]]:
    return [(field, _conversion(field, nameless)) for field in descriptor.fields]


def _conversion(field: Any, nameless: Callable[[int], Any]) -> _Convert:
    if is_map(field):
        convert = _one(field.message_type.fields_by_name["value"], nameless)
        return lambda values: {key: convert(values[key]) for key in values}
    convert = _one(field, nameless)
    return (lambda values: [convert(value) for value in values]) if is_repeated(field) else convert


def _one(field: Any, nameless: Callable[[int], Any]) -> _Convert:
    if field.message_type is not None:
        return lambda message: to_dict(message, nameless)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else nameless(number)
    return lambda value: value


def _class_of(descriptor: Any) -> Any:
    return require("google.protobuf.message_factory", "protobuf").GetMessageClass(descriptor)


def _pool(files: Iterable[Any]) -> Any:
    """A pool of files, with the known ones that they import."""
    pool: Any = require("google.protobuf.descriptor_pool", "protobuf").DescriptorPool()
    by_name = {file.name: file for file in files}
    added: set[str] = set()

    def add(name: str) -> None:
        if name in added:
            return
        added.add(name)
        file = by_name.get(name)
        if file is None:
            known = _known_file(name)
            for imported in known.dependencies:
                add(imported.name)
            pool.AddSerializedFile(known.serialized_pb)
        else:
            for imported in file.dependency:
                add(imported)
            pool.AddSerializedFile(file.SerializeToString())

    for name in by_name:
        add(name)
    return pool


def _known_file(name: str) -> Any:
    match = _KNOWN_FILE.fullmatch(name)
    if match is None:
        raise ValueError(f"the file {name[:200]!r} is imported and not there")
    module = _KNOWN[match[1]] + match[2].replace("/", ".") + "_pb2"
    try:
        return importlib.import_module(module).DESCRIPTOR
    except ImportError as error:
        raise ValueError(f"the file {name} is imported and not installed") from error


def _said(error: Exception) -> str:
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
