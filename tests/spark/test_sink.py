"""Typed columns into what Spark's Kafka sink takes, on a real broker."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession, functions
from pyspark.sql.functions import lit, struct

from serde_chain import ConfigError, DeserializerChain, Producer, RecordContext
from serde_chain.spark import decode, encode, explain, offload, resolve, serialize, serialize_udf
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.consuming import consumed

SCHEMA = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "cutout", "type": ["null", "bytes"]},
        {"name": "flux", "type": {"type": "array", "items": ["null", "double"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}
DDL = "id int not null, cutout binary, flux array<double>, tags map<string,string>"
Config = dict[str, Any]
LARGE = 2 << 20


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }


def alerts() -> list[tuple[Any, ...]]:
    sizes = [None, 10, 100_000, LARGE, 0, LARGE]
    return [
        (at, None if size is None else bytes([at]) * size, [None, 0.5 * at][: at % 3], {"band": "g"} if at % 2 else {})
        for at, size in enumerate(sizes)
    ]


def expected() -> list[dict[str, Any]]:
    return [{"id": at, "cutout": cutout, "flux": flux, "tags": tags} for at, cutout, flux, tags in alerts()]


def frame(spark: SparkSession) -> DataFrame:
    records = spark.createDataFrame(alerts(), DDL)
    return records.select(struct("*").alias("value"), functions.concat(lit("key "), "id").cast("binary").alias("key"))


def read_back(config: Config, rows: list[Row], topic: str = "alerts") -> list[Any]:
    with DeserializerChain.from_config(config) as chain:
        values = []
        for row in rows:
            headers: Any = [(header["key"], header["value"]) for header in row["headers"] or ()]
            value = None if row["value"] is None else bytes(row["value"])
            values.append(chain(value, RecordContext(topic, "value", headers)))
    return values


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("engine", ["arrow", "native", "auto"])
def test_encode(spark: SparkSession, config: Config, engine: str, tmp_path: Path) -> None:
    encoded = frame(spark).transform(encode(config, topic="alerts", engine=engine))
    assert encoded.columns == ["topic", "key", "value", "headers"]
    rows = encoded.collect()
    assert read_back(config, rows) == expected()
    assert [row["key"] for row in rows] == [b"key %d" % at for at in range(len(rows))]
    assert {row["topic"] for row in rows} == {"alerts"}
    assert [row["headers"] is not None for row in rows] == [
        cutout is not None and len(cutout) == LARGE for cutout in (alert[1] for alert in alerts())
    ]
    assert len(list((tmp_path / "payloads" / "alerts").iterdir())) == 2


@pytest.mark.parametrize(("engine", "python"), [("arrow", "ArrowEvalPython"), ("native", "ArrowEvalPython")])
def test_the_engine_in_the_plan(spark: SparkSession, config: Config, engine: str, python: str) -> None:
    plan = plan_of(frame(spark).transform(encode(config, topic="alerts", engine=engine)))
    assert ("to_avro" in plan) == (engine == "native")
    assert python in plan
    alone = plan_of(frame(spark).transform(encode({**config, "value.serializers": "avro"}, topic="t", engine="native")))
    assert "EvalPython" not in alone


def test_nulls_are_tombstones(spark: SparkSession, config: Config) -> None:
    records = spark.createDataFrame(
        [(b"a", None), (b"b", alerts()[1])], f"key binary, value struct<{DDL.replace('not null', '')}>"
    )
    for engine in ("arrow", "auto"):
        rows = records.transform(encode(config, topic="alerts", engine=engine)).collect()
        assert [row["value"] is None for row in rows] == [True, False]
        assert rows[0]["headers"] is None


@pytest.mark.parametrize("engine", ["arrow", "native"])
@pytest.mark.parametrize("framing", ["confluent", "single-object"])
def test_framing(  # noqa: PLR0917  fixtures
    spark: SparkSession, config: Config, registry: SchemaRegistry, topic: str, engine: str, framing: str
) -> None:
    config["avro.framing"] = framing
    if framing == "confluent":
        config["schema.registry.url"] = registry.url
    rows = frame(spark).transform(encode(config, topic=topic, engine=engine)).collect()
    assert read_back(config, rows, topic) == expected()


def test_registry_framing_needs_the_topic(spark: SparkSession, config: Config, registry: SchemaRegistry) -> None:
    config["schema.registry.url"] = registry.url
    with pytest.raises(ConfigError, match="pass topic="):
        frame(spark).transform(encode(config, engine="native"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"value.serializers": "avro, zstd, large-message"}, r"avro \(1 of 3\) and the stages after it run in Python"),
        ({"value.serializers": "json"}, r"no function for json"),
        ({"avro.validate": True}, "does not check"),
        ({"avro.framing": "container"}, "does not check or frame"),
        ({"avro.schema": json.dumps({**SCHEMA, "fields": SCHEMA["fields"][:2]})}, "Spark reads the schema as"),
    ],
)
def test_what_spark_does_not_write(spark: SparkSession, config: Config, changes: Config, reason: str) -> None:
    records = frame(spark)
    with pytest.raises(ConfigError, match=f"engine='native' cannot write: value: .*{reason}"):
        records.transform(encode({**config, **changes}, topic="alerts", engine="native"))
    assert "ArrowEvalPython" in plan_of(records.transform(encode({**config, **changes}, topic="alerts")))


def test_chains_in_python(spark: SparkSession, config: Config) -> None:
    config |= {
        "value.serializers": "avro, zstd, large-message",
        "value.deserializers": "large-message, zstd, avro",
        "key.serializer": "long",
    }
    records = frame(spark).withColumn("key", functions.col("value.id").cast("bigint"))
    records = records.withColumn(
        "headers", functions.array(struct(lit("trace").alias("key"), lit(b"1").alias("value")))
    )
    rows = records.transform(encode(config, topic="alerts")).collect()
    assert read_back(config, rows) == expected()
    assert [int.from_bytes(row["key"], "big") for row in rows] == list(range(len(rows)))
    assert {row["headers"][0]["key"] for row in rows} == {"trace"}


def test_serialize(spark: SparkSession, config: Config) -> None:
    made = serialize("value", config, topic=lit("alerts"), key="key")
    rows = frame(spark).select(made.alias("r")).select("r.*").collect()
    assert read_back(config, rows) == expected()
    udf = serialize_udf(config)
    rows = frame(spark).select(udf("value", lit("alerts")).alias("r")).select("r.*").collect()
    assert read_back(config, rows) == expected()


@pytest.mark.full
def test_offload_is_the_mirror_of_resolve(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    values = [
        (at, None if size is None else bytes([at]) * size) for at, size in enumerate([None, 0, 10, 999, 2000, LARGE])
    ]
    config["large.message.threshold.bytes"] = 1000
    records = spark.createDataFrame(values, "at int, value binary")
    made = records.withColumn("r", offload("value", None, config, topic=lit("alerts"))).select("at", "r.*")
    rows = sorted(made.collect())
    assert [row["headers"] is not None for row in rows] == [False, False, False, False, True, True]
    back = made.select("at", resolve("value", "headers", config).alias("value")).orderBy("at").collect()
    assert [(row["at"], None if row["value"] is None else bytes(row["value"])) for row in back] == values
    first = {path.name for path in (tmp_path / "payloads" / "alerts").iterdir()}
    assert sorted(made.collect()) == rows
    assert {path.name for path in (tmp_path / "payloads" / "alerts").iterdir()} == first  # of the content
    with pytest.raises(ConfigError, match="no stage of the configuration offloads"):
        offload("value", None, {"value.serializers": "bytes"}, topic=lit("alerts"))


def test_marks_that_are_left_over_do_not_stay(spark: SparkSession, config: Config) -> None:
    config |= {"value.serializers": "bytes, large-message", "value.deserializers": "large-message, bytes"}
    rows = [(b"small", [("large-message", b"true"), ("own", b"1")]), (b"small", [("own", b"1")]), (b"small", None)]
    records = spark.createDataFrame(rows, "value binary, headers array<struct<key: string, value: binary>>")
    small = records.select(offload("value", "headers", config, topic=lit("t")).alias("r")).select("r.*")
    assert small.collect() == [
        Row(value=b"small", headers=[Row(key="own", value=b"1")]),
        Row(value=b"small", headers=[Row(key="own", value=b"1")]),
        Row(value=b"small", headers=None),
    ]
    assert [row[0] for row in small.select(resolve("value", "headers", config)).collect()] == [b"small"] * 3


def test_a_format_that_marks_what_stays(spark: SparkSession, config: Config) -> None:
    """All rows pass through Python then, those without a byte as well."""
    config |= {
        "value.serializers": "bytes, large-message",
        "value.deserializers": "large-message, bytes",
        "large.message.format": "bakdata-flag",
        "large.message.accept": "bakdata-flag",
        "large.message.threshold.bytes": 1000,
    }
    values = [None, b"", b"small", b"x" * 2000]
    trace = functions.array(struct(lit("trace").alias("key"), lit(b"1").alias("value")))
    records = spark.createDataFrame(list(enumerate(values)), "at int, value binary").withColumn("headers", trace)
    for made in (
        records.withColumn("r", offload("value", "headers", config, topic=lit("alerts"))).select("at", "r.*"),
        records.transform(encode(config, topic="alerts", engine="native")),
        records.transform(encode(config, topic="alerts", engine="arrow")),
    ):
        rows = made.collect()
        assert read_back(config, rows) == values
        assert {row["headers"][0]["key"] for row in rows} == {"trace"}


def test_equal_payloads_of_two_tasks_are_one_object(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    records = spark.createDataFrame([(b"x" * LARGE,)] * 8, "value binary").repartition(4)
    config["value.serializers"] = "bytes, large-message"
    rows = records.transform(encode(config, topic="alerts")).collect()
    assert len({bytes(row["value"]) for row in rows}) == 1
    assert len(list((tmp_path / "payloads" / "alerts").iterdir())) == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("1 as id", "no column value"),
        ("binary('a') as value, 1 as topic", "the column topic is int"),
        ("binary('a') as value, array('a') as headers", "the column headers is array<string>"),
    ],
)
def test_wrong_columns(spark: SparkSession, config: Config, columns: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        spark.sql(f"select {columns}").transform(encode(config, topic="alerts"))


def test_wrong_configurations(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"neither value\.serializers nor"):
        encode({})
    with pytest.raises(ConfigError, match="engine"):
        encode(config, engine="jvm")
    with pytest.raises(ConfigError, match=r"max\.request\.size"):
        encode({**config, "large.message.threshold.bytes": 5 << 20})


def test_a_value_that_does_not_fit_ends_the_query(spark: SparkSession, config: Config) -> None:
    rows = spark.createDataFrame([(None, None, [], {})], DDL.replace("not null", ""))
    records = rows.select(struct("*").alias("value"))
    with pytest.raises(PythonException, match=r"EncodeError.*topic=alerts.*avro"):
        records.transform(encode(config, topic="alerts", engine="arrow")).collect()


@pytest.mark.parametrize("engine", ["arrow", "native", "auto"])
def test_a_column_that_never_fits_is_refused_on_the_driver(spark: SparkSession, config: Config, engine: str) -> None:
    encoding = encode(config, topic="alerts", engine=engine)
    with pytest.raises(ConfigError, match=r"the column value cannot be written: value is string, .* requires Alert"):
        spark.createDataFrame([("text",)], "value string").transform(encoding)
    records = frame(spark).withColumn("value", functions.col("value").withField("id", lit("one")))
    with pytest.raises(ConfigError, match=r"value\.id is string, but the schema requires int"):
        records.transform(encoding)
    with pytest.raises(ConfigError, match="value has no field flux, which has no default in the schema"):
        records.select(struct(functions.col("value.cutout"), lit(1).alias("id")).alias("value")).transform(encoding)


@pytest.mark.full
def test_before_pyspark_4_1(spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas would make other types of typed columns, so these are Spark's own to write."""
    monkeypatch.delattr(functions, "arrow_udf")
    rows = frame(spark).transform(encode(config, topic="alerts")).collect()
    assert read_back(config, rows) == expected()
    refused = r"before pyspark 4\.1, .* value only as binary or text, but it is struct.*newer"
    with pytest.raises(ConfigError, match=refused):
        frame(spark).transform(encode(config, topic="alerts", engine="arrow"))
    with pytest.raises(ConfigError, match=r"a pandas UDF accepts values only as binary or text"):
        serialize("value", config, topic=lit("alerts"))
    bytes_ = {**config, "value.serializers": "bytes, zstd", "value.deserializers": "zstd, bytes"}
    binary = frame(spark).select(functions.col("value.cutout").alias("value"))
    rows = binary.transform(encode(bytes_, topic="alerts")).collect()
    assert read_back(bytes_, rows) == [alert["cutout"] for alert in expected()]


