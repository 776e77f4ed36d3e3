"""Tables through whole chains: the same bytes as record by record, and which row an error names."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from payload_stores import PayloadStoreUnavailableError
from payload_stores.memory import MemoryStore
from serde_chain import (
    ConfigError,
    DeserializerChain,
    EncodeError,
    RecordContext,
    SerializationError,
    Serializer,
    SerializerChain,
)
from serde_chain.arrow import ArrowRecords
from serde_chain.stages.avro.native import library
from serde_chain.stages.avro.stage import AvroSerializer
from serde_chain.testing.services import SchemaRegistry
from tests.models.alerts import Created
from tests.stages.protobuf.protobuf_messages import FIRST

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "band", "type": ["null", "string"]},
            {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "flux", "type": {"type": "array", "items": "double"}},
            {"name": "known", "type": {"type": "map", "values": "long"}},
            {"name": "event", "type": ["string", {"type": "array", "items": "long"}]},
        ],
    }
)
SEEN = datetime(2026, 11, 25, 23, 59, 59, 999_999, UTC)
ROWS: list[dict[str, Any]] = [
    {"id": at, "band": band, "seen": SEEN, "flux": [0.5] * at, "known": {"a": at}, "event": f"e{at}"}
    for at, band in enumerate(("g", None, "r"))
]
MEMBERS = pa.struct([("member0", pa.string()), ("member1", pa.list_(pa.int64()))])
TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("band", pa.string()),
        ("seen", pa.timestamp("us", "UTC")),
        ("flux", pa.list_(pa.float64())),
        ("known", pa.map_(pa.string(), pa.int64())),
        ("event", MEMBERS),
    ]
)
TABLE = pa.Table.from_pylist([{**row, "event": {"member0": row["event"]}} for row in ROWS], TYPES)


@pytest.fixture(params=["auto", "off"])
def avro(request: pytest.FixtureRequest) -> dict[str, object]:
    return {"value.serializer": "avro", "avro.schema": SCHEMA, "avro.native": request.param}


def test_avro_is_written_as_record_by_record(avro: dict[str, object]) -> None:
    chain = SerializerChain.from_config(avro)
    result = chain.from_arrow(TABLE, topic="alerts")
    assert isinstance(result, ArrowRecords)
    assert result.values.type == pa.binary()
    assert result.values.to_pylist() == [chain(row) for row in ROWS]
    assert result.headers is None
    rest = chain.begin_column(TABLE.to_struct_array().combine_chunks(), "alerts")[1]
    if library() is not None and avro["avro.native"] == "auto":
        assert not rest.stages  # written by columns
    else:
        assert rest is chain


LEAVES: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": ("float", pa.float64(), st.floats(width=32)),
    "double": ("double", pa.float64(), st.floats()),
    "bytes": ("bytes", pa.binary(), st.binary(max_size=200)),
    "string": ("string", pa.string(), st.text(max_size=20)),
    "date": ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    "moment": (
        {"type": "long", "logicalType": "timestamp-micros"},
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(UTC)),
    ),
    "fixed": ({"type": "fixed", "name": "F", "size": 3}, pa.binary(), st.binary(min_size=3, max_size=3)),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), st.sampled_from("AB")),
}


@st.composite
def records_of_a_type(draw: st.DrawFn) -> tuple[Any, Any, list[Any]]:
    """A schema of one leaf in several containers, the type of its column, and rows."""
    leaf = draw(st.sampled_from([*LEAVES]))
    schema, kind, values = LEAVES[leaf]
    named = {"fixed": "F", "enum": "E"}.get(leaf, schema)
    optional = st.none() | values
    fields: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
        "plain": (schema, kind, values),
        "optional": (["null", named], kind, optional),
        "reversed": ([named, "null"], kind, optional),
        "list": (["null", {"type": "array", "items": named}], pa.list_(kind), st.none() | st.lists(values, max_size=3)),
        "items": ({"type": "array", "items": ["null", named]}, pa.list_(kind), st.lists(optional, max_size=3)),
        "map": (
            {"type": "map", "values": named},
            pa.map_(pa.string(), kind),
            st.dictionaries(st.text(max_size=3), values, max_size=3),
        ),
        "record": (
            ["null", {"type": "record", "name": "Inner", "fields": [{"name": "value", "type": named}]}],
            pa.struct([("value", kind)]),
            st.none() | st.fixed_dictionaries({"value": values}),
        ),
    }
    rows = draw(st.lists(st.fixed_dictionaries({name: way for name, (_, _, way) in fields.items()}), max_size=4))
    record = [{"name": name, "type": each} for name, (each, _, _) in fields.items()]
    return (
        {"type": "record", "name": "R", "fields": record},
        pa.struct([(name, each) for name, (_, each, _) in fields.items()]),
        rows,
    )


@pytest.mark.full
@pytest.mark.skipif(library() is None, reason="without the compiled part, fastavro writes all")
@given(records_of_a_type(), st.integers(0, 2))
def test_all_types_are_written_as_by_fastavro(case: tuple[Any, Any, list[Any]], start: int) -> None:
    schema, kind, rows = case
    chain = SerializerChain.from_config({"value.serializer": "avro", "avro.schema": schema})
    pairs = [{**row, "map": [*row["map"].items()]} for row in rows]
    column = pa.array(pairs, kind).slice(start)
    values, rest = chain.begin_column(column, "t")
    assert not rest.stages
    assert values.to_pylist() == [chain(row) for row in rows[start:]]


def test_without_the_compiled_part_rows_are_written_one_by_one() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    naive = {"type": "long", "logicalType": "timestamp-micros"}
    cases: list[tuple[Any, Any]] = [
        (decimal, pa.array([Decimal("1.25")], pa.decimal128(5, 2))),
        (naive, pa.array([datetime(2026, 1, 1)], pa.timestamp("us"))),  # noqa: DTZ001, naive on purpose
        (["string", "long"], pa.array(["text"])),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long", "default": 7}]}, pa.array([{}])),
        ("double", pa.array([1])),
    ]
    for schema, column in cases:
        config: dict[str, Any] = {"value.serializer": "avro", "avro.schema": schema, "avro.native": "off"}
        chain = SerializerChain.from_config(config)
        assert chain.begin_column(column, "t")[1] is chain
        assert chain.from_arrow(column, topic="t").values.to_pylist() == [chain(column[0].as_py())]


def test_stages_behind_the_first_one_and_tombstones(avro: dict[str, object]) -> None:
    config = {**avro, "value.serializers": "avro, zstd"}
    del config["value.serializer"]
    chain = SerializerChain.from_config(config)
    column = pa.chunked_array([TABLE.to_struct_array().combine_chunks(), pa.nulls(1, TABLE.to_struct_array().type)])
    values = chain.from_arrow(column, topic="alerts").values.to_pylist()
    assert values == [*(chain(row) for row in ROWS), None]


@pytest.mark.parametrize("count", [0, 1])
def test_few_rows(avro: dict[str, object], count: int) -> None:
    result = SerializerChain.from_config(avro).from_arrow(TABLE.slice(0, count), topic="alerts")
    assert len(result.values) == count


@pytest.mark.parametrize("framing", ["confluent", "header"])
def test_plain_peers_read_avro_and_protobuf_of_a_registry(registry: SchemaRegistry, topic: str, framing: str) -> None:
    url = {"schema.registry.url": registry.url, "avro.framing": framing, "protobuf.framing": framing}
    flat = json.dumps({"type": "record", "name": "Flat", "fields": [{"name": "id", "type": "long"}]})
    table = pa.table({"id": [2**40, 2**50]})  # Confluent's class refuses five bytes and fewer
    with (
        registry.client() as client,
        SerializerChain.from_config({"value.serializer": "avro", "avro.schema": flat, **url}) as avro,
        SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.type": FIRST, **url}) as protobuf,
    ):
        conf = SchemaRegistry.serializer_conf()
        # Protobuf's without the registry, as in tests/stages/protobuf/test_protobuf_registry.py.
        peers: Any = AvroDeserializer(client, conf=conf), ProtobufDeserializer(FIRST)
        for chain, peer, name in ((avro, peers[0], topic), (protobuf, peers[1], f"{topic}-protobuf")):
            values, headers = chain.from_arrow(table, topic=name)
            assert (headers is None) == (framing == "confluent")
            found = []
            for row, data in enumerate(values.to_pylist()):
                pairs = [] if headers is None else [tuple(pair.values()) for pair in headers[row].as_py()]
                found.append(peer(data, SerializationContext(name, MessageField.VALUE, pairs)))
            ids = [value["id"] if isinstance(value, dict) else value.id for value in found]
            assert ids == table["id"].to_pylist()


def test_tables_of_other_libraries() -> None:
    chain = SerializerChain.from_config({"value.serializer": "json"})
    rows = [{"name": "M 51 Whirlpool", "tags": ["a"], "band": "g"}, {"name": "M 87", "tags": [], "band": "g"}]
    expected = [chain(row) for row in rows]
    frame = pl.DataFrame(rows).with_columns(pl.col("band").cast(pl.Categorical))
    tables: dict[str, Any] = {
        "polars": frame,
        "duckdb": duckdb.sql("SELECT name, tags, band::ENUM ('g', 'r') AS band FROM frame"),
        "pandas": pd.DataFrame(rows),
        "stream": pa.RecordBatchReader.from_batches(frame.to_arrow().schema, frame.to_arrow().to_batches()),
    }
    for name, table in tables.items():
        values = chain.from_arrow(table, topic="images").values
        assert values.to_pylist() == expected, name
    assert pl.Series(chain.from_arrow(frame, topic="images").values).to_list() == expected
    column = frame.to_struct("all")
    assert chain.from_arrow(column, topic="images").values.to_pylist() == expected


def test_a_column_of_bytes_for_a_chain_of_bytes() -> None:
    chain = SerializerChain.from_config({"value.serializers": "gzip"})
    data = [b"M 51", bytes(100_000), None]
    assert chain.from_arrow(pa.array(data, pa.large_binary()), topic="t").values.to_pylist() == [
        data and chain(data) for data in data
    ]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"id": [1, 2], "name": ["M 51", 87]}), "DataFrame cannot be converted.*column name"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "Duplicate column names.*unique name"),
    ],
)
def test_frames_that_arrow_cannot_have(frame: pd.DataFrame, said: str) -> None:
    with pytest.raises(EncodeError, match=said) as caught:
        SerializerChain.from_config({"value.serializer": "json"}).from_arrow(frame, topic="t")
    assert "M 51" not in str(caught.value)


def test_a_lazy_frame_is_to_be_collected() -> None:
    with pytest.raises(ConfigError, match=r"not LazyFrame.*collect\(\)"):
        SerializerChain.from_config({"value.serializer": "json"}).from_arrow(pl.LazyFrame({"id": [1]}), topic="t")


@pytest.mark.parametrize("table", [ROWS, None, 7, "table"])
def test_what_is_no_table_is_refused(table: Any) -> None:
    with pytest.raises(ConfigError, match="a table was expected"):
        SerializerChain.from_config({"value.serializer": "json"}).from_arrow(table, topic="t")


def test_errors_name_the_row(avro: dict[str, object]) -> None:
    rows = [{**row, "event": {"member0": "e"}} for row in (*ROWS, {**ROWS[0], "id": 2**31})]
    # Errors are found chunk by chunk.
    wrong = pa.concat_tables(pa.Table.from_pylist(part, TYPES) for part in (rows[:2], rows[2:]))
    for config in (avro, {"value.serializer": "protobuf", "protobuf.type": FIRST}, {"value.serializer": "string"}):
        wanted = 3 if config is avro else 0
        with pytest.raises(SerializationError) as raised:
            SerializerChain.from_config(config).from_arrow(wrong, topic="alerts")
        assert raised.value.row == wanted
        assert raised.value.topic == "alerts"
        assert str(config["value.serializer"]) in str(raised.value.stage)


@pytest.mark.parametrize("bad", [(0,), (999,), (371, 372, 999)])
def test_the_first_misfit_of_many_rows_is_found_in_few_calls(
    monkeypatch: pytest.MonkeyPatch, bad: tuple[int, ...]
) -> None:
    lengths: list[int] = []
    convert = AvroSerializer.row_converter

    def counted(self: AvroSerializer, column: Any, ctx: Any) -> Any:
        lengths.append(len(column))
        return convert(self, column, ctx)

    monkeypatch.setattr(AvroSerializer, "row_converter", counted)
    config = {"value.serializer": "avro", "avro.schema": '"int"', "avro.native": "off"}
    column = pa.array([2**31 if row in bad else None if row % 3 else row for row in range(1000)])
    with SerializerChain.from_config(config) as chain, pytest.raises(EncodeError, match="schema's int") as caught:
        chain.from_arrow(column, topic="t")
    assert caught.value.row == bad[0]
    assert (len(lengths) <= 12, sum(lengths) <= 3 * len(column)) == (True, True)


def test_large_messages_and_their_headers(tmp_path: Path) -> None:
    config = {
        "value.serializers": "json, large-message",
        "value.deserializers": "large-message, json",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": 1000,
    }
    table = pa.table({"text": ["small", "x" * 5000, "y" * 3000]})
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        values, headers = write.from_arrow(table, topic="texts")
        assert headers[0].as_py() is None
        assert "large-message-size" in {pair["key"] for pair in headers[1].as_py()}
        texts = read.to_arrow(values, headers, topic="texts").to_pylist()
    assert [json.loads(text)["text"] for text in texts] == table["text"].to_pylist()
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 2


def test_large_fields(tmp_path: Path) -> None:
    config = {
        "value.serializers": "large-fields, avro",
        "value.deserializers": "avro, large-fields",
        "avro.schema": '{"type": "record", "name": "R", "fields": [{"name": "stamp", "type": "bytes"}]}',
        "large.fields.paths": "stamp",
        "large.fields.min.bytes": 10,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }
    table = pa.table({"stamp": [b"small", bytes(5000)]})
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        values, headers = write.from_arrow(table, topic="stamps")
        assert len(values[1].as_py()) < 500
        assert read.to_arrow(values, headers, topic="stamps").field("stamp").to_pylist() == table["stamp"].to_pylist()


class Failing(MemoryStore):
    """Fails for one payload, when others are there."""

    def publish(self, topic: str, data: Any, context: Any = None) -> str:
        if b"fails" in bytes(data):
            raise PayloadStoreUnavailableError("the store is down")
        return super().publish(topic, data, context)


@pytest.fixture
def offloading() -> Iterator[tuple[SerializerChain, Failing]]:
    config = {
        "value.serializers": "string, large-message",
        "large.message.payload.store.class": Failing,
        "large.message.threshold.bytes": 0,
    }
    with SerializerChain.from_config(config) as chain:
        yield chain, chain.stages[-1].store


def test_a_failed_upload_names_its_row_and_leaves_no_payload(offloading: tuple[SerializerChain, Failing]) -> None:
    chain, store = offloading
    topic = "uploads-that-fail"  # the memory is that of all tests
    good = chain.from_arrow(pa.array(["first"]), topic=topic).values.to_pylist()
    with pytest.raises(SerializationError) as raised:
        chain.from_arrow(pa.array(["first", "second", "it fails", "fourth"]), topic=topic)
    assert raised.value.row == 2
    assert [item.reference.encode() for item in store.list(topic)] == good


def test_keys_for_stages_that_need_them(tmp_path: Path) -> None:
    config = {
        "value.serializers": "string, large-message",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": 0,
        "large.message.id": "keyed",
    }
    with SerializerChain.from_config(config) as chain:
        values = chain.from_arrow(pa.array(["a", "b"]), topic="t", keys=pa.array([b"k0", b"k1"])).values.to_pylist()
        assert values == [
            chain(text, RecordContext("t", "value", [], key)) for text, key in (("a", b"k0"), ("b", b"k1"))
        ]


def test_a_model_writes_tables_too() -> None:
    chain = SerializerChain.from_config({"value.serializer": "avro", "avro.type": Created})
    assert chain.from_arrow(pa.table({"id": [1]}), topic="t").values.to_pylist() == [chain(Created(1))]


class Columned(Serializer[int]):
    """Writes columns as a whole."""

    def __call__(self, data: int | None, ctx: Any = None, /) -> bytes | None:
        return None if data is None else b"%d" % data

    def column_writer(self, ctx: Any) -> Self:
        return self

    def row_converter(self, column: Any, ctx: Any) -> None: ...

    def write(self, values: pa.Array, /) -> tuple[pa.Array, list[int]]:
        return pa.array([b"%d" % value for value in values.to_pylist()]), []


class Doubled(Columned):
    """Overrides the call alone."""

    def __call__(self, data: int | None, ctx: Any = None, /) -> bytes | None:
        return None if data is None else super().__call__(2 * data, ctx)


@pytest.mark.parametrize(("stage", "written"), [(Columned, [b"1", b"2"]), (Doubled, [b"2", b"4"])])
def test_a_subclass_that_overrides_the_call_is_called_for_each_row(stage: type[Columned], written: list[bytes]) -> None:
    """As with ``plain``, ``begin`` and batch forms: the column writer does what the overridden call did."""
    chain = SerializerChain([stage()])
    assert [chain(value) for value in (1, 2)] == written
    assert chain.from_arrow(pa.array([1, 2]), topic="topic").values.to_pylist() == written
