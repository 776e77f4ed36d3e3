"""The columns are those of Spark's own from_avro on the same bytes: type for type, value for value."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.pandas import types
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from serde_chain.spark import deserialize
from serde_chain.spark.columns import types as plan_types

NOON = datetime(2024, 7, 1, 12, 30, 0, 123456, tzinfo=UTC)
LONG_AGO = datetime(1812, 2, 29, 1, 2, 3, 4000, tzinfo=UTC)


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


POINT = {
    "type": "record",
    "name": "ns.Point",
    "fields": [{"name": "x", "type": "double"}, {"name": "label", "type": ["string", "null"]}],
}
FIELDS: dict[str, tuple[Any, list[Any]]] = {
    "boolean": ("boolean", [True, False]),
    "int": ("int", [-(2**31), 2**31 - 1]),
    "long": ("long", [-(2**63), 2**63 - 1]),
    "float": ("float", [1.5, float("inf")]),
    "double": ("double", [1e300, -0.0]),
    "bytes": ("bytes", [b"", b"\x00\xff"]),
    "string": ("string", ["", "žluťoučký 🐎"]),
    "nothing": ("null", [None, None]),
    "fixed": ({"type": "fixed", "name": "Four", "size": 4}, [b"abcd", b"\0\0\0\0"]),
    "enum": ({"type": "enum", "name": "Band", "symbols": ["G", "R"]}, ["G", "R"]),
    "array": ({"type": "array", "items": "int"}, [[], [1, 2]]),
    "array_nulls": ({"type": "array", "items": ["null", "ns.Point"]}, [[None], [{"x": 1.0, "label": None}]]),
    "map": ({"type": "map", "values": ["null", "long"]}, [{}, {"a": None, "b": 5}]),
    "map_records": ({"type": "map", "values": "ns.Point"}, [{"k": {"x": 2.0, "label": "l"}}, {}]),
    "record": (POINT, [{"x": 1.0, "label": None}, {"x": 2.0, "label": "l"}]),
    "record_again": (["null", "ns.Point"], [None, {"x": 3.0, "label": "again"}]),
    "optional": (["null", "int"], [None, 7]),
    "optional_last": (["string", "null"], ["s", None]),
    "only": (["int"], [1, 2]),
    "int_long": (["int", "long"], [("int", 1), ("long", 2**40)]),
    "long_int_null": (["null", "long", "int"], [None, ("int", 3)]),
    "float_double": (["float", "double"], [("float", 1.5), ("double", 1e300)]),
    "union": (["null", "string", "int", "long"], [("long", 5), None]),
    "union_same": (["int", "long", "float", "double", "bytes"], [("long", 5), ("float", 1.5)]),
    "union_records": (
        [POINT["name"], {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "double"}]}, "null"],
        [("Other", {"x": 1.0}), None],
    ),
    "decimal": (logical("bytes", "decimal", precision=9, scale=3), [Decimal("-12.500"), Decimal("123456.789")]),
    "decimal_fixed": (
        logical("fixed", "decimal", name="Six", size=6, precision=10, scale=0),
        [Decimal(-1), Decimal(10**9)],
    ),
    "date": (logical("int", "date"), [date(2024, 2, 29), date(1812, 2, 29)]),
    "time_millis": (logical("int", "time-millis"), [time(0), time(23, 59, 59, 999000)]),
    "time_micros": (logical("long", "time-micros"), [time(0), time(23, 59, 59, 999999)]),
    "timestamp_millis": (logical("long", "timestamp-millis"), [NOON, LONG_AGO]),
    "timestamp_micros": (logical("long", "timestamp-micros"), [NOON, LONG_AGO]),
    "local_millis": (
        logical("long", "local-timestamp-millis"),
        [NOON.replace(tzinfo=None), LONG_AGO.replace(tzinfo=None)],
    ),
    "local_micros": (
        logical("long", "local-timestamp-micros"),
        [NOON.replace(tzinfo=None), LONG_AGO.replace(tzinfo=None)],
    ),
    "timestamp_nanos": (logical("long", "timestamp-nanos"), [1, 2**62]),
    "timestamps": ({"type": "array", "items": ["null", logical("long", "timestamp-millis")]}, [[None, NOON], []]),
    "uuid": (
        logical("string", "uuid"),
        ["12345678-1234-1234-1234-123456789abc", "00000000-0000-0000-0000-000000000000"],
    ),
    "duration": (logical("fixed", "duration", name="Duration", size=12), [b"\1" * 12, b"\2" * 12]),
    "unknown_logical": (logical("string", "made-up"), ["a", "b"]),
}
# A name is used after it is defined.
ORDER = ["record", *(name for name in FIELDS if name != "record")]
EVERYTHING = {
    "type": "record",
    "name": "Everything",
    "fields": [{"name": name, "type": FIELDS[name][0]} for name in ORDER],
}
RECORDS = [{name: values[at] for name, (_, values) in FIELDS.items()} for at in range(2)]

# Records of one schema read into another, as from_avro does with the option avroSchema.
EVOLVED: dict[str, tuple[Any, Any, list[Any]]] = {
    "union": ("int", ["string", "long", "int"], [5]),
    "promotion": ("int", ["string", "double"], [5]),
    "branches": (["int", "string"], ["null", "string", "long"], [("int", 1), ("string", "s")]),
    "fields": (
        POINT,
        {
            "type": "record",
            "name": "ns.Point",
            "fields": [
                {"name": "text", "aliases": ["label"], "type": ["null", "string", "int"]},
                {"name": "y", "type": ["int", "string"], "default": 5},
                {"name": "d", "type": logical("bytes", "decimal", precision=4, scale=2), "default": "\u0001\u0000"},
                {"name": "x", "type": ["null", "double"]},
            ],
        },
        [{"x": 1.0, "label": None}, {"x": 2.0, "label": "l"}],
    ),
}


def encoded(schema: Any, values: list[Any]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    out = []
    for value in values:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        out.append(buffer.getvalue())
    return out


# With it, the native engine looks a record over before it reads it.
CONTEXT: dict[str, Any] = {"offset": "offset"}


def is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema["type"] == "record"


def assert_same(frame: DataFrame, writer: Any, reader: Any = None, mode: str = "FAILFAST") -> None:
    config = {"value.deserializer": "avro", "avro.schema": writer}
    options = {"mode": mode}
    if reader is not None:
        config["avro.reader.schema"] = options["avroSchema"] = json.dumps(reader)
    theirs = frame.select(from_avro("value", json.dumps(writer), options).alias("v"))
    expected = repr(theirs.collect())
    for engine in ("arrow", "native") if is_record(writer) else ("arrow",):
        column = deserialize("value", None, config, mode=mode, engine=engine, **CONTEXT)
        ours = frame.select(column.alias("v"))
        assert ours.schema == theirs.schema, engine
        # As text, since -0.0 == 0.0, and one infinity or NaN is like another only there.
        assert repr(ours.collect()) == expected, engine


def in_record(schema: Any) -> Any:
    return {"type": "record", "name": "Outer", "fields": [{"name": "field", "type": schema}]}


def to_frame(spark: SparkSession, values: list[bytes]) -> DataFrame:
    rows = [(value, at) for at, value in enumerate([*values, None])]
    return spark.createDataFrame(rows, "value binary, offset bigint").coalesce(1)


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def without_nullability(schema: DataType) -> DataType:
    if isinstance(schema, StructType):
        return StructType(
            [StructField(field.name, without_nullability(field.dataType), field.nullable) for field in schema]
        )
    if isinstance(schema, ArrayType):
        return ArrayType(without_nullability(schema.elementType))
    if isinstance(schema, MapType):
        return MapType(without_nullability(schema.keyType), without_nullability(schema.valueType))
    return schema


@pytest.fixture(params=["installed", pytest.param("4.0", marks=pytest.mark.full)])
def pyspark_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this package uses of pyspark, as the installed one has it or as 4.0.

    4.0 has no Arrow UDFs, and says that what an Arrow list or map holds may be null, which its from_avro does not say.
    """
    if request.param == "4.0":
        monkeypatch.delattr(functions, "arrow_udf", raising=False)

        def from_arrow_type(kind: Any, **options: Any) -> DataType:
            return without_nullability(types.from_arrow_type(kind, **options))

        monkeypatch.setattr(plan_types, "from_arrow_type", from_arrow_type)


@pytest.mark.usefixtures("zone", "pyspark_version")
def test_every_type(spark: SparkSession) -> None:
    assert_same(to_frame(spark, encoded(EVERYTHING, RECORDS)), EVERYTHING)


def test_permissive_makes_all_nullable(spark: SparkSession) -> None:
    assert_same(to_frame(spark, encoded(EVERYTHING, RECORDS)), EVERYTHING, mode="PERMISSIVE")


# Not a union of several branches, which from_avro only reads inside a record.
@pytest.mark.full
@pytest.mark.parametrize("name", ["int", "enum", "array", "map", "timestamp_millis"])
def test_types_that_are_no_records(spark: SparkSession, name: str) -> None:
    schema, values = FIELDS[name]
    assert_same(to_frame(spark, encoded(schema, values)), schema)


@pytest.mark.full
@pytest.mark.parametrize("name", EVOLVED)
def test_another_reader_schema(spark: SparkSession, name: str) -> None:
    writer, reader, values = EVOLVED[name]
    records = encoded(in_record(writer), [{"field": value} for value in values])
    assert_same(to_frame(spark, records), in_record(writer), in_record(reader))
