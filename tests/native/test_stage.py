"""The stage with the compiled part: what it takes, what it leaves to fastavro, and how it is turned off."""

from __future__ import annotations

import gc
import json
import pickle
import uuid
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from serde_chain import DecodeError, DeserializerChain, EncodeError, SchemaRegistryError, SerializerChain
from serde_chain import config as configuration
from serde_chain.arrow import Batch
from serde_chain.cli.doctor.offline import compiled
from serde_chain.record import VALUE
from serde_chain.spark import explain
from serde_chain.spark.chains import worker as worker_chains
from serde_chain.spark.writing.plan import WritePlan
from serde_chain.spark.writing.worker import encode_batches
from serde_chain.stages.avro import indexes
from serde_chain.stages.avro.arrow.native_writer import NativeWriter
from serde_chain.stages.avro.arrow.types import ArrowColumn
from serde_chain.stages.avro.native import Native, library
from serde_chain.stages.avro.reader import AvroReader
from serde_chain.stages.avro.schema import AvroSchema
from serde_chain.stages.avro.stage import AvroSerializer
from serde_chain.testing.services import SchemaRegistry
from tests.schemas.contexts import context_registry

compiled_part: Any = library()
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}
RECORD = {"id": 7, "name": "x"}
DATA = b"\x0e\2x"


class Interrupt(BaseException):
    """As Ctrl-C raises it."""


def chains(schema: Any = SCHEMA, **config: Any) -> tuple[SerializerChain, DeserializerChain]:
    config["avro.schema"] = json.dumps(schema)
    return (
        SerializerChain.from_config({"value.serializers": "avro", **config}),
        DeserializerChain.from_config({"value.deserializers": "avro", **config}),
    )


def test_a_reader_without_users_is_freed() -> None:
    """Schemas that come with records are many; the collector cannot look into the compiled part."""
    schema = AvroSchema.parse(json.dumps(SCHEMA))
    reader = AvroReader(schema, schema.readable, None, native=Native(compiled_part))
    assert reader.decode(DATA) == RECORD
    with pytest.raises(DecodeError):
        reader.decode(b"")  # fastavro's way is prepared
    seen = weakref.ref(reader)
    del reader
    gc.collect()
    assert seen() is None


def test_fastavros_schema_is_prepared_for_the_first_record_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []

    def guarded(writer: Any, **options: Any) -> Any:
        prepared.append(writer)
        return indexes.guarded(writer, **options)

    monkeypatch.setattr("serde_chain.stages.avro.reader.guarded", guarded)
    _, read = chains()
    assert read(DATA) == RECORD
    assert not prepared
    for _ in range(2):
        with pytest.raises(DecodeError):
            read(DATA[:-1])
    assert len(prepared) == 1


