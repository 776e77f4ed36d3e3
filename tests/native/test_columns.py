"""What the compiled part takes of columns: compared with fastavro where it takes all, and with what it took before."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import resource
import threading
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from serde_chain import DeserializerChain, SerializerChain
from serde_chain.arrow import Batch
from serde_chain.schemas.part_budget import FREE_PARTS, PARTS_PER_BYTE
from serde_chain.stages.avro.arrow.batch import refusal
from serde_chain.stages.avro.decimal import logical_readers
from serde_chain.stages.avro.native import Native, library
from serde_chain.stages.avro.schema import AvroSchema

compiled_part: Any = library()
BYTES = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "data", "type": "bytes"}]}


def reader(schema: Any, **config: str) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "avro", "avro.schema": json.dumps(schema), **config})


def record(number: int, size: int) -> bytes:
    chain = SerializerChain.from_config({"value.serializers": "avro", "avro.schema": json.dumps(BYTES)})
    return bytes(chain({"id": number, "data": bytes([number]) * size}, None) or b"")


def test_memory_of_freed_columns_is_used_again_and_no_other() -> None:
    """Blocks of 64 KiB and more are kept; those of an array that is alive are its own."""
    chain = reader(BYTES)
    first, second = ([record(number, 100_000 + number)] * 3 for number in (1, 2))
    kept = chain.to_arrow(first, topic="t")
    for _ in range(5):
        freed = chain.to_arrow(second, topic="t")
        address = freed.field("data").buffers()[2].address
        assert freed.field("data").to_pylist() == [b"\2" * 100_002] * 3
        del freed
        again = chain.to_arrow(second, topic="t")
        assert again.field("data").buffers()[2].address == address
        del again
    assert kept.field("data").to_pylist() == [b"\1" * 100_001] * 3
    compiled_part.keep(0)
    try:
        assert chain.to_arrow(first, topic="t") == kept
    finally:
        compiled_part.keep(72 << 20)


@pytest.mark.full
def test_records_taken_out_of_a_list_meanwhile_are_read() -> None:
    """Without the interpreter's lock, other threads change the list, and its records' memory would be another's."""
    chain = reader(BYTES)
    chain.to_arrow([record(0, 1)], topic="t")  # the schema is known
    stop = threading.Event()
    records = [record(at % 100, 2_000) for at in range(2_000)]
    expected = chain.to_arrow(records, topic="t")
    changing = list(records)

    def change() -> None:
        while not stop.is_set():
            changing[:] = [bytes(bytearray(data)) for data in changing]

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            assert chain.to_arrow(changing, topic="t") == expected
    finally:
        stop.set()
        thread.join()


def test_lists_grow_into_kept_memory() -> None:
    """Otherwise the system clears their pages in each batch, which threads wait for."""
    chain = reader({"type": "array", "items": "double"})
    records = [b"\xc8\x01" + bytes(800) + b"\0"] * 2000
    for _ in range(4):
        assert len(chain.to_arrow(records, topic="t").values) == 200_000
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(5):
        chain.to_arrow(records, topic="t")
    # A page has 4 KiB, and the numbers of a batch 1.6 MB.
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before < 400


@pytest.mark.full
def test_a_first_record_is_no_measure_of_all() -> None:
    """Memory is reserved for all records by those read so far, and never for more than all of them have."""
    chain = reader(BYTES)
    records = [record(1, 1_000_000), *[record(at % 100, at % 50) for at in range(20_000)], record(2, 500_000)]
    array = chain.to_arrow(records, topic="t")
    assert array == reader(BYTES, **{"avro.native": "off"}).to_arrow(records, topic="t")
    assert array.field("data").buffers()[2].size < 4_000_000


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ({"type": "array", "items": "long"}, [1, 2]),
        ({"type": "array", "items": "string"}, []),
        ({"type": "map", "values": "int"}, {"a": 1}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "\u00ff\u009c"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_790_000_000_000),
        ({"type": "record", "name": "I", "fields": [{"name": "a", "type": "int", "default": 3}]}, {}),
        (["string", "long", "null"], "x"),
        ({"type": "array", "items": ["null", "double"]}, []),
    ],
    ids=str,
)
def test_defaults_of_all_types(type_: Any, default: Any) -> None:
    target = {**BYTES, "fields": [*BYTES["fields"], {"name": "new", "type": type_, "default": default}]}
    config = {"avro.reader.schema": json.dumps(target)}
    chain, other = reader(BYTES, **config), reader(BYTES, **config, **{"avro.native": "off"})
    records = [record(1, 3), record(2, 4)]
    assert chain.to_arrow(records, topic="t") == other.to_arrow(records, topic="t")
    form = next(iter(chain.stages)).batch_form()
    (decoder,) = _decoders(form, Batch(records, topic="t"))
    assert decoder.refusal is None


def _decoders(form: Any, batch: Batch) -> list[Any]:
    form(batch)
    return list(form._decoders.values())


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "id", "type": "int"}, {"name": "children", "type": {"type": "array", "items": "Tree"}}],
}


def tree(levels: int) -> dict[str, Any]:
    """A tree of so many levels, the last of which have two branches."""
    return {"id": levels, "children": [tree(levels - 1)] * (2 if levels < 4 else 1) if levels else []}


