"""Schemas and keys that stages have to ask for: no stage does I/O of its own."""

import threading
import uuid
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import StringValue

from serde_chain import (
    DecryptionError,
    DeserializerChain,
    Producer,
    RecordContext,
    SchemaRegistryError,
    SerializerChain,
)
from serde_chain.arrow import Batch
from serde_chain.schemas.confluent import ConfluentRegistry
from serde_chain.schemas.registry import RegisteredSchema
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from serde_chain.transfer import Transfer, finish

SCHEMA = '{"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}'
LATER = SCHEMA.replace("]", ', {"name": "band", "type": "string", "default": "r"}]')
DRAFT_7 = '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'
STAGES: dict[str, tuple[dict[str, str], Any]] = {
    "avro": ({"avro.schema": SCHEMA}, {"id": 1}),
    "protobuf": ({"protobuf.message.class": "google.protobuf.wrappers_pb2.StringValue"}, StringValue(value="M 51")),
    "json": (
        {
            "json.schema": '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}',
            "json.framing": "confluent",
        },
        {"id": 1},
    ),
}
READERS: dict[str, dict[str, str]] = {"avro": {}, "protobuf": {}}


@pytest.fixture
def ctx() -> RecordContext:
    return RecordContext(f"topic-{uuid.uuid4().hex[:12]}", "value", [])


def absent() -> dict[str, Any]:
    """The settings of a registry that is not there."""
    return {"schema.registry.url": "http://127.0.0.1:1", "schema.registry.timeout": 1, "schema.registry.max.retries": 0}


@pytest.mark.parametrize("stage", STAGES)
def test_a_writer_leaves_the_question_to_its_caller(stage: str, ctx: RecordContext) -> None:
    options, value = STAGES[stage]
    with SerializerChain.from_config({"value.serializer": stage, **options, **absent()}) as chain:
        step = chain.begin(value, ctx)
        assert isinstance(step, Transfer)
        assert (step.within_call, step.size) == (True, 0)
        with pytest.raises(SchemaRegistryError, match="did not answer") as caught:
            step.run()
        assert (caught.value.topic, caught.value.stage, caught.value.about_record) == (
            ctx.topic, f"{stage} (1 of 1)", False,
        )  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
def test_the_next_record_of_a_topic_meets_no_question(stage: str, ctx: RecordContext, registry: SchemaRegistry) -> None:
    options, value = STAGES[stage]
    config = {"value.serializer": stage, **options, "schema.registry.url": registry.url}
    with SerializerChain.from_config(config) as chain:
        first = chain.begin(value, ctx)
        assert isinstance(first, Transfer)
        assert finish(first) == chain.begin(value, ctx) == chain(value, ctx)


@pytest.mark.parametrize("stage", READERS)
def test_a_reader_leaves_the_question_to_its_caller(stage: str, ctx: RecordContext, registry: SchemaRegistry) -> None:
    options, value = STAGES[stage]
    with SerializerChain.from_config(
        {"value.serializer": stage, **options, "schema.registry.url": registry.url}
    ) as chain:
        data = chain(value, ctx)
    with DeserializerChain.from_config({"value.deserializer": stage, **absent()}) as chain:
        step = chain.begin(data, ctx)
        assert isinstance(step, Transfer)
        with pytest.raises(SchemaRegistryError, match="did not answer"):
            finish(step)
    with DeserializerChain.from_config({"value.deserializer": stage, "schema.registry.url": registry.url}) as chain:
        one, other = chain.begin(data, ctx), chain.begin(data, ctx)
        assert one.key == other.key
        read = [finish(one), finish(other), chain.begin(data, ctx)]
        assert read == [read[0]] * 3
        assert not isinstance(read[2], Transfer)


