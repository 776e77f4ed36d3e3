"""Defaults of fields: whether they fit (Avro specification, "Complex Types", "Records"), and their values.

In a schema, a default is JSON: bytes are text whose characters are the bytes, and decimals are such bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from serde_chain.stages.avro.decimal import read_decimal
from serde_chain.stages.avro.types import bare, changed, decimal_of, kind

WRONG_DEFAULT: Final = "serde-chain-wrong-default"
"""The attribute of a field with a default of the wrong type, which is an error only where it is needed."""

_INTEGERS: Final = {"int": 1 << 31, "long": 1 << 63}


class Fitting:
    """Compares defaults with types; each pair once, since a union has many branches at each level.

    Args:
        named: Definitions of named types.

    Example:
        >>> Fitting({}).fits(["null", "string"], None), Fitting({}).fits("string", None)
        (True, False)
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        # With the pairs, whose ids stay theirs thereby.
        self._known: dict[tuple[int, int], tuple[bool, Any, Any]] = {}

    def fits(self, schema: Any, default: Any) -> bool:
        """Whether a default has a type; that of a union, one of its types (Avro 1.12)."""
        schema = bare(schema, self._named)
        key = id(schema), id(default)
        if key not in self._known:
            self._known[key] = False, schema, default
            self._known[key] = self._fits(schema, default), schema, default
        return self._known[key][0]

    def _fits(self, schema: Any, default: Any) -> bool:
        if isinstance(schema, list):
            return any(self.fits(branch, default) for branch in schema)
        which = kind(schema)
        if which == "record":
            return isinstance(default, dict) and all(
                self.fits(field["type"], default[field["name"]]) if field["name"] in default else "default" in field
                for field in schema["fields"]
            )
        if which == "array":
            return isinstance(default, list) and all(self.fits(schema["items"], item) for item in default)
        if which == "map":
            return isinstance(default, dict) and all(self.fits(schema["values"], item) for item in default.values())
        return _LEAVES[which](schema, default)


def _is_integer(schema: Any, default: Any) -> bool:
    beyond = _INTEGERS[kind(schema)]
    return type(default) is int and -beyond <= default < beyond


def _is_bytes(schema: Any, default: Any) -> bool:
    if not isinstance(default, str):
        return False
    try:
        data = default.encode("latin-1")
        if decimal_of(schema) is not None:
            read_decimal(data, schema)
    except ValueError:
        return False
    return kind(schema) == "bytes" or len(data) == schema["size"]


def _is_real(_schema: Any, default: Any) -> bool:
    """As fastavro, a number may be text: JSON has none that is infinite."""
    try:
        float(default)
    except (TypeError, ValueError, OverflowError):
        return False
    return not isinstance(default, bool)


_LEAVES: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "null": lambda _schema, default: default is None,
    "boolean": lambda _schema, default: isinstance(default, bool),
    "int": _is_integer,
    "long": _is_integer,
    "bytes": _is_bytes,
    "fixed": _is_bytes,
    "float": _is_real,
    "double": _is_real,
    "string": lambda _schema, default: isinstance(default, str),
    "enum": lambda schema, default: isinstance(default, str) and default in schema["symbols"],
}


def writable(schema: Any, named: Mapping[str, Any]) -> Any:
    """A schema whose defaults are values, as fastavro writes them.

    Args:
        schema: A parsed schema.
        named: Definitions of its named types.

    Returns:
        The same object if all defaults are values already.
    """
    return changed(schema, _Values(named).put)


class _Values:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._fitting = Fitting(named)

    def put(self, part: dict[str, Any]) -> None:
        """Replace the default of a field; that of an enum is a symbol."""
        if "default" in part and "type" in part and "symbols" not in part:
            part["default"] = self._value(part["type"], part["default"])

    def _value(self, schema: Any, default: Any) -> Any:
        """A default as a value; the same object if it is one."""
        schema = bare(schema, self._named)
        if isinstance(schema, list):
            branch = next((each for each in schema if self._fitting.fits(each, default)), None)
            return default if branch is None else self._value(branch, default)
        match kind(schema):
            case "record":
                return self._items(default, {field["name"]: field["type"] for field in schema["fields"]})
            case "map":
                return self._items(default, dict.fromkeys(default, schema["values"]))
            case "array":
                items = [self._value(schema["items"], item) for item in default]
                return items if any(new is not old for new, old in zip(items, default, strict=True)) else default
        return _value_of_text(schema, default) if isinstance(default, str) else default

    def _items(self, default: dict[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
        items = {key: self._value(types[key], item) if key in types else item for key, item in default.items()}
        return items if any(items[key] is not item for key, item in default.items()) else default


def _value_of_text(schema: Any, default: str) -> Any:
    which = kind(schema)
    if which in {"bytes", "fixed"}:
        data = default.encode("latin-1")
        return data if decimal_of(schema) is None else read_decimal(data, schema)
    return float(default) if which in {"float", "double"} else default
