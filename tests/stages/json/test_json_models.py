"""JSON of objects of classes, with a derived schema."""

import dataclasses
import enum
import json
import uuid
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    EncodeError,
    RecordContext,
    SchemaRegistryError,
    SerializerChain,
)
from serde_chain.testing.services import SchemaRegistry
from tests.models.alerts import MODELS, VALUES

# What JSON cannot tell apart, or msgspec and pydantic do not read back: unions of classes without a tag, and our types.
_LEFT_OUT = {"event", "events", "period", "mixed"}
FIELDS = {name: value for name, value in VALUES.items() if name not in _LEFT_OUT}


def plain(library: str) -> Any:
    """The model without these fields."""
    types = {name: MODELS["dataclass"].__annotations__[name] for name in FIELDS}
    if library == "pydantic":
        fields: Any = {name: (kind, ...) for name, kind in types.items()}
        config = pydantic.ConfigDict(val_json_bytes="base64", ser_json_bytes="base64")
        return pydantic.create_model("Alert", __config__=config, **fields)
    if library == "msgspec":
        return msgspec.defstruct("Alert", [*types.items()], kw_only=True)
    if library == "attrs":
        return attrs.make_class("Alert", {name: attrs.field(type=kind) for name, kind in types.items()})
    return dataclasses.make_dataclass("Alert", [*types.items()], kw_only=True)


def chains(model: type, **more: object) -> tuple[SerializerChain, DeserializerChain]:
    config = {"json.type": model, **more}
    return (
        SerializerChain.from_config({"value.serializer": "json", **config}),
        DeserializerChain.from_config({"value.deserializer": "json", **config}),
    )


@pytest.mark.parametrize("library", MODELS)
def test_there_and_back(library: str) -> None:
    model = plain(library)
    write, read = chains(model)
    result = read(write(model(**FIELDS)))
    assert type(result) is model
    assert {name: getattr(result, name) for name in FIELDS} == FIELDS


@dataclasses.dataclass
class Alert:
    id: int
    band: str = "g"


class Image(pydantic.BaseModel):
    id: int
    band: str = "g"


@pytest.mark.parametrize("model", [Alert, Image])
def test_with_a_registry_and_a_plain_peer(model: Any, registry: SchemaRegistry) -> None:
    topic = f"models-{uuid.uuid4().hex}"
    ctx = RecordContext(topic, "value", [])
    config = {"json.framing": "confluent", "schema.registry.url": registry.url}
    write, read = chains(model, **config)
    with write, read, registry.client() as client:
        client.set_compatibility(f"{topic}-value", level="BACKWARD")
        data = write(model(id=7), ctx)
        assert read(data, ctx) == model(id=7)
        text: Any = client.get_latest_version(f"{topic}-value").schema.schema_str
        peer = JSONDeserializer(text, schema_registry_client=client, conf=SchemaRegistry.serializer_conf())
        assert peer(data, SerializationContext(topic, MessageField.VALUE, [])) == {"id": 7, "band": "g"}
    assert json.loads(text)["title"] == model.__name__

    changed = dataclasses.make_dataclass(model.__name__, [("id", str)])
    with chains(changed, **config)[0] as refused, pytest.raises(SchemaRegistryError, match="refused registering"):
        refused(changed("seven"), ctx)


@pytest.mark.parametrize("model", [Alert, Image])
@pytest.mark.parametrize("data", [b"", b"{", b'{"id":"secret"}', b'{"band":"secret"}', b"[" * 100_000, b"null"])
def test_other_bytes_are_refused_without_being_shown(model: Any, data: bytes) -> None:
    with pytest.raises(DecodeError, match=f"the bytes are no {model.__name__}") as raised:
        chains(model)[1](data)
    assert "secret" not in f"{raised.value}{raised.value.__cause__}{raised.value.__context__}"


class Band(enum.Enum):
    G = "g"


@dataclasses.dataclass
class Strict:
    """Refuses everything, and says what."""

    band: Band | None = None
    name: str = ""

    def __post_init__(self) -> None:
        raise ValueError(f"bad {self.name}")


class Closed(msgspec.Struct, tag="closed", forbid_unknown_fields=True):
    id: int = 0


class Checked(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str = ""
    counts: dict[str, int] = pydantic.Field(default={}, alias="numbers")
    inner: list["Checked"] = []

    @pydantic.field_validator("name")
    @classmethod
    def _check(cls, name: str) -> str:
        raise ValueError(f"bad {name}")


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        (Strict, '{"band": "secret"}', r"Invalid enum value - at `\$\.band`"),
        (Strict, '{"name": "secret"}', "ValidationError"),
        (Closed, '{"type": "secret"}', r"Invalid value - at `\$\.type`"),
        (Closed, '{"secret": 1}', "unknown field"),
        (Checked, '{"name": "secret"}', "name: refused by a validator"),
        (Checked, '{"secret": 1}', r"\[\.\.\.\]: Extra inputs"),
        (Checked, '{"numbers": {"secret": "x"}}', r"numbers\.\[\.\.\.\]: Input should be a valid integer"),
        (Checked, '{"inner": [{"numbers": {"secret": 1, "b": ""}}]}', r"inner\.0\.numbers\.\[\.\.\.\]: Input"),
    ],
    ids=range(8),
)
def test_refusals_of_a_class_do_not_quote_the_record(model: Any, text: str, said: str) -> None:
    with pytest.raises(DecodeError, match=said) as raised:
        chains(model)[1](text.encode())
    assert "secret" not in f"{raised.value}{raised.value.__cause__}{raised.value.__context__}"


def test_other_values_are_refused() -> None:
    write = chains(Alert)[0]
    for value, said in (([1], "of type list"), (Alert(2**64), "JSON"), (Alert(float("nan")), "JSON")):  # type: ignore[arg-type]
        with pytest.raises(EncodeError, match=said):
            write(value)


def test_wrong_configurations() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        chains(Alert, **{"json.schema": {}})
    model = dataclasses.make_dataclass("Wrong", [("field", type(print))])
    with pytest.raises(ConfigError, match="Wrong has no JSON Schema"):
        chains(model)
