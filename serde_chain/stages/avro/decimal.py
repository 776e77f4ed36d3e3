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

__all__ = ["MAX_DIGITS", "logical_readers", "read_decimal", "readable"]

# Longer decimals are refused regardless of their precision, since container files bring their own. This many digits
# (4 KB) take a millisecond.
MAX_DIGITS: Final = 10_000

_DECIMAL: Final = "decimal"
_OURS: Final = "serde-chain-decimal"
_EXACT: Final = Context(prec=MAX_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)


@cache
def logical_readers() -> dict[str, Any]:
    """The functions by which fastavro reads logical types, by kind and name, for the whole process."""
    readers: dict[str, Any] = require("fastavro.read", "avro").LOGICAL_READERS
    return readers


def readable(parsed: Any) -> Any:
    """A schema with which fastavro reads decimals by this module's rules.

    Args:
        parsed: A schema returned by ``fastavro.parse_schema``.

    Returns:
        The same object if it has no decimals.
    """
    readers = logical_readers()
    readers[f"bytes-{_OURS}"] = readers[f"fixed-{_OURS}"] = read_decimal
    return _replaced(parsed, {})


def _replaced(part: Any, done: dict[int, Any]) -> Any:
    """``done`` are the parts seen so far, by their ids: definitions occur nested, and by name."""
    if not isinstance(part, (dict, list)):
        return part
    if id(part) in done:
        return done[id(part)]
    done[id(part)] = part
    new: Any
    if isinstance(part, list):
        new = [_replaced(item, done) for item in part]
        changed = any(ours is not item for ours, item in zip(new, part, strict=True))
    else:
        new = {key: _replaced(item, done) for key, item in part.items()}
        if part.get("logicalType") == _DECIMAL and part.get("type") in {"bytes", "fixed"} and part.get("precision"):
            new["logicalType"] = _OURS
        changed = any(new[key] is not item for key, item in part.items())
    if changed:
        done[id(part)] = new
    return done[id(part)]


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
