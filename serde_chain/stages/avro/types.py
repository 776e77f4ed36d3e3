"""Types of parsed schemas: names of primitives, definitions, references and unions in one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
# A dict with such a type is a definition, whatever its name: {"type": "record", "name": "record", …}.
COMPLEX: Final = NAMED | {"array", "map"}
# Longer decimals are refused regardless of their precision, since container files bring their own. This many digits
# (4 KB) take a millisecond.
MAX_DIGITS: Final = 10_000


def bare(schema: Any, named: Mapping[str, Any]) -> Any:
    """A schema with resolved references and nested definitions: the name of a primitive, a dict or a list."""
    while True:
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        elif isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        elif isinstance(schema, dict) and schema["type"] in named and schema["type"] not in COMPLEX:
            schema = named[schema["type"]]
        else:
            return schema


def kind(schema: Any) -> str:
    """The type of a bare schema, ``union`` included."""
    return "union" if isinstance(schema, list) else str(schema["type"] if isinstance(schema, dict) else schema)


def decimal_of(schema: Any) -> tuple[int, int] | None:
    """Precision and scale of a decimal; None for other schemas and for invalid decimals, as the specification says."""
    if kind(schema) not in {"bytes", "fixed"} or not isinstance(schema, dict) or schema.get("logicalType") != "decimal":
        return None
    precision = schema.get("precision")
    return None if not precision else (precision, schema.get("scale") or 0)


def has_digits(unscaled: int, precision: int) -> bool:
    """Whether the number of a decimal has no more digits than its precision; nothing is converted into digits."""
    beyond = _beyond(precision)
    return -beyond < unscaled < beyond


@lru_cache(256)
def _beyond(precision: int) -> int:
    """The smallest number with more digits."""
    beyond: int = 10 ** min(precision, MAX_DIGITS)
    return beyond


def changed(schema: Any, change: Callable[[dict[str, Any]], None]) -> Any:
    """A schema with other attributes of its types and fields.

    Args:
        schema: A parsed schema; its definitions may occur nested, and by name.
        change: Changes a copy of a type or field; the types in it are changed already, defaults are not.

    Returns:
        The same object if nothing is changed.
    """
    return _changed(schema, change, {}) if isinstance(schema, (dict, list)) else schema


def _changed(part: Any, change: Callable[[dict[str, Any]], None], done: dict[int, Any]) -> Any:
    """``done`` are the parts seen so far, by their ids."""
    if id(part) in done:
        return done[id(part)]
    done[id(part)] = part
    if isinstance(part, list):
        items = [_changed(item, change, done) if isinstance(item, (dict, list)) else item for item in part]
        if any(new is not old for new, old in zip(items, part, strict=True)):
            done[id(part)] = items
    else:
        new = dict(part)
        for key, item in part.items():
            if isinstance(item, (dict, list)) and not (key == "default" and "type" in part):
                new[key] = _changed(item, change, done)
        change(new)
        if new.keys() != part.keys() or any(new[key] is not item for key, item in part.items()):
            done[id(part)] = new
    return done[id(part)]
