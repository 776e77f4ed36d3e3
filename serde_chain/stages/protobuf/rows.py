"""Arrow columns for the stage ``protobuf``: converts Spark's types back for a message's fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, TypeAlias

from payload_stores.plugins import require
from serde_chain.stages.protobuf.dictionaries import is_dynamic, is_value
from serde_chain.stages.protobuf.schema import is_map, is_repeated

Convert: TypeAlias = Callable[[Any], Any]

# The descriptors' cpp_type: int32, int64, uint32, uint64.
_INTEGERS: Final = frozenset({1, 2, 3, 4})
# The number of an enum, 32 bits.
_NUMBER: Final = re.compile(r"-?[0-9]{1,10}")


def message_fitter(descriptor: Any, type_: Any) -> Convert | None:
    """Make a function that reverses the conversion of fields for which Spark lacks a type.

    Unsigned 64-bit integers are decimals there, and enum values without a name are their numbers as text. A null in a
    column is an absent ``Value``, not one that is null.

    Args:
        descriptor: The message's descriptor.
        type_: The ``pyarrow.DataType`` of the column.

    Returns:
        A function from a value, whose maps are dictionaries already, to one for the message's class; None if nothing
        needs a conversion.
    """
    if not require("pyarrow.types", "arrow").is_struct(type_) or is_dynamic(descriptor):
        return None
    known = descriptor.fields_by_name
    optional = [field.name for field in type_ if field.name in known and is_value(known[field.name])]
    made = {field.name: _field(known[field.name], field.type) for field in type_ if field.name in known}
    changed = [(name, convert) for name, convert in made.items() if convert is not None]
    if not changed and not optional:
        return None

    def convert_all(message: Any) -> Any:
        made = message | {name: convert(message[name]) for name, convert in changed}
        for name in optional:
            if made[name] is None:
                del made[name]
        return made

    return convert_all


def _field(field: Any, type_: Any) -> Convert | None:
    types: Any = require("pyarrow.types", "arrow")
    if is_map(field):
        if not types.is_map(type_):
            return None
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        of_key, of_value = _one(key, type_.key_type), _one(value, type_.item_type)
        if of_key is None and of_value is None:
            return None
        key_of, value_of = of_key or _same, of_value or _same
        return _present(lambda items: {key_of(name): value_of(item) for name, item in items.items()})
    if is_repeated(field):
        one = _one(field, type_.value_type) if types.is_list(type_) else None
        return one and _present(lambda items: [one(item) for item in items])
    return _one(field, type_)


def _one(field: Any, type_: Any) -> Convert | None:
    types: Any = require("pyarrow.types", "arrow")
    if field.message_type is not None:
        convert = message_fitter(field.message_type, type_)
        return convert and _present(convert)
    if field.enum_type is not None and (types.is_string(type_) or types.is_large_string(type_)):
        return _present(lambda name: int(name) if _NUMBER.fullmatch(name) else name)
    return _present(_whole) if field.cpp_type in _INTEGERS and types.is_decimal(type_) else None


def _whole(number: Decimal) -> Any:
    # Fractions are left for the message's class to refuse.
    return int(number) if number == number.to_integral_value() else number


def _same(value: Any) -> Any:
    return value


def _present(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
