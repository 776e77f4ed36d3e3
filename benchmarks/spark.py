"""Spark: ``deserialize`` against ``from_avro`` and a pandas UDF, bad records, ``resolve`` by share of references."""

from __future__ import annotations

import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import fastavro
import pandas as pd
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.avro.functions import from_avro, to_avro

from benchmarks.harness import Comparison, Result, print_table
from payload_stores import PublishContext, open_store
from payload_stores.ids import sha256_digest
from serde_chain import RecordContext, SerializerChain
from serde_chain.spark import deserialize, encode, resolve
from serde_chain.testing.services import KafkaBroker, spark_session

ROUNDS: Final = 5
CACHED: Final = 200_000
SENT: Final = 100_000
BAD: Final = 20_000
SHARES: Final = ((0, 300_000), (1, 300_000), (10, 100_000), (100, 10_000))
PAYLOAD_BYTES: Final = 16_384
SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "ra", "type": "double"},
            {"name": "dec", "type": "double"},
            {"name": "name", "type": ["null", "string"]},
            {"name": "flux", "type": {"type": "array", "items": "double"}},
        ],
    }
)
CONFIG: Final[dict[str, object]] = {"value.deserializer": "avro", "avro.schema": SCHEMA}
FRAMED: Final = {**CONFIG, "avro.framing": "single-object"}


def run() -> bool:
    """Print the tables; returns whether the targets are reached."""
    with KafkaBroker() as broker, spark_session("benchmark") as spark:
        reached = [_deserialize(spark, broker), _bad_records(spark), _resolve(spark, broker), _encode(spark)]
    return all(reached)


def _deserialize(spark: SparkSession, broker: KafkaBroker) -> bool:
    with SerializerChain.from_config({"value.serializer": "avro", **_without_side(FRAMED)}) as chain:
        framed = [chain(_record(at), None) for at in range(SENT)]
    bare = [data[10:] for data in framed]
    rows = spark.createDataFrame(list(zip(bare, framed, strict=True)), "value binary, framed binary")
    cached = rows.union(rows).repartition(2).cache()
    if cached.count() != CACHED:
        raise AssertionError("not all records are cached")
    ways: dict[str, Column] = {
        "from_avro": from_avro("value", SCHEMA, {"mode": "FAILFAST"}),
        "native": deserialize("value", None, CONFIG, engine="native"),
        "native, framed": deserialize("framed", None, FRAMED, engine="native"),
        "native, position in errors": deserialize("value", None, CONFIG, engine="native", offset=functions.lit(1)),
        "arrow": deserialize("value", None, CONFIG, engine="arrow"),
        "pandas": _pandas_udf()("value"),
    }
    times = _rounds({name: lambda way=way: _read(cached, way) for name, way in ways.items()})  # type: ignore[misc]
    plain = "Spark's from_avro"
    results = [
        _result("native", times["native"], times["from_avro"], plain, 1.2, count=CACHED),
        _result(
            "native, framed",
            times["native, framed"],
            times["from_avro"],
            plain + " on unframed bytes",
            1.2,
            count=CACHED,
        ),
        _result(
            "native, position in errors",
            times["native, position in errors"],
            times["from_avro"],
            plain,
            None,
            count=CACHED,
        ),
        _result("arrow", times["arrow"], times["from_avro"], plain, 2.5, count=CACHED),
        _result("arrow", times["arrow"], times["pandas"], "pandas UDF with fastavro", 0.35, count=CACHED),
    ]
    cached.unpersist()
    raw = _kafka(spark, broker, "alerts", [(data, []) for data in bare])
    del ways["native, framed"]
    times = _rounds({name: lambda way=way: _read(raw, way) for name, way in ways.items()})  # type: ignore[misc]
    results += [
        _result(f"{name}, from Kafka", times[name], times["from_avro"], plain, None, count=SENT)
        for name in ("native", "arrow")
    ]
    return print_table("Spark deserialize, per record of 5 fields and 20 doubles", results)


def _bad_records(spark: SparkSession) -> bool:
    with SerializerChain.from_config({"value.serializer": "avro", **_without_side(CONFIG)}) as chain:
        good = [chain(_record(at), None) for at in range(BAD)]
    shares = {"all are cut off": 1, "one in ten": 10, "one in a thousand": 1000}
    rows = [
        (data, *(data[: -3 if at % every == 0 else None] for every in shares.values())) for at, data in enumerate(good)
    ]
    names = ["good", *(f"every_{every}" for every in shares.values())]
    cached = spark.createDataFrame(rows, ", ".join(f"{name} binary" for name in names)).coalesce(1).cache()
    cached.count()
    ways = {name: deserialize(name, None, CONFIG, engine="arrow", mode="PERMISSIVE") for name in names}
    times = _rounds({name: lambda way=way: _read(cached, way) for name, way in ways.items()})  # type: ignore[misc]
    cached.unpersist()
    results = [
        _result(share, times[f"every_{every}"], times["good"], "good records", 3, count=BAD)
        for share, every in shares.items()
    ]
    return print_table("Spark deserialize with the engine arrow, per record: records that cannot be read", results)


