"""Both kinds of user-defined functions: the same columns from Arrow UDFs and from pandas UDFs."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.functions import col, lit, struct

from serde_chain import ConfigError, DeserializerChain, MissingDependencyError, RecordContext, SerializerChain
from serde_chain.spark import deserialize_udf, serialize, serialize_udf
from serde_chain.spark.prerequisites import has_arrow_udfs

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "band", "type": ["null", "string"]},
        {"name": "cutout", "type": ["null", "bytes"]},
        {"name": "flux", "type": {"type": "array", "items": ["null", "double"]}},
        {"name": "parent", "type": ["null", "long"]},
    ],
}
LARGE = 2 << 20
# A float, which pandas makes of integers beside nulls, has no room for it.
ODD = 2**62 + 1
RAW = "at int, value binary, headers array<struct<key: string, value: binary>>"
Config = dict[str, Any]
KINDS = pytest.mark.parametrize("kind", ["pandas", "arrow", None])


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "local",
        "large.message.threshold.bytes": 100_000,
        "local.path": str(tmp_path / "payloads"),
    }


def alerts() -> list[Any]:
    """Typed values with nulls at each level, a tombstone, and two values for the store."""
    return [
        {"id": ODD, "band": "g", "cutout": b"", "flux": [], "parent": None},
        None,
        {"id": 1, "band": None, "cutout": bytes(LARGE), "flux": [None, float("inf"), 0.5], "parent": ODD},
        {"id": -ODD, "band": "ü", "cutout": None, "flux": [None], "parent": -1},
        {"id": 3, "band": "", "cutout": b"\xff" * LARGE, "flux": [], "parent": None},
    ]


def written(spark: SparkSession, config: Config, values: list[Any]) -> DataFrame:
    """The columns of Spark's Kafka source, of records written by a chain."""
    rows = []
    with SerializerChain.from_config(config) as chain:
        for at, value in enumerate(values):
            headers: Any = []
            data = chain(value, RecordContext("alerts", "value", headers))
            rows.append((at, data, headers or None))
    return spark.createDataFrame(rows, RAW)


