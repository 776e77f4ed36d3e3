"""Exact Avro decimals (specification, "Decimal"), decoded in a time bounded by their length.

fastavro converts any number of bytes into digits, in quadratic time, and then rounds to the precision. Here, a decimal
with more digits than its precision is refused before the conversion. fastavro calls the function registered for a
logical type, so its schemas contain a private type instead of ``decimal``: other users of fastavro in the process are
not affected.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from functools import cache, lru_cache
from typing import Any, Final

from payload_stores.plugins import require
from serde_chain.stages.avro.moments import read_time
from serde_chain.stages.avro.types import changed, kind

__all__ = ["MAX_DIGITS", "logical_readers", "read_decimal", "read_logical", "readable"]

# Longer decimals are refused regardless of their precision, since container files bring their own. This many digits
# (4 KB) take a millisecond.
MAX_DIGITS: Final = 10_000

_DECIMAL: Final = "serde-chain-decimal"
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
    beyond = _beyond(precision)
    # Sign padding is allowed, as in the fast reader of batches; bits are cheap, digits are not.
    unscaled = int.from_bytes(data, signed=True)
    if not -beyond < unscaled < beyond:
        raise ValueError(f"a decimal of {len(data)} bytes has more digits than its precision of {precision}")
    return Decimal(unscaled).scaleb(-scale, _EXACT)


@lru_cache(256)
def _beyond(precision: int) -> int:
    """The smallest number with more digits."""
    beyond: int = 10 ** min(precision, MAX_DIGITS)
    return beyond
