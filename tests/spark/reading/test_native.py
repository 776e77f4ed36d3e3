"""The engine that leaves the last stage to Spark's own functions: the same results, and when it is chosen."""

import contextlib
import io
import json
import re
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import DataFrame, Row, SparkSession, functions

from serde_chain import ConfigError, Producer
from serde_chain.errors import SchemaRegistryError
from serde_chain.spark import decode, deserialize, encode, explain
from serde_chain.spark.reading import engine as reading_engine
from serde_chain.stages.avro.native import library
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.spark.records import encoded, kafka, row

if TYPE_CHECKING:
    from tests.conftest import NewTopic

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


def good(config: Config, count: int = 10) -> list[tuple[Any, ...]]:
    rows = []
    for at in range(count):
        headers: list[Any] = [("trace", b"1")][: at % 2]
        value = encoded(config, None if at == 7 else alert(at), headers)
        rows.append(row(value, headers, at, f"key {at}".encode()))
    return rows


def bad(config: Config) -> list[tuple[Any, ...]]:
    """Cut off, an unknown symbol, a negative length, foreign, and a good one whose key is not UTF-8."""
    [whole] = [value for _, value, *_ in good({**config, "value.serializers": "avro"}, 1)]
    wrong = [whole[:-1], b"\0\2\6" + whole[2:], b"\0\0\1\0", b"\xff" * 20]
    rows = [row(value, [("trace", b"1")], at, b"key") for at, value in enumerate([whole, *wrong, whole])]
    return [*rows[:-1], (b"\xff", *rows[-1][1:])]