def made(kind: str | None, frame: DataFrame) -> None:
    """The plan has a function of this kind."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    # Both kinds have the same node; the result of a pandas UDF is in a struct.
    assert "ArrowEvalPython" in plan
    assert (".result" in plan) == (kind == "pandas" or not has_arrow_udfs())


def read_back(config: Config, rows: list[Row]) -> list[Any]:
    with DeserializerChain.from_config(config) as chain:
        headers = [[(header["key"], header["value"]) for header in row["headers"] or ()] for row in rows]
        contexts = [RecordContext("alerts", "value", pairs) for pairs in headers]
        return [chain(row["value"], ctx) for row, ctx in zip(rows, contexts, strict=True)]


@KINDS
def test_deserialize_typed_values(spark: SparkSession, config: Config, kind: str | None, tmp_path: Path) -> None:
    raw = written(spark, config, alerts())
    assert len(list((tmp_path / "payloads" / "alerts").iterdir())) == 2
    frame = raw.select(deserialize_udf(config, kind=kind)("value", "headers").alias("alert"), "at")
    made(kind, frame)
    assert frame.schema["alert"].dataType.simpleString() == (
        "struct<id:bigint,band:string,cutout:binary,flux:array<double>,parent:bigint>"
    )
    rows = frame.orderBy("at").collect()
    assert [row["alert"] and row["alert"].asDict() for row in rows] == alerts()


@KINDS
def test_deserialize_bytes_and_numbers(spark: SparkSession, config: Config, kind: str | None) -> None:
    for chain, values in (
        ("bytes", [b"", None, bytes(LARGE), b"\x00"]),
        ("string", ["", None, "ü" * LARGE]),
        ("long", [ODD, None, -1]),
    ):
        config |= {"value.serializers": f"{chain}, large-message", "value.deserializers": f"large-message, {chain}"}
        raw = written(spark, config, values)
        rows = raw.select(deserialize_udf(config, kind=kind)("value", "headers").alias("v"), "at").orderBy("at")
        assert [row["v"] for row in rows.collect()] == values


@KINDS
def test_serialize_bytes_and_text(spark: SparkSession, config: Config, kind: str | None, tmp_path: Path) -> None:
    for chain, ddl, values in (
        ("bytes", "binary", [b"", None, bytes(LARGE), b"\x00"]),
        ("string", "string", ["", None, "ü" * LARGE]),
        ("json", "string", ["", None, "ü"]),
        ("bytes", "binary", [None, None]),
    ):
        config |= {"value.serializers": f"{chain}, large-message", "value.deserializers": f"large-message, {chain}"}
        frame = spark.createDataFrame(list(enumerate(values)), f"at int, value {ddl}")
        record = serialize_udf(config, kind=kind)("value", lit("alerts"), lit(b"key"))
        frame = frame.select(record.alias("r"), "at").orderBy("at")
        made(kind, frame)
        assert read_back(config, frame.select("r.*").collect()) == values
    assert len(list((tmp_path / "payloads" / "alerts").iterdir())) == 2


def test_serialize_typed_values(spark: SparkSession, config: Config) -> None:
    fields = "id bigint, band string, cutout binary, flux array<double>, parent bigint"
    rows = [(at, None if alert is None else tuple(alert.values())) for at, alert in enumerate(alerts())]
    frame = spark.createDataFrame(rows, f"at int, value struct<{fields.replace(' ', ':').replace(',:', ',')}>")
    record = serialize_udf(config, kind="arrow")("value", lit("alerts"))
    written = frame.select(record.alias("r"), "at").orderBy("at").select("r.*").collect()
    assert read_back(config, written) == alerts()
    # pandas would change them: a null struct becomes a row of nulls, integers beside nulls become floats.
    function = serialize_udf(config | {"value.serializers": "json, large-message"}, kind="pandas")
    for value in (col("value"), col("value.id"), col("value.flux"), struct(lit(1).alias("id"))):
        with pytest.raises(PythonException, match="a pandas UDF accepts the column for value only as binary or text"):
            frame.select(function(value, lit("alerts")).alias("r")).collect()


def test_a_pandas_udf_for_a_schema_of_other_types_is_refused_when_it_is_made(
    spark: SparkSession,  # noqa: ARG001  whose functions make columns
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wanted = r"only as binary or text: such a value is binary, but the schema requires Alert .*Use kind='arrow'"
    with pytest.raises(ConfigError, match=wanted):
        serialize_udf(config, kind="pandas")
    for schema in ('"string"', '["null", "bytes"]'):
        serialize_udf(config | {"avro.schema": schema}, kind="pandas")
    monkeypatch.delattr(functions, "arrow_udf")  # as before pyspark 4.1
    for call in (lambda: serialize_udf(config), lambda: serialize("value", config, topic=lit("alerts"))):
        with pytest.raises(ConfigError, match=wanted):
            call()


@pytest.mark.parametrize("make", [deserialize_udf, serialize_udf])
def test_a_kind_that_does_not_exist(config: Config, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    with pytest.raises(ConfigError, match=r"unknown kind 'panda'.*Did you mean pandas"):
        make(config, kind="panda")
    with pytest.raises(ConfigError, match=r"unknown kind 'ARROW'.*Did you mean arrow"):
        make(config, kind="ARROW")
    with pytest.raises(ConfigError, match=r"unknown kind 'native'.*Known: pandas, arrow"):
        make(config, kind="native")
    monkeypatch.delattr(functions, "arrow_udf")  # as before pyspark 4.1
    make(config | {"avro.schema": '"string"'}, kind="pandas")
    with pytest.raises(MissingDependencyError, match=r"has no Arrow UDFs; 4\.1 introduced them\. Use kind='pandas'"):
        make(config, kind="arrow")


def test_errors_of_records(spark: SparkSession, config: Config) -> None:
    raw = spark.createDataFrame([(0, b"\xff", None)], RAW)
    for kind in ("pandas", "arrow"):
        with pytest.raises(PythonException, match="DecodeError"):
            raw.select(deserialize_udf(config, kind=kind)("value", "headers")).collect()
        dropped = deserialize_udf(config, mode="PERMISSIVE", kind=kind)
        assert raw.select(dropped("value", "headers").alias("v")).collect() == [Row(v=None)]
