"""Messages as dictionaries, and back.

A ``Struct`` is a dictionary, a ``ListValue`` a list, and a ``Value`` None, a bool, a float, text, or one of these two,
as in ProtoJSON (Protobuf's guide, "JSON Mapping"; ``google.protobuf.json_format``). Unlike there, NaN and infinities
are taken, and all other well-known types are dictionaries of their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from numbers import Real
from typing import Any, Final, TypeAlias

from payload_stores.plugins import require
from serde_chain.errors import DecodeError, EncodeError
from serde_chain.stages.protobuf.schema import is_map, is_repeated, messages_within

Convert: TypeAlias = Callable[[Any], Any]

_STRUCT: Final = "google.protobuf.Struct"
_VALUE: Final = "google.protobuf.Value"
_LIST: Final = "google.protobuf.ListValue"
_DYNAMIC: Final = frozenset({_STRUCT, _VALUE, _LIST})
# The descriptors' type of text.
_STRING: Final = 9
_HINT: Final = "Pass None, a bool, a number, text, a list, or a dictionary with texts as keys"


def is_dynamic(descriptor: Any) -> bool:
    """Whether a message is a ``Struct``, ``Value`` or ``ListValue``, of any pool."""
    return descriptor.full_name in _DYNAMIC


def is_value(field: Any) -> bool:
    """Whether a field is a single ``Value``, in which None is a value."""
    kind = field.message_type
    return kind is not None and kind.full_name == _VALUE and not is_repeated(field)


def to_dict(message: Any, nameless: Callable[[int], Any] = int) -> Any:
    """A message as a dictionary of Python values, as :func:`filler` takes it.

    Enum values are their names, or their numbers if the schema has no name. Fields with presence are included only if
    they are set. A message that is a ``ListValue`` is a list, a ``Value`` what it stands for.

    Args:
        message: The message.
        nameless: Makes the value for an enum number without a name.

    Raises:
        DecodeError: A text of a proto2 message is not UTF-8, which the library reads as bytes.

    Example:
        >>> from google.protobuf.struct_pb2 import ListValue, Value
        >>> to_dict(ListValue(values=[Value(number_value=1), Value(null_value=0)]))
        [1.0, None]
    """
    return _meaning(message) if is_dynamic(message.DESCRIPTOR) else _fields(message, nameless)


def _fields(message: Any, nameless: Callable[[int], Any]) -> dict[str, Any]:
    return {
        field.name: convert(getattr(message, field.name))
        for field, convert in _conversions(message.DESCRIPTOR, nameless)
        if not field.has_presence or message.HasField(field.name)
    }


@lru_cache(1000)
def _conversions(descriptor: Any, nameless: Callable[[int], Any]) -> list[tuple[Any, Convert]]:
    return [(field, _conversion(field, nameless)) for field in descriptor.fields]


def _conversion(field: Any, nameless: Callable[[int], Any]) -> Convert:
    if is_map(field):
        key_of, convert = (_one(field.message_type.fields_by_name[name], nameless) for name in ("key", "value"))
        return lambda values: {key_of(key): convert(values[key]) for key in values}
    convert = _one(field, nameless)
    return (lambda values: [convert(value) for value in values]) if is_repeated(field) else convert


def _one(field: Any, nameless: Callable[[int], Any]) -> Convert:
    if field.message_type is not None:
        return _meaning if is_dynamic(field.message_type) else lambda message: _fields(message, nameless)
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else nameless(number)
    return partial(_text, field.full_name) if field.type == _STRING else lambda value: value


def _text(name: str, value: Any) -> Any:
    if type(value) is bytes:
        raise DecodeError(f"{name} is not UTF-8", hint="With protobuf.values = message, it is bytes")
    return value


def _meaning(message: Any) -> Any:
    """The value that a ``Struct``, ``Value`` or ``ListValue`` stands for; None for a ``Value`` without one."""
    name = message.DESCRIPTOR.full_name
    if name == _STRUCT:
        fields = message.fields
        return {key: _meaning(fields[key]) for key in fields}
    if name == _LIST:
        return [_meaning(item) for item in message.values]
    kind = message.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    value = getattr(message, kind)
    return _meaning(value) if kind in {"struct_value", "list_value"} else value


def filler(descriptor: Any) -> Convert | None:
    """Make a function from the dictionary of a message to one that the message's class takes as keywords.

    Args:
        descriptor: The message's descriptor; for a ``Struct``, ``Value`` or ``ListValue``, the result is the message.

    Returns:
        The function, which raises EncodeError for a value that is no ``Value``, for two fields of a oneof, of which the
        class would keep the last, and for text, bytes, a dictionary or an iterator in place of a list, of which the
        class would take characters, numbers, keys or what is left; None if the message has none of these.

    Example:
        >>> from google.protobuf.struct_pb2 import Value
        >>> filler(Value.DESCRIPTOR)([1, "M 51"]).list_value.values[0].number_value
        1.0
    """
    return _Fillers().of_message(descriptor, descriptor.full_name)


class _Fillers:
    """The functions of a message and of those within it; a recursive one finds its own among them."""

    def __init__(self) -> None:
        self._made: dict[str, Convert | None] = {}

    def of_message(self, descriptor: Any, place: str) -> Convert | None:
        """As :func:`filler`; place is the name of the field, or of the message, for errors."""
        if is_dynamic(descriptor):
            return _of_class(descriptor, place)
        within = (descriptor, *messages_within(descriptor))
        if not any(is_dynamic(inner) or _choices(inner) or _lists(inner) for inner in within):
            return None
        name = descriptor.full_name
        if name not in self._made:
            changed: dict[str, Convert] = {}
            oneofs, lists = _choices(descriptor), _lists(descriptor)
            self._made[name] = lambda data: _filled(data, changed, oneofs, lists, name)
            changed |= {field.name: each for field in descriptor.fields if (each := self._of_field(field)) is not None}
        return self._made[name]

    def _of_field(self, field: Any) -> Convert | None:
        if field.message_type is None:
            return None
        several, kind, place = is_repeated(field), field.message_type, field.full_name
        if is_map(field):
            kind = kind.fields_by_name["value"].message_type
        one = None if kind is None else self.of_message(kind, place)
        if one is None or is_value(field):
            return one
        whole = _of_map(one, place) if is_map(field) else _of_list(one, place) if several else one
        return lambda value: None if value is None else whole(value)


def _of_map(one: Convert, place: str) -> Convert:
    def convert(items: Any) -> Any:
        if not isinstance(items, Mapping):
            raise EncodeError(f"{place} is of type {type(items).__qualname__}, expected a dictionary")
        return {key: one(item) for key, item in items.items()}

    return convert


def _of_list(one: Convert, place: str) -> Convert:
    def convert(items: Any) -> Any:
        _check_list(items, place)
        return [one(item) for item in items]

    return convert


def _check_list(items: Any, place: str) -> None:
    if type(items) is list:
        return
    # An iterator would be empty when a chain encodes a refused value once more, for the error's place.
    if isinstance(items, (Mapping, str, bytes, bytearray, memoryview, Iterator)):
        raise EncodeError(f"{place} is of type {type(items).__qualname__}, expected a list")


def _lists(descriptor: Any) -> list[str]:
    """The repeated fields; whether the items fit, the message's class checks."""
    return [field.name for field in descriptor.fields if is_repeated(field) and not is_map(field)]


