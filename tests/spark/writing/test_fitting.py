"""Types of columns that never fit a schema, and those that may."""

from typing import Any

import pytest
from pyspark.sql.types import DataType

from serde_chain.spark.writing.fitting import misfit
from serde_chain.stages.avro.schema import AvroSchema

pytestmark = pytest.mark.usefixtures("spark")  # it parses types

BAND = {"type": "enum", "name": "ns.Band", "symbols": ["G"]}
POINT = {"type": "record", "name": "ns.Point", "fields": [{"name": "x", "type": "double"}]}

TIMESTAMP = {"type": "long", "logicalType": "timestamp-micros"}


def record(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, **more}]}


def problem(kind: Any, column: str, **more: Any) -> str | None:
    return misfit(AvroSchema.parse(record(kind, **more)), DataType.fromDDL(column), "value")


@pytest.mark.parametrize(
    ("kind", "column", "said"),
    [
        ("int", "string", "value is string, but the schema requires R"),
        ("int", "f string", "value.f is string, but the schema requires int"),
        ("int", "f binary", "value.f is binary, but the schema requires int"),
        ("string", "f bigint", "value.f is bigint, but the schema requires string"),
        ("bytes", "f string", "value.f is string, but the schema requires bytes"),
        (BAND, "f int", "value.f is int, but the schema requires ns.Band"),
        (["null", "double"], "f array<double>", "value.f is array<double>, but the schema requires double"),
        ({"type": "array", "items": "int"}, "f int", "value.f is int, but the schema requires array"),
        ({"type": "array", "items": "int"}, "f array<string>", r"value.f[] is string, but the schema requires int"),
        ({"type": "map", "values": ["null", "int"]}, "f map<string,string>", "value.f[] is string, but the schema"),
        ({"type": "array", "items": POINT}, "f array<struct<x:string>>", "value.f[].x is string, but the schema"),
        (POINT, "f array<int>", "value.f is array<int>, but the schema requires ns.Point"),
        ("int", "g int", "value has no field f, which has no default in the schema"),
        (
            {"type": "int", "logicalType": "date"},
            "f struct<a:int>",
            "value.f is struct<a:int>, but the schema requires date",
        ),
        ("boolean", "f string", "value.f is string, but the schema requires boolean"),
        ("boolean", "f int", "value.f is int, but the schema requires boolean"),
        # By which time zone would it be one?
        (TIMESTAMP, "f timestamp_ntz", "value.f is timestamp_ntz, but the schema requires timestamp-micros"),
        (
            ["null", "int", "string"],
            "f struct<member0:int,member1:int>",
            "value.f.member1 is int, but the schema requires string",
        ),
    ],
)
def test_what_never_fits(kind: Any, column: str, said: str) -> None:
    found = problem(kind, column)
    assert found is not None
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", "f bigint"),
        ("int", "f void"),
        ("long", "f double, more string"),
        ("boolean", "f boolean"),
        ("int", "f boolean"),
        (TIMESTAMP, "f timestamp"),
        ({**TIMESTAMP, "logicalType": "local-timestamp-micros"}, "f timestamp"),
        (["null", "int", POINT], "f struct<member0:int,member1:struct<x:double>>"),
        (["null", "int"], "g string"),
        (["int", "string"], "f string"),
        (POINT, "f map<string,double>"),
        ({"type": "map", "values": "int"}, "f struct<a:int>"),
        ({"type": "int", "logicalType": "date"}, "f date"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "f decimal(4,2)"),
        ({"type": "string"}, "f string"),
    ],
)
def test_what_may_fit(kind: Any, column: str) -> None:
    assert problem(kind, column) is None


def test_defaults_and_names() -> None:
    assert problem("int", "g int", default=5) is None
    twice = {**record(POINT), "fields": [{"name": "a", "type": POINT}, {"name": "b", "type": ["null", "ns.Point"]}]}
    kind = DataType.fromDDL("a struct<x:double>, b struct<x:string>")
    found = misfit(AvroSchema.parse(twice), kind, "value")
    assert found == "value.b.x is string, but the schema requires double"
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    assert misfit(AvroSchema.parse(node), DataType.fromDDL("next struct<next:struct<next:void>>"), "value") is None
