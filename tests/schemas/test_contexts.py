"""Contexts of a registry: each has its own ids, so a record's id is looked up in the context of its subject."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serde_chain import DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.schemas.registry import context_of
from tests.http_servers import reply, serve
from tests.schemas.contexts import ContextRegistry, context_registry
from tests.stages.protobuf.protobuf_messages import FIRST


@pytest.fixture
def contexts() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running


def staged(ctx: Any, _name: str | None) -> str:
    """Topics that begin with ``staging-`` have subjects in a context."""
    context, _, topic = ctx.topic.rpartition("-")
    return f":.{context}:{topic}-{ctx.field}" if context else f"{topic}-{ctx.field}"


def avro(field: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": field, "type": "int"}]})


def json_schema(kind: str) -> str:
    return json.dumps({"title": "R", "type": "object", "properties": {"id": {"type": kind}}})


def proto(field: str) -> str:
    return f'syntax = "proto3"; message R {{ int64 {field} = 1; }}'


AT = b"\0\0\0\0\1"
CASES = {
    "avro": ("AVRO", avro("a"), avro("b"), b"\x02", {"a": 1}, {"b": 1}),
    "protobuf": ("PROTOBUF", proto("a"), proto("b"), b"\0\x08\1", {"a": 1}, {"b": 1}),
}


def settings(registry: ContextRegistry, stage: str) -> dict[str, Any]:
    return {
        "value.deserializer": stage,
        "schema.registry.url": registry.url,
        "subject.name.strategy": staged,
        "protobuf.values": "dict",
    }


@pytest.mark.parametrize("stage", CASES)
def test_an_id_belongs_to_the_context_of_the_topics_subject(contexts: ContextRegistry, stage: str) -> None:
    kind, first, second, body, one, other = CASES[stage]
    contexts.register("orders-value", first, kind)
    contexts.register(":.staging:orders-value", second, kind)
    with DeserializerChain.from_config(settings(contexts, stage)) as read:
        for _ in range(2):
            assert read(AT + body, RecordContext("orders", "value", [])) == one
            assert read(AT + body, RecordContext("staging-orders", "value", [])) == other
        # Batches: of one topic, and of several.
        for topic, value in (("orders", one), ("staging-orders", other)):
            rows = read.to_arrow([AT + body] * 3, topic=topic).to_pylist()
            assert rows == [value] * 3
    looked_up = [query.get("subject") for _, path, query in contexts.asked if path == "/schemas/ids/1"]
    assert looked_up == [["orders-value"], [":.staging:orders-value"]]


def test_topics_of_two_contexts_in_one_batch(contexts: ContextRegistry) -> None:
    """A column has one type; what each row means is up to its topic."""
    for subject, kind in (("orders-value", "int"), (":.staging:orders-value", "string")):
        fields = [{"name": "id", "type": "int"}, {"name": "was", "type": kind, "default": 0 if kind == "int" else ""}]
        contexts.register(subject, json.dumps({"type": "record", "name": "R", "fields": fields}))
    own = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    bodies = [AT + b"\x02\x04", AT + b"\x02\x04a2"]
    with DeserializerChain.from_config({**settings(contexts, "avro"), "avro.reader.schema": own}) as read:
        result = read.read_batch(Batch(bodies, topic=["orders", "staging-orders"]))
    assert result.checked().to_pylist() == [{"id": 1}, {"id": 1}]


def test_json_is_validated_by_the_schema_of_its_context(contexts: ContextRegistry) -> None:
    contexts.register("orders-value", json_schema("integer"), "JSON")
    contexts.register(":.staging:orders-value", json_schema("string"), "JSON")
    config = {**settings(contexts, "json"), "json.framing": "confluent", "json.validate": True}
    with DeserializerChain.from_config(config) as read:
        assert read(AT + b'{"id":1}', RecordContext("orders", "value", [])) == {"id": 1}
        assert read(AT + b'{"id":"1"}', RecordContext("staging-orders", "value", [])) == {"id": "1"}


@pytest.mark.parametrize("stage", ["avro", "protobuf", "json"])
def test_ones_own_records_are_read_again(contexts: ContextRegistry, stage: str) -> None:
    contexts.register("orders-value", avro("taken"))  # the id 1 of the default context
    config = {
        **settings(contexts, stage),
        "value.serializer": stage,
        "avro.schema": avro("id"),
        "json.schema": json_schema("integer"),
        "json.framing": "confluent",
    }
    ctx = RecordContext("staging-orders", "value", [])
    with (
        SerializerChain.from_config({**config, "protobuf.message.class": FIRST}) as write,
        DeserializerChain.from_config({**config, "avro.schema": None, "json.validate": True}) as read,
    ):
        assert read(write({"id": 7}, ctx), ctx)["id"] == 7


def test_keys_have_a_context_too(contexts: ContextRegistry) -> None:
    contexts.register(":.staging:orders-key", avro("b"))
    config = {"key.deserializer": "avro", "schema.registry.url": contexts.url, "subject.name.strategy": staged}
    with DeserializerChain.from_config(config, is_key=True) as read:
        assert read(AT + b"\x02", RecordContext("staging-orders", "key", [])) == {"b": 1}


def test_an_id_that_is_unknown_in_its_context_is_the_records_fault(contexts: ContextRegistry) -> None:
    contexts.register("orders-value", avro("a"))
    with (
        DeserializerChain.from_config(settings(contexts, "avro")) as read,
        pytest.raises(SchemaRegistryError, match="schema 1") as caught,
    ):
        read(AT + b"\x02", RecordContext("staging-orders", "value", []))
    assert caught.value.about_record


def test_a_function_that_needs_a_records_name_gives_no_subject(contexts: ContextRegistry) -> None:
    contexts.register("a-value", avro("a"))
    config = {**settings(contexts, "avro"), "subject.name.strategy": lambda _ctx, name: name[0] + "-value"}
    with DeserializerChain.from_config(config) as read:
        assert read(AT + b"\x02", RecordContext("orders", "value", [])) == {"a": 1}
    assert contexts.asked == [("GET", "/schemas/ids/1", {})]


@pytest.mark.parametrize("subject", ["customers", ":.prod:customers"])
def test_a_reference_is_in_the_context_of_what_refers_to_it(contexts: ContextRegistry, subject: str) -> None:
    """As in Confluent's registry: a subject without a context is not that of the default one."""
    customer = {"type": "record", "name": "Customer", "fields": [{"name": "by", "type": "Name"}]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "Customer"}]}
    there = ":.staging:" if subject == "customers" else ":.prod:"
    for context, kind in (("", "int"), (there, "string")):
        name = {"type": "record", "name": "Name", "fields": [{"name": "name", "type": kind}]}
        contexts.register(f"{context}names", json.dumps(name))
        to_names = {"name": "Name", "subject": "names", "version": 1}
        contexts.register(f"{context}customers", json.dumps(customer), references=[to_names])
    reference = {"name": "Customer", "subject": subject, "version": 1}
    contexts.register(":.staging:orders-value", json.dumps(order), references=[reference])
    config = {"value.serializer": "avro", **settings(contexts, "avro")}
    value, ctx = {"by": {"by": {"name": "x"}}}, RecordContext("staging-orders", "value", [])
    own = {"avro.schema": order, "schema.references": [{"name": "Customer", "subject": subject}]}
    for more in ({"use.latest.version": True}, {"auto.register.schemas": False, **own}, own):
        with SerializerChain.from_config({**config, **more}) as write, DeserializerChain.from_config(config) as read:
            assert read(write(value, ctx), ctx) == value


def test_names_of_contexts() -> None:
    assert [context_of(subject) for subject in (":.a:b", ":.:b", "b", None, ":.a", "x:.a:b")] == ["a", *[""] * 5]


def test_a_record_of_a_mirror_names_an_id_of_another_subject() -> None:
    """Registries that look for an id under the subject alone: the record is read as before."""

    def answer(request: Any) -> None:
        known = "subject=" not in request.path or "subject=orders-value" in request.path
        body = {"schema": avro("a")} if known else {"error_code": 40403, "message": "Schema not found"}
        reply(request, 200 if known else 404, json.dumps(body).encode())

    with (
        serve(answer) as url,
        DeserializerChain.from_config({"value.deserializer": "avro", "schema.registry.url": url}) as read,
    ):
        for topic in ("mirror.orders", "orders"):
            assert read(AT + b"\x02", RecordContext(topic, "value", [])) == {"a": 1}
