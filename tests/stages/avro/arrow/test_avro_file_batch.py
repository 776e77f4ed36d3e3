"""Batches of container files: one record each, every file with a schema of its own."""

import io
import json
import tracemalloc
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from serde_chain import DeserializerChain, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.errors import DecodeError
from serde_chain.stages.avro.arrow import batch as avro_batch

OLD = {"type": "record", "name": "Alert", "fields": [{"name": "id", "type": "long"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "band", "type": "string", "default": "g"}]}


def files(schema: Any, count: int) -> list[bytes]:
    settings = {"value.serializer": "avro", "avro.schema": json.dumps(schema), "avro.framing": "container"}
    with SerializerChain.from_config(settings) as chain:
        return [chain({"id": at, "band": "r"}) for at in range(count)]


def reader(**config: Any) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializer": "avro", "avro.framing": "container", **config})


@pytest.mark.parametrize("native", ["auto", "off"])
def test_files_of_two_schemas_into_one(native: str) -> None:
    values = [value for pair in zip(files(OLD, 50), files(NEW, 50), strict=True) for value in pair]
    array = reader(**{"avro.reader.schema": json.dumps(NEW), "avro.native": native}).to_arrow(
        [*values, None], topic="t"
    )
    expected = [{"id": at // 2, "band": "r" if at % 2 else "g"} for at in range(100)]
    assert array.to_pylist() == [*expected, None]


def test_without_a_schema_of_the_readers_own() -> None:
    assert reader().to_arrow(files(OLD, 3), topic="t").to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_files_that_are_no_row() -> None:
    buffer = io.BytesIO()
    fastavro.writer(buffer, OLD, [{"id": 1}, {"id": 2}])
    good = files(OLD, 2)
    values = [good[0], buffer.getvalue(), b"foreign", good[1][:-3], b"", good[1]]
    result = reader().read_batch(Batch(values, topic="t"))
    assert result.values.to_pylist() == [{"id": 0}, None, None, None, None, {"id": 1}]
    assert set(result.errors) == {1, 2, 3, 4}
    assert all(isinstance(error, DecodeError) for error in result.errors.values())
    assert "2 records" in str(result.errors[1])


def test_schemas_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_batch, "_MAX_DECODERS", 5)
    chain = reader()
    for at in range(20):
        schema = {"type": "record", "name": f"Alert{at}", "fields": [{"name": "id", "type": "long"}]}
        assert chain.to_arrow(files(schema, 1), topic="t").to_pylist() == [{"id": 0}]
    assert chain._forms is not None
    assert len(chain._forms[0][1]._decoders) <= 6  # type: ignore[union-attr]


def test_schemas_that_arrow_has_no_type_for_are_no_rows() -> None:
    recursive = {"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"]}]}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 0}
    values = files(OLD, 2)
    for schema, record in ((recursive, {"next": None}), (decimal, Decimal(1))):
        buffer = io.BytesIO()
        fastavro.writer(buffer, schema, [record])
        values.insert(1, buffer.getvalue())
    result = reader().read_batch(Batch(values, topic="t"))
    assert result.values.to_pylist() == [{"id": 0}, None, None, {"id": 1}]
    assert all("no Arrow type" in error.message for error in result.errors.values())


@pytest.mark.parametrize("name", ["record", "error", "map", "array", "enum", "fixed"])
def test_types_that_are_called_like_kinds_of_types(name: str) -> None:
    # To look such a name up again and again would never end.
    assert reader().to_arrow(files({**OLD, "name": name}, 2), topic="t").to_pylist() == [{"id": 0}, {"id": 1}]


def test_a_file_of_more_parts_than_bytes_is_no_row() -> None:
    nulls = {"type": "array", "items": "null"}
    buffers = []
    for count in (500, 50_000):
        buffer = io.BytesIO()
        fastavro.writer(buffer, nulls, [[None] * count])
        buffers.append(buffer.getvalue())
    result = reader(**{"avro.reader.schema": json.dumps(nulls)}).read_batch(Batch(buffers, topic="t"))
    assert [len(row) if row else row for row in result.values.to_pylist()] == [500, None]
    assert "parts" in str(result.errors[1])


@pytest.mark.full
def test_the_parts_of_all_rows_are_not_objects_at_once() -> None:
    # Each row is what a record may be: 99,000 items that take no bytes.
    schema = {"type": "array", "items": "null"}
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, [None] * 99_000)
    chain = DeserializerChain.from_config({"value.deserializer": "avro", "avro.schema": json.dumps(schema)})
    chain.to_arrow([buffer.getvalue()] * 2, topic="t")  # imports
    tracemalloc.start()
    array = chain.to_arrow([buffer.getvalue()] * 300, topic="t")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(array) == 300
    assert len(array.flatten()) == 300 * 99_000
    assert peak < 60 << 20  # one list for each row would be 240 MB
