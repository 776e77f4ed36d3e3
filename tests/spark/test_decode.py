"""Records from a real broker, through Spark's real Kafka source, in batch and in structured streaming."""

import contextlib
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession, functions

from serde_chain import ConfigError, Producer
from serde_chain.spark import decode, deserialize, deserialize_udf, encode
from serde_chain.testing.services import KafkaBroker, SchemaRegistry

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "cutout", "type": ["null", "bytes"]},
        {"name": "flux", "type": {"type": "array", "items": ["null", "double"]}},
    ],
}
Config = dict[str, object]
MEGABYTE = 1 << 20
KEY_TYPE = "struct<id: bigint>"
VALUE_TYPE = "struct<id: int, cutout: binary, flux: array<double>>"


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> Config:
    return {
        **broker.client_config(),
        "key.serializer": "string",
        "key.deserializer": "string",
        "value.serializers": "avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }


def alerts() -> list[dict[str, Any]]:
    """Random bytes, which do not get smaller: two records are above the broker's limit."""
    sizes = [None, 10, 100_000, 2 * MEGABYTE, None, 3 * MEGABYTE]
    return [
        {"id": at, "cutout": None if size is None else random.randbytes(size), "flux": [None, 0.5 * at][: at % 3]}
        for at, size in enumerate(sizes)
    ]


def produce(config: Config, topic: str, values: list[Any]) -> None:
    with Producer(config) as producer:
        for at, value in enumerate(values):
            producer.produce(topic, value, key=f"key {at}", headers=[("trace", b"%d" % at)])


def kafka(spark: SparkSession, broker: KafkaBroker, topic: str, *, headers: bool = True) -> DataFrame:
    return source(spark.read, broker, topic, headers=headers)


def source(reader: Any, broker: KafkaBroker, topic: str, *, headers: bool = True) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": str(headers).lower(),
    }
    frame: DataFrame = reader.format("kafka").options(**options).load()
    return frame


def by_key(rows: list[Row]) -> dict[str, Any]:
    return {row["key"]: row["value"] and row["value"].asDict() for row in rows}


@pytest.fixture(params=["arrow", "pandas"])
def udf_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pandas":
        monkeypatch.delattr(functions, "arrow_udf")


@pytest.mark.usefixtures("udf_kind")
def test_batch(spark: SparkSession, broker: KafkaBroker, new_topic: Callable[[int], str], config: Config) -> None:
    topic = new_topic(2)
    sent = [*alerts(), None]
    produce(config, topic, sent)
    raw = kafka(spark, broker, topic)
    raw_rows = {(row["partition"], row["offset"]): row for row in raw.collect()}
    offloaded = [row for row in raw_rows.values() if any(header["key"] == "large-message" for header in row["headers"])]
    assert len(offloaded) == 2

    decoded = raw.transform(decode(config))
    assert decoded.columns == raw.columns
    rows = decoded.collect()
    assert by_key(rows) == {f"key {at}": value for at, value in enumerate(sent)}
    for row in rows:
        before = raw_rows[row["partition"], row["offset"]]
        assert [(header["key"], bytes(header["value"])) for header in row["headers"]] == [
            ("trace", row["key"][4:].encode())
        ]
        assert bytes(before["key"]).decode() == row["key"]
        assert all(row[name] == before[name] for name in ("topic", "timestamp", "timestampType"))


def test_structured_streaming(
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, tmp_path: Path
) -> None:
    sent = alerts()
    produce(config, topic, sent)
    decoded = source(spark.readStream, broker, topic).transform(decode(config))
    assert decoded.isStreaming
    writer = decoded.writeStream.trigger(availableNow=True)
    in_memory = writer.format("memory").queryName("alerts").option("checkpointLocation", str(tmp_path / "memory"))
    query = in_memory.start()
    assert query.awaitTermination(100)
    # With Spark Connect this function runs on the server.
    table = str(tmp_path / "table")
    batches = writer.foreachBatch(lambda batch, _number: batch.write.mode("append").parquet(table))
    query = batches.option("checkpointLocation", str(tmp_path / "batches")).start()
    assert query.awaitTermination(100)
    for found in (spark.read.parquet(table).collect(), spark.table("alerts").collect()):
        assert by_key(found) == {f"key {at}": value for at, value in enumerate(sent)}


def test_a_stream_names_the_record_that_cannot_be_read(
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, tmp_path: Path
) -> None:
    produce({**broker.client_config(), "key.serializer": "string", "value.serializer": "bytes"}, topic, [b"foreign"])
    decoded = source(spark.readStream, broker, topic).transform(decode(config))
    writer = decoded.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match=f"topic={topic}, field=value.*partition=0, offset=0"):
        query.awaitTermination(100)


