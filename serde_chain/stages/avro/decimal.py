"""Exact Avro decimals (specification, "Decimal"), decoded in a time bounded by their length.

fastavro converts any number of bytes into digits, in quadratic time, and then rounds to the precision. Here, a decimal
with more digits than its precision is refused before the conversion. fastavro calls the function registered for a
logical type, so its schemas contain a private type instead of ``decimal``: other users of fastavro in the process are
not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cache, partial
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.stages.avro.moments import read_time
from serde_chain.stages.avro.types import MAX_DIGITS, bare, changed, decimal_of, has_digits, kind

PRIVATE: Final = "serde-chain-"
"""The beginning of the names of this package's own logical types, by which fastavro calls its functions."""
_DECIMAL: Final = f"{PRIVATE}decimal"
_OURS: Final = {
    "decimal": _DECIMAL,
    "time-millis": "serde-chain-time-millis",
    "time-micros": "serde-chain-time-micros",
}
_EXACT: Final = Context(prec=MAX_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)


@cache
def logical_readers() -> dict[str, Any]:
    """The functions by which fastavro reads logical types, by kind and name, for the whole process."""
    readers: dict[str, Any] = require("fastavro.read", "avro").LOGICAL_READERS
    return readers


def readable(parsed: Any) -> Any:
    """A schema with which fastavro reads decimals, and times of day, by this package's rules.

    Args:
        parsed: A parsed schema.

    Returns:
        The same object if it has none of these.
    """
    readers = logical_readers()
    readers[f"bytes-{_DECIMAL}"] = readers[f"fixed-{_DECIMAL}"] = read_decimal
    readers[f"int-{_OURS['time-millis']}"] = readers[f"long-{_OURS['time-micros']}"] = read_time
    return changed(parsed, _as_ours)


def read_logical(value: Any, schema: Any) -> Any:
    """A value of a logical type, from one of the underlying type."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    read = None if logical is None else logical_readers().get(f"{kind(schema)}-{_OURS.get(logical, logical)}")
    return value if read is None else read(value, schema, None)


def _as_ours(part: dict[str, Any]) -> None:
    logical = part.get("logicalType")
    if isinstance(logical, str) and logical in _OURS and isinstance(part.get("type"), str):
        part["logicalType"] = _OURS[logical]


def read_decimal(data: bytes, schema: Any, _reader_schema: Any = None) -> Decimal:
    """Read a value; called by fastavro for the logical type.

    Raises:
        ValueError: The value has more digits than the precision allows.
    """
    precision, scale = schema["precision"], schema.get("scale") or 0
    # Sign padding is allowed: bits are cheap, digits are not.
    unscaled = int.from_bytes(data, signed=True)
    if not has_digits(unscaled, precision):
        raise ValueError(f"a decimal of {len(data)} bytes has more digits than its precision of {precision}")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def with_decimals(writable: Any) -> Any:
    """A schema with which fastavro writes decimals by this package's rule: what has too many digits is refused.

    fastavro counts the digits before it appends zeros, so it writes 12345 with the precision 5 and the scale 2 as
    12345.00, which is unreadable.

    Args:
        writable: A schema for writing.

    Returns:
        The same object if it has no decimals.
    """
    writers: dict[str, Any] = require("fastavro.write", "avro").LOGICAL_WRITERS
    for which in ("bytes", "fixed"):
        writers[f"{which}-{_DECIMAL}"] = partial(_prepared, writers[f"{which}-decimal"])
    return changed(writable, _as_our_decimal)


def _as_our_decimal(part: dict[str, Any]) -> None:
    if part.get("logicalType") == "decimal" and isinstance(part.get("type"), str):
        part["logicalType"] = _DECIMAL


def _prepared(prepare: Callable[[Any, Any], Any], value: Any, schema: Any) -> Any:
    """The bytes of a decimal; other values, such as bytes, as they are. Called by fastavro for the logical type."""
    if isinstance(value, Decimal):
        problem = _problem(value, schema["precision"], schema.get("scale") or 0)
        if problem is not None:
            raise ValueError(problem)
    return prepare(value, schema)


def misfit(schema: Any, value: Any, named: Mapping[str, Any]) -> str | None:
    """The first decimal that cannot be written, with its field: fastavro's error has none.

    Args:
        schema: The parsed schema.
        value: The record, whose types are those of the schema.
        named: Definitions of named types.

    Example:
        >>> money = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
        >>> row = {"type": "record", "name": "Row", "fields": [{"name": "price", "type": money}]}
        >>> misfit(row, {"price": Decimal("1.255")}, {})
        'Row.price is a decimal with 3 digits behind the point, more than its scale of 2'
    """
    try:
        return next(_misfits(schema, value, named, "the value"), None)
    except RecursionError:  # also of the value's writer, then
        return None


def _misfits(schema: Any, value: Any, named: Mapping[str, Any], where: str) -> Iterator[str]:
    schema = bare(schema, named)
    if isinstance(schema, list):
        yield from _misfit_of_union(schema, value, named, where)
    elif isinstance(value, Decimal):
        shape = decimal_of(schema)
        problem = None if shape is None else _problem(value, *shape)
        if problem is not None:
            yield f"{where} is {problem}"
    else:
        for inner, item, name in _parts(schema, value):
            yield from _misfits(inner, item, named, f"{schema['name']}.{name}" if name else where)


def _parts(schema: Any, value: Any) -> Iterator[tuple[Any, Any, str | None]]:
    """The types and values of the parts of a value, with their names if they are fields."""
    match kind(schema), value:
        case (("record" | "error"), dict()):
            for field in schema["fields"]:
                if field["name"] in value:
                    yield field["type"], value[field["name"]], field["name"]
        case "map", dict():
            yield from ((schema["values"], item, None) for item in value.values())
        case "array", (list() | tuple()):
            yield from ((schema["items"], item, None) for item in value)


def _misfit_of_union(union: list[Any], value: Any, named: Mapping[str, Any], where: str) -> list[str]:
    """That of the first branch of the value's type; none if a branch takes the value."""
    branches = [branch for branch in union if _may_be(branch, value, named)]
    found = [next(_misfits(branch, value, named, where), None) for branch in branches]
    return [] if None in found else [text for text in found[:1] if text]


def _may_be(branch: Any, value: Any, named: Mapping[str, Any]) -> bool:
    branch = bare(branch, named)
    if isinstance(value, Decimal):
        return decimal_of(branch) is not None
    kinds = {"record", "error", "map"} if isinstance(value, dict) else {"array"} if isinstance(value, list) else set()
    return kind(branch) in kinds


def _problem(value: Decimal, precision: int, scale: int) -> str | None:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return "a decimal that is not a finite number"
    if -exponent > scale:
        return f"a decimal with {-exponent} digits behind the point, more than its scale of {scale}"
    # With the zeros up to its scale, which belong to the number that is written.
    if value and len(digits) + exponent + scale > precision:
        before = precision - scale
        return f"a decimal with more digits before the point than its precision of {precision} leaves: {before}"
    return None
