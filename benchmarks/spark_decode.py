"""Spark: ``deserialize`` and ``decode`` by engine, batch size, wide records, many schemas, and undecodable records.

``python -m benchmarks.spark_decode WAY`` prints the CPU seconds of the first query of a session.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.avro.functions import from_avro

from benchmarks.harness import Row, Table
from benchmarks.spark_queries import (
    READING,
    SCHEMA,
    SQL_TYPE,
    WRITING,
    Line,
    arrow_udf,
    cached,
    caught_by_pandas,
    cpu_seconds,
    encoded,
    in_kafka,
    measure,
    read_by_arrow,
    read_by_pandas,
    record,
    scaled,
    tables,
)
from serde_chain import RecordContext, SerializerChain
from serde_chain.spark import decode, deserialize
from serde_chain.testing.services import KafkaBroker, SchemaRegistry, spark_session

SENT: Final = 100_000
# Repetitions in the table of engines, whose queries are short.
COPIES: Final = 8
BAD: Final = 20_000
WIDE: Final = 4_000
FIELDS: Final = 500
# The engine native plans a branch per schema: with hundreds, Spark's compiler gives up after minutes.
SCHEMAS: Final = {"arrow": 200, "native": 20}
BATCHES: Final = (100, 1_000, 100_000)
REGISTERED: Final = 145_000
FAILFAST: Final = {"mode": "FAILFAST"}
# (its name in rows, stages, mode): none of the records has a payload.
CHAINS: Final = (
    ("", "avro", "FAILFAST"),
    (", large-message", "large-message, avro", "FAILFAST"),
    (", large-fields", "large-message, avro, large-fields", "FAILFAST"),
    (", large-fields, PERMISSIVE", "large-message, avro, large-fields", "PERMISSIVE"),
)
FIRST_ROUNDS: Final = 3
# The stages of first queries, by name; none for Spark's own function.
FIRST: Final = {"from_avro": "", "large-message": "large-message, avro", "large-fields": "avro, large-fields"}
STAMPED: Final = json.dumps(
    {
        **json.loads(SCHEMA),
        "fields": [*json.loads(SCHEMA)["fields"], {"name": "stamp", "type": ["null", "bytes"], "default": None}],
    }
)
# Those of Spark's Kafka source, with includeHeaders.
KAFKA_COLUMNS: Final = (
    "cast(null as binary) key",
    "value",
    "'registered' topic",
    "0 partition",
    "offset",
    "timestamp_millis(offset) timestamp",
    "0 timestampType",
    "cast(null as array<struct<key: string, value: binary>>) headers",
)
FRAMED: Final = {"avro.framing": "single-object"}
PLAIN: Final = "Spark's from_avro"


def run(*, quick: bool) -> Iterator[Table]:
    """By engine, from Kafka, by rows in a batch, with many fields, with bad records, and with many schemas."""
    with KafkaBroker() as broker, spark_session("benchmark") as spark:
        yield from _engines(spark, quick=quick)
        yield from _from_kafka(spark, broker, quick=quick)
        yield from _batches(spark, quick=quick)
        yield from _wide(spark, quick=quick)
        yield from _bad_records(spark, quick=quick)
        with SchemaRegistry() as registry:
            yield from _registered(spark, registry, quick=quick)
            yield from _schemas(spark, registry, quick=quick)
    yield _first_queries(quick=quick)


def _engines(spark: SparkSession, *, quick: bool) -> Iterator[Table]:
    count = scaled(SENT, quick=quick)
    framed = encoded({**WRITING, **FRAMED}, map(record, range(count)))
    rows = spark.createDataFrame([(data[10:], data) for data in framed], "value binary, framed binary")
    frame = cached(reduce(DataFrame.union, [rows] * COPIES))
    ways: dict[str, Column] = {
        "from_avro": from_avro("value", SCHEMA, {"mode": "FAILFAST"}),
        "native": deserialize("value", None, READING, engine="native"),
        "native, framed": deserialize("framed", None, {**READING, **FRAMED}, engine="native"),
        "native, position in errors": deserialize("value", None, READING, engine="native", offset=functions.lit(1)),
        "arrow": deserialize("value", None, READING, engine="arrow"),
        "pandas": read_by_pandas(SCHEMA, SQL_TYPE, "value"),
    }
    by_hand = read_by_arrow(SCHEMA, SQL_TYPE, "value", frame)
    ways["constant"] = arrow_udf(_constant, SQL_TYPE, functions.col("value"))
    queries = {**_reading(frame, ways), "mapInArrow": lambda: _sum(by_hand)}
    times = measure(queries, quick=quick, before=6)
    frame.unpersist()
    lines = [
        Line("native", times["native"], times["from_avro"], PLAIN),
        Line("native, framed", times["native, framed"], times["from_avro"], f"{PLAIN} on unframed bytes"),
        Line("native, position in errors", times["native, position in errors"], times["from_avro"], PLAIN),
        Line("arrow", times["arrow"], times["from_avro"], PLAIN),
        Line("arrow", times["arrow"], times["constant"], "an Arrow UDF that returns a constant"),
        Line("arrow", times["arrow"], times["pandas"], "pandas UDF with fastavro"),
        Line("arrow", times["arrow"], times["mapInArrow"], "mapInArrow with fastavro"),
    ]
    yield from tables("spark-engines", "Spark deserialize, cached; 5 fields and 20 doubles", COPIES * count, lines)


def _constant(batches: Iterator[Any]) -> Iterator[Any]:
    """Return one record repeatedly: the cost of moving bytes to Python, and columns back."""
    made = pa.array([record(0)])
    for batch in batches:
        if len(made) < len(batch):
            made = pa.array([record(0)] * len(batch))
        yield made.slice(0, len(batch))


def _from_kafka(spark: SparkSession, broker: KafkaBroker, *, quick: bool) -> Iterator[Table]:
    count = scaled(SENT, quick=quick)
    data = encoded(WRITING, map(record, range(count)))
    raw = in_kafka(spark, broker, "alerts", [(value, []) for value in data])
    ways = {
        "from_avro": from_avro("value", SCHEMA, {"mode": "FAILFAST"}),
        "native": deserialize("value", None, READING, engine="native"),
        "arrow": deserialize("value", None, READING, engine="arrow"),
    }
    times = measure(_reading(raw, ways), quick=quick)
    lines = [Line(name, times[name], times["from_avro"], PLAIN) for name in ("native", "arrow")]
    yield from tables("spark-from-kafka", "Spark deserialize from Kafka; the same records", count, lines)


def _batches(spark: SparkSession, *, quick: bool) -> Iterator[Table]:
    count = scaled(SENT, quick=quick)
    data = encoded(WRITING, map(record, range(count)))
    frame = cached(spark.createDataFrame([(value,) for value in data], "value binary"))
    columns = {
        "arrow": deserialize("value", None, READING, engine="arrow"),
        "pandas": read_by_pandas(SCHEMA, SQL_TYPE, "value"),
    }
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    default = str(spark.conf.get(setting))

    def read(size: str, column: Column) -> None:
        spark.conf.set(setting, size)
        _fields(frame, column)

    ways: dict[str, Callable[[], object]] = {
        f"{name} {size}": partial(read, size, column)
        for name, column in columns.items()
        for size in (default, *map(str, BATCHES))
    }
    times = measure(ways, quick=quick)
    spark.conf.set(setting, default)
    frame.unpersist()
    sizes = (*map(str, BATCHES), default)
    lines = [
        Line(f"batches of {size}", times[f"arrow {size}"], times[f"arrow {default}"], f"batches of {default}")
        for size in sizes[:-1]
    ]
    lines += [
        Line(f"batches of {size}", times[f"arrow {size}"], times[f"pandas {size}"], "pandas UDF with fastavro")
        for size in sizes
    ]
    yield from tables("spark-batches", "Spark deserialize with the engine arrow, by rows in a batch", count, lines)


def _wide(spark: SparkSession, *, quick: bool) -> Iterator[Table]:
    count = scaled(WIDE, quick=quick)
    kinds = ("long", "double", "string", ["null", "double"])
    fields = [{"name": f"f{at}", "type": kinds[at % len(kinds)]} for at in range(FIELDS)]
    schema = json.dumps({"type": "record", "name": "Wide", "fields": fields})
    names = {"long": "bigint", "double": "double", "string": "string"}
    kind = ", ".join(f"f{at} {names.get(str(kinds[at % len(kinds)]), 'double')}" for at in range(FIELDS))
    reading = {**READING, "avro.schema": schema}

    def wide(at: int) -> dict[str, Any]:
        return {f"f{n}": str(n) if n % 4 == 2 else at + n for n in range(FIELDS)}

    data = encoded({**WRITING, "avro.schema": schema}, map(wide, range(count)))
    frame = cached(spark.createDataFrame([(value,) for value in data], "value binary"))

    def read(rows: DataFrame) -> None:
        rows.agg(*(functions.max(f"f{at}") for at in range(FIELDS))).collect()

    def reading_of(column: Column) -> Callable[[], None]:
        return lambda: read(frame.select(column.alias("v")).select("v.*"))

    times = measure(
        {
            "from_avro": reading_of(from_avro("value", schema, {"mode": "FAILFAST"})),
            "native": reading_of(deserialize("value", None, reading, engine="native")),
            "arrow": reading_of(deserialize("value", None, reading, engine="arrow")),
            "pandas": reading_of(read_by_pandas(schema, kind, "value")),
            "mapInArrow": lambda: read(read_by_arrow(schema, kind, "value", frame)),
        },
        quick=quick,
        rounds=3,
    )
    frame.unpersist()
    lines = [Line(name, times[name], times["from_avro"], PLAIN) for name in ("native", "arrow")]
    lines += [Line("arrow", times["arrow"], times[name], f"{name} with fastavro") for name in ("pandas", "mapInArrow")]
    yield from tables("spark-wide", f"Spark deserialize of {FIELDS} fields", count, lines)


def _schemas(spark: SparkSession, registry: SchemaRegistry, *, quick: bool) -> Iterator[Table]:
    """One topic with many schemas, all read into one, against a topic with only the last of them."""
    count = scaled(SENT, quick=quick)
    client = SchemaRegistryClient({"url": registry.url})
    base = json.loads(SCHEMA)

    def register(topic: str, at: int) -> int:
        added = {"name": f"added_{at}", "type": "int", "default": at}
        schema = Schema(json.dumps({**base, "fields": [*base["fields"], added]}), "AVRO")
        return client.register_schema(f"{topic}-value", schema)

    # By topic, which has the name of an engine, and many schemas or one.
    counts = {
        f"{engine}_{many}": count for engine, most in SCHEMAS.items() for many, count in (("many", most), ("one", 1))
    }
    ids = {topic: [register(topic, at) for at in range(count)] for topic, count in counts.items()}
    bare = encoded(WRITING, map(record, range(count)))

    def framed(data: bytes, number: int) -> bytes:
        return b"\0" + number.to_bytes(4, "big") + data + b"\x02"  # ends with the added field

    rows = [tuple(framed(data, of[at % len(of)]) for of in ids.values()) for at, data in enumerate(bare)]
    frame = cached(spark.createDataFrame(rows, ", ".join(f"{topic} binary" for topic in ids)))
    config: dict[str, object] = {
        "value.deserializer": "avro",
        "avro.reader.schema": SCHEMA,
        "schema.registry.url": registry.url,
    }
    ways = {
        topic: deserialize(
            topic,
            None,
            config,
            engine=engine,
            topic=functions.lit(topic),
            topics=[topic] if engine == "native" else (),
        )
        for topic in ids
        for engine in [topic.partition("_")[0]]
    }
    times = measure(_reading(frame, ways), quick=quick, rounds=3)
    frame.unpersist()
    lines = [
        Line(f"{engine}, {count} ids", times[f"{engine}_many"], times[f"{engine}_one"], f"{engine}, one id")
        for engine, count in SCHEMAS.items()
    ]
    yield from tables("spark-schemas", "Spark deserialize of many schemas in one topic, into one schema", count, lines)


def _registered(spark: SparkSession, registry: SchemaRegistry, *, quick: bool) -> Iterator[Table]:
    """``decode`` as users call it: records framed by a registry, chains for large payloads, and none that is large."""
    count, topic = scaled(REGISTERED, quick=quick), "registered"
    config = {"schema.registry.url": registry.url, "avro.schema": STAMPED, "avro.reader.schema": STAMPED}
    with SerializerChain.from_config({**config, "value.serializer": "avro"}) as chain:
        data = [chain(stamped(at), RecordContext(topic, "value", [])) for at in range(count)]
    rows = spark.createDataFrame([(at, value) for at, value in enumerate(data)], "offset long, value binary")
    frame = cached(rows.selectExpr(*KAFKA_COLUMNS))
    ways = {
        "from_avro": frame.withColumn("value", from_avro(functions.substring("value", 6, 2**30), STAMPED, FAILFAST))
    }
    with tempfile.TemporaryDirectory() as folder:
        store = {"large.message.payload.store.class": "local", "local.path": folder, "large.fields.paths": "stamp"}
        for name, stages, mode in CHAINS:
            chained = {**config, **(store if "large" in stages else {}), "value.deserializers": stages}
            for engine in ("native", "arrow"):
                reading = decode(chained, engine=engine, topics=topic, mode=mode)
                ways[f"{engine}{name}"] = frame.transform(reading)
        times = measure({name: partial(_value, way) for name, way in ways.items()}, quick=quick)
    frame.unpersist()
    lines = [
        Line(name, times[name], times["from_avro"], "from_avro on a substring") for name in ways if name != "from_avro"
    ]
    title = "Spark decode, cached; framing of a registry, 5 small fields and an empty large one"
    yield from tables("spark-registered", title, count, lines)


def stamped(at: int) -> dict[str, Any]:
    """A record of :data:`STAMPED`, of some 130 bytes with its frame."""
    return {**record(at), "flux": [at * 0.5 + n for n in range(12)], "stamp": None}


def _value(frame: DataFrame) -> None:
    """Run a query that requires whole values."""
    _sum(frame.select("value.*").where("stamp is null"))


def _bad_records(spark: SparkSession, *, quick: bool) -> Iterator[Table]:
    count = scaled(BAD, quick=quick)
    good = encoded(WRITING, map(record, range(count)))
    shares = {"all are cut off": 1, "one in ten": 10, "one in a thousand": 1000}
    rows = [
        (data, *(data[: -3 if at % every == 0 else None] for every in shares.values())) for at, data in enumerate(good)
    ]
    names = ["good", *(f"every_{every}" for every in shares.values())]
    frame = cached(spark.createDataFrame(rows, ", ".join(f"{name} binary" for name in names)), 1)
    ways = {name: deserialize(name, None, READING, engine="arrow", mode="PERMISSIVE") for name in names}
    ways["by hand"] = caught_by_pandas(SCHEMA, SQL_TYPE, "every_1")
    times = measure(_reading(frame, ways), quick=quick)
    frame.unpersist()
    lines = [Line(share, times[f"every_{every}"], times["good"], "good records") for share, every in shares.items()]
    lines.append(
        Line("all are cut off", times["every_1"], times["by hand"], "pandas UDF that catches fastavro's errors")
    )
    yield from tables("spark-bad", "Spark deserialize with the engine arrow: records that cannot be read", count, lines)


def _first_queries(*, quick: bool) -> Table:
    """Each in a process of its own, in turns: what Java loads and compiles, and workers import, counts."""
    taken: dict[str, list[float]] = {name: [] for name in FIRST}
    for _ in range(1 if quick else FIRST_ROUNDS):
        for name, of_way in taken.items():
            command = [sys.executable, "-m", "benchmarks.spark_decode", name]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=600)
            of_way.append(float(done.stdout.split()[-1]))
    theirs = taken.pop("from_avro")
    rows = [Row(name, ours, "from_avro", theirs) for name, ours in taken.items()]
    for name, ours in taken.items():
        rows.append(Row(f"{name}, more than from_avro", [a - b for a, b in zip(ours, theirs, strict=True)]))
    return Table("spark-first", "Spark: the first query of a session, of ten records", "s of CPU", rows)


def _first_query(name: str) -> float:
    """CPU seconds of the first query of a new session, with those of its workers."""
    with spark_session("first") as spark, tempfile.TemporaryDirectory() as folder:
        data = encoded({"value.serializer": "avro", "avro.schema": STAMPED}, map(stamped, range(10)))
        rows = spark.createDataFrame(list(enumerate(data)), "offset long, value binary").selectExpr(*KAFKA_COLUMNS)
        config = {"avro.schema": STAMPED, "large.message.payload.store.class": "local", "local.path": folder}
        config |= {"large.fields.paths": "stamp", "value.deserializers": FIRST[name]}
        before = cpu_seconds()
        if FIRST[name]:
            read = rows.transform(decode(config))
        else:
            read = rows.withColumn("value", from_avro("value", STAMPED, FAILFAST))
        read.select("value.*").collect()
        return cpu_seconds() - before


def _reading(frame: DataFrame, ways: Mapping[str, Column]) -> dict[str, Callable[[], object]]:
    return {name: partial(_fields, frame, way) for name, way in ways.items()}


def _fields(frame: DataFrame, column: Column) -> None:
    _sum(frame.select(column.alias("v")).select("v.*"))


def _sum(frame: DataFrame) -> None:
    """Run a query that requires all fields of a record."""
    parts: Iterator[Column] = (functions.sum(name) for name in ("id", "ra", "dec"))
    frame.agg(*parts, functions.max("name"), functions.sum(functions.size("flux"))).collect()


if __name__ == "__main__":
    print(_first_query(sys.argv[1]))  # for the process that measures
