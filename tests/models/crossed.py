"""Models that Spark's workers import too."""

import dataclasses
import enum

import attrs
import msgspec
import pydantic


class Band(enum.Enum):
    GREEN = "g"
    RED = "r"


@dataclasses.dataclass
class OfDataclasses:
    id: int
    band: Band = Band.GREEN
    note: str | None = None


@attrs.define
class OfAttrs:
    id: int
    band: Band = Band.GREEN
    note: str | None = None


class OfMsgspec(msgspec.Struct):
    id: int
    band: Band = Band.GREEN
    note: str | None = None


class OfPydantic(pydantic.BaseModel):
    id: int
    band: Band = Band.GREEN
    note: str | None = None


class Positive(pydantic.BaseModel):
    """Refuses what its schema allows."""

    id: pydantic.PositiveInt
    band: Band = Band.GREEN
    note: str | None = None


MODELS = [OfDataclasses, OfAttrs, OfMsgspec, OfPydantic]
