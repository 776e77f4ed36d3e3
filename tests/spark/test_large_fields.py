"""Large fields through Spark, from and to a real broker; an S3 server counts the requests."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import UninterpretedOption
from pyspark.errors import PythonException, SparkRuntimeException
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.avro.functions import from_avro

from serde_chain import ConfigError, Consumer, Producer, RecordContext, SerializerChain
from serde_chain.spark import decode, deserialize, encode, explain, resolve, resolve_fields
from serde_chain.spark.columns.types import as_nullable
from serde_chain.testing.services import KafkaBroker, S3Server
from tests.spark.test_decode import kafka as records
from tests.spark.test_decode import plan_of, source

Config = dict[str, Any]
ENGINES = ["arrow", "native"]
SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "title", "type": "string"},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "flux", "type": "double"}, {"name": "stamp", "type": ["null", "bytes"]}],
            },
        },
        {
            "name": "history",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Past", "fields": [{"name": "cutout", "type": "bytes"}]},
            },
        },
    ],
}
SIZE = 20_000
COUNT = 12


def alert(at: int) -> dict[str, Any]:
    """Each third record has no large field."""
    size = 10 if at % 3 == 0 else SIZE
    return {
        "id": at,
        "title": chr(97 + at) * size,
        "source": {"flux": float(at), "stamp": b"%d" % at * size},
        "history": [{"cutout": b"h%d" % at * size}, {"cutout": b"small"}],
    }


class Requests(logging.Handler):
    """Counts the GET requests of an S3 server."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "GET /" in record.getMessage()

    def of(self, frame: DataFrame) -> int:
        """The number of requests during a query."""
        before = self.count
        frame.collect()
        return self.count - before


@pytest.fixture
def counted() -> Iterator[tuple[S3Server, Requests]]:
    """A server in this process, which logs its requests."""
    log, handler = logging.getLogger("werkzeug"), Requests()
    level, propagate = log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    with S3Server() as server:
        yield server, handler
    log.removeHandler(handler)
    log.setLevel(level)
    log.propagate = propagate


def settings(broker: KafkaBroker, **store: Any) -> Config:
    return {
        **broker.client_config(),
        "value.serializers": "large-fields, avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro, large-fields",
        "avro.schema": json.dumps(SCHEMA),
        "large.fields.paths": "title, source.stamp, history[].cutout",
        "large.message.id": "content",
        **store,
    }


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> Config:
    return settings(broker, **{"large.message.payload.store.class": "local", "local.path": str(tmp_path / "payloads")})


def s3_config(broker: KafkaBroker, server: S3Server) -> Config:
    store = server.store_config(server.create_bucket())
    return settings(broker, **{"large.message.payload.store.class": "s3", **store})


def with_engine(config: Config, engine: str) -> Config:
    """Spark's own from_avro reads bare Avro, no zstd."""
    if engine == "arrow":
        return config
    return config | {
        "value.serializers": "large-fields, avro, large-message",
        "value.deserializers": "large-message, avro, large-fields",
    }


def produce(config: Config, topic: str) -> None:
    with Producer(config) as producer:
        for at in range(COUNT):
            producer.produce(topic, alert(at), key=b"%d" % at, headers=[("trace", b"1")] if at % 2 else None)


def values(rows: list[Row]) -> list[Any]:
    return [row["value"] and row["value"].asDict(recursive=True) for row in sorted(rows, key=lambda row: row["offset"])]


@pytest.mark.parametrize("engine", ENGINES)
def test_decode(spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, engine: str) -> None:
    config = with_engine(config, engine)
    produce(config, topic)
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        check_decode(records(spark, broker, topic), config, engine, mode)


