"""Which chains have fields that queries fetch one by one, and the reason where they have not."""

import json
from pathlib import Path
from typing import Any

import pytest

from serde_chain.base import Data, Deserializer
from serde_chain.spark.fields.planning import FieldsPlan
from serde_chain.spark.reading.planning import RecordsPlan, plan_records
from tests.spark.stages_of_a_user import OwnMark, Voids

Config = dict[str, Any]


class Unknown(Deserializer[bytes]):
    """May do anything with the headers."""

    takes = gives = Data.BYTES

    def __call__(self, data: Any, ctx: Any = None, /) -> Any:
        return data


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {"large.message.payload.store.class": "local", "local.path": str(tmp_path), "avro.schema": schema("stamp")}


def schema(*names: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": "bytes"} for name in names]})


def planned(config: Config, mode: str = "FAILFAST", *, counts: bool = False) -> RecordsPlan:
    return plan_records(config, mode=mode, engine="auto", topics=(), counts=counts)


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        (["avro", OwnMark], "the last stage marks records with references by another header than large-fields"),
        ([Voids, "avro", "large-fields"], "an earlier stage removes large-fields"),
        ([Unknown, "avro", "large-fields"], "an earlier stage may change any header"),
    ],
)
def test_headers_that_do_not_tell_of_references(config: Config, stages: list[Any], reason: str) -> None:
    plan = planned(config | {"value.deserializers": stages})
    assert (plan.plans["value"].stages, plan.fields) == (None, reason)


def test_the_reason_is_one_that_counts(config: Config) -> None:
    """Not what the user could change to no effect, as the paths in a mode that checks all fields."""
    config |= {"value.deserializers": "avro, large-fields"}
    many = config | {"avro.schema": schema(*(f"f{at}" for at in range(21)))}
    several = "21 columns may hold references: name those that do in large.fields.paths"
    for settings in (config, many):
        assert planned(settings, "PERMISSIVE").fields == "PERMISSIVE checks all fields of a record"
        assert planned(settings, counts=True).fields == "their requests are counted"
    assert planned(many).fields == several
    assert isinstance(planned(config).fields, FieldsPlan)


def test_paths_that_name_no_field(config: Config) -> None:
    """A reader's schema may leave fields out, so they are no error: the plan says what is wrong with them."""
    config |= {"value.deserializers": "avro, large-fields", "avro.schema": schema("stamp", "template")}
    for paths, columns, unknown in (
        ("stamp, templat", ["stamp"], ("templat is not in the schema (did you mean template?)",)),
        ("value.*", [], ("value.* is not in the schema",)),
        ("stamp[]", [], ("stamp[] is not in the schema (did you mean stamp?)",)),
        ("*", ["stamp", "template"], ()),
    ):
        plan = planned(config | {"large.fields.paths": paths}).fields
        assert isinstance(plan, FieldsPlan)
        assert [column.name for column in plan.columns] == columns
        assert plan.unknown == unknown


def test_values_that_are_unions(config: Config) -> None:
    of_two = [json.loads(schema("stamp")), {**json.loads(schema("stamp")), "name": "S"}]
    config |= {"value.deserializers": "avro, large-fields", "avro.schema": json.dumps(of_two)}
    assert planned(config).fields == "the values are unions"
    assert planned(config | {"value.deserializers": "avro"}).fields is None