def test_recursive_records_are_compiled_up_to_some_depth() -> None:
    schema, left = AvroSchema.parse(json.dumps(TREE)), []

    def leave(data: bytes, _start: int) -> None:
        left.append(len(data))

    decode = compiled_part.Decoder(
        schema.readable, None, logical_readers(), leave, None, (FREE_PARTS, PARTS_PER_BYTE)
    ).decode
    good, deep = (written(tree(levels)) for levels in (80, 120))
    assert decode(good) == tree(80)
    assert not left
    decode(deep)
    assert left == [len(deep)]
    assert reader(TREE)(deep) == tree(120)  # fastavro reads some more


def test_fields_of_one_name_are_read_as_by_fastavro() -> None:
    twice = {**BYTES, "fields": [{"name": "id", "type": "long"}, {"name": "id", "type": "string"}]}
    schema = AvroSchema.parse(json.dumps(twice))
    decode = compiled_part.Decoder(schema.readable, None, logical_readers(), print, None, None).decode
    assert decode(b"\x02\x02x") == {"id": "x"}


def written(value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(TREE), value)
    return buffer.getvalue()


NOON = dt.datetime(2026, 11, 26, 12, 0, 0, 123_000, tzinfo=dt.UTC)


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


@pytest.mark.parametrize(
    ("schema", "column"),
    [
        (logical("int", "time-millis"), pa.array([dt.time(12, 0, 1), dt.time(0)], pa.time32("ms"))),
        (logical("long", "time-micros"), pa.array([dt.time(12, 0, 1, 5), dt.time(0)], pa.time64("us"))),
        (logical("int", "time-millis"), pa.array([1, 2], pa.int32())),
        (logical("int", "date"), pa.array([1, 2], pa.int16())),
        (logical("long", "timestamp-millis"), pa.array([1, 2], pa.int64())),
        (logical("long", "timestamp-millis"), pa.array([NOON], pa.timestamp("ms", "UTC"))),
        (logical("long", "timestamp-micros"), pa.array([NOON], pa.timestamp("ns", "Europe/Berlin"))),
        (logical("long", "timestamp-micros"), pa.array([NOON.replace(microsecond=0)], pa.timestamp("s", "UTC"))),
        (logical("long", "local-timestamp-micros"), pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms"))),
        (logical("long", "timestamp-nanos"), pa.array([1, 2], pa.int64())),
        (logical("string", "unknown"), pa.array(["a", "b"])),
        (["string"], pa.array(["a", "b"])),
        (
            ["null", "string", logical("long", "timestamp-micros"), {"type": "array", "items": "int"}],
            pa.array(
                [{"member0": "a"}, {"member1": NOON}, None, {"member2": [1]}, {}],
                pa.struct(
                    [
                        ("member0", pa.string()),
                        ("member1", pa.timestamp("us", "UTC")),
                        ("member2", pa.list_(pa.int32())),
                    ]
                ),
            ),
        ),
    ],
    ids=str,
)
def test_columns_of_all_types_are_written(schema: Any, column: Any) -> None:
    # Within a record, a null of the column is one of the union.
    whole = {"type": "record", "name": "R", "fields": [{"name": "f", "type": schema}]}
    config = {"value.serializers": "avro", "avro.schema": json.dumps(whole)}
    compiled, other = (SerializerChain.from_config({**config, "avro.native": native}) for native in ("on", "off"))
    table = pa.table({"f": column})
    for rows in (table, table.slice(1)):
        expected = other.from_arrow(rows, topic="t").values
        assert compiled.from_arrow(rows, topic="t").values == expected
        part = rows.to_struct_array().combine_chunks()
        assert not compiled.begin_column(part, "t")[1].stages, "it was written row by row"


@pytest.mark.parametrize(
    "column", [pa.array([NOON], pa.timestamp("ns", "UTC")), pa.array([86_400_000], pa.time32("ms"))]
)
def test_values_between_the_units_or_beyond_the_day_are_left(column: Any) -> None:
    schema = (
        logical("long", "timestamp-micros") if pa.types.is_timestamp(column.type) else logical("int", "time-millis")
    )
    values = (
        pa.compute.add(column.cast(pa.int64()), 1).cast(column.type) if pa.types.is_timestamp(column.type) else column
    )
    encoder = Native(compiled_part).column_encoder(AvroSchema.parse(json.dumps(schema)).parsed, b"", ordered=False)
    array, left = encoder.encode(*values.__arrow_c_array__())
    assert (array.to_pylist(), left) == ([None], [0])


def test_numbers_beyond_a_float_are_left() -> None:
    encoder = Native(compiled_part).column_encoder("float", b"", ordered=False)
    array, left = encoder.encode(*pa.array([3.4e38, 3.5e38, math.inf, -1e300]).__arrow_c_array__())
    assert (array.to_pylist(), left) == ([b"\x9e\xc9\x7f\x7f", None, b"\0\0\x80\x7f", None], [1, 3])


def test_ordinary_schemas_are_compiled() -> None:
    """Of change data capture, with its decimals, defaults and envelope."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}, "default": "NEW"},
    ]
    row = {"type": "record", "name": "Value", "fields": fields}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
        ],
    }
    schema = AvroSchema.parse(json.dumps(envelope))
    assert refusal(schema, Native(compiled_part)) is None
    value = {"id": 1, "price": Decimal("1.50"), "tags": ["a"], "at": 5, "state": "OLD"}
    chain = SerializerChain.from_config({"value.serializers": "avro", "avro.schema": json.dumps(envelope)})
    data = bytes(chain({"before": None, "after": value, "op": "c"}, None) or b"")
    assert fastavro.validate(value, fastavro.parse_schema(row))
    assert reader(envelope).to_arrow([data], topic="t").to_pylist() == [{"before": None, "after": value, "op": "c"}]
