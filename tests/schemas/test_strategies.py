"""Strategies that name subjects after records, for what is no record: refused, as by Confluent's Java client."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serde_chain import ConfigError, DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.schemas.schema_registry import open_registry
from tests.schemas.contexts import ContextRegistry, context_registry

RECORD = {"type": "record", "name": "shop.Order", "fields": []}
NO_RECORDS: dict[str, tuple[str, Any]] = {
    "a union": ("avro", [RECORD, "null"]),
    "an array": ("avro", {"type": "array", "items": RECORD}),
    "a map": ("avro", {"type": "map", "values": "int"}),
    "a primitive": ("avro", "string"),
    "a primitive of a logical type": ("avro", {"type": "long", "logicalType": "timestamp-millis"}),
    "an enum": ("avro", {"type": "enum", "name": "E", "symbols": ["A"]}),
    "a fixed": ("avro", {"type": "fixed", "name": "F", "size": 2}),
    "an object without a title": ("json", {"type": "object"}),
    "an object with an empty title": ("json", {"title": "", "type": "object"}),
}
STRATEGIES = ["RecordNameStrategy", "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"]


@pytest.fixture
def contexts() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", NO_RECORDS)
@pytest.mark.parametrize("kind", ["confluent", "apicurio"])
def test_what_is_no_record_has_no_such_subject(contexts: ContextRegistry, strategy: str, name: str, kind: str) -> None:
    stage, schema = NO_RECORDS[name]
    config = {
        "value.serializer": stage,
        f"{stage}.schema": json.dumps(schema),
        "json.framing": kind,
        "schema.registry.type": kind,
        "schema.registry.url": contexts.url,
        "subject.name.strategy": strategy,
    }
    with pytest.raises(ConfigError, match=r"names subjects after records, .*TopicNameStrategy") as caught:
        SerializerChain.from_config(config)
    assert caught.value.key == "subject.name.strategy"
    assert contexts.asked == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_latest_of_an_unknown_record(contexts: ContextRegistry, strategy: str) -> None:
    config = {
        "value.serializer": "avro",
        "schema.registry.url": contexts.url,
        "subject.name.strategy": strategy,
        "use.latest.version": True,
    }
    with (
        SerializerChain.from_config(config) as write,
        pytest.raises(ConfigError, match="names subjects after records"),
    ):
        write({}, RecordContext("orders", "value", []))
    registry = open_registry(config, is_key=False)
    with pytest.raises(ConfigError, match="names subjects after records"):
        registry.subjects(["orders"], "")
    registry.close()
    contexts.register("orders", '["null", "string"]')
    with (
        DeserializerChain.from_config({**config, "value.deserializer": "avro"}) as read,
        pytest.raises(ConfigError, match="names subjects after records"),
    ):
        read(b"\0\0\0\0\1\0", RecordContext("orders", "value", []))


@pytest.mark.parametrize(
    ("stage", "schema"), [("avro", RECORD), ("json", {"title": "shop.Order", "type": "object", "properties": {}})]
)
def test_a_record_has(contexts: ContextRegistry, stage: str, schema: Any) -> None:
    for strategy, subject in zip(STRATEGIES, ("shop.Order", "orders-shop.Order"), strict=True):
        config = {
            "value.serializer": stage,
            f"{stage}.schema": schema,
            "json.framing": "confluent",
            "schema.registry.url": contexts.url,
            "subject.name.strategy": strategy,
        }
        with SerializerChain.from_config(config) as write:
            write({}, RecordContext("orders", "value", []))
        assert contexts.asked[-1][1] == f"/subjects/{subject}/versions"


def test_topics_name_anything(contexts: ContextRegistry) -> None:
    config = {"value.serializer": "avro", "avro.schema": '["null", "string"]', "schema.registry.url": contexts.url}
    with SerializerChain.from_config(config) as write:
        assert write("a", RecordContext("orders", "value", []))[:5] == b"\0\0\0\0\1"


def by_field(ctx: Any, _name: str) -> str:
    """A strategy by its dotted path; readers call it with an empty name."""
    return f":.staging:{ctx.topic}-{ctx.field}"


def test_a_function_by_its_dotted_path(contexts: ContextRegistry) -> None:
    """So that a file can name it, for subjects in a context."""
    sides = {"value.serializer": "avro", "value.deserializer": "avro", "schema.registry.url": contexts.url}
    config = {**sides, "avro.schema": '"int"', "subject.name.strategy": "tests.schemas.test_strategies.by_field"}
    ctx = RecordContext("alerts", "value", [])
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        assert read(write(7, ctx), ctx) == 7
    assert any(
        ":.staging:alerts-value" in asked or "%3A.staging%3Aalerts-value" in asked for asked in map(str, contexts.asked)
    )
    with pytest.raises(
        ConfigError, match=r"the function 'tests\.schemas\.test_strategies\.nothing' cannot be imported"
    ):
        SerializerChain.from_config({**config, "subject.name.strategy": "tests.schemas.test_strategies.nothing"})


@pytest.mark.parametrize(
    ("stage", "latest"),
    [("avro", None), ("avro", ('{"type": "object"}', "JSON")), ("json", None), ("json", ('"int"', "AVRO"))],
)
def test_a_topic_without_a_fitting_latest_schema_is_no_records_fault(
    contexts: ContextRegistry, stage: str, latest: tuple[str, str] | None
) -> None:
    """Otherwise serde.error.policy = skip drops all of its records."""
    number = contexts.register("elsewhere", {"avro": '"long"', "json": "true"}[stage], stage.upper())
    if latest is not None:
        contexts.register("orders-value", *latest)
    settings = {"json.framing": "confluent", "json.validate": True} if stage == "json" else {}
    config = {"schema.registry.url": contexts.url, "use.latest.version": True, "value.deserializer": stage, **settings}
    with pytest.raises(SchemaRegistryError) as caught:
        DeserializerChain.from_config(config)(
            b"\0" + number.to_bytes(4, "big") + b"2", RecordContext("orders", "value", [])
        )
    assert not caught.value.about_record


def fails(_ctx: object, _name: object) -> str:
    raise KeyError("no such tenant")


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (lambda _ctx, _name: None, "returned None for the topic orders"),
        (lambda _ctx, _name: "", "returned str of length 0"),
        (lambda _ctx, _name: 5, "returned int"),
        (fails, "failed for the topic orders: KeyError: 'no such tenant'"),
    ],
)
def test_a_function_that_names_no_subject(contexts: ContextRegistry, strategy: Any, message: str) -> None:
    """Neither the registry's fault nor the record's."""
    contexts.register("orders-value", '"long"')
    config = {"schema.registry.url": contexts.url, "subject.name.strategy": strategy}
    write = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": '"long"', **config})
    for chain, data in ((write, 1), (reader_of_the_latest(config), b"\0\0\0\0\1\2")):
        with pytest.raises(ConfigError, match=message) as caught:
            chain(data, RecordContext("orders", "value", []))
        assert caught.value.key == "subject.name.strategy"
        assert not caught.value.about_record


def reader_of_the_latest(config: dict[str, Any]) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializer": "avro", "use.latest.version": True, **config})
