"""Random messages of any descriptor, and what google.protobuf's ``json_format`` has for our dictionaries of them."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from typing import Any, Final

from google.protobuf import json_format, message_factory

from serde_chain.stages.protobuf.schema import is_map, is_repeated, messages_within

__all__ = ["as_json", "as_rows", "filled", "is_flat", "json_of", "types_of"]

# Of C++'s types, as descriptors number them: the smallest and the largest.
_RANGES: Final = {1: (-(2**31), 2**31 - 1), 2: (-(2**63), 2**63 - 1), 3: (0, 2**32 - 1), 4: (0, 2**64 - 1)}
_REALS: Final = (0.0, -0.0, 1.5, -1e30, math.inf, -math.inf, math.nan, 2.0**-20)
_DOUBLE, _FLOAT, _BOOL, _ENUM, _STRING, _MESSAGE = range(5, 11)
_BYTES: Final = 12
_REQUIRED: Final = 2


def types_of(pool: Any, name: str) -> list[Any]:
    """The classes of all messages of a file, those of maps excepted."""
    waiting, found = list(pool.FindFileByName(name).message_types_by_name.values()), []
    while waiting:
        descriptor = waiting.pop(0)
        waiting += descriptor.nested_types
        if not descriptor.GetOptions().map_entry:
            found.append(message_factory.GetMessageClass(descriptor))
    return found


def filled(kind: Any, draw: random.Random, depth: int = 0) -> Any:
    """A message of a class, without extensions; its required fields are set."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        is_required = field.is_required if hasattr(field, "is_required") else field.label == _REQUIRED
        if not is_required and draw.random() < 0.4:
            continue
        if field.message_type is not None and not is_required and depth > 2:
            continue
        if is_map(field):
            _fill_map(getattr(message, field.name), field, draw, depth)
        elif is_repeated(field):
            values = [_value(field, draw, depth) for _ in range(draw.randint(1, 3))]
            getattr(message, field.name).extend(values)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            inner.CopyFrom(_value(field, draw, depth))
        else:
            setattr(message, field.name, _value(field, draw, depth))
    return message


def _fill_map(values: Any, field: Any, draw: random.Random, depth: int) -> None:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(draw.randint(1, 3)):
        at = _value(key, draw, depth)
        if value.message_type is not None:
            values[at].CopyFrom(_value(value, draw, depth))
        else:
            values[at] = _value(value, draw, depth)


def _value(field: Any, draw: random.Random, depth: int) -> Any:
    kind = field.cpp_type
    if kind == _MESSAGE:
        return filled(message_factory.GetMessageClass(field.message_type), draw, depth + 1)
    if kind in _RANGES:
        return draw.choice((*_RANGES[kind], 0, 1, draw.randint(*_RANGES[kind])))
    if kind == _STRING:
        return draw.randbytes(draw.randint(0, 5)) if field.type == _BYTES else "".join(draw.choices("aé\0🐎", k=3))
    values = (False, True) if kind == _BOOL else _REALS
    return draw.choice(field.enum_type.values).number if kind == _ENUM else draw.choice(values)


def json_of(message: Any) -> Any:
    """What google.protobuf writes as JSON, with the names of the fields."""
    text = json_format.MessageToJson(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json.loads(text)


def as_json(value: Any, descriptor: Any) -> Any:
    """Our dictionary of a message, with values as JSON has them."""
    return {name: _json_field(value[name], descriptor.fields_by_name[name]) for name in value}


def _json_field(value: Any, field: Any) -> Any:
    if is_map(field):
        key, inner = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        names = {True: "true", False: "false"} if key.cpp_type == _BOOL else {}
        return {names.get(at, str(at)): _json_one(item, inner) for at, item in value.items()}
    return [_json_one(item, field) for item in value] if is_repeated(field) else _json_one(value, field)


def _json_one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return as_json(value, field.message_type)
    if field.type == _BYTES:
        return base64.b64encode(value).decode()
    if field.cpp_type in {2, 4}:
        return str(value)
    if field.cpp_type in {_DOUBLE, _FLOAT} and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return _shortest(value) if field.cpp_type == _FLOAT else value


def _shortest(value: float) -> float:
    """The shortest number that is the same in 32 bits."""
    candidates = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    same = (each for each in candidates if struct.unpack("f", struct.pack("f", each))[0] == value)
    return next(same, value)


def as_rows(value: Any, descriptor: Any) -> Any:
    """Our dictionary of a message as a table has it: each field is there, and maps are lists of pairs."""
    return {field.name: _cell(value.get(field.name), field) for field in descriptor.fields}


def _cell(value: Any, field: Any) -> Any:
    if value is None:
        return None
    if is_map(field):
        inner = field.message_type.fields_by_name["value"]
        return [(at, _one_cell(item, inner)) for at, item in value.items()]
    return [_one_cell(item, field) for item in value] if is_repeated(field) else _one_cell(value, field)


def _one_cell(value: Any, field: Any) -> Any:
    return as_rows(value, field.message_type) if field.message_type is not None else value


def is_flat(kind: Any) -> bool:
    """Whether no message within one of a class holds itself: Arrow has no type for others."""
    within = (kind.DESCRIPTOR, *messages_within(kind.DESCRIPTOR))
    return not any(inner in messages_within(inner) for inner in within)