def test_a_column_that_only_python_writes_is_reported_once(
    spark: SparkSession, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    wider = frame(spark).withColumn("value", functions.col("value").withField("id", lit(1).cast("bigint")))
    wider.transform(encode(config, topic="alerts"))
    [told] = [record.message for record in caplog.records if record.name == "serde_chain"]
    assert told.startswith("to_avro cannot write the column value, so Python does: the column is struct<id:bigint")
    caplog.clear()
    frame(spark).transform(encode(config, topic="alerts"))
    wider.transform(encode(config, topic="alerts", engine="arrow"))
    assert not [record for record in caplog.records if record.name == "serde_chain"]


def test_explain(spark: SparkSession, config: Config) -> None:
    records = frame(spark)
    assert explain(config, writes=records, topics="alerts") == (
        "key: native (Spark writes bytes itself)\nvalue: native (Spark's to_avro writes it)"
    )
    wider = records.withColumn("value", functions.col("value").withField("id", lit(1).cast("bigint")))
    rest = "cutout:binary,flux:array<double>,tags:map<string,string>>"
    assert explain(config, writes=wider).splitlines()[1:] == [
        f"value: arrow (the column is struct<id:bigint,{rest}, and Spark reads the schema as struct<id:int,{rest})",
        "Together, in encode(): arrow, since one of them passes through Python anyway",
    ]
    assert "as requested" in explain(config, writes=records, engine="arrow")
    with pytest.raises(ConfigError, match="cannot write: value"):
        explain(config, writes=wider, engine="native")


def test_for_each_batch(
    spark: SparkSession,
    config: Config,
    broker: KafkaBroker,
    new_topic: Callable[[], str],
    tmp_path: Path,
) -> None:
    """A batch that is written, and run again since the query did not get to note that, bears the same number."""
    source, target = new_topic(), new_topic()
    sink = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    frame(spark).transform(encode(config, topic=source)).write.format("kafka").options(**sink).save()
    options = {**sink, "subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"}
    faults = [RuntimeError("killed"), None, None]

    def write(batch: DataFrame, number: int) -> None:
        header = struct(lit("batch").alias("key"), lit(str(number)).cast("binary").alias("value"))
        numbered = batch.select("key", "value", functions.array(header).alias("headers"))
        numbered.transform(encode(config, topic=target)).write.format("kafka").options(**sink).save()
        if fault := faults.pop(0):
            raise fault

    def run() -> None:
        records = spark.readStream.format("kafka").options(**options, maxOffsetsPerTrigger="4").load()
        writer = records.transform(decode(config)).writeStream.foreachBatch(write)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    with pytest.raises(StreamingQueryException, match="killed"):
        run()
    # Spark 4.1.1's source ends a query once more when it has run a batch again (SPARK-57438).
    with contextlib.suppress(StreamingQueryException):
        run()
    run()
    found = consumed({**config, **broker.client_config()}, target, 4 + len(expected()))
    numbers = [int(dict(message.headers())["batch"]) for message in found]
    assert numbers == sorted(numbers) == [0] * 8 + [1] * 2
    once = {(number, message.key()): message.value() for number, message in zip(numbers, found, strict=True)}
    assert sorted(once.values(), key=lambda value: int(value["id"])) == expected()
    assert len(list((tmp_path / "payloads" / target).iterdir())) == 2


@pytest.mark.full
@pytest.mark.parametrize("engine", ["arrow", "native"])
def test_sizes_that_the_sink_just_takes(
    spark: SparkSession, config: Config, broker: KafkaBroker, topic: str, engine: str
) -> None:
    """All sizes around the limit of Spark's producer arrive, in the record or beside it."""
    config |= {"value.serializers": "bytes, large-message", "value.deserializers": "large-message, bytes"}
    sizes = [1_048_576 - less for less in (*range(0, 200, 7), 4096, 5000)]
    records = spark.createDataFrame([(bytes(size), b"k" * 20) for size in sizes], "value binary, key binary")
    written = records.coalesce(1).transform(encode(config, topic=topic, engine=engine)).write.format("kafka")
    written.option("kafka.bootstrap.servers", broker.bootstrap_servers).save()
    found = consumed({**config, **broker.client_config()}, topic, len(sizes))
    assert sorted(len(message.value()) for message in found) == sorted(sizes)


@pytest.mark.full
@pytest.mark.parametrize("what", ["key", "headers"])
@pytest.mark.parametrize("function", ["native", "arrow", "offload"])
def test_a_large_key_and_large_headers_count(spark: SparkSession, config: Config, what: str, function: str) -> None:
    """With them, a value that would fit alone is more than the sink takes."""
    config |= {"value.serializers": "bytes, large-message", "large.message.threshold.bytes": 1_048_576}
    beside = {
        "key": lit(b"k" * 20_000),
        "headers": functions.array(struct(lit("h").alias("key"), lit(b"k" * 20_000).alias("value"))),
    }
    sizes = [1_040_000, 1_020_000]
    records = spark.createDataFrame([(bytes(size),) for size in sizes], "value binary").withColumn(what, beside[what])
    if function == "offload":
        headers, key = (what if what == name else None for name in ("headers", "key"))
        made = records.select(offload("value", headers, config, topic=lit("t"), key=key).alias("r")).select("r.*")
    else:
        made = records.transform(encode(config, topic="t", engine=function))
    large, small = made.collect()
    assert large["value"].startswith(b"file:///")
    assert len(small["value"]) == sizes[1]


@pytest.mark.full
@pytest.mark.parametrize("beyond", [-1, 0, 1])
def test_the_threshold_is_the_same_everywhere(
    spark: SparkSession, config: Config, broker: KafkaBroker, topic: str, beyond: int
) -> None:
    config |= {"value.serializers": "bytes, large-message", "large.message.threshold.bytes": 1000}
    value = bytes(1000 + beyond)
    with Producer({**config, **broker.client_config()}) as producer:
        producer.produce(topic, value, key=b"k" * 2000, headers=[("h", b"v" * 2000)])
    [produced] = consumed({"value.deserializer": "bytes", **broker.client_config()}, topic, 1)
    header = functions.array(struct(lit("h").alias("key"), lit(b"v" * 2000).alias("value")))
    record = spark.createDataFrame([(value, b"k" * 2000)], "value binary, key binary").withColumn("headers", header)
    column = offload("value", "headers", config, topic=lit("t"), key="key")
    written = [
        *record.transform(encode(config, topic="t", engine="native")).collect(),
        *record.transform(encode(config, topic="t", engine="arrow")).collect(),
        *record.select(column.alias("r")).select("r.*").collect(),
    ]
    stays = [bytes(produced.value()) == value, *(bytes(row["value"]) == value for row in written)]
    assert stays == [beyond <= 0] * 4


def test_comments_of_columns_are_no_hindrance(spark: SparkSession, config: Config) -> None:
    commented = spark.createDataFrame(alerts(), DDL).withMetadata("id", {"comment": "as in the catalogue"})
    records = commented.select(struct("*").alias("value"))
    assert explain(config, writes=records, topics="alerts") == "value: native (Spark's to_avro writes it)"
    assert read_back(config, records.transform(encode(config, topic="alerts", engine="native")).collect()) == expected()


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "column", "said"),
    [
        ("int", "3000000000L", "value.a does not fit the schema's int: ArrowInvalid: Integer value … not in range"),
        ("int", "1.5D", "value.a does not fit the schema's int: ArrowInvalid: Float value … was truncated"),
        ("long", "1.5", "value.a does not fit the schema's long"),
        ({"type": "array", "items": "int"}, "array(1L, 3000000000L)", r"value.a\[\] does not fit"),
        ({"type": "map", "values": "int"}, "map('k', 3000000000L)", r"value.a\[\] does not fit"),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            "timestamp'0001-01-01' - interval '9' year",
            "out of Python's range",
        ),
    ],
)
def test_what_python_would_write_as_something_else(
    spark: SparkSession, config: Config, kind: Any, column: str, said: str
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    encoding = encode({**config, "avro.schema": schema}, topic="t", engine="arrow")
    with pytest.raises(PythonException, match=f"EncodeError: .*{said}"):
        spark.sql(f"SELECT struct({column} AS a) AS value").transform(encoding).collect()


def test_numbers_that_fit_after_all(spark: SparkSession, config: Config) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "long"}]}
    config["avro.schema"] = json.dumps(schema)
    records = spark.sql("SELECT struct(id AS a, cast(id AS double) AS b) AS value FROM range(3)")
    rows = records.transform(encode(config, topic="t", engine="arrow")).collect()
    assert read_back(config, rows) == [{"a": at, "b": at} for at in range(3)]


