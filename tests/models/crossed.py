"""Models that Spark's workers import too."""

import dataclasses

import attrs
import msgspec
import pydantic

from tests.models.alerts import Band


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
