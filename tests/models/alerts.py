"""Models of every library with the same fields, of all Avro types."""

import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Optional

import attrs
import msgspec
import pydantic

from serde_chain.models import AvroType, Duration

Price = Annotated[Decimal, AvroType({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2})]
Digest = Annotated[bytes, AvroType({"type": "fixed", "name": "Digest", "size": 4})]
Naive = Annotated[dt.datetime, AvroType({"type": "long", "logicalType": "local-timestamp-micros"})]


class Band(enum.Enum):
    GREEN = "g"
    RED = "r"


@dataclasses.dataclass
class Position:
    ra: float
    dec: float


@dataclasses.dataclass
class Created:
    id: int


@dataclasses.dataclass
class Deleted:
    id: int


@dataclasses.dataclass
class Node:
    value: int
    following: Optional["Node"] = None


FIELDS: dict[str, tuple[Any, Any]] = {
    "flag": (bool, True),
    "number": (int, -(2**63)),
    "small": (Annotated[int, AvroType("int")], 2**31 - 1),
    "flux": (float, 1.5),
    "single": (Annotated[float, AvroType("float")], 0.25),
    "name": (str, "M 51 ☉"),
    "pixels": (bytes, b"\x00\xff"),
    "digest": (Digest, b"abcd"),
    "digests": (list[Digest], [b"efgh"]),
    "day": (dt.date, dt.date(1957, 10, 4)),
    "moment": (dt.datetime, dt.datetime(2026, 11, 25, 23, 59, 59, 999_999, dt.UTC)),
    "local": (Naive, dt.datetime(2026, 11, 25, 23, 59, 59, 1)),  # noqa: DTZ001, naive on purpose
    "clock": (dt.time, dt.time(23, 59, 59, 999_999)),
    "id": (uuid.UUID, uuid.UUID(int=2**127)),
    "price": (Price, Decimal("-12345.67")),
    "period": (Duration, Duration(14, 3, 2**32 - 1)),
    "exposure": (dt.timedelta, dt.timedelta(days=2, milliseconds=15)),
    "band": (Band, Band.RED),
    "position": (Position, Position(1.0, -2.0)),
    "others": (list[Position], [Position(0.0, 0.0)]),
    "known": (set[str], {"a", "b"}),
    "pair": (tuple[int, ...], (1, 2)),
    "fluxes": (dict[str, float], {"g": 1.0}),
    "positions": (dict[str, Position], {"g": Position(1.0, 1.0)}),
    "node": (Node, Node(1, Node(2))),
    "absent": (int | None, None),
    "present": (Band | None, Band.GREEN),
    "event": (Created | Deleted, Deleted(7)),
    "events": (list[Created | Deleted | Band | str | None], [Created(1), Deleted(2), Band.RED, "r", None]),
    "mixed": (dict[str, int | list[str] | dict[str, int]], {"a": 1, "b": ["x"], "c": {"y": 2}}),
}
VALUES = {name: value for name, (_, value) in FIELDS.items()}
_TYPES = {name: kind for name, (kind, _) in FIELDS.items()}

_create: Any = pydantic.create_model
MODELS: dict[str, type] = {
    "dataclass": dataclasses.make_dataclass("Alert", [*_TYPES.items()], kw_only=True),
    "attrs": attrs.make_class("Alert", {name: attrs.field(type=kind) for name, kind in _TYPES.items()}),
    "msgspec": msgspec.defstruct("Alert", [*_TYPES.items()], kw_only=True),
    "pydantic": _create("Alert", **{name: (kind, ...) for name, kind in _TYPES.items()}),
}