@pytest.fixture
def mixed(spark: SparkSession, broker: KafkaBroker, topic: str, config: Config) -> DataFrame:
    """A good record, a foreign one, one whose payload is gone, and a tombstone."""
    good, _, _, large, *_ = alerts()
    produce(config, topic, [good])
    produce({**broker.client_config(), "key.serializer": "string", "value.serializer": "bytes"}, topic, [b"foreign"])
    produce(config, topic, [large, None])
    [payload] = [path for path in Path(str(config["local.path"])).rglob("*") if path.is_file()]
    payload.unlink()
    return kafka(spark, broker, topic)


def test_permissive(mixed: DataFrame, config: Config) -> None:
    rows = mixed.transform(decode(config, mode="PERMISSIVE")).orderBy("offset").collect()
    assert [row["value"] and row["value"]["id"] for row in rows] == [0, None, None, None]
    good, foreign, gone, tombstone = [row["serde_error"] for row in rows]
    assert good is None
    assert tombstone is None
    assert "not compressed" in foreign
    assert "stage=zstd (2 of 3), partition=0, offset=1" in foreign
    assert "stage=large-message (1 of 3), partition=0, offset=2" in gone
    assert "reference=file:" in gone
    # An unreadable record keeps the headers that could help to read it.
    assert "large-message" in {header["key"] for header in rows[2]["headers"]}


def test_dropmalformed(mixed: DataFrame, config: Config) -> None:
    decoded = mixed.transform(decode(config, mode="dropmalformed"))
    assert decoded.columns == mixed.columns
    assert [row["offset"] for row in decoded.orderBy("offset").collect()] == [0, 3]


def test_failfast_and_columns(mixed: DataFrame, config: Config) -> None:
    """Seven queries, of which three fail."""
    [topic] = {row["topic"] for row in mixed.select("topic").collect()}
    with pytest.raises(
        PythonException, match=f"DecodeError.*topic={topic}, field=value, stage=zstd.*partition=0, offset=1"
    ):
        mixed.transform(decode(config)).collect()
    gone = mixed.where("offset = 2")
    with pytest.raises(PythonException, match=r"PayloadNotFoundError.*partition=0, offset=2"):
        gone.select(
            deserialize("value", mixed["headers"], config, topic="topic", partition="partition", offset="offset")
        ).collect()
    # What reads no values decodes none, as docs/spark.md says.
    read = mixed.transform(decode(config))
    assert read.count() == 4
    with pytest.raises(PythonException, match="DecodeError"):
        read.agg(functions.count("value")).collect()
    column = deserialize("value", "headers", config, mode="PERMISSIVE").alias("alert")
    rows = mixed.orderBy("offset").select(column).select("alert.id", "alert.flux").collect()
    assert [row["id"] for row in rows] == [0, None, None, None]
    # The filter stands above the function, which is not run twice.
    function = deserialize_udf(config, mode="DROPMALFORMED")
    filtered = mixed.select(function("value", "headers").alias("alert")).where("alert.id = 0")
    assert filtered.count() == 1
    assert plan_of(filtered).count("deserialize(") == 1


def test_a_given_schema(mixed: DataFrame, config: Config) -> None:
    column = deserialize("value", "headers", config, schema="id bigint, more string")
    assert mixed.where("offset = 0").select(column.alias("a")).select("a.*").collect() == [Row(id=0, more=None)]


def plan_of(frame: DataFrame) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        frame.explain()
    return shown.getvalue()


