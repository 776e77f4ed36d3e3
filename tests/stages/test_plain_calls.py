"""Which stages do without the record, as they are configured; that the results are the same, the exported suite shows."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from serde_chain import RecordContext
from serde_chain.base import SupportsPlainCalls
from serde_chain.catalogue import DESERIALIZE, SERIALIZE, STAGES, StageItem, make_stage
from serde_chain.testing.services import SchemaRegistry

AVRO = {"avro.schema": {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}}
JSON = {"json.schema": json.dumps({"title": "R", "type": "object"})}
PROTOBUF = {"protobuf.message.class": "google.protobuf.timestamp_pb2.Timestamp"}
KEY = {"encryption.key.id": "one", "encryption.keys": "one:" + "A" * 43 + "="}
MEMORY = {"large.message.payload.store.class": "memory"}
NEEDED: dict[str, Mapping[str, object]] = {
    "avro": AVRO,
    "protobuf": PROTOBUF,
    "encrypt": KEY,
    "large-message": MEMORY,
}


def plain_of(name: str, config: Mapping[str, object]) -> list[Any]:
    stages = [make_stage(StageItem(name), config, is_key=False, side=side) for side in (SERIALIZE, DESERIALIZE)]
    return [stage.plain if isinstance(stage, SupportsPlainCalls) else None for stage in stages]


@pytest.mark.parametrize("name", sorted(STAGES.builtins.keys() - {"encrypt", "large-message"}))
def test_stages_that_need_no_record_say_so(name: str) -> None:
    assert all(map(callable, plain_of(name, NEEDED.get(name, {}))))


def test_encryption_authenticates_topic_and_field() -> None:
    assert plain_of("encrypt", KEY) == [None, None]


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
    serialize, deserialize = (
        make_stage(StageItem(name), config, is_key=False, side=side) for side in (SERIALIZE, DESERIALIZE)
    )
    assert serialize.plain is None
    assert callable(deserialize.plain)
    ctx = RecordContext(f"plain-{name}", "value", [])
    data = serialize(value, ctx)
    if framing == "header":
        assert deserialize(data, ctx) is not None
        return
    if name == "avro":
        with pytest.raises(KeyError):  # the registry has to be asked first
            deserialize.plain(data)
    read = deserialize(data, ctx)
    assert deserialize.plain(data) == read
