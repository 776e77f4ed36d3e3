"""Pairs of Avro schemas, a writer's and what became of it, with values: made at random, by a seed."""

from __future__ import annotations

import copy
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

__all__ = ["Evolution"]

_PRIMITIVES: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")
_PROMOTIONS: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_SYMBOLS: Final = ("A", "B", "C", "D")
_LOGICAL: Final = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "string", "logicalType": "uuid"},
)


class Evolution:
    """A writer's schema, a reader's, and values of the first.

    Args:
        seed: Of all that is random.

    Attributes:
        writer: As JSON has it.
        reader: Likewise.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0
        self.writer = self._record(3)
        self.reader = self._evolved(copy.deepcopy(self.writer))

    def value(self) -> Any:
        """A value of the writer's schema."""
        return self._value(self.writer)

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    def _record(self, depth: int) -> dict[str, Any]:
        fields = [{"name": self._name("f"), "type": self._type(depth - 1)} for _ in range(self._random.randrange(1, 4))]
        return {"type": "record", "name": self._name("R"), "namespace": "n", "fields": fields}

    def _type(self, depth: int) -> Any:
        kinds = [*_PRIMITIVES, "enum", "fixed", "logical"] + (["record", "array", "map", "union"] * 2 if depth else [])
        make: dict[str, Callable[[], Any]] = {
            "record": lambda: self._record(depth),
            "enum": lambda: {"type": "enum", "name": self._name("E"), "symbols": self._some(_SYMBOLS)},
            "fixed": lambda: {"type": "fixed", "name": self._name("F"), "size": self._random.randrange(1, 4)},
            "logical": lambda: dict(self._random.choice(_LOGICAL)),
            "array": lambda: {"type": "array", "items": self._type(depth - 1)},
            "map": lambda: {"type": "map", "values": self._type(depth - 1)},
            "union": lambda: self._union(depth),
        }
        kind = self._random.choice(kinds)
        return make[kind]() if kind in make else kind

    def _some(self, symbols: Sequence[str]) -> list[str]:
        return self._random.sample(symbols, self._random.randrange(1, len(symbols)))

    def _union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {"null": "null"} if self._random.random() < 0.7 else {"int": "int"}
        for _ in range(self._random.randrange(1, 4)):
            branch = self._type(depth - 1)
            if not isinstance(branch, list):
                # One of each kind that is told apart without names.
                branches[_key(branch)] = branch
        return self._random.sample(list(branches.values()), len(branches))

    def _evolved(self, schema: Any) -> Any:
        """A reader's schema, of which some cannot read all values."""
        change: dict[str, Callable[[], Any]] = {
            "union": lambda: self._evolved_union(schema),
            "record": lambda: self._evolved_record(schema),
            "array": lambda: {**schema, "items": self._evolved(schema["items"])},
            "map": lambda: {**schema, "values": self._evolved(schema["values"])},
        }
        kind = _kind(schema)
        return change[kind]() if kind in change else self._evolved_leaf(schema, kind)

    def _evolved_union(self, schema: list[Any]) -> list[Any]:
        kept = [branch for branch in map(self._evolved, schema) if not isinstance(branch, list)]
        if self._random.random() < 0.2 and len(kept) > 1:
            kept.pop(self._random.randrange(len(kept)))
        return self._distinct(self._random.sample(kept, len(kept))) or schema

    def _evolved_leaf(self, schema: Any, kind: str) -> Any:
        chance = self._random.random()
        if kind == "enum" and chance < 0.4:
            symbols = [*schema["symbols"], *(other for other in _SYMBOLS if other not in schema["symbols"])]
            kept = self._some(symbols)
            return {**schema, "symbols": kept, **({"default": kept[0]} if self._random.random() < 0.5 else {})}
        if chance < 0.25 and kind in _PROMOTIONS:
            schema = self._random.choice(_PROMOTIONS[kind])
        if chance < 0.15 or (0.25 <= chance < 0.4):
            others = [self._type(0) for _ in range(self._random.randrange(1, 3))]
            return self._distinct(self._random.sample([schema, "null", *others], len(others) + 2))
        return schema

    def _distinct(self, branches: list[Any]) -> list[Any]:
        known = {_key(branch): branch for branch in reversed(branches)}
        return list(reversed(known.values()))

    def _evolved_record(self, schema: dict[str, Any]) -> dict[str, Any]:
        fields = []
        for field in schema["fields"]:
            chance = self._random.random()
            if chance < 0.15:
                continue
            changed = {"name": field["name"], "type": self._evolved(field["type"])}
            if chance < 0.3:
                changed |= {"name": self._name("f"), "aliases": [field["name"]]}
            fields.append(changed)
        for _ in range(self._random.randrange(3)):
            type_ = self._type(2)
            fields.append({"name": self._name("f"), "type": type_, "default": self._default(type_)})
        if self._random.random() < 0.03:
            fields.append({"name": self._name("f"), "type": "int"})
        self._random.shuffle(fields)
        return {**schema, "fields": fields}

    def _default(self, schema: Any) -> Any:
        """A default as JSON has it: of the first branch of a union."""
        rolled = self._random.random() < 0.5
        make: dict[str, Callable[[], Any]] = {
            "union": lambda: self._default(schema[0]),
            "record": lambda: self._default_record(schema),
            "array": lambda: [self._default(schema["items"])] * rolled,
            "map": lambda: {"k": self._default(schema["values"])} if rolled else {},
            "enum": lambda: schema["symbols"][-1],
            "fixed": lambda: self._latin(schema["size"]),
            "bytes": lambda: self._latin(self._random.randrange(1, 4)),
            "uuid": lambda: "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "time": lambda: self._random.randrange(-9, 10**6),
            "null": lambda: None,
            "boolean": lambda: rolled,
            "int": lambda: self._random.randrange(-(2**31), 2**31),
            "long": lambda: self._random.randrange(-(2**50), 2**50),
            "float": lambda: self._random.choice([1, 0.1, -2.5]),
            "double": lambda: self._random.choice([1, 0.1, -2.5]),
            "string": lambda: "é",
        }
        kind = _logical(schema)
        return make["bytes" if kind == "decimal" else kind]()

    def _latin(self, size: int) -> str:
        return "".join(chr(self._random.randrange(256)) for _ in range(size))

    def _default_record(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Fields with a default of their own may be missing."""
        given = {}
        for field in schema["fields"]:
            default = self._default(field["type"])
            if self._random.random() < 0.5:
                field["default"] = default
            else:
                given[field["name"]] = default
        return given

    def _value(self, schema: Any) -> Any:
        make: dict[str, Callable[[], Any]] = {
            "union": lambda: self._value(self._random.choice(schema)),
            "record": lambda: {field["name"]: self._value(field["type"]) for field in schema["fields"]},
            "array": lambda: [self._value(schema["items"]) for _ in range(self._random.randrange(3))],
            "map": lambda: {key: self._value(schema["values"]) for key in "kl"[: self._random.randrange(3)]},
            "enum": lambda: self._random.choice(schema["symbols"]),
            "fixed": lambda: self._random.randbytes(schema["size"]),
            "decimal": lambda: self._random.randrange(-(10**9) + 1, 10**9).to_bytes(5, signed=True),
            "uuid": lambda: "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            "time": lambda: self._random.randrange(-700_000, 2_000_000),
            "null": lambda: None,
            "boolean": lambda: self._random.random() < 0.5,
            "int": lambda: self._random.randrange(-(2**31), 2**31),
            "long": lambda: self._random.choice([self._random.randrange(-(2**63), 2**63), 2**60 + 2**36 + 1]),
            "float": lambda: struct.unpack("f", struct.pack("f", self._random.gauss(0, 1e6)))[0],
            "double": lambda: self._random.gauss(0, 1e30),
            "bytes": lambda: "é".encode() * self._random.randrange(3),
            "string": lambda: "aé" * self._random.randrange(3),
        }
        return make[_logical(schema)]()


def _kind(schema: Any) -> str:
    return "union" if isinstance(schema, list) else str(schema["type"] if isinstance(schema, dict) else schema)


def _logical(schema: Any) -> str:
    """The kind of a type, where logical ones are kinds too."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    return _kind(schema) if logical is None else logical if logical in {"decimal", "uuid"} else "time"


def _key(branch: Any) -> str:
    """What tells a branch of a union from the others."""
    return branch if isinstance(branch, str) else str(branch.get("name") or branch["type"])
