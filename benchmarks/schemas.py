"""Many schemas and topics: the first record of a schema id, against Confluent's class; and look-ups among many."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.harness import Row, Table, in_turns, measure
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.testing.services import SchemaRegistry

_IDS: Final = 10_000
_TOPICS: Final = 1_000
_FIRST: Final = 500
_ROUNDS: Final = 3
_FIELDS: Final = 20


def run(*, quick: bool) -> Iterator[Table]:
    """First records of ids, then records of one and of 10,000 ids, for one and for 1,000 topics."""
    ids, topics, first = (200, 50, 50) if quick else (_IDS, _TOPICS, _FIRST)
    with SchemaRegistry() as registry:
        client = registry.client()
        records = [_record(client, number) for number in range(ids)]
        yield _first_records(registry, records[:first], 1 if quick else _ROUNDS)
        yield _flat(registry, records, topics, quick=quick)


def _schema(number: int) -> str:
    fields = [{"name": f"field_{n}", "type": "double"} for n in range(_FIELDS)]
    return json.dumps({"type": "record", "name": f"Record{number}", "fields": fields})


def _record(client: SchemaRegistryClient, number: int) -> bytes:
    schema = _schema(number)
    buffer = io.BytesIO()
    buffer.write(b"\0" + client.register_schema(f"subject-{number}", Schema(schema, "AVRO")).to_bytes(4, "big"))
    fastavro.schemaless_writer(buffer, json.loads(schema), {f"field_{n}": n / 4 for n in range(_FIELDS)})
    return buffer.getvalue()


def _reader(registry: SchemaRegistry) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "avro", "schema.registry.url": registry.url})


def _first_records(registry: SchemaRegistry, records: Sequence[bytes], rounds: int) -> Table:
    """CPU time: the rest is the registry's answer."""

    def ours() -> None:
        chain, context = _reader(registry), RecordContext("topic", "value", [])
        for record in records:
            chain(record, context)
        chain.close()

    def theirs() -> None:
        read = AvroDeserializer(registry.client(), conf=registry.serializer_conf())
        context = SerializationContext("topic", MessageField.VALUE, [])
        for record in records:
            read(record, context)

    peer = "Confluent's AvroDeserializer"
    times = in_turns({"ours": ours, peer: theirs}, rounds, time.process_time)
    per_id = {name: [1e6 * seconds / len(records) for seconds in taken] for name, taken in times.items()}
    rows = [Row("first record of a schema id", per_id["ours"], peer, per_id[peer])]
    return Table("schemas-first", "The first record of each schema id", "µs of CPU an id", rows)


def _flat(registry: SchemaRegistry, records: Sequence[bytes], topics: int, *, quick: bool) -> Table:
    reader, context = _reader(registry), RecordContext("topic", "value", [])
    read = _one_after_the_other(lambda record: reader(record, context), records)
    read_one = _one_after_the_other(lambda record: reader(record, context), records[:1])
    for record in records:
        reader(record, context)

    settings = {"value.serializers": "avro", "avro.schema": _schema(0), "schema.registry.url": registry.url}
    writer = SerializerChain.from_config(settings)
    contexts = [RecordContext(f"topic-{number}", "value", []) for number in range(topics)]
    value = {f"field_{n}": n / 4 for n in range(_FIELDS)}
    write = _one_after_the_other(lambda ctx: writer(value, ctx), contexts)
    write_one = _one_after_the_other(lambda ctx: writer(value, ctx), contexts[:1])
    for ctx in contexts:
        writer(value, ctx)

    rows = [
        measure(f"deserialize, {len(records):,} schema ids", read, "one id", read_one, quick=quick),
        measure(f"serialize, {topics:,} topics", write, "one topic", write_one, quick=quick),
    ]
    return Table("schemas", "Avro with a registry: many schemas and topics against one", "µs a record", rows)


def _one_after_the_other(work: Callable[[Any], object], items: Sequence[Any]) -> Callable[[], object]:
    following = itertools.cycle(items).__next__
    return lambda: work(following())