def _resolve(spark: SparkSession, broker: KafkaBroker) -> bool:
    results = []
    for share, count in SHARES:
        with tempfile.TemporaryDirectory() as folder:
            config: dict[str, object] = {
                "value.deserializers": "large-message, bytes",
                "large.message.payload.store.class": "local",
                "local.path": folder,
            }
            values = list(_encoded(config, share, count))
            raw = _kafka(spark, broker, f"share-{share}", values)
            references = [value.decode() for value, headers in values if headers]
            resolved = resolve("value", "headers", config, partition="partition", offset="offset")
            times = _rounds(
                {
                    "resolve": lambda raw=raw, resolved=resolved: _length(raw, resolved),  # type: ignore[misc]
                    "without": lambda raw=raw: _length(raw, functions.col("value")),  # type: ignore[misc]
                    "idle": lambda raw=raw: _length(raw, _idle()),  # type: ignore[misc]
                    "download": lambda config=config, references=references: _download(config, references),  # type: ignore[misc]
                }
            )
            # The sum of the two: a query can be faster than it, since it reads while payloads arrive.
            floor = times["without"] + times["download"]
            against = "the query without it, and the download"
            name, wanted = f"{share} % offloaded", 1.15 if share == 1 else None
            results.append(_result(name, times["resolve"], floor, against, wanted, count=count))
            floor += times["idle"] - times["without"]
            results.append(
                _result(name, times["resolve"], floor, "the same with a UDF that does nothing", None, count=count)
            )
    return print_table(
        f"Spark resolve from Kafka, per record; payloads of {PAYLOAD_BYTES >> 10} KiB in a folder", results
    )


def _encode(spark: SparkSession) -> bool:
    with SerializerChain.from_config({"value.serializer": "avro", **_without_side(CONFIG)}) as chain:
        rows = [(chain(_record(at), None),) for at in range(SENT)]
    read = spark.createDataFrame(rows, "value binary").select(deserialize("value", None, CONFIG).alias("value"))
    cached = read.union(read).repartition(2).cache()
    cached.count()
    avro = {**_without_side(CONFIG), "value.serializers": "avro"}
    framed = {**avro, "avro.framing": "single-object"}
    offloading = {
        **avro,
        "value.serializers": "avro, large-message",
        "large.message.payload.store.class": "local",
        "local.path": "/nowhere",  # no record is large
    }
    plain = "Spark's to_avro"
    ways = {
        "to_avro": lambda: _length(cached, to_avro("value", SCHEMA)),
        "native": lambda: _encoded_length(cached, avro, "native"),
        "native, framed": lambda: _encoded_length(cached, framed, "native"),
        "native, large-message": lambda: _encoded_length(cached, offloading, "native"),
        "arrow": lambda: _encoded_length(cached, avro, "arrow"),
    }
    times = _rounds(ways)
    wanted = {"native": 1.2, "native, framed": 1.2}
    results = [
        _result(name, times[name], times["to_avro"], plain, wanted.get(name), count=CACHED)
        for name in ways
        if name != "to_avro"
    ]
    cached.unpersist()
    with tempfile.TemporaryDirectory() as folder:
        results += _offloaded(spark, folder)
    return print_table("Spark encode, per record of 5 fields and 20 doubles, and of 1 MB", results)


def _offloaded(spark: SparkSession, folder: str) -> list[Result]:
    """Large values against the bare store, in eight threads."""
    count, size = 200, 1 << 20
    large = spark.range(count).select(
        functions.concat(functions.col("id").cast("string"), functions.lit("x" * size)).cast("binary").alias("value")
    )
    cached = large.repartition(2).cache()
    cached.count()
    values = [bytes(row["value"]) for row in cached.collect()]
    config = {
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "local",
        "local.path": folder,
        "large.message.id": "random",
    }
    times = _rounds(
        {
            "encode": lambda: _encoded_length(cached, config, "native"),
            "without": lambda: _length(cached, functions.col("value")),
            "idle": lambda: _length(cached, _swallowed()),
            "upload": lambda: _upload(config, values),
        }
    )
    cached.unpersist()
    floors = {
        "the query without it, and the upload": (times["without"], None),
        "the same with a UDF that does nothing": (times["idle"], 1.1),
    }
    return [
        _result("1 MB each", times["encode"], floor + times["upload"], against, wanted, count=count)
        for against, (floor, wanted) in floors.items()
    ]


