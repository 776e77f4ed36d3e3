"""Where a dictionary does not match its message: the library's errors name neither field nor type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

from payload_stores.options import nearest
from payload_stores.plugins import require
from payload_stores.signals import let_through
from serde_chain.errors import shape_of
from serde_chain.stages.protobuf.dictionaries import Convert, filler
from serde_chain.stages.protobuf.schema import first_names, is_map, is_repeated

_Misfit: TypeAlias = tuple[str, bool]
# Names of fields that an error lists.
_MOST_NAMES: Final = 20
# The descriptors' types.
_BYTES: Final = 12
_TYPES: Final = {
    **dict(enumerate(("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"), 1)),
    **dict(enumerate(("bytes", "uint32"), _BYTES)),
    **dict(enumerate(("sfixed32", "sfixed64", "sint32", "sint64"), 15)),
}


def misfit(descriptor: Any, data: Any) -> _Misfit | None:
    """Name the first field of a dictionary that its message refuses, without its value.

    Args:
        descriptor: The message's descriptor.
        data: The dictionary.

    Returns:
        A message with the field's path, its value's shape and the expected type, and whether that type is bytes; None
        if no single field is at fault.

    Example:
        >>> from google.protobuf.timestamp_pb2 import Timestamp
        >>> misfit(Timestamp.DESCRIPTOR, {"seconds": "1"})[0]
        'google.protobuf.Timestamp.seconds is str of length 1, expected int64'
        >>> misfit(Timestamp.DESCRIPTOR, {"second": 1})[0]
        'google.protobuf.Timestamp has a key that is no field. Did you mean seconds?'
    """
    return _in_message(descriptor, data, descriptor.full_name)


def _in_message(descriptor: Any, data: Any, place: str) -> _Misfit | None:
    if not isinstance(data, Mapping):
        return _wrong(place, data, f"{descriptor.full_name} or a dictionary of its fields")
    known = {field.name: field for field in descriptor.fields}  # of the library, fields_by_name refuses some keys
    for name, value in data.items():
        if name not in known:
            near = nearest(str(name)[:100], known)
            advice = f"Did you mean {near}?" if near else f"It has {first_names(known, _MOST_NAMES)}"
            return f"{place} has a key that is no field. {advice}", False
        if not _takes(descriptor, name, value):
            return _in_field(known[name], value, f"{place}.{name}")
    return None


def _in_field(field: Any, value: Any, place: str) -> _Misfit:
    if is_map(field):
        return _in_map(field, value, place)
    return (_in_list if is_repeated(field) else _in_one)(field, value, place)


def _in_map(field: Any, value: Any, place: str) -> _Misfit:
    if not isinstance(value, Mapping):
        return _wrong(place, value, "a dictionary")
    of_value = field.message_type.fields_by_name["value"]
    for key, item in value.items():
        if not _takes(field.containing_type, field.name, {key: item}):
            found = of_value.message_type and _in_message(of_value.message_type, item, f"{place}[…]")
            what = f"an entry of {place} is {shape_of(key)} to {shape_of(item)}, expected {_entry(field)}"
            return found or (what, of_value.type == _BYTES and not isinstance(item, bytes))
    return _wrong(place, value, f"a dictionary of {_entry(field)}")


def _in_list(field: Any, value: Any, place: str) -> _Misfit:
    if isinstance(value, (Mapping, str, bytes, Iterator)) or not isinstance(value, Iterable):
        return _wrong(place, value, "a list")
    for row, item in enumerate(value):
        if not _takes(field.containing_type, field.name, [item]):
            return _in_one(field, item, f"{place}[{row}]")
    # No item is at fault alone.
    return _wrong(place, value, f"a list of {_name(field)}")


def _in_one(field: Any, value: Any, place: str) -> _Misfit:
    found = field.message_type and _in_message(field.message_type, value, place)
    return found or _wrong(place, value, _name(field), expects_bytes=field.type == _BYTES)


def _wrong(place: str, value: Any, expected: str, *, expects_bytes: bool = False) -> _Misfit:
    return f"{place} is {shape_of(value)}, expected {expected}", expects_bytes


def _name(field: Any) -> str:
    if field.enum_type is not None:
        return f"a name or number of {field.enum_type.full_name}"
    return field.message_type.full_name if field.message_type is not None else _TYPES[field.type]


def _entry(field: Any) -> str:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    return f"{_name(key)} to {_name(value)}"


def _takes(descriptor: Any, name: str, value: Any) -> bool:
    """Whether a message of this field alone can be made."""
    fill, kind = _made(descriptor)
    data = {name: value}
    try:
        kind(**(data if fill is None else fill(data)))
    except Exception as error:  # noqa: BLE001, whatever the library raises; its text may quote the value
        let_through(error)
        return False
    return True


# Asked for each item of a list; to make a filler takes as long as the message's type is large.
@lru_cache(1000)
def _made(descriptor: Any) -> tuple[Convert | None, Any]:
    """What makes messages of dictionaries."""
    factory: Any = require("google.protobuf.message_factory", "protobuf")
    return filler(descriptor), factory.GetMessageClass(descriptor)
