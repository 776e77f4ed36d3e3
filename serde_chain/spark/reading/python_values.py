"""Converts Python values to a given Arrow type, for schemas passed by users.

A stage's result (JSON objects, Avro dictionaries) is matched to a declared type by field names: missing fields are
null, additional ones are dropped. Lossy conversions are refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Final, TypeAlias
from uuid import UUID

from payload_stores.plugins import require
from serde_chain.errors import shape_of

Convert: TypeAlias = Callable[[Any], Any]

_DIGITS: Final = Context(prec=100, rounding=ROUND_HALF_UP)


def converter(kind: Any) -> Convert:
    """Make a function that converts values for one Arrow type.

    Args:
        kind: A ``pyarrow.DataType``.

    Returns:
        A function from a value to one that ``pyarrow.array`` accepts for this type. It raises ValueError with the path
        of a mismatch.
    """
    convert = _make(kind, require("pyarrow.types", "spark"))

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except _MisfitError as misfit:
            where = "".join(misfit.path)
            raise ValueError(
                f"{where.removeprefix('.') or 'the value'} is {shape_of(misfit.value)}, expected {misfit.expected}"
            ) from None  # its cause quotes the value

    return checked


class _MisfitError(Exception):
    def __init__(self, value: object, expected: object) -> None:
        super().__init__()
        self.value = value
        self.expected = expected
        self.path: list[str] = []


def _make(kind: Any, types: Any) -> Convert:
    if types.is_struct(kind):
        return _struct(kind, types)
    if types.is_map(kind):
        return _map(kind, types)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list(kind, types)
    convert = next((convert for test, convert in _LEAVES if getattr(types, test)(kind)), None)
    if convert is None:
        return lambda value: value

    def leaf(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value, kind)
        except (TypeError, ValueError, ArithmeticError):
            raise _MisfitError(value, kind) from None

    return leaf


def _struct(kind: Any, types: Any) -> Convert:
    fields = [(kind.field(at).name, _make(kind.field(at).type, types)) for at in range(kind.num_fields)]

    def struct(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _MisfitError(value, "an object")
        return {name: _at(f".{name}", convert, value.get(name)) for name, convert in fields}

    return struct


def _map(kind: Any, types: Any) -> Convert:
    convert = _make(kind.item_type, types)

    def mapping(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _MisfitError(value, "an object")
        # Keys are a part of the value.
        return [(key, _at("[...]", convert, item)) for key, item in value.items()]

    return mapping


def _list(kind: Any, types: Any) -> Convert:
    convert = _make(kind.value_type, types)

    def array(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, (list, tuple)):
            raise _MisfitError(value, "an array")
        return [_at(f"[{at}]", convert, item) for at, item in enumerate(value)]

    return array


def _at(step: str, convert: Convert, value: Any) -> Any:
    try:
        return convert(value)
    except _MisfitError as misfit:
        misfit.path.insert(0, step)
        raise


def _boolean(value: Any, _kind: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(value: Any, kind: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1
    ):
        raise TypeError
    return value


def _floating(value: Any, _kind: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise TypeError
    return float(value)


def _decimal(value: Any, kind: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise TypeError
    # Via its text, so that 0.1 is one tenth.
    number = Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=_DIGITS)
    if number.adjusted() >= kind.precision - kind.scale and number != 0:
        raise InvalidOperation
    return number


def _string(value: Any, _kind: Any) -> str:
    if not isinstance(value, (str, UUID)):
        raise TypeError
    return str(value)


def _binary(value: Any, _kind: Any) -> bytes:
    # JSON has no bytes; Spark's from_json reads base64 too.
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(memoryview(value))


def _date(value: Any, _kind: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError
    return value


def _timestamp(value: Any, kind: Any) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        raise TypeError
    if kind.tz is None:
        if moment.tzinfo is not None:
            raise ValueError
        return moment
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


_LEAVES: Final[tuple[tuple[str, Callable[[Any, Any], Any]], ...]] = (
    ("is_boolean", _boolean),
    ("is_integer", _integer),
    ("is_floating", _floating),
    ("is_decimal", _decimal),
    ("is_string", _string),
    ("is_large_string", _string),
    ("is_binary", _binary),
    ("is_large_binary", _binary),
    ("is_date", _date),
    ("is_timestamp", _timestamp),
)