def check_decode(raw: DataFrame, config: Config, engine: str, mode: str) -> None:
    frame = raw.transform(decode(config, engine=engine, mode=mode))
    rows = sorted(frame.collect(), key=lambda row: row["offset"])
    assert values(rows) == [alert(at) for at in range(COUNT)]
    assert [row["headers"] and [header["key"] for header in row["headers"]] for row in rows] == [None, ["trace"]] * 6
    whole = {key: value for key, value in config.items() if not key.startswith("large.fields")}
    plain = {**whole, "value.deserializers": config["value.deserializers"].removesuffix(", large-fields")}
    same = raw.transform(decode(plain, engine=engine, mode=mode))
    assert as_nullable(frame.schema) == as_nullable(same.schema)


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_fetched_by_what(
    spark: SparkSession, broker: KafkaBroker, topic: str, counted: tuple[S3Server, Requests], engine: str
) -> None:
    """The table in docs/spark-execution.md: a query for each row."""
    server, requests = counted
    config = with_engine(s3_config(broker, server), engine)
    produce(config, topic)
    decoded = records(spark, broker, topic).transform(decode(config, engine=engine))
    large = COUNT * 2 // 3
    assert requests.of(decoded.select("key", "headers")) == 0
    assert requests.of(decoded.select("key", "value.source.flux", "value.id")) == 0
    assert requests.of(decoded.where("value.source.flux > 5").groupBy("value.id").count()) == 0
    assert requests.of(decoded.select("value.title")) == large
    assert requests.of(decoded.select("value.source.stamp", "value.id")) == large
    assert requests.of(decoded.select("value.history")) == large
    assert requests.of(decoded.select("value")) == 3 * large
    assert requests.of(decoded.where("value.id = 4").select("value.source.stamp")) == 1
    assert requests.of(decoded.where("value.id = 3").select("value.source.stamp")) == 0
    found = decoded.where("value.id = 4").select("value.source.stamp", "value.title").collect()
    assert [(bytes(row["stamp"]), row["title"]) for row in found] == [(alert(4)["source"]["stamp"], alert(4)["title"])]
    counting = records(spark, broker, topic).transform(decode(config, engine=engine, retries=True))
    assert requests.of(counting.select("value.id")) == 3 * large
    both = decoded.where("length(value.title) > 100").select("value.title")
    assert requests.of(both) == large