def _swallowed() -> Column:
    """A function in Python that gets all values and returns none: what it takes to bring them there."""

    def swallow(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield pa.nulls(len(batch), pa.binary())

    swallow.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    spark: Any = functions  # its arrow_udf has no types
    column: Column = spark.arrow_udf(swallow, "binary").asNondeterministic()(functions.col("value"))
    return column


def _encoded_length(frame: DataFrame, config: Mapping[str, object], engine: str) -> None:
    _length(frame.transform(encode(config, topic="t", engine=engine)), functions.col("value"))


def _upload(config: Mapping[str, object], values: list[bytes]) -> None:
    store = open_store("local", config)
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(lambda value: store.publish("t", value, PublishContext(digest=sha256_digest(value))), values):
            pass
    store.close()


def _idle() -> Column:
    """A function in Python on the same rows: what Spark takes for any."""
    offloaded = functions.exists("headers", lambda header: header["key"].isin("large-message"))

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    same.__annotations__ = {"batches": Iterator[pa.Array], "return": Iterator[pa.Array]}
    spark: Any = functions  # its arrow_udf has no types
    called = spark.arrow_udf(same, "binary").asNondeterministic()(functions.when(offloaded, functions.col("value")))
    return functions.when(offloaded, called).otherwise(functions.col("value"))


def _encoded(config: Mapping[str, object], share: int, count: int) -> Iterator[tuple[bytes, list[Any]]]:
    settings = {
        "value.serializers": "bytes, large-message",
        "large.message.threshold.bytes": 1000,
        **_without_side(config),
    }
    with SerializerChain.from_config(settings) as chain:
        for at in range(count):
            headers: list[Any] = []
            size = PAYLOAD_BYTES if at % 100 < share else 200
            yield chain(at.to_bytes(8, "big") * (size // 8), RecordContext("t", "value", headers)), headers


def _without_side(config: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in config.items() if "deserializer" not in key}


def _record(at: int) -> dict[str, Any]:
    return {"id": at, "ra": 1.5, "dec": -2.5, "name": f"alert {at}", "flux": [at * 0.5 + n for n in range(20)]}


def _kafka(spark: SparkSession, broker: KafkaBroker, topic: str, values: list[tuple[bytes, list[Any]]]) -> DataFrame:
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1_000_000})
    for at, (value, headers) in enumerate(values):
        producer.produce(topic, value, headers=headers, partition=at % 2)
    if producer.flush(60):
        raise AssertionError("not all records were sent")
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return source.option("subscribe", topic).option("includeHeaders", "true").load()


def _pandas_udf() -> Callable[[str], Column]:
    schema = SCHEMA

    def read(values: Any) -> Any:
        parsed = fastavro.parse_schema(json.loads(schema))
        return pd.DataFrame([fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in values])

    read.__annotations__ = {"values": pd.Series, "return": pd.DataFrame}
    kind = "id long, ra double, dec double, name string, flux array<double>"
    spark: Any = functions  # its pandas_udf has no types
    made: Callable[[str], Column] = spark.pandas_udf(read, kind)
    return made


def _read(frame: DataFrame, column: Column) -> None:
    parts = [functions.sum(name) for name in ("id", "ra", "dec")]
    frame.select(column.alias("v")).select("v.*").agg(
        *parts, functions.max("name"), functions.sum(functions.size("flux"))
    ).collect()


def _length(frame: DataFrame, column: Column) -> None:
    frame.select(column.alias("v")).agg(functions.sum(functions.length("v"))).collect()


def _download(config: Mapping[str, object], references: list[str]) -> None:
    store = open_store(str(config["large.message.payload.store.class"]), config)
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(store.download, references):
            pass
    store.close()


def _rounds(ways: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Medians in seconds; all ways take a turn in every round, after one that does not count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(ROUNDS + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            if turn:
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(found) for name, found in times.items()}


def _result(name: str, ours: float, theirs: float, against: str, target: float | None, *, count: int) -> Result:
    def timed_already() -> None:
        """Spark's queries are timed by :func:`_rounds`, by the clock: the work is done by other processes."""

    return Result(Comparison(name, timed_already, timed_already, against, target), ours / count, theirs / count)
