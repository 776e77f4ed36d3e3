"""Fields of models: the class gets contents, never references."""

import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, DecodeError, DeserializerChain, RecordContext, SerializerChain
from tests.models.alerts import Created, Deleted

STAMP, SMALL = b"pixels " * 100, b"small"


@dataclasses.dataclass
class Cutout:
    stamp: bytes
    name: str = ""


@dataclasses.dataclass
class OfDataclasses:
    id: int
    text: str
    cutouts: list[Cutout]
    best: Cutout | None = None


@attrs.define
class OfAttrs:
    id: int
    text: str
    cutouts: list[Cutout]
    best: Cutout | None = None


class OfMsgspec(msgspec.Struct):
    id: int
    text: str
    cutouts: list[Cutout]
    best: Cutout | None = None


class Checked(pydantic.BaseModel):
    """A cutout with a check that no reference passes."""

    stamp: bytes
    name: str = ""

    @pydantic.field_validator("stamp")
    @classmethod
    def _is_pixels(cls, stamp: bytes) -> bytes:
        if not stamp.startswith((b"pixels", b"small")):
            raise ValueError("no pixels")
        return stamp


class OfPydantic(pydantic.BaseModel):
    id: int
    text: str
    cutouts: list[Checked]
    best: Checked | None = None


CONFIG: dict[str, Any] = {
    "value.serializers": "large-fields, avro, zstd",
    "value.deserializers": "zstd, avro, large-fields",
    "large.fields.paths": "text, cutouts[].stamp, best.stamp",
    "large.fields.min.bytes": "100",
    "large.message.payload.store.class": "memory",
}
MODELS = [OfDataclasses, OfAttrs, OfMsgspec, OfPydantic]


@pytest.fixture(autouse=True)
def empty_store() -> Iterator[None]:
    MemoryStore.clear()
    yield
    MemoryStore.clear()


def value_of(model: Any, stamp: bytes, text: str) -> Any:
    cutout: Any = Checked if model is OfPydantic else Cutout
    return model(
        id=7, text=text, cutouts=[cutout(stamp=SMALL), cutout(stamp=stamp, name="n")], best=cutout(stamp=stamp)
    )


@pytest.mark.parametrize("framing", ["none", "single-object", "container"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_there_and_back(model: Any, framing: str) -> None:
    config = {**CONFIG, "avro.type": model, "avro.framing": framing}
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        for stamp, text, moved in ((STAMP, "long " * 100, 3), (STAMP, "short", 2), (SMALL, "short", 0)):
            MemoryStore.clear()
            value, ctx = value_of(model, stamp, text), RecordContext("alerts", "value", [])
            data = write(value, ctx)
            assert value == value_of(model, stamp, text)
            assert len(list(MemoryStore().list("alerts"))) == moved
            assert bool(ctx.headers) == bool(moved)
            headers = list(ctx.headers or ())
            assert read(data, ctx) == value
            column = read.to_arrow([data], [headers], topic="alerts", columns=["best.stamp"])
            assert column.to_pylist() == [{"best": {"stamp": stamp}}]
        value = value_of(model, SMALL, "short")
        assert read(write(value, RecordContext("alerts", "value"))) == value
        copy = pickle.loads(pickle.dumps(read))  # noqa: S301, our own
        assert copy(write(value, RecordContext("alerts", "value"))) == value


def test_a_class_that_refuses_what_was_fetched() -> None:
    loose, strict = ({**CONFIG, "avro.type": model} for model in (OfDataclasses, OfPydantic))
    ctx = RecordContext("alerts", "value", [])
    data = SerializerChain.from_config(loose)(value_of(OfDataclasses, b"secret " * 100, ""), ctx)
    with pytest.raises(DecodeError, match="OfPydantic refuses the record: stamp: refused by a validator") as caught:
        DeserializerChain.from_config(strict)(data, ctx)
    assert "secret" not in str(caught.value)


def test_what_is_refused() -> None:
    unions = dataclasses.make_dataclass("Unions", [("text", str), ("event", Created | Deleted)])
    config = {**CONFIG, "large.fields.paths": "text"}
    for chain in (SerializerChain, DeserializerChain):
        with pytest.raises(ConfigError, match=r"avro.type does not work beside .*a union of several classes"):
            chain.from_config({**config, "avro.type": unions})
        stages = {name: value.replace("avro", "json") for name, value in config.items() if "serializers" in name}
        with pytest.raises(ConfigError, match=r"json.type does not work beside .*made of text"):
            chain.from_config({**config, **stages, "json.type": OfDataclasses})
    with pytest.raises(ConfigError, match="lazy is not for objects of a class"):
        DeserializerChain.from_config({**CONFIG, "avro.type": OfDataclasses, "large.fields.fetch": "lazy"})