def test_deserialize_and_pandas_udfs_fetch_all(
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(config, topic)
    raw = records(spark, broker, topic)
    column = deserialize("value", "headers", config, topic="topic", offset="offset").alias("value")
    assert values(raw.select(column, "offset").collect()) == [alert(at) for at in range(COUNT)]
    # resolve() is for whole payloads, of which this topic has none.
    assert raw.where(resolve("value", "headers", config) != raw["value"]).count() == 0
    monkeypatch.delattr(functions, "arrow_udf")
    rows = raw.transform(decode(config)).collect()
    assert values(rows) == [alert(at) for at in range(COUNT)]
    assert "fields: fetched with the value (pyspark has no Arrow UDFs)" in explain(config)
    with pytest.raises(ConfigError, match="fields cannot be fetched by column: pyspark has no Arrow UDFs"):
        resolve_fields("value", "headers", config)


@pytest.fixture(params=["local", "s3"])
def stored_config(request: pytest.FixtureRequest, broker: KafkaBroker, config: Config, s3_server: S3Server) -> Config:
    return config if request.param == "local" else s3_config(broker, s3_server)


def test_encode(spark: SparkSession, broker: KafkaBroker, topic: str, stored_config: Config) -> None:
    """What Spark writes, our Consumer reads, and Spark's own from_avro with resolve_fields."""
    config = with_engine(stored_config, "native")
    sent = [alert(at) for at in range(COUNT)]
    kind = records(spark, broker, topic).transform(decode(config)).schema["value"].dataType
    frame = spark.createDataFrame(
        [(at, value) for at, value in enumerate(sent)], f"id long, value {kind.simpleString()}"
    )
    sink = frame.withColumn("key", functions.col("id").cast("string").cast("binary")).coalesce(1)
    assert explain(config, writes=sink).startswith("key: native (Spark writes bytes itself)\nvalue: arrow (")
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    sink.transform(encode(config, topic=topic)).write.format("kafka").options(**options).save()
    with Consumer({**config, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        got: list[Any] = []
        while len(got) < COUNT:
            got += consumer.consume(COUNT, timeout=10)
    assert [message.value() for message in got] == sent
    raw = records(spark, broker, topic).withColumn("value", from_avro("value", json.dumps(SCHEMA)))
    fields = resolve_fields("value", "headers", config, topic="topic", partition="partition", offset="offset")
    assert values(raw.select(fields.alias("value"), "offset").collect()) == sent
    stream = source(spark.readStream, broker, topic).transform(decode(config)).select("value", "offset")
    query = stream.writeStream.format("memory").queryName("large_fields").trigger(availableNow=True).start()
    query.awaitTermination()
    assert values(spark.table("large_fields").collect()) == sent
    small = raw.select(fields.alias("value"), "offset").select("value.source.flux")
    assert "fetch_field" not in plan_of(small)
    assert "fetch_field" in plan_of(raw.select(fields.alias("value")).select("value.title"))


FIELDS: Any = SCHEMA["fields"]
SHALLOW = {**SCHEMA, "fields": [*FIELDS[:2], {"name": "source", "type": ["null", FIELDS[2]["type"]]}]}
KIND = "id:bigint,title:string,source:struct<flux:double,stamp:binary>"
OWN = "headers array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    ("stages", "ids"), [("large-fields, avro", "content"), ("large-fields, avro, large-message", "keyed")]
)
def test_encode_moves_columns_and_leaves_the_rest_to_spark(
    spark: SparkSession, config: Config, tmp_path: Path, stages: str, ids: str
) -> None:
    """Byte for byte the records of the other engine, and of a chain in Python."""
    config |= {
        "value.serializers": stages,
        "avro.schema": json.dumps(SHALLOW),
        "large.fields.paths": "t*, source.stamp",
        "large.message.threshold.bytes": 30,
        "large.message.id": ids,
    }
    values: list[Any] = [{name: alert(at)[name] for name in ("id", "title", "source")} for at in range(COUNT)]
    values[1]["source"] = {"flux": 1.0, "stamp": None}
    values[2] |= {"title": "é" * 4096, "source": None}  # 8192 bytes, from which on fields are moved
    values[4]["title"] = "é" * 4095
    values[8]["source"] = values[7] = values[9] = None
    headers: list[Any] = [None, [("trace", b"1")], [("large-fields", b"of another record"), ("trace", b"2")]]
    rows = [(b"%d" % at, value, headers[at // 3 % 3]) for at, value in enumerate(values)]
    frame = spark.createDataFrame(rows, f"key binary, value struct<{KIND}>, {OWN}").coalesce(1)
    assert explain(config, writes=frame, topics="alerts").splitlines()[-1] == (
        "value: native (Spark's to_avro writes it, Python moves title, source.stamp)"
    )
    native, arrow = (
        frame.transform(encode(config, topic="alerts", engine=name, retries=True)) for name in ("native", "arrow")
    )
    assert "move_fields" in plan_of(native)
    assert "to_avro" in plan_of(native)
    found = native.collect()
    assert found == arrow.collect()
    stored = [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()]
    with SerializerChain.from_config(config) as chain:
        for row, (key, value, given) in zip(found, rows, strict=True):
            own = list(given or [])
            assert row["value"] == chain(value, RecordContext("alerts", "value", own, key))
            assert [tuple(header) for header in row["headers"] or []] == own
    assert [path for path in (tmp_path / "payloads").rglob("*") if path.is_file()] == stored
    marks = [dict(map(tuple, row["headers"] or ())).get("large-fields") for row in found]
    assert [mark and mark.count(b'"path"') for mark in marks] == [None, 1, 1, None, 1, 2, None, 0, 1, None, 2, 2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, r"history\[\]\.cutout is moved in Python"),
        ({"value.serializers": "large-fields, avro, zstd", "large.fields.paths": "title"}, "run in Python"),
    ],
)
def test_fields_that_spark_leaves_to_python(spark: SparkSession, config: Config, changes: Config, reason: str) -> None:
    config |= {"value.serializers": "large-fields, avro", **changes}
    frame = spark.createDataFrame([], f"value struct<{KIND},history:array<struct<cutout:binary>>>")
    with pytest.raises(ConfigError, match=f"engine='native' cannot write: value: .*{reason}"):
        frame.transform(encode(config, topic="alerts", engine="native"))
    assert "value: arrow" in explain(config, writes=frame, topics="alerts")


KAFKA = "value binary, headers array<struct<key:string,value:binary>>, topic string, partition int, offset bigint"


def stored(config: Config, at: int) -> tuple[Any, ...]:
    headers: list[Any] = []
    with SerializerChain.from_config(config) as chain:
        value = chain(alert(at), RecordContext("alerts", "value", headers))
    return value, headers, "alerts", 0, at


def test_fields_that_cannot_be_had(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    config = with_engine(config, "native")
    rows = [stored(config, 1), stored(config, 3)]
    frame = spark.createDataFrame(rows, KAFKA).coalesce(1)
    for path in (tmp_path / "payloads").rglob("*"):
        if path.is_file() and path.read_bytes()[:1] == b"b":  # the title
            path.unlink()
    decoded = frame.transform(decode(config))
    assert [bytes(row["stamp"])[:1] for row in decoded.select("value.source.stamp").collect()] == [b"1", b"3"]
    expected = r"PayloadNotFoundError.*topic=alerts, field=value, stage=large-fields.*, partition=0, offset=1"
    with pytest.raises(PythonException, match=expected):
        decoded.select("value.title").collect()
    checked = frame.transform(decode(config, mode="PERMISSIVE")).orderBy("offset").collect()
    assert [row["value"] is None for row in checked] == [True, False]
    assert "PayloadNotFoundError" in checked[0]["serde_error"] or "not" in checked[0]["serde_error"]
    assert "large-fields" in {header["key"] for header in checked[0]["headers"]}
    own = frame.withColumn("value", from_avro("value", json.dumps(SCHEMA)))
    left = own.select(resolve_fields("value", "headers", config, mode="PERMISSIVE").alias("value"), "offset")
    assert values(left.collect()) == [alert(1) | {"title": None}, alert(3)]


@pytest.mark.parametrize("engine", ENGINES)
def test_paths_of_readers(spark: SparkSession, config: Config, engine: str) -> None:
    """Without paths, all fields of bytes and strings; a reader's paths must cover the writer's."""
    config = with_engine(config, engine)
    frame = spark.createDataFrame([stored(config, at) for at in range(4)], KAFKA).coalesce(1)
    free = {key: value for key, value in config.items() if key != "large.fields.paths"}
    assert values(frame.transform(decode(free, engine=engine)).collect()) == [alert(at) for at in range(4)]
    assert "fields: each fetched by the queries that use it (title, source.stamp, history)" in explain(free)
    narrow = frame.transform(decode(config | {"large.fields.paths": "source.*"}, engine=engine))
    with pytest.raises(SparkRuntimeException, match=r"large\.fields\.paths lacks a field that holds a reference"):
        narrow.select("value.title").collect()
    misspelt = config | {"large.fields.paths": "titel, source.stamp, history[].cutout"}
    wrong = r"titel is not in the schema \(did you mean title\?\)"
    assert re.search(rf"\(source\.stamp, history\); {wrong}", explain(misspelt))
    with pytest.raises(SparkRuntimeException, match=rf"a field that holds a reference; {wrong}\. Name all fields"):
        frame.transform(decode(misspelt, engine=engine)).select("value.id").collect()
    with pytest.raises(ConfigError, match="the last stage of the configuration fetches no fields"):
        resolve_fields("value", "headers", {"value.deserializers": "avro", "avro.schema": json.dumps(SCHEMA)})


RENAMED: dict[str, Any] = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "headline", "type": "string", "aliases": ["title"]},
        {
            "name": "detection",
            "aliases": ["source"],
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "image", "type": ["null", "bytes"], "aliases": ["stamp"]}],
            },
        },
        {"name": "remark", "type": ["null", "string"], "default": None},
    ],
}


