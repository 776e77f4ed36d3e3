"""Registry-framed Avro into Arrow: a batch at once, against dictionaries made by fastavro and by Confluent's class."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.harness import Comparison, measure, print_table
from benchmarks.records import BIG, BIG_SCHEMA, SMALL, SMALL_SCHEMA
from serde_chain import DeserializerChain
from serde_chain.testing.services import SchemaRegistry

WANTED_FASTAVRO = 0.12
WANTED_CONFLUENT = 0.05
_ROUNDS = 7


def run() -> bool:
    """Start a registry and print the table; returns whether the targets are reached."""
    with SchemaRegistry() as registry:
        return _run(registry)


def _run(registry: SchemaRegistry) -> bool:
    url, client, conf = registry.url, registry.client(), registry.serializer_conf()
    results = []
    for name, schema, record in (("20 fields", BIG_SCHEMA, BIG), ("3 fields", SMALL_SCHEMA, SMALL)):
        context = SerializationContext(f"arrow-{len(schema)}", MessageField.VALUE, [])
        one = AvroSerializer(client, schema, conf=conf)(record, context)
        confluent = AvroDeserializer(client, conf=conf)
        chain = DeserializerChain.from_config({"value.deserializers": "avro", "schema.registry.url": url})
        parsed = fastavro.parse_schema(json.loads(schema))
        for count in (10_000, 1_000, 100, 10, 1):
            batch = pa.array([one] * count, pa.binary())
            listed = batch.to_pylist()
            kind = chain.to_arrow(batch, topic="t").type
            ours: Any = lambda chain=chain, batch=batch: chain.to_arrow(batch, topic="t")  # noqa: E731
            hand: Any = lambda listed=listed, parsed=parsed, kind=kind: _by_hand(listed, parsed, kind)  # noqa: E731
            theirs: Any = lambda listed=listed, call=confluent, ctx=context: [call(data, ctx) for data in listed]  # noqa: E731
            if ours() != hand():
                raise AssertionError("the arrays differ")
            targets = (WANTED_FASTAVRO, WANTED_CONFLUENT) if count == 10_000 else (None, None)
            label = f"{name}, {count:,} records"
            results += [
                measure(Comparison(label, ours, hand, "fastavro → dicts → Arrow", targets[0]), _ROUNDS),
                measure(Comparison(label, ours, theirs, "Confluent's, record by record", targets[1]), _ROUNDS),
            ]
    return print_table("Batches of Avro with registry framing into Arrow", results)


def _by_hand(listed: list[bytes], parsed: Any, kind: Any) -> Any:
    records = []
    for data in listed:
        buffer = io.BytesIO(data)
        buffer.seek(5)
        records.append(fastavro.schemaless_reader(buffer, parsed, None))
    return pa.array(records, kind)


if __name__ == "__main__":
    run()