@pytest.fixture
def fastavro_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """fastavro's reader and writer, to which a stage made from now on would turn."""

    def called(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr("fastavro.schemaless_reader", called)
    monkeypatch.setattr("fastavro.schemaless_writer", called)


@pytest.mark.usefixtures("fastavro_is_gone")
@pytest.mark.parametrize("data", [DATA, bytearray(DATA), memoryview(DATA)])
def test_plain_records_do_not_reach_fastavro(data: Any) -> None:
    write, read = chains()
    assert write(RECORD, None) == DATA
    assert read(data, None) == RECORD
    assert read.to_arrow([bytes(data)], topic="t").to_pylist() == [RECORD]


@pytest.mark.usefixtures("fastavro_is_gone")
def test_it_can_be_turned_off() -> None:
    write, read = chains(**{"avro.native": "off"})
    with pytest.raises(EncodeError):
        write(RECORD, None)
    with pytest.raises(DecodeError):
        read(DATA, None)
    result = read.read_batch(Batch([DATA], topic="t"))
    assert list(result.errors) == [0]


@pytest.mark.usefixtures("fastavro_is_gone")
def test_keys_with_maps_are_left_to_fastavro() -> None:
    schema = {"type": "map", "values": "int"}
    config = {"key.serializers": "avro", "avro.schema": json.dumps(schema)}
    with pytest.raises(EncodeError):
        SerializerChain.from_config(config, is_key=True)({"b": 1, "a": 2}, None)


def test_checked_values_are_refused_too() -> None:
    write, _ = chains(**{"avro.validate": "true"})
    with pytest.raises(EncodeError, match=r"R\.id is int of 41 bits"):
        write({"id": 2**40, "name": "x"}, None)


def test_a_budget_of_parts_holds() -> None:
    schema = {"type": "array", "items": "int"}
    write, read = chains(schema, **{"serde.max.parts": "10"})
    small, large = write([1] * 9, None), write([1] * 10, None)
    assert read(small, None) == [1] * 9
    with pytest.raises(DecodeError, match="more than 10 parts"):
        read(large, None)
    assert list(read.read_batch(Batch([small, large], topic="t")).errors) == [1]


def test_undecodable_rows_are_named_and_the_others_read() -> None:
    _, read = chains()
    records = [DATA, None, b"\x0e\x02", DATA + b"!", DATA] * 200
    result = read.read_batch(Batch(records, topic="t"))
    assert result.values.to_pylist() == [RECORD, None, None, None, RECORD] * 200
    assert list(result.errors) == [row for row in range(1000) if row % 5 in {2, 3}]
    assert "truncated" in str(result.errors[2])
    assert "followed by 1 bytes" in str(result.errors[3])


@pytest.mark.parametrize("large", [False, True])
def test_slices_of_columns(large: bool) -> None:
    _, read = chains()
    column = pa.array([b"bad", DATA, None, DATA, b"bad"], pa.large_binary() if large else pa.binary())
    assert read.to_arrow(column[1:4], topic="t").to_pylist() == [RECORD, None, RECORD]
    assert read.to_arrow(column[2:2], topic="t").to_pylist() == []


def test_interrupts_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> Any:
        raise Interrupt

    monkeypatch.setitem(__import__("fastavro.read").read.LOGICAL_READERS, "int-interrupting", interrupted)
    monkeypatch.setitem(__import__("fastavro.write").write.LOGICAL_WRITERS, "int-interrupting", interrupted)
    write, read = chains({"type": "int", "logicalType": "interrupting"})
    with pytest.raises(Interrupt):
        write(1, None)
    with pytest.raises(Interrupt):
        read(b"\2", None)


def test_columns_outlive_the_capsule_and_may_be_dropped_before() -> None:
    _, read = chains({"type": "array", "items": "string"})
    column = read.to_arrow([b"\2\2a\0"] * 3, topic="t")
    child = column.flatten()
    del column
    assert child.to_pylist() == ["a"] * 3


def test_an_array_of_another_type_is_left() -> None:
    schema, native = AvroSchema.parse(json.dumps(SCHEMA)), Native(compiled_part)
    column = ArrowColumn(schema)
    decoder = native.column_decoder(schema.parsed, None, column.type, column.type_as_read)
    for values in (pa.array([1]), pa.chunked_array([pa.array([DATA])]), (DATA,), None):
        assert decoder.read(values, 0, b"") is None
    for good in ([DATA, None], pa.array([DATA, None]), pa.array([b"x", DATA, None], pa.large_binary())[1:]):
        found = decoder.read(good, 0, b"\x0e")
        assert found is not None
        assert (found[0].to_pylist(), found[1]) == ([RECORD, None], [])


def written(schema: Any, array: Any) -> tuple[Any, list[int]]:
    records, left = NativeWriter(Native(compiled_part), AvroSchema.parse(json.dumps(schema))).write(array)
    return records.to_pylist(), left


def test_arrays_are_written() -> None:
    rows = [RECORD, None, {"id": None, "name": "x"}, RECORD]
    array = pa.array([RECORD, *rows], pa.struct([("name", pa.large_string()), ("id", pa.int64()), ("more", pa.null())]))
    assert written(SCHEMA, array[1:]) == ([DATA, None, None, DATA], [2])
    assert written(SCHEMA, array[2:2]) == ([], [])


@pytest.mark.parametrize("stages", ["avro", "avro, zstd"])
def test_workers_of_spark_write_columns(stages: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = pa.struct([("id", pa.int32()), ("name", pa.string())])
    config = {"value.serializers": stages, "avro.schema": json.dumps(SCHEMA), "avro.framing": "single-object"}
    calls: list[Any] = []
    write = NativeWriter.write

    def noted(self: NativeWriter, values: Any) -> Any:
        calls.append(values)
        return write(self, values)

    monkeypatch.setattr(NativeWriter, "write", noted)

    def encoded(native: str, rows: list[Any]) -> Any:
        plan = WritePlan({**config, "avro.native": native}, (VALUE,), (VALUE,))
        [part] = encode_batches(pickle.dumps(plan), iter([pa.array(rows, kinds)]))
        return part.to_pylist()

    rows = [RECORD, None, {"id": -1, "name": "y"}]
    assert encoded("on", rows) == encoded("off", rows)
    assert len(calls) == 1
    for native in ("on", "off"):
        with pytest.raises(EncodeError, match="name"):
            encoded(native, [*rows, {"id": 1, "name": None}])


def test_workers_of_spark_write_columns_with_a_registry(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"value.serializers": "avro, zstd", "avro.schema": json.dumps(SCHEMA), "schema.registry.url": registry.url}
    rows = pa.array([RECORD, None, {"id": -1, "name": "y"}], pa.struct([("id", pa.int32()), ("name", pa.string())]))
    written_by: list[str] = []
    write = NativeWriter.write

    def noted(self: NativeWriter, values: Any) -> Any:
        written_by.append("columns")
        return write(self, values)

    monkeypatch.setattr(NativeWriter, "write", noted)

    def encoded(native: str, topics: list[str | None]) -> Any:
        plan = WritePlan({**config, "avro.native": native}, (VALUE, "topic"), (VALUE,))
        [part] = encode_batches(pickle.dumps(plan), iter([(rows, pa.array(topics, pa.string()))]))
        return part.to_pylist()

    one, two = (f"spark-columns-{uuid.uuid4()}" for _ in range(2))
    assert encoded("on", [one] * 3) == encoded("off", [one] * 3)
    assert written_by == ["columns"]
    assert encoded("on", [one, two, two]) == encoded("off", [one, two, two])
    assert written_by == ["columns"]
    data = encoded("on", [one] * 3)[0]["value"]
    read = DeserializerChain.from_config({"value.deserializers": "zstd, avro", "schema.registry.url": registry.url})
    with closing(read):
        assert read(data, None) == RECORD
    worker_chains.close_all()


def test_writers_of_columns_are_kept_for_so_many_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serde_chain.stages.avro.stage._MAX_COLUMN_WRITERS", 3)
    column = pa.array([RECORD], pa.struct([("id", pa.int32()), ("name", pa.string())]))
    with context_registry() as registry:
        config = {"schema.registry.url": registry.url, "avro.schema": json.dumps(SCHEMA)}
        with closing(SerializerChain.from_config({"value.serializers": "avro", **config})) as write:
            [stage] = write.stages
            assert isinstance(stage, AvroSerializer)
            kept = []
            for number in range(8):
                (data,) = write.from_arrow(column, topic=f"topic-{number}").values.to_pylist()
                assert data[5:] == DATA
                kept.append(len(stage._column_writers))
    assert kept == [1, 2, 3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize("native", ["on", "off"])
def test_a_registry_that_does_not_answer_is_the_error_of_a_record(native: str) -> None:
    config = {"value.serializers": "avro, zstd", "avro.schema": json.dumps(SCHEMA), "avro.native": native}
    config |= {"schema.registry.url": "http://127.0.0.1:1", "schema.registry.max.retries": "0"}
    plan = WritePlan(config, (VALUE, "topic"), (VALUE,))
    batch = (pa.array([RECORD], pa.struct([("id", pa.int32()), ("name", pa.string())])), pa.array(["alerts"]))
    with pytest.raises(SchemaRegistryError, match="topic=alerts"):
        list(encode_batches(pickle.dumps(plan), iter([batch])))
    worker_chains.close_all()


def test_values_that_the_schema_does_not_hold_are_left() -> None:
    assert written("int", pa.array([1, 2**31])) == ([b"\2", None], [1])
    assert written({"type": "enum", "name": "E", "symbols": ["a"]}, pa.array(["a", "b"])) == ([b"\0", None], [1])
    assert written({"type": "fixed", "name": "F", "size": 1}, pa.array([b"x", b"xy"])) == ([b"x", None], [1])
    date = {"type": "int", "logicalType": "date"}
    assert written(date, pa.array([0, 2932897], pa.date32())) == ([b"\0", None], [1])
    twice = pa.array([[("a", 1), ("a", 2)], [("b", 1)]], pa.map_(pa.string(), pa.int32()))
    assert written({"type": "map", "values": "int"}, twice) == ([None, b"\2\2b\2\0"], [0])


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["x"]).dictionary_encode(),
        pa.array([b"x"]),
        pa.array(["x"], pa.string_view()),
        pa.array([["x"]]),
        pa.array([{"x": "x"}]),
        pa.array([1.5]),
        pa.array([1], pa.uint32()),
        pa.array([], pa.null()),
    ],
)
def test_arrays_of_other_types_are_refused(array: Any) -> None:
    for schema in ("int", SCHEMA, {"type": "map", "values": "int"}, ["int", "long", "null"]):
        with pytest.raises(ValueError, match=r"type|union|missing|dictionary|malformed"):
            written(schema, array)