def test_an_unknown_id_is_asked_for_once(
    ctx: RecordContext, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    get = ConfluentRegistry.get

    def counted(self: Any, key: Any, *arguments: Any) -> RegisteredSchema:
        asked.append(key)
        return get(self, key, *arguments)

    monkeypatch.setattr(ConfluentRegistry, "get", counted)
    config = {"value.deserializer": "avro", "schema.registry.url": registry.url}
    with DeserializerChain.from_config(config) as chain:
        for offset in range(3):
            place = RecordContext(ctx.topic, "value", [], partition=0, offset=offset)
            with pytest.raises(SchemaRegistryError) as caught:
                chain(b"\0\x7f\xff\xff\xfe\x02", place)
            assert (caught.value.about_record, caught.value.offset) == (True, offset)
    assert asked == [0x7FFFFFFE]


def test_a_batch_asks_for_its_schemas_side_by_side(
    ctx: RecordContext, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = []
    for schema, record in ((SCHEMA, {"id": 1}), (LATER, {"id": 2, "band": "g"})):
        config = {"value.serializer": "avro", "avro.schema": schema, "schema.registry.url": registry.url}
        with SerializerChain.from_config(config) as chain:
            values.append(chain(record, ctx))
    both, get = threading.Barrier(2), ConfluentRegistry.get

    def together(*arguments: Any) -> RegisteredSchema:
        both.wait(20)
        return get(*arguments)

    monkeypatch.setattr(ConfluentRegistry, "get", together)
    reader = {"value.deserializer": "avro", "schema.registry.url": registry.url}
    with DeserializerChain.from_config(reader) as reading:
        result = reading.read_batch(Batch(values * 2, topic=ctx.topic))
    assert not result.errors
    assert result.values.to_pylist() == [{"id": 1, "band": "r"}, {"id": 2, "band": "g"}] * 2


class Vault:
    """A key service."""

    down = False
    asked: list[str]

    def __init__(self) -> None:
        self.asked = []

    def key(self, key_id: str) -> bytes:
        self.asked.append(key_id)
        if self.down:
            raise ConnectionError("it is down")
        return b"k" * 32


def test_a_key_is_asked_for_by_the_caller(ctx: RecordContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serde_chain.stages.encryption.stage._RECORDS_PER_SALT", 2)
    vault = Vault()
    config = {"encryption.key.id": "k", "encryption.key.provider.class": vault}
    with SerializerChain.from_config({"value.serializer": "encrypt", **config}) as chain:
        assert vault.asked == ["k"]  # where it is configured, as Kafka's clients do with their settings
        sealed = [chain.begin(b"M 51", ctx) for _ in range(2)]
        renewal = chain.begin(b"M 51", ctx)
        assert [type(data) for data in sealed] == [bytes, bytes]
        assert isinstance(renewal, Transfer)
        sealed.append(finish(renewal))
    assert len({data[: data.index(b"k") + 17] for data in sealed}) == 2  # a salt of its own for each
    with DeserializerChain.from_config({"value.deserializer": "encrypt", **config}) as chain:
        vault.down, step = True, chain.begin(sealed[0], ctx)
        assert isinstance(step, Transfer)
        with pytest.raises(DecryptionError, match="ConnectionError"):
            step.run()
        vault.down = False
        assert finish(step) == b"M 51"
        assert [chain.begin(data, ctx) for data in sealed] == [b"M 51"] * 3


@pytest.mark.parametrize("field", ["key", "value"])
def test_what_is_wrong_with_the_registry_is_raised_by_produce(broker: KafkaBroker, field: str, topic: str) -> None:
    config = {
        **broker.client_config(),
        f"{field}.serializers": "avro, large-message",
        "avro.schema": SCHEMA,
        "large.message.payload.store.class": "memory",
        **absent(),
    }
    reports: list[Any] = []
    record: dict[str, Any] = {field: {"id": 1}}
    with Producer(config) as producer:
        with pytest.raises(SchemaRegistryError, match="did not answer") as caught:
            producer.produce(topic, **record, on_delivery=lambda *report: reports.append(report))
        assert producer.flush(10) == 0
    assert (caught.value.topic, caught.value.field, reports) == (topic, field, [])