def plan_of(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        frame.explain()
    return shown.getvalue()


@pytest.mark.full
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
@pytest.mark.parametrize("stages", ["avro, large-message", "avro"])
def test_decode_gives_what_the_other_engine_gives(spark: SparkSession, config: Config, mode: str, stages: str) -> None:
    config |= {"value.serializers": stages, "value.deserializers": ", ".join(reversed(stages.split(", ")))}
    records = kafka(spark, good(config))
    native = records.transform(decode(config, mode=mode, engine="native"))
    arrow = records.transform(decode(config, mode=mode, engine="arrow"))
    assert native.schema == arrow.schema
    assert native.orderBy("offset").collect() == arrow.orderBy("offset").collect()
    plan = plan_of(native)
    assert "from_avro" in plan
    assert ("ArrowEvalPython" in plan) == (stages != "avro")


@pytest.mark.full
@pytest.mark.parametrize("framing", ["none", "single-object"])
def test_records_that_cannot_be_read(spark: SparkSession, config: Config, framing: str) -> None:
    """A query for each engine and mode, and one for each record that ends it."""
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


@pytest.mark.full
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
    assert plan_of(records.select(columns[0]).where("v.id = 3")).count("deserialize(") == 1


def test_several_schema_ids(
    spark: SparkSession,
    registry: SchemaRegistry,
    config: Config,
    new_topic: "NewTopic",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Six queries, by two engines."""
    topic = new_topic()
    config |= {"schema.registry.url": registry.url, "value.serializers": "avro", "value.deserializers": "avro"}
    wider = {**config, "avro.schema": json.dumps(WIDER)}
    reading = {**config, "avro.reader.schema": json.dumps(WIDER)}
    rows = [row(encoded(config, None if at == 2 else alert(at), [], topic), [], at) for at in range(4)]
    rows.append(row(encoded(wider, alert(4, note="new"), [], topic), [], 4))
    records = kafka(spark, rows)
    native = records.transform(decode(reading, topics=topic, engine="native"))
    arrow = records.transform(decode(reading, engine="arrow"))
    assert "from_avro" in plan_of(native)
    assert "unix_millis" not in plan_of(native)  # no stage uses the time, and each column sent to Python costs
    assert native.schema == arrow.schema
    assert native.orderBy("offset").collect() == arrow.orderBy("offset").collect()
    column = deserialize("value", None, reading, engine="native", topics=[topic])
    assert records.select(column.alias("v")).where("v.note = 'new'").select("v.id").collect() == [Row(id=4)]
    assert explain(reading, topics=topic, engine="native") == (
        "key: native (Spark reads string itself)\n"
        "value: native (Spark's from_avro reads avro (1 of 1), "
        "Python the schema ids other than these 2)"
    )
    monkeypatch.setattr(reading_engine, "_MOST_BRANCHES", 1)  # the older id then passes through Python
    few = records.transform(decode(reading, topics=topic, engine="native"))
    assert few.orderBy("offset").collect() == arrow.orderBy("offset").collect()
    assert "other than these 1" in explain(reading, topics=topic, engine="native")
    by_record = {**reading, "avro.native": "off"}  # otherwise the compiled part reads, and topics do not matter
    assert "the topics, and thereby their schemas, are unknown: pass topics=" in explain(by_record)
    with pytest.raises(ConfigError, match="pass topics="):
        records.transform(decode(reading, engine="native"))


@pytest.mark.full
def test_bad_records_with_a_registry(
    spark: SparkSession, registry: SchemaRegistry, config: Config, new_topic: "NewTopic"
) -> None:
    """A query for each engine and mode, and one for each record that ends it."""
    topic = new_topic()
    config |= {"schema.registry.url": registry.url, "value.serializers": "avro", "value.deserializers": "avro"}
    whole = encoded(config, alert(1), [], topic)
    # Ids that no registry gives: in Java they are negative.
    beyond = [b"\0\x80\0\0\0\2", b"\0\xff\xff\xff\xff\2"]
    wrong = [whole[:-1], whole[:3], b"", b"\0\x7f\xff\xff\xff\2", *beyond, b"\1" * 30, b"json"]
    records = kafka(spark, [row(value, [], at) for at, value in enumerate([whole, *wrong])])
    for mode in ("PERMISSIVE", "DROPMALFORMED"):
        native, arrow = (
            records.transform(decode(config, mode=mode, engine=name, topics=topic)).drop("serde_error", "offset")
            for name in ("native", "arrow")
        )
        assert native.collect() == arrow.collect()
    # A query each: of what is too short, and of ids that the registry does not have.
    for at in (1, 4, 5):
        with pytest.raises(Exception, match=f"offset={at}"):
            records.where(f"offset = {at}").transform(decode(config, engine="native", topics=topic)).collect()


def test_schemas_that_do_not_resolve(spark: SparkSession, config: Config) -> None:
    """The error names the field when the query is planned, with any engine and mode."""
    fields = [{**each, "type": "long"} if each["name"] == "name" else each for each in FIELDS]
    reading = config | {"avro.reader.schema": json.dumps({"type": "record", "name": "Alert", "fields": fields})}
    records = kafka(spark, [])
    for engine in ("auto", "native", "arrow"):
        with pytest.raises(ConfigError, match=r"^the writer's schema does not resolve into .*: name: string cannot be"):
            records.transform(decode(reading, engine=engine, mode="PERMISSIVE"))


def test_an_id_whose_schema_does_not_resolve(
    spark: SparkSession, registry: SchemaRegistry, config: Config, new_topic: "NewTopic"
) -> None:
    """Python reads its records, since Spark's error would not name the field."""
    topics = [new_topic(), new_topic()]
    config |= {"schema.registry.url": registry.url, "value.serializers": "avro", "value.deserializers": "avro"}
    other = {**SCHEMA, "fields": [{"name": "id", "type": "string"}, *FIELDS[1:]]}
    values = [
        encoded(config, alert(0), [], topics[0]),
        encoded({**config, "avro.schema": json.dumps(other)}, alert(0) | {"id": "x"}, [], topics[1]),
    ]
    records = kafka(spark, [row(value, [], at) for at, value in enumerate(values)])
    reading = config | {"avro.reader.schema": config["avro.schema"]}
    assert "other than these 1" in explain(reading, topics=topics, engine="native")
    native = records.transform(decode(reading, topics=topics, mode="PERMISSIVE", engine="native"))
    rows = native.orderBy("offset").collect()
    assert (rows[0]["value"]["id"], rows[1]["value"]) == (0, None)
    assert "does not resolve into the reader's: id: string cannot be read as int" in rows[1]["serde_error"]
    with pytest.raises(ConfigError, match=r"does not resolve into the reader's: id: string cannot be read as int"):
        explain(reading, topics=topics[1], engine="native")


def test_a_registry_that_is_down_when_the_query_is_planned(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, however often the query is planned; none from the compiled reader, which needs no answer."""
    config |= {"schema.registry.url": "http://127.0.0.1:1", "schema.registry.max.retries": "0"}
    asked = {**config, "avro.native": "off"}
    reading_engine._warn.cache_clear()
    for _ in range(2):
        assert "value: arrow (the schema registry failed to return the topics' schemas" in explain(asked, topics="a")
    if library() is not None:
        assert "its compiled reader costs less" in explain(config, topics="a")
    assert [each.message.partition(":")[0] for each in caplog.records if each.name == reading_engine.__name__] == [
        "Python reads the values of a"
    ]
    with pytest.raises(SchemaRegistryError):
        explain(config, topics="alerts", engine="native")


def test_a_topic_that_the_registry_does_not_know(
    spark: SparkSession, registry: SchemaRegistry, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """Told once, by the queries themselves; their records are read in Python."""
    config |= {"schema.registry.url": registry.url, "value.deserializers": "avro", "avro.native": "off"}
    reading_engine._warn.cache_clear()
    for mode in ("FAILFAST", "PERMISSIVE"):
        kafka(spark, []).transform(decode(config, topics="misspelt", mode=mode)).collect()
    (said,) = [each.message for each in caplog.records if each.name == reading_engine.__name__]
    assert said.startswith("Python reads the values of misspelt: the schema registry failed")


@pytest.mark.full
def test_a_schema_that_is_registered_while_a_stream_runs(  # noqa: PLR0917  fixtures
    spark: SparkSession,
    broker: KafkaBroker,
    registry: SchemaRegistry,
    config: Config,
    topic: str,
    tmp_path: Path,
) -> None:
    """Records of the new version are read by the query that runs, those above the threshold as well."""
    config |= {**broker.client_config(), "schema.registry.url": registry.url}
    reading = {**config, "avro.reader.schema": json.dumps(WIDER)}

    def produce(schema: dict[str, Any], values: list[dict[str, Any]]) -> None:
        with Producer({**config, "avro.schema": json.dumps(schema)}) as producer:
            for value in values:
                producer.produce(topic, value, key=str(value["id"]))

    produce(SCHEMA, [alert(at) for at in range(5)])
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    records = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
    decoded = records.transform(decode(reading, topics=topic, engine="native"))
    writer = decoded.select("value.*").writeStream.format("memory").queryName("versions")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert spark.table("versions").count() == 5
        produce(WIDER, [alert(at, note="new") for at in range(5, 10)])
        produce(SCHEMA, [alert(at) for at in range(10, 15)])
        query.processAllAvailable()
        assert "from_avro" in plan_of(decoded)
        found = [found.asDict() for found in spark.table("versions").orderBy("id").collect()]
        assert found == [alert(at, note="new" if 5 <= at < 10 else None) for at in range(15)]
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"value.deserializers": "avro"}, r"native \(Spark's from_avro reads avro \(1 of 1\)\)"),
        (
            {"avro.native": "off"},
            r"native \(Spark's from_avro reads avro \(2 of 2\), Python follows references\)",
        ),
        ({"value.deserializers": "large-message, zstd, avro"}, r"arrow \(all records pass through Python for zstd"),
        ({"avro.schema": '"string"'}, r"arrow \(the schema is not a record\)"),
        ({"value.deserializers": "json"}, r"arrow \(Spark has no function for json"),
        ({"value.deserializers": "bytes"}, r"native \(Spark reads bytes itself\)"),
        (
            {"avro.schema": {**SCHEMA, "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}},
            r"arrow \(a few bytes of this schema may claim unbounded memory",
        ),
        (
            {"avro.schema": {**SCHEMA, "fields": [{"name": "flux", "type": "int"}, {"name": "Flux", "type": "int"}]}},
            r"arrow \(from_avro does not distinguish the fields flux and Flux\)",
        ),
        # Java refuses such a name, fastavro does not.
        (
            {"value.deserializers": "avro", "avro.schema": {**SCHEMA, "fields": [{"name": "a-b", "type": "int"}]}},
            r"arrow \(Spark does not accept",
        ),
    ],
)
@pytest.mark.usefixtures("spark")
def test_explain(config: Config, change: Config, reason: str) -> None:
    del config["key.deserializer"]
    config |= change
    assert re.match(f"value: {reason}", explain(config)), explain(config)


@pytest.mark.skipif(library() is None, reason="the compiled part is not built")
@pytest.mark.parametrize("stages", ["large-message, avro", "avro"])
def test_auto_takes_the_compiled_reader_beside_a_python_step(  # noqa: PLR0917  fixtures
    spark: SparkSession,
    registry: SchemaRegistry,
    config: Config,
    new_topic: "NewTopic",
    monkeypatch: pytest.MonkeyPatch,
    stages: str,
) -> None:
    """With a registry's framing, or references, rows pass through Python anyway; ``native`` stays as named."""
    topic, is_registered = new_topic(), stages == "avro"
    config |= {"value.deserializers": stages, "value.serializers": ", ".join(reversed(stages.split(", ")))}
    config |= {"schema.registry.url": registry.url, "avro.reader.schema": json.dumps(SCHEMA)} if is_registered else {}
    records = kafka(spark, [row(encoded(config, alert(at), [], topic), [], at, b"key") for at in range(3)])
    needs = "reads schema ids registered later" if is_registered else "follows references"
    words = f"value: arrow (Python {needs}, and its compiled reader costs less than from_avro beside that)"
    for mode in ("FAILFAST", "PERMISSIVE"):
        assert words in explain(config, topics=topic, mode=mode)
        assert "avro: compiled" in explain(config, topics=topic, mode=mode)
        assert "value: native" in explain(config, topics=topic, mode=mode, engine="native")
        auto = records.transform(decode(config, topics=topic, mode=mode))
        native = records.transform(decode(config, topics=topic, mode=mode, engine="native"))
        assert ["from_avro" in plan_of(frame) for frame in (auto, native)] == [False, True]
        assert auto.schema == native.schema
        assert auto.orderBy("offset").collect() == native.orderBy("offset").collect()
    for slower in ({"avro.native": "off"}, {"avro.arrow.reader": "record"}):
        assert "value: native" in explain({**config, **slower}, topics=topic)
    # Executors may lack what the driver has.
    monkeypatch.setitem(spark.sparkContext.environment, "SERDE_CHAIN_NATIVE", "off")
    without = records.transform(decode(config, topics=topic)).orderBy("offset").collect()
    assert without == records.transform(decode(config, topics=topic, engine="native")).orderBy("offset").collect()


@pytest.mark.full
@pytest.mark.parametrize("calendar", ["LEGACY", "EXCEPTION"])
def test_old_dates_whatever_the_session_does_to_those_in_files(spark: SparkSession, calendar: str) -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "day", "type": {"type": "int", "logicalType": "date"}}],
    }
    config = {"value.serializer": "avro", "value.deserializer": "avro", "avro.schema": schema}
    settings = [f"spark.sql.avro.datetimeRebaseModeIn{side}" for side in ("Read", "Write")]
    records = spark.createDataFrame([(Row(day=date(1500, 1, 1)),)], "value struct<day: date not null>")
    for setting in settings:
        spark.conf.set(setting, calendar)
    try:
        written = spark.createDataFrame(
            records.transform(encode(config, topic="t")).select("value").collect(), "value binary"
        )
        for engine in ("arrow", "native"):
            [read] = written.transform(decode(config, engine=engine)).collect()
            assert read["value"]["day"] == date(1500, 1, 1), engine
        with pytest.raises(ConfigError, match=f"another calendar than Avro's: {settings[1]} = {calendar}"):
            records.transform(encode(config, topic="t", engine="native"))
    finally:
        for setting in settings:
            spark.conf.unset(setting)