def test_doctor_says_so() -> None:
    def found(**config: str) -> Iterator[str]:
        settings = {"value.deserializers": "avro", "avro.schema": '"int"', **config}
        return map(str, compiled(configuration.resolve(settings)))

    assert list(found()) == ["ok       avro: compiled"]
    (off,) = found(**{"avro.native": "off"})
    assert "by fastavro, record by record" in off
    assert "avro.native = off" in off
    assert not list(found(**{"value.deserializers": "json"}))
    assert ["for batches" in said for said in found(**{"avro.framing": "container"})] == [True]


def test_explain_says_so() -> None:
    config = {"value.deserializers": "avro", "avro.schema": '"int"'}
    said = explain(config, engine="arrow").splitlines()
    assert said[1:] == ["avro: compiled"]
    for off in ({"avro.native": "off"}, {"avro.arrow.reader": "record"}):
        said = explain({**config, **off}, engine="arrow").splitlines()
        assert said[1:] == ["avro: fastavro, record by record (as configured)"]
    assert len(explain({"value.deserializers": "json"}, engine="arrow").splitlines()) == 1
    same = {"type": "array", "items": {"type": "array", "items": "null"}}
    refused = {**config, "avro.schema": json.dumps(same)}
    assert (
        explain(refused, engine="arrow")
        .splitlines()[1]
        .endswith("fastavro, record by record (a few bytes may be any number of values)")
    )


def test_large_values_are_in_their_places() -> None:
    fields = [
        {"name": name, "type": type_}
        for name, type_ in zip("abcde", ("bytes", "int", "string", "bytes", "int"), strict=True)
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    record = {"a": b"a" * 70_000, "b": 1, "c": "c" * 90_000, "d": b"d" * 200_000, "e": 2}
    data, expected = (chains(schema, **{"avro.native": native})[0](record, None) for native in ("on", "off"))
    assert data == expected
    assert chains(schema)[1](data, None) == record