@pytest.mark.parametrize("engine", ENGINES)
def test_paths_by_the_writers_names(spark: SparkSession, config: Config, engine: str) -> None:
    """A reader schema renames fields by aliases; the header, and usually the paths, have the names of writers."""
    config = with_engine(config, engine)
    frame = spark.createDataFrame([stored(config, 1)], KAFKA).coalesce(1)
    reading = config | {"avro.reader.schema": json.dumps(RENAMED)}
    expected = {
        "id": 1,
        "headline": alert(1)["title"],
        "detection": {"image": alert(1)["source"]["stamp"]},
        "remark": None,
    }
    for paths in ("title, source.*", "headline, detection.image", "title, detection.stamp, source.image"):
        renamed = reading | {"large.fields.paths": paths}
        assert "queries that use it (headline, detection.image)" in explain(renamed)
        assert values(frame.transform(decode(renamed, engine=engine)).collect()) == [expected]
    narrow = frame.transform(decode(reading | {"large.fields.paths": "detection.image"}, engine=engine))
    with pytest.raises(SparkRuntimeException, match=r"large\.fields\.paths lacks a field that holds a reference"):
        narrow.select("value.headline").collect()


def test_too_many_names(config: Config) -> None:
    """By the aliases of four levels: all fields are fetched with the value."""
    schema: Any = {"name": "f", "aliases": list("abcde"), "type": "bytes"}
    for level in "ghij":
        record = {"type": "record", "name": level.upper(), "fields": [schema]}
        schema = {"name": level, "aliases": list("abcde"), "type": record}
    reading = config | {"avro.schema": json.dumps(schema["type"]), "large.fields.paths": "g.h.*"}
    assert "fetched with the value (its fields have more than 500 names" in explain(reading)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tombstone_keeps_its_headers(spark: SparkSession, config: Config, engine: str) -> None:
    """Whatever they are called, as in a Consumer."""
    config = with_engine(config, engine)
    headers = [Row(key=name, value=bytearray(b"[]")) for name in ("trace", "large-fields")]
    frame = spark.createDataFrame(
        [(None, None, headers)], "key binary, value binary, headers array<struct<key string, value binary>>"
    )
    [row] = frame.transform(decode(config, engine=engine)).collect()
    assert (row["value"], row["headers"]) == (None, headers)


