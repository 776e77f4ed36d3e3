"""Avro with registry framing against Confluent's serializers, and both against bare fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.harness import Table, measure
from benchmarks.records import BIG, BIG_SCHEMA, SMALL, SMALL_SCHEMA
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.testing.services import SchemaRegistry


def run(*, quick: bool) -> Iterator[Table]:
    """Records of 20 and of 3 fields, through a real registry."""
    with SchemaRegistry() as registry:
        yield from _tables(registry, quick=quick)


def _tables(registry: SchemaRegistry, *, quick: bool) -> Iterator[Table]:
    url, client, conf = registry.url, registry.client(), registry.serializer_conf()
    against_confluent, against_fastavro = [], []
    for name, schema, record in (("20 fields", BIG_SCHEMA, BIG), ("3 fields", SMALL_SCHEMA, SMALL)):
        topic = f"benchmark-{len(schema)}"
        config = {"schema.registry.url": url, "avro.schema": schema}
        ours_out = SerializerChain.from_config({**config, "value.serializers": "avro"})
        # Confluent's deserializer without a reader schema reads with the writer's: so does ours here.
        ours_in = DeserializerChain.from_config({"schema.registry.url": url, "value.deserializers": "avro"})
        theirs_out, theirs_in = AvroSerializer(client, schema, conf=conf), AvroDeserializer(client, conf=conf)
        context = RecordContext(topic, "value", [])
        their_context = SerializationContext(topic, MessageField.VALUE, [])
        encoded = theirs_out(record, their_context)
        bare = fastavro.parse_schema(json.loads(schema))
        expected = _read(bare, encoded)
        if ours_out(record, context)[5:] != encoded[5:]:
            raise AssertionError("the serializers disagree")
        framed: Any = ours_out(record, context)
        if ours_in(framed, context) != expected or theirs_in(encoded, their_context) != expected:
            raise AssertionError("the deserializers disagree")
        out: Any = lambda chain=ours_out, value=record, ctx=context: chain(value, ctx)  # noqa: E731
        back: Any = lambda chain=ours_in, value=framed, ctx=context: chain(value, ctx)  # noqa: E731
        their_out: Any = lambda call=theirs_out, value=record, ctx=their_context: call(value, ctx)  # noqa: E731
        their_back: Any = lambda call=theirs_in, value=encoded, ctx=their_context: call(value, ctx)  # noqa: E731
        floor_out: Any = lambda value=record, parsed=bare: _write(parsed, value)  # noqa: E731
        floor_back: Any = lambda value=framed, parsed=bare: _read(parsed, value)  # noqa: E731
        ways = {"serialize": (out, their_out, floor_out), "deserialize": (back, their_back, floor_back)}
        for way, (ours, theirs, floor) in ways.items():
            peer = "Confluent's Avro" + way.title() + "r"
            against_confluent.append(measure(f"{way}, {name}", ours, peer, theirs, quick=quick))
            against_fastavro.append(
                measure(f"{way}, {name}", ours, "fastavro and the 5 bytes by hand", floor, quick=quick)
            )
    yield Table("avro", "Avro with registry framing, against Confluent", "µs a record", against_confluent)
    yield Table("avro-floor", "The same, against the floor", "µs a record", against_fastavro)


def _write(schema: Any, record: Any) -> bytes:
    buffer = io.BytesIO()
    buffer.write(b"\x00\x00\x00\x00\x01")
    fastavro.schemaless_writer(buffer, schema, record)
    return buffer.getvalue()


def _read(schema: Any, data: bytes) -> Any:
    buffer = io.BytesIO(data)
    buffer.seek(5)
    return fastavro.schemaless_reader(buffer, schema, None)