@pytest.mark.parametrize("engine", ["arrow", "native"])
def test_a_header_that_is_null(spark: SparkSession, config: Config, engine: str) -> None:
    config |= {"value.serializers": "bytes, large-message", "large.message.threshold.bytes": 10}
    headers = "array(cast(null AS struct<key: string, value: binary>)) AS headers"
    records = spark.sql(f"SELECT binary('more than ten bytes') AS value, {headers}")
    with pytest.raises(PythonException, match=r"EncodeError: an entry of the column headers is null"):
        records.transform(encode(config, topic="t", engine=engine)).collect()


@pytest.mark.full
def test_from_kafka_to_kafka_by_streams(
    spark: SparkSession,
    config: Config,
    broker: KafkaBroker,
    new_topic: Callable[[], str],
    tmp_path: Path,
) -> None:
    """A query that is stopped and started again writes each record, and each payload once."""
    source, target = new_topic(), new_topic()
    first = frame(spark).transform(encode(config, topic=source)).write.format("kafka")
    first.option("kafka.bootstrap.servers", broker.bootstrap_servers).save()
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": source,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "2",
    }
    for _ in range(2):
        records = spark.readStream.format("kafka").options(**options).load().transform(decode(config))
        doubled = records.withColumn("value", records["value"].withField("id", records["value.id"] * 2))
        writer = doubled.select("key", "value").transform(encode(config, topic=target)).writeStream.format("kafka")
        query = (
            writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
    found = consumed({**config, **broker.client_config()}, target, len(expected()))
    wanted = {alert["id"] * 2: alert for alert in expected()}
    assert {message.value()["id"]: message.value()["cutout"] for message in found} == {
        number: alert["cutout"] for number, alert in wanted.items()
    }
    assert len(list((tmp_path / "payloads" / target).iterdir())) == 2


@pytest.mark.full
@pytest.mark.parametrize("value", ["struct(1 as id)", "1", "array('a')"])
def test_columns_that_pandas_would_change_are_refused(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """The functions of pyspark 4.0 are pandas UDFs."""
    monkeypatch.delattr(functions, "arrow_udf")
    records = spark.sql(f"select {value} as value")
    with pytest.raises(ConfigError, match=r"before pyspark 4\.1, Python accepts .* value only as binary or text"):
        records.transform(encode({**config, "value.serializers": "json"}, topic="alerts"))
    with pytest.raises(PythonException, match=r"a pandas UDF accepts .* value only as binary or text"):
        records.select(serialize("value", {**config, "value.serializers": "json"}, topic=lit("alerts"))).collect()
    config["value.serializers"] = "bytes, large-message"
    [row] = spark.sql("select binary('a') as value").transform(encode(config, topic="alerts", engine="arrow")).collect()
    assert row["value"] == b"a"
