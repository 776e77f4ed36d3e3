"""Schemas as they are found in registries: legal for a reader, and far from what a generator of good ones makes."""

from __future__ import annotations

import copy
import random
from typing import Any, Final

from tests.stages.avro.evolution import Evolution

__all__ = ["Ugly"]

_ODD: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "bytes": (
        {"logicalType": "decimal", "precision": 38, "scale": 127},
        {"logicalType": "decimal", "precision": 9, "scale": -2},
        {"logicalType": "decimal", "precision": "9"},
        {"logicalType": "decimal", "precision": 0, "scale": 0},
        {"logicalType": "decimal"},
        {"logicalType": "timestamp-millis"},
    ),
    "string": (
        {"logicalType": "decimal", "precision": 4, "scale": 9},
        {"logicalType": "date"},
        {"logicalType": "enum"},
    ),
    "int": ({"logicalType": "timestamp-micros"}, {"logicalType": "decimal"}, {"logicalType": "io.debezium.time.Date"}),
    "long": ({"logicalType": "date"}, {"logicalType": "time-millis"}, {"logicalType": "decimal", "precision": 10}),
    "double": ({"logicalType": "date"}, {"logicalType": "uuid"}),
    "boolean": ({"connect.default": True},),
}
_DEFAULTS: Final[tuple[Any, ...]] = (None, "null", "", 0, -1.5, True, [], {}, [None], {"a": 1}, "\u0100", "A")


class Ugly:
    """A schema, and what it would be without all that means nothing to a reader.

    Args:
        seed: Of all that is random.

    Attributes:
        plain: The plain schema, as JSON; a symbol ``s_A`` is ``s-A`` in the other.
        schema: The other, which uses the types of ``parts`` by name.
        parts: Definitions of types, each before the first that uses it.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._evolution = Evolution(seed)
        self.plain = self._evolution.writer = _with_symbols(self._evolution.writer)
        self.parts: list[Any] = []
        self.schema = self._ugly(copy.deepcopy(self.plain), is_root=True)

    def value(self) -> Any:
        """A value of the plain schema, as fastavro writes it without logical types."""
        return self._evolution.value()

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _ugly(self, schema: Any, *, is_root: bool = False) -> Any:
        if isinstance(schema, list):
            return [self._ugly(branch) for branch in schema]
        if isinstance(schema, str):
            odd = _ODD.get(schema)
            return {"type": schema, **self._random.choice(odd)} if odd and self._chance(0.5) else schema
        kind = schema["type"]
        if kind in {"array", "map"}:
            inner = "items" if kind == "array" else "values"
            return {**schema, inner: self._ugly(schema[inner])}
        if kind not in {"record", "enum", "fixed"}:
            return schema
        if kind == "record":
            schema["fields"] = [self._field(field, schema["fields"]) for field in schema["fields"]]
        elif kind == "enum":
            schema["symbols"] = [symbol.replace("_", "-") for symbol in schema["symbols"]]
        elif self._chance(0.3):
            schema |= {"logicalType": "decimal", "precision": 99}
        return self._named(schema, is_root=is_root)

    def _field(self, field: dict[str, Any], siblings: list[Any]) -> dict[str, Any]:
        changed = {**field, "type": self._ugly(field["type"])}
        if self._chance(0.3):
            # Avro's Java implementation parses a text as a number, and knows no other text there.
            is_real = field["type"] in ("float", "double")
            fitting = [default for default in _DEFAULTS if not (is_real and isinstance(default, str))]
            changed["default"] = self._random.choice(fitting)
        if self._chance(0.3):
            changed["aliases"] = [self._random.choice(siblings)["name"], "old-name"]
        if self._chance(0.2):
            changed |= {"doc": 5, "order": "ignore", "logicalType": "timestamp-millis"}
        return changed

    def _named(self, schema: dict[str, Any], *, is_root: bool) -> Any:
        space = schema.get("namespace")
        if space and self._chance(0.5):
            schema = {**schema, "name": f"{space}.{schema['name']}"}
            del schema["namespace"]
        if self._chance(0.2):
            schema["aliases"] = [f"{schema['name']}-old"]
        if is_root or not self._chance(0.4):
            return schema
        # Types without a namespace are in that of the record around them.
        full = schema["name"] if space or "." in schema["name"] else f"n.{schema['name']}"
        full = f"{space}.{full}" if space and "." not in full else full
        self.parts.append({**schema, "name": full, "namespace": full.rpartition(".")[0]})
        return self._random.choice([full, {"type": full}, full.removeprefix("n.")])


def _with_symbols(schema: Any) -> Any:
    if isinstance(schema, list):
        return list(map(_with_symbols, schema))
    if not isinstance(schema, dict):
        return schema
    changed = {key: _with_symbols(item) for key, item in schema.items()}
    if "symbols" in schema:
        changed["symbols"] = [f"s_{symbol}" for symbol in schema["symbols"]]
    return changed
