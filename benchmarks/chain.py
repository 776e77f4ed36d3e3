"""The chain avro, zstd, large-message against the same three library calls written by hand."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import zstandard

from benchmarks.harness import Comparison, measure, print_table
from benchmarks.records import BIG, BIG_SCHEMA, SMALL, SMALL_SCHEMA
from serde_chain import DeserializerChain, RecordContext, SerializerChain

THRESHOLD = 1048576
# The record of 3 fields shows the fixed cost per record.
WANTED = {"20 fields": (1.05, 1.06), "3 fields": (1.12, 1.25)}


def run() -> bool:
    """Print the table; returns whether the targets are reached."""
    results = []
    for name, schema, record in (("20 fields", BIG_SCHEMA, BIG), ("3 fields", SMALL_SCHEMA, SMALL)):
        config = {
            "value.serializers": "avro, zstd, large-message",
            "value.deserializers": "large-message, zstd, avro",
            "avro.schema": schema,
            "large.message.payload.store.class": "memory",
        }
        serializer, deserializer = SerializerChain.from_config(config), DeserializerChain.from_config(config)
        context = RecordContext("benchmark", "value", [])
        write, read = _by_hand(schema)
        encoded = write(record)
        if serializer(record, context) != encoded or deserializer(encoded, context) != read(encoded):
            raise AssertionError("the chain and the calls by hand disagree")
        wanted_serialize, wanted_deserialize = WANTED[name]
        results += [
            measure(
                Comparison(
                    f"serialize, {name}",
                    lambda chain=serializer, value=record, ctx=context: chain(value, ctx),  # type: ignore[misc]
                    lambda call=write, value=record: call(value),  # type: ignore[misc]
                    "fastavro, zstandard, len() by hand",
                    wanted_serialize,
                )
            ),
            measure(
                Comparison(
                    f"deserialize, {name}",
                    lambda chain=deserializer, value=encoded, ctx=context: chain(value, ctx),  # type: ignore[misc]
                    lambda call=read, value=encoded: call(value),  # type: ignore[misc]
                    "zstandard, fastavro by hand",
                    wanted_deserialize,
                )
            ),
        ]
    return print_table(
        "Chain avro → zstd → large-message, record below the threshold",
        results,
        "By hand nothing is checked: no decompression limit, no trailing bytes, no context in errors.",
    )


def _by_hand(schema: str) -> tuple[Any, Any]:
    parsed = fastavro.parse_schema(json.loads(schema))
    compressor, decompressor = zstandard.ZstdCompressor(3), zstandard.ZstdDecompressor()

    def write(record: Any) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, record)
        data = compressor.compress(buffer.getvalue())
        if len(data) > THRESHOLD:
            raise AssertionError("the record is not small")
        return data

    def read(data: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(decompressor.decompress(data)), parsed, None)

    return write, read
