"""The chain avro, zstd, large-message against the same three library calls written by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import zstandard

from benchmarks.harness import Row, Table, measure
from benchmarks.records import BIG, BIG_SCHEMA, SMALL, SMALL_SCHEMA
from serde_chain import DeserializerChain, RecordContext, SerializerChain

THRESHOLD = 1048576
BY_HAND = "the library calls by hand"


def run(*, quick: bool) -> Iterator[Table]:
    """Records of 20 fields, and of 3, which show the fixed cost per record."""
    rows = []
    for name, schema, record in (("20 fields", BIG_SCHEMA, BIG), ("3 fields", SMALL_SCHEMA, SMALL)):
        rows += compared(schema, record, quick=quick, suffix=f", {name}")
    yield Table(
        "chain",
        "Chain avro → zstd → large-message, record below the threshold",
        "µs a record",
        rows,
        note="By hand nothing is checked: no decompression limit, no trailing bytes, no context in errors.",
    )


def compared(schema: str, record: Any, *, quick: bool, suffix: str = "", at: str = "") -> list[Row]:
    """A chain and the same calls by hand, both ways.

    Args:
        schema: The records' Avro schema.
        record: The record to write and read.
        quick: Whether few rounds are enough.
        suffix: Suffix of the row names.
        at: Position on an axis.

    Returns:
        Two rows, ``serialize`` and ``deserialize``.
    """
    config = {
        "value.serializers": "avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro",
        "avro.schema": schema,
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": THRESHOLD,
    }
    serializer, deserializer = SerializerChain.from_config(config), DeserializerChain.from_config(config)
    context = RecordContext("benchmark", "value", [])
    write, read = _by_hand(schema)
    encoded = write(record)
    if serializer(record, context) != encoded or deserializer(encoded, context) != read(encoded):
        raise AssertionError("the chain and the calls by hand disagree")
    ways = {
        "serialize": (lambda: serializer(record, context), lambda: write(record)),
        "deserialize": (lambda: deserializer(encoded, context), lambda: read(encoded)),
    }
    return [
        measure(f"{name}{suffix}", ours, BY_HAND, theirs, quick=quick, at=at) for name, (ours, theirs) in ways.items()
    ]


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
