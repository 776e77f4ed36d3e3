"""Which stages need no record, as they are configured; the exported suite shows that the results are the same."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from serde_chain import RecordContext
from serde_chain.base import SupportsPlainCalls
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, ConfiguredStage, StageItem
from serde_chain.testing.services import SchemaRegistry
from tests.stages.cases import STAGES

AVRO = {"avro.schema": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}}
JSON = {"json.schema": json.dumps({"title": "R", "type": "object", "properties": {"a": {"type": "integer"}}})}
PROTOBUF = {"protobuf.message.class": "google.protobuf.timestamp_pb2.Timestamp"}


def pair_of(name: str, config: Mapping[str, object]) -> list[Any]:
    return [
        ConfiguredStage.of(StageItem.of(name), config, side, is_key=False).make() for side in (SERIALIZE, DESERIALIZE)
    ]


def plain_of(name: str, config: Mapping[str, object]) -> list[Any]:
    return [stage.plain if isinstance(stage, SupportsPlainCalls) else None for stage in pair_of(name, config)]


@pytest.mark.parametrize("name", STAGES)
def test_stages_that_need_no_record_say_so(name: str) -> None:
    found = plain_of(name, STAGES[name].config)
    assert [call is None for call in found] == [STAGES[name].needs_record] * 2


def test_encryption_authenticates_topic_and_field() -> None:
    assert plain_of("encrypt", STAGES["encrypt"].config) == [None, None]


@pytest.mark.parametrize("framing", ["single-object", "container", "none"])
def test_framings_of_avro_that_do_not_depend_on_the_topic(framing: str) -> None:
    assert all(map(callable, plain_of("avro", {**AVRO, "avro.framing": framing})))


def test_an_index_needs_the_partition() -> None:
    write, read = plain_of("entry-metadata", {"entry.metadata.index": True})
    assert write is None
    assert read is not None


@pytest.mark.parametrize(
    ("name", "config", "value"), [("avro", AVRO, {"a": 1}), ("json", JSON, {"a": 1}), ("protobuf", PROTOBUF, {})]
)
@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_schemas_of_a_registry_are_asked_for_by_topic_and_known_by_id(
    registry: SchemaRegistry, name: str, config: Mapping[str, object], value: Any, framing: str
) -> None:
    config = {**config, "schema.registry.url": registry.url, f"{name}.framing": framing}
    serialize, deserialize = pair_of(name, config)
    with contextlib.closing(serialize), contextlib.closing(deserialize):
        assert serialize.plain is None
        ctx = RecordContext(f"plain-{name}", "value", [])
        data = serialize(value, ctx)
        assert bool(ctx.headers) is (framing == "header")
        if name == "avro":
            with pytest.raises(KeyError):  # the registry has to be asked first
                deserialize.plain(data)
        read = deserialize(data, ctx)
        if framing == "confluent":
            assert deserialize.plain(data) == read
