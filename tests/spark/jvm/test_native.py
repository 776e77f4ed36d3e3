"""The engine that leaves the last stage to Spark's own functions: the same results, and when it is chosen."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, Row, SparkSession, functions

from serde_chain import ConfigError, RecordContext, SerializerChain
from serde_chain.spark import decode, deserialize, explain
from serde_chain.testing.services import SchemaRegistry

Config = dict[str, Any]
BAND = {"type": "enum", "name": "Band", "symbols": ["G", "R"]}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "band", "type": ["null", BAND]},
    {"name": "name", "type": "string"},
    {"name": "flux", "type": {"type": "array", "items": ["null", "double"]}},
]
SCHEMA = {"type": "record", "name": "Alert", "fields": FIELDS}
WIDER = {**SCHEMA, "fields": [*FIELDS, {"name": "note", "type": ["null", "string"], "default": None}]}
KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "key.serializer": "string",
        "key.deserializer": "string",
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.threshold.bytes": 200,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
    }


def alert(at: int, **more: Any) -> dict[str, Any]:
    flux = [None, 0.5 * at][: at % 3]
    return {
        "id": at,
        "band": [None, "G", "R"][at % 3],
        "name": "n" * (1000 if at % 5 == 3 else at),
        "flux": flux,
        **more,
    }


def encode(config: Config, value: Any, headers: list[Any]) -> Any:
    with SerializerChain.from_config(config) as chain:
        return chain(value, RecordContext("alerts", "value", headers))


def row(value: Any, headers: list[Any], at: int) -> tuple[Any, ...]:
    return f"key {at}".encode(), value, "alerts", 0, at, None, headers or None


def good(config: Config, count: int = 10) -> list[tuple[Any, ...]]:
    rows = []
    for at in range(count):
        headers: list[Any] = [("trace", b"1")][: at % 2]
        rows.append(row(encode(config, None if at == 7 else alert(at), headers), headers, at))
    return rows


def bad(config: Config) -> list[tuple[Any, ...]]:
    """Cut off, an unknown symbol, a negative length, foreign, and a good one whose key is not UTF-8."""
    [whole] = [value for _, value, *_ in good({**config, "value.serializers": "avro"}, 1)]
    wrong = [whole[:-1], b"\0\2\6" + whole[2:], b"\0\0\1\0", b"\xff" * 20]
    rows = [row(value, [("trace", b"1")], at) for at, value in enumerate([whole, *wrong, whole])]
    return [*rows[:-1], (b"\xff", *rows[-1][1:])]


def kafka(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, KAFKA).coalesce(1)


def plan_of(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        frame.explain()
    return shown.getvalue()


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("stages", ["avro, large-message", "avro", "avro, zstd, large-message", "avro, zstd"])
def test_decode_gives_what_the_other_engine_gives(spark: SparkSession, config: Config, mode: str, stages: str) -> None:
    config |= {"value.serializers": stages, "value.deserializers": ", ".join(reversed(stages.split(", ")))}
    records = kafka(spark, good(config))
    # What passes through Python anyway, auto leaves there.
    native = records.transform(decode(config, mode=mode, engine="native" if "zstd" in stages else "auto"))
    arrow = records.transform(decode(config, mode=mode, engine="arrow"))
    assert native.schema == arrow.schema
    assert native.orderBy("offset").collect() == arrow.orderBy("offset").collect()
    plan = plan_of(native)
    assert "from_avro" in plan
    assert ("ArrowEvalPython" in plan) == (stages != "avro")


@pytest.mark.parametrize("framing", ["none", "single-object"])
def test_records_that_cannot_be_read(spark: SparkSession, config: Config, framing: str) -> None:
    config |= {"avro.framing": framing}
    rows = bad(config)
    if framing == "single-object":
        prefix = rows[0][1][:10]
        rows = [rows[0], *((one[0], prefix + one[1], *one[2:]) for one in rows[1:4]), *rows[4:]]
    records = kafka(spark, rows)
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        native, arrow = (records.transform(decode(config, mode=mode, engine=name)) for name in ("native", "arrow"))
        assert native.schema == arrow.schema
        found, expected = native.orderBy("offset").collect(), arrow.orderBy("offset").collect()
        assert [one["value"] for one in found] == [one["value"] for one in expected]
        assert [one["key"] for one in found] == [one["key"] for one in expected]
        assert [one["headers"] for one in found] == [one["headers"] for one in expected]
        if mode == "PERMISSIVE":
            places = [one["serde_error"] and one["serde_error"].partition(" [")[2][:72] for one in found]
            assert places[:5] == [None, *(f"topic=alerts, field=value, stage=avro (2 of 2), partition=0, offset={at}]"
                                          for at in range(1, 5))]  # fmt: skip
            assert "not UTF-8" in found[5]["serde_error"]
    for at in range(1, 6) if framing == "none" else (1,):
        with pytest.raises(SparkRuntimeException, match=f"DecodeError: .*topic=alerts.*partition=0, offset={at}"):
            records.where(f"offset in (0, {at})").transform(decode(config, engine="native")).collect()


def test_a_payload_that_is_gone(spark: SparkSession, config: Config) -> None:
    records = kafka(spark, good(config))
    for path in Path(config["local.path"]).rglob("*"):
        if path.is_file():
            path.unlink()
    rows = records.transform(decode(config, mode="PERMISSIVE", engine="native")).orderBy("offset").collect()
    assert [one["offset"] for one in rows if one["serde_error"] is not None] == [3, 8]
    assert "PayloadNotFound" in repr(rows[3]) or "gone" in rows[3]["serde_error"]
    assert "large-message" in {header["key"] for header in rows[3]["headers"]}
    left = records.transform(decode(config, mode="DROPMALFORMED", engine="native")).collect()
    assert len(left) == 8


def test_columns(spark: SparkSession, config: Config) -> None:
    records = kafka(spark, good(config))
    columns: list[Any] = []
    for mode in ("FAILFAST", "PERMISSIVE"):
        columns = [
            deserialize("value", "headers", config, mode=mode, engine=engine, offset="offset").alias("v")
            for engine in ("native", "arrow")
        ]
        native, arrow = (records.select(column) for column in columns)
        assert native.schema == arrow.schema
        assert native.collect() == arrow.collect()
    assert plan_of(records.select(columns[0]).where("v.id = 3")).count("resolve(") == 1


def test_a_column_with_stages_in_python(spark: SparkSession, config: Config) -> None:
    config |= {"value.serializers": "avro, zstd", "value.deserializers": "zstd, avro"}
    records = kafka(spark, good(config))
    native, arrow = (
        records.select(deserialize("value", None, config, engine=engine).alias("v")) for engine in ("native", "arrow")
    )
    assert native.collect() == arrow.collect()
    assert "from_avro" in plan_of(native)


def test_several_schema_ids(spark: SparkSession, registry: SchemaRegistry, config: Config) -> None:
    config |= {"schema.registry.url": registry.url, "value.deserializers": "avro", "value.serializers": "avro"}
    config["avro.schema"] = json.dumps(SCHEMA)
    rows = good(config, 4)
    wider = {**config, "avro.schema": json.dumps(WIDER)}
    rows.append(row(encode(wider, alert(4, note="new"), []), [], 4))
    records = kafka(spark, rows)
    reading = {**config, "avro.reader.schema": json.dumps(WIDER)}
    native = records.transform(decode(reading, engine="native", topics="alerts"))
    arrow = records.transform(decode(reading, engine="arrow"))
    assert native.schema == arrow.schema
    assert native.orderBy("offset").collect() == arrow.orderBy("offset").collect()
    assert "Python" not in plan_of(native)
    column = deserialize("value", None, reading, engine="native", topics=["alerts"])
    assert records.select(column.alias("v")).where("v.note = 'new'").select("v.id").collect() == [Row(id=4)]

    unknown = kafka(spark, [row(b"\0\0\0\xff\xff" + b"\0" * 9, [], 11)])
    with pytest.raises(SparkRuntimeException, match=r"begins with 000000FFFF, which is not the id of.*offset=11"):
        unknown.transform(decode(reading, engine="native", topics="alerts")).collect()
    assert explain(reading) == (
        "key: native (Spark reads string itself)\n"
        "value: arrow (schema ids that are registered later would be errors in the native engine)\n"
        "Together, in decode(): arrow, since one of them passes through Python anyway"
    )
    with pytest.raises(ConfigError, match="pass topics="):
        records.transform(decode(reading, engine="native"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, r"native \(Spark's from_avro reads avro \(2 of 2\), Python only follows references\)"),
        ({"value.deserializers": "large-message, zstd, avro"}, r"arrow \(all records pass through Python for zstd"),
        ({"avro.schema": '"string"'}, r"arrow \(the schema is not a record\)"),
        ({"value.deserializers": "json"}, r"arrow \(Spark has no function of its own for json"),
        ({"value.deserializers": "bytes"}, r"native \(Spark reads bytes itself\)"),
        (
            {"avro.schema": {**SCHEMA, "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}},
            r"arrow \(a few bytes of this schema may claim unbounded memory",
        ),
        # Java refuses such a name, fastavro does not.
        ({"avro.schema": {**SCHEMA, "fields": [{"name": "a-b", "type": "int"}]}}, r"arrow \(Spark does not accept"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_explain(config: Config, change: Config, reason: str) -> None:
    del config["key.deserializer"]
    config |= change
    assert re.match(f"value: {reason}", explain(config)), explain(config)


@pytest.mark.usefixtures("spark")
def test_where_the_jar_is_missing(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_jar(*_: object) -> None:
        print("Spark Avro libraries not found in class path")  # noqa: T201, as pyspark does
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr("pyspark.sql.avro.functions.from_avro", no_jar)
    assert "is the jar spark-avro installed? ('JavaPackage' object" in explain(config)
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match="engine='native' cannot read values: Spark does not accept from_avro"):
        deserialize("value", "headers", config, engine="native")


def test_engines() -> None:
    with pytest.raises(ConfigError, match=r"no engine 'nativ'.*Did you mean native"):
        decode({"value.deserializer": "string"}, engine="nativ")


def test_all_fields_may_be_null(spark: SparkSession, config: Config) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}]}
    config |= {"avro.schema": schema, "value.deserializer": "avro"}
    del config["value.deserializers"], config["value.serializers"]
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), {"a": None})
    records = kafka(spark, [row(buffer.getvalue(), [], 0), row(b"\x02", [], 1)])
    assert "without a required field" in explain(config, mode="PERMISSIVE")
    for mode, engine in (("PERMISSIVE", "auto"), ("DROPMALFORMED", "native")):
        column = deserialize("value", None, config, mode=mode, engine=engine).alias("v")
        assert records.select(column).collect() == [Row(v=Row(a=None)), Row(v=None)]
    with pytest.raises(SparkRuntimeException, match="offset=1"):
        records.select(deserialize("value", None, config, engine="native", offset=functions.col("offset"))).collect()