def test_no_secret_is_in_the_plan(
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    config |= {"sasl.password": "hunter2"}
    raw = kafka(spark, broker, topic)
    for frame in (raw.transform(decode(config)), raw.select(deserialize("value", "headers", config))):
        for how in ("extended", "codegen", "formatted"):
            frame.explain(how)
    shown = capsys.readouterr().out
    assert "decode(" in shown
    assert "deserialize(" in shown
    assert "hunter2" not in shown
    assert "Alert" not in shown


@pytest.mark.parametrize("engine", ["arrow", "native"])
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_other_columns_stay_whatever_their_names(spark: SparkSession, engine: str, mode: str) -> None:
    names = ["a`b", "a.b c", "twice", "twice", "TWICE"]
    frame = spark.createDataFrame([(b"text", 7)], "value binary, offset bigint")
    frame = frame.select(*(functions.lit(at).alias(name) for at, name in enumerate(names)), "*")
    decoded = frame.transform(decode({"value.deserializer": "string"}, engine=engine, mode=mode))
    more = {"PERMISSIVE": {"serde_error": None}}.get(mode, {})
    assert decoded.columns == [*names, "value", "offset", *more]
    assert [tuple(row) for row in decoded.collect()] == [(*range(5), "text", 7, *more.values())]


def test_columns_are_checked_on_the_driver(
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config
) -> None:
    raw = kafka(spark, broker, topic)
    transform = decode(config)
    with pytest.raises(ConfigError, match=r'no column headers.*\.option\("includeHeaders", "true"\)'):
        kafka(spark, broker, topic, headers=False).transform(transform)
    with pytest.raises(ConfigError, match="no column key"):
        raw.drop("key").transform(transform)
    with pytest.raises(ConfigError, match="the column value is string, expected binary"):
        raw.withColumn("value", functions.col("value").cast("string")).transform(transform)
    with pytest.raises(ConfigError, match="the column headers is map"):
        raw.withColumn("headers", functions.create_map()).transform(transform)
    with pytest.raises(ConfigError, match="the column value is struct"):
        raw.transform(transform).transform(transform)
    added: dict[str, dict[str, Any]] = {
        "serde_error": {},
        "serde_raw": {"mode": "PERMISSIVE", "raw": True},
        "serde_retries": {"retries": True},
    }
    for name, arguments in added.items():
        with pytest.raises(ConfigError, match=f"already has a column {name}"):
            raw.withColumn(name, functions.lit("")).transform(decode(config, **arguments))
    with pytest.raises(ConfigError, match="requires the record's headers"):
        deserialize("value", None, config)
    with pytest.raises(AnalysisException, match="cast"):
        _ = raw.select(deserialize("value", "topic", config)).schema


def test_headers_are_not_asked_for_where_no_stage_needs_them(
    spark: SparkSession, broker: KafkaBroker, topic: str
) -> None:
    config: Config = {"key.serializer": "string", "value.serializers": "json, zstd", **broker.client_config()}
    produce(config, topic, [{"a": 1}])
    raw = kafka(spark, broker, topic, headers=False)
    [row] = raw.transform(decode({"value.deserializers": "zstd, json"})).collect()
    assert (bytes(row["key"]), row["value"]) == (b"key 0", '{"a":1}')
    typed = deserialize("value", None, {"value.deserializers": "zstd, json"}, schema="a int", offset="offset")
    assert raw.select(typed.alias("v")).first() == Row(v=Row(a=1))


def test_keys_and_values_have_schemas_of_their_own(
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, tmp_path: Path
) -> None:
    schema = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "key.avsc").write_text(json.dumps(schema))
    avro = {"key.serializer": "avro", "key.deserializer": "avro", "key.avro.schema.file": str(tmp_path / "key.avsc")}
    both = {**config, **avro}
    frame = spark.createDataFrame([((7,), (1, None, []))], f"key {KEY_TYPE}, value {VALUE_TYPE}")
    frame.transform(encode(both, topic=topic)).write.format("kafka").options(
        **{"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic}
    ).save()
    [row] = kafka(spark, broker, topic).transform(decode(both)).collect()
    assert (row["key"].asDict(), row["value"]["id"]) == ({"id": 7}, 1)


def test_key_chains(spark: SparkSession, broker: KafkaBroker, topic: str, config: Config) -> None:
    """Keys above the threshold travel by way of the store too, under headers of their own."""
    large_keys = {"large.message.threshold.bytes": 1000}
    config |= {"key.serializers": "string, large-message", "key.deserializers": "large-message, string", **large_keys}
    del config["key.serializer"], config["key.deserializer"]
    keys = ["k", "k" * 5000]
    with Producer(config) as producer:
        for key in keys:
            producer.produce(topic, {"id": 1, "cutout": None, "flux": []}, key=key)
    rows = kafka(spark, broker, topic).transform(decode(config)).collect()
    assert sorted(row["key"] for row in rows) == keys
    assert {row["headers"] is None for row in rows} == {True}


def test_several_schema_ids_into_one_reader_schema(
    spark: SparkSession, broker: KafkaBroker, registry: SchemaRegistry, topic: str, config: Config
) -> None:
    wider = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}
    config |= {"schema.registry.url": registry.url, "subject.name.strategy": "record"}
    first, second = alerts()[1], alerts()[3] | {"id": 7, "note": "new"}
    produce(config, topic, [first])
    produce({**config, "avro.schema": json.dumps(wider)}, topic, [second])
    raw = kafka(spark, broker, topic)

    reading = {**config, "avro.reader.schema": json.dumps(wider)}
    rows = raw.transform(decode(reading)).orderBy("offset").collect()
    assert [row["value"].asDict() for row in rows] == [first | {"note": None}, second]
    unknown = {name: value for name, value in config.items() if name != "avro.schema"}
    with pytest.raises(ConfigError, match=r"Set avro\.reader\.schema"):
        decode(unknown)
    column = deserialize("value", "headers", unknown, schema="id int, note string")
    assert raw.orderBy("offset").select(column.alias("v")).select("v.*").collect() == [
        Row(id=1, note=None),
        Row(id=7, note="new"),
    ]


@pytest.mark.parametrize("make", [decode, deserialize_udf])
def test_configurations_are_checked_on_the_driver(make: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match="Did you mean PERMISSIVE"):
        make({"value.deserializer": "string"}, mode="PERMISIVE")
    with pytest.raises(ConfigError, match=r"value\.deserializers"):
        make({"value.serializer": "string"})
    with pytest.raises(ConfigError, match="does not declare its type"):
        make({"value.deserializers": [lambda data, _ctx: data]})
