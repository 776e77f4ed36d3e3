"""The fields of classes, however they declare them."""

import dataclasses
import json
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from serde_chain import ConfigError
from serde_chain.cli.outline import as_json
from serde_chain.models import MISSING, ModelField, model_of
from tests.models.alerts import MODELS, VALUES


@dataclasses.dataclass
class Plain:
    id: int
    tags: list[str] = dataclasses.field(default_factory=list)
    token: object = dataclasses.field(default_factory=object)


@attrs.define
class Defined:
    id: int
    tags: list[str] = attrs.field(factory=list)
    token: object = attrs.field(default=attrs.Factory(lambda self: self.id, takes_self=True))


class Packed(msgspec.Struct):
    id: int
    tags: list[str] = []
    token: object = msgspec.field(default_factory=object)


class Checked(pydantic.BaseModel):
    id: int
    tags: list[str] = pydantic.Field(default_factory=list)
    token: object = pydantic.Field(default_factory=object)


@pytest.mark.parametrize("cls", [Plain, Defined, Packed, Checked])
def test_defaults_are_those_that_are_the_same_for_all_objects(cls: type) -> None:
    model = model_of(cls)
    assert model is not None
    assert model.fields == (
        ModelField("id", "id", "id", int, MISSING),
        ModelField("tags", "tags", "tags", list[str], []),
        ModelField("token", "token", "token", object, MISSING),
    )
    made = model.build({"id": 1, "tags": ["a"], "token": None})
    assert (made.id, made.tags, made.token) == (1, ["a"], None)
    assert type(made) is cls


@pytest.mark.parametrize("other", [int, dict, list[int], "text", None, 7])
def test_other_types_are_no_models(other: Any) -> None:
    assert model_of(other) is None


def test_names_for_the_constructor_are_names() -> None:
    class Chosen(pydantic.BaseModel):
        id: int = pydantic.Field(validation_alias=pydantic.AliasChoices("a", "b"))

    with pytest.raises(ConfigError, match=r"field id of .*Chosen cannot be set"):
        model_of(Chosen)


@pytest.mark.parametrize("library", MODELS)
def test_objects_are_shown_as_json(library: str) -> None:
    shown = as_json(MODELS[library](**VALUES))
    assert json.loads(json.dumps(shown)) == shown
    assert shown["band"] == "r"
    assert shown["position"] == {"ra": 1.0, "dec": -2.0}
    assert shown["digest"] == {"base64": "YWJjZA=="}