def test_json(spark: SparkSession, config: Config) -> None:
    """Text in a column, or a struct of a given type; both are fetched with the value."""
    chains = {"value.serializers": "large-fields, json", "value.deserializers": "json, large-fields"}
    config = {key: value for key, value in config.items() if key != "avro.schema"} | chains
    config["large.fields.paths"] = "title, missing"
    headers: list[Any] = []
    sent = {"id": 7, "title": "t" * SIZE}
    with SerializerChain.from_config(config) as chain:
        value = chain(sent, RecordContext("alerts", "value", headers))
    assert len(value) < SIZE
    frame = spark.createDataFrame([(value, headers, "alerts", 0, 0)], KAFKA)
    [row] = frame.transform(decode(config)).collect()
    assert (json.loads(row["value"]), row["headers"]) == (sent, None)
    typed = deserialize("value", "headers", config, topic="topic", schema="id bigint, title string")
    [row] = frame.select(typed.alias("value")).collect()
    assert row["value"].asDict() == sent
    with pytest.raises(ConfigError, match="the fields are unknown before the values are read"):
        resolve_fields("value", "headers", config)


def test_too_many_columns(config: Config) -> None:
    schema = {**SCHEMA, "fields": [{"name": f"f{at}", "type": "bytes"} for at in range(21)]}
    many = {key: value for key, value in config.items() if key != "large.fields.paths"}
    many["avro.schema"] = json.dumps(schema)
    assert "fields: fetched with the value (21 columns may hold references: name those that do" in explain(many)