def _choices(descriptor: Any) -> list[dict[str, bool]]:
    """The fields of each oneof of several, with whether None is a value of a field."""
    oneofs = ({field.name: is_value(field) for field in oneof.fields} for oneof in descriptor.oneofs)
    return [fields for fields in oneofs if len(fields) > 1]


def _filled(
    data: Any, changed: Mapping[str, Convert], oneofs: Iterable[dict[str, bool]], lists: Iterable[str], name: str
) -> Any:
    if not isinstance(data, Mapping):
        return data  # a message, or for its class to refuse
    for fields in oneofs:
        given = [field for field in fields if field in data and (fields[field] or data[field] is not None)]
        if len(given) > 1:
            raise EncodeError(
                f"{' and '.join(given)} of {name} are set, of which a oneof takes one",
                hint="Leave out the others; in a Value, None is a value",
            )
    for field in lists:
        if field in data:
            _check_list(data[field], f"{name}.{field}")
    if not changed:
        return data
    return {**data, **{field: convert(data[field]) for field, convert in changed.items() if field in data}}


def _of_class(descriptor: Any, place: str) -> Convert:
    kind = require("google.protobuf.message_factory", "protobuf").GetMessageClass(descriptor)
    fill = _FILL[descriptor.full_name]

    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        message = kind()
        fill(message, value, place)
        return message

    return convert


def _fill_struct(message: Any, value: Any, place: str) -> None:
    if _copied(message, value):
        return
    if not isinstance(value, Mapping):
        raise _misfit(_STRUCT, value, place)
    message.SetInParent()  # an empty one is there, too
    fields = message.fields
    for key, item in value.items():
        if not isinstance(key, str):
            raise EncodeError(f"{place} has a key of type {type(key).__qualname__}", hint=_HINT)
        _fill_value(fields[key], item, place)


def _fill_list(message: Any, value: Any, place: str) -> None:
    if _copied(message, value):
        return
    if not isinstance(value, (list, tuple)):
        raise _misfit(_LIST, value, place)
    message.SetInParent()
    values = message.values
    for item in value:
        _fill_value(values.add(), item, place)


def _fill_value(message: Any, value: Any, place: str) -> None:
    if value is None:
        message.null_value = 0
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, Real):  # NumPy's scalars, too
        message.number_value = float(value)
    elif isinstance(value, Mapping):
        _fill_struct(message.struct_value, value, place)
    elif isinstance(value, (list, tuple)):
        _fill_list(message.list_value, value, place)
    elif not any(_copied(each, value) for each in (message, message.struct_value, message.list_value)):
        raise _misfit(_VALUE, value, place)


_FILL: Final = {_STRUCT: _fill_struct, _VALUE: _fill_value, _LIST: _fill_list}


def _copied(message: Any, value: Any) -> bool:
    """Copy a message, which may be one of another pool's class; False if the value is another one."""
    base: Any = require("google.protobuf.message", "protobuf").Message
    if not isinstance(value, base) or value.DESCRIPTOR.full_name != message.DESCRIPTOR.full_name:
        return False
    message.SetInParent()
    message.MergeFromString(value.SerializeToString())
    return True


def _misfit(expected: str, value: Any, place: str) -> EncodeError:
    return EncodeError(f"{place} is of type {type(value).__qualname__}, expected a {expected}", hint=_HINT)