@pytest.mark.usefixtures("spark")
def test_where_the_jar_is_missing(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_jar(*_: object) -> None:
        print("Spark Avro libraries not found in class path")  # noqa: T201, as pyspark does
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr("pyspark.sql.avro.functions.from_avro", no_jar)
    config["value.deserializers"] = "avro"
    assert "is the jar spark-avro installed? ('JavaPackage' object" in explain(config)
    assert capsys.readouterr().out == ""
    with pytest.raises(ConfigError, match="engine='native' cannot read values: Spark does not accept from_avro"):
        deserialize("value", "headers", config, engine="native")


def test_engines() -> None:
    with pytest.raises(ConfigError, match=r"unknown engine 'nativ'.*Did you mean native"):
        decode({"value.deserializer": "string"}, engine="nativ")


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize("names", [("flux", "Flux"), ("__serde_chain_readable", "id")])
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_names_that_are_one_to_spark(spark: SparkSession, config: Config, names: tuple[str, str], mode: str) -> None:
    """from_avro would fail at every record, and DROPMALFORMED drop them all without a word."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": name, "type": "int"} for name in names]}
    schema = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": inner}]}
    config |= {"avro.schema": json.dumps(schema), "value.deserializers": "avro", "value.serializers": "avro"}
    value = {"inner": dict(zip(names, (1, 2), strict=True))}
    data = encoded(config, value, [])
    records = kafka(spark, [row(data, [], 0)])
    decoded = records.transform(decode(config, mode=mode))
    assert [found["value"].asDict(recursive=True) for found in decoded.collect()] == [value]
    written = decoded.select("value").transform(encode(config, topic="alerts")).collect()
    assert [bytes(found["value"]) for found in written] == [data]