def test_lazy_fetch_is_ignored(spark: SparkSession, config: Config) -> None:
    """Columns hold payloads: a configuration of lazy consumers gives the same values, also of JSON."""
    lazy = config | {"large.fields.fetch": "lazy", "value.large.fields.fetch": "lazy"}
    frame = spark.createDataFrame([stored(config, at) for at in range(4)], KAFKA).coalesce(1)
    assert values(frame.transform(decode(lazy)).collect()) == [alert(at) for at in range(4)]
    json_config = {key: value for key, value in lazy.items() if key != "avro.schema"}
    json_config |= {"value.serializers": "large-fields, json", "value.deserializers": "json, large-fields"}
    json_config["large.fields.paths"] = "title"
    headers: list[Any] = []
    with SerializerChain.from_config(json_config) as chain:
        value = chain({"title": "t" * SIZE}, RecordContext("alerts", "value", headers))
    raw = spark.createDataFrame([(value, headers, "alerts", 0, 0)], KAFKA)
    typed = deserialize("value", "headers", json_config, topic="topic", schema="title string")
    [row] = raw.select(typed.alias("value")).collect()
    assert row["value"]["title"] == "t" * SIZE


@pytest.mark.parametrize("engine", ENGINES)
def test_encrypted_fields(
    spark: SparkSession, broker: KafkaBroker, counted: tuple[S3Server, Requests], engine: str
) -> None:
    """Fields and records are encrypted, each bound to its topic; fields are fetched by the queries that use them."""
    server, requests = counted
    keys = {"encryption.key.id": "k", "encryption.keys": f"k = {bytes(range(32)).hex()}"}
    config = with_engine(s3_config(broker, server), engine) | keys | {"large.fields.serializers": "zstd, encrypt"}
    if engine == "arrow":
        config |= {
            "value.serializers": "large-fields, avro, zstd, encrypt, large-message",
            "value.deserializers": "large-message, encrypt, zstd, avro, large-fields",
        }
    frame = spark.createDataFrame([stored(config, at) for at in range(4)], KAFKA).coalesce(1)
    decoded = frame.transform(decode(config, engine=engine))
    assert requests.of(decoded.select("headers", "value.id", "value.source.flux")) == 0
    assert requests.of(decoded.select("value.title")) == 2
    # A small one, and those on their way.
    assert requests.of(decoded.select("value.title").limit(1)) <= 2
    assert values(decoded.collect()) == [alert(at) for at in range(4)]
    moved = frame.withColumn("topic", functions.lit("others")).transform(decode(config, engine=engine))
    with pytest.raises(PythonException, match=r"topic=others, field=value"):
        moved.select("value.title").collect()


def test_protobuf(spark: SparkSession, broker: KafkaBroker, counted: tuple[S3Server, Requests]) -> None:
    """The fields of messages, whose column is a struct."""
    server, requests = counted
    config = s3_config(broker, server) | {
        "value.serializers": "large-fields, protobuf, large-message",
        "value.deserializers": "large-message, protobuf, large-fields",
        "protobuf.message.class": "google.protobuf.descriptor_pb2.UninterpretedOption",
        "large.fields.paths": "string_value, aggregate_value",
        "large.fields.fetch": "lazy",
    }
    del config["avro.schema"]
    rows = []
    for at in range(3):
        headers: list[Any] = []
        message = UninterpretedOption(
            positive_int_value=at, string_value=b"s%d" % at * SIZE, aggregate_value=chr(97 + at) * SIZE
        )
        with SerializerChain.from_config(config) as chain:
            rows.append((chain(message, RecordContext("alerts", "value", headers)), headers, "alerts", 0, at))
    decoded = spark.createDataFrame(rows, KAFKA).coalesce(1).transform(decode(config))
    assert requests.of(decoded.select("value.positive_int_value", "headers")) == 0
    assert requests.of(decoded.select("value.string_value")) == 3
    assert requests.of(decoded.where("value.positive_int_value = 1").select("value.aggregate_value")) == 1
    [found] = decoded.where("value.positive_int_value = 2").select("value.*").collect()
    assert bytes(found["string_value"]) == b"s2" * SIZE
    assert found["aggregate_value"] == "c" * SIZE
