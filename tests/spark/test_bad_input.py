"""Input that is not as it should be, or not there for a while: no row is lost or made up."""

import contextlib
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from serde_chain import Producer
from serde_chain.spark import dead_letters, decode
from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry
from tests.http_servers import reply, serve
from tests.spark.records import encoded, kafka, row

pytestmark = pytest.mark.full

Config = dict[str, Any]
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "n", "type": "int"}, {"name": "text", "type": "string"}],
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return {
        "value.serializers": "avro, large-message",
        "value.deserializers": "large-message, avro",
        "avro.schema": json.dumps(SCHEMA),
        "large.message.threshold.bytes": 100,
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
    }


def record(at: int) -> dict[str, Any]:
    """Every third is large."""
    return {"n": at, "text": "x" * (1000 if at % 3 == 2 else 1)}


def written(config: Config, value: Any, at: int) -> tuple[Any, ...]:
    headers: list[Any] = []
    return row(encoded(config, value, headers), headers, at)


@pytest.mark.parametrize("engine", ["arrow", "native"])
def test_formats_that_are_mixed_in_a_topic(
    spark: SparkSession, config: Config, s3_server: S3Server, bucket: str, engine: str
) -> None:
    config |= {"large.message.payload.store.class": "s3", **s3_server.store_config(bucket)}
    del config["local.path"]
    theirs = {**config, "large.message.format": "bakdata-headers", "large.message.accept": "bakdata-headers"}
    plain = {**config, "value.serializers": "avro"}
    rows = [written((config, theirs, plain)[at % 3], record(at * 2), at) for at in range(6)]
    decoded = kafka(spark, [*rows, written(config, None, 6)]).transform(decode(config, engine=engine))
    found = decoded.orderBy("offset").collect()
    assert [one["value"] and one["value"].asDict() for one in found] == [*(record(at * 2) for at in range(6)), None]


@pytest.mark.parametrize("engine", ["arrow", "native"])
@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE", "DROPMALFORMED"])
def test_columns_of_nothing_but_null(spark: SparkSession, config: Config, engine: str, mode: str) -> None:
    config["key.deserializer"] = "string"
    _, value, *_ = written(config, record(0), 0)
    rows = [(None,) * 7, (None, value, *(None,) * 5), (b"k", None, *(None,) * 5)]
    found = kafka(spark, rows).transform(decode(config, mode=mode, engine=engine)).collect()
    assert [(one["key"], one["value"] and one["value"]["n"]) for one in found] == [(None, None), (None, 0), ("k", None)]
    assert mode != "PERMISSIVE" or [one["serde_error"] for one in found] == [None] * 3


def source(
    spark: SparkSession, broker: KafkaBroker, topic: str, *, stream: bool = True, isolation: str = "read_uncommitted"
) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "kafka.isolation.level": isolation,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
    }
    reader: Any = spark.readStream if stream else spark.read
    frame: DataFrame = reader.format("kafka").options(**options).load()
    return frame


def run(frame: DataFrame, folder: Path) -> None:
    """Read what there is of a stream into a table, on from where the last run stopped."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "table"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    assert query.awaitTermination(100)


def test_markers_of_transactions(
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, tmp_path: Path
) -> None:
    """Control records and aborted ones leave gaps in the offsets; the payloads of the latter are gone."""
    config |= {**broker.client_config(), "transactional.id": f"id-{uuid.uuid4()}"}
    with Producer(config) as producer:
        producer.init_transactions()
        for first, ends in (
            (0, producer.commit_transaction),
            (10, producer.abort_transaction),
            (20, producer.commit_transaction),
        ):
            producer.begin_transaction()
            for at in range(first, first + 4):
                producer.produce(topic, record(at), key=b"k")
            producer.flush(60)
            ends(60)
    committed = [record(at) for at in (*range(4), *range(20, 24))]
    config.pop("transactional.id")
    batch = source(spark, broker, topic, stream=False, isolation="read_committed").transform(decode(config))
    run(source(spark, broker, topic, isolation="read_committed").transform(decode(config)), tmp_path)
    for frame in (batch, spark.read.parquet(str(tmp_path / "table"))):
        found = frame.orderBy("offset").collect()
        assert [one["value"].asDict() for one in found] == committed
        assert found[-1]["offset"] - found[0]["offset"] >= len(found) + 1
    # Spark's source reads the aborted ones too, unless it is told not to.
    every = source(spark, broker, topic, stream=False).transform(decode(config, mode="PERMISSIVE")).collect()
    assert len(every) == 12
    assert any(one["value"] is None for one in every)


@pytest.mark.parametrize("engine", ["arrow", "native"])
def test_poison_in_a_stream(  # noqa: PLR0917  fixtures
    spark: SparkSession,
    broker: KafkaBroker,
    registry: SchemaRegistry,
    topic: str,
    config: Config,
    tmp_path: Path,
    engine: str,
) -> None:
    """Rows that cannot be read are dropped, or are dead letters; the good ones around them arrive."""
    config |= {**broker.client_config(), "schema.registry.url": registry.url}
    with Producer(config) as producer:
        for at in range(3):
            producer.produce(topic, record(at))
    # Cut off, of ids that are not there, of another format, and a reference to nothing.
    poison = [b"\0\0\0", b"\0\x7f\xff\xff\xff\2", b"\0\xff\xff\xff\xff\2", b"json", b"file:///nowhere"]
    with confluent_kafka.Producer(broker.client_config()) as raw:
        for value in poison:
            raw.produce(topic, value, headers=[("large-message", b"true")] if value.startswith(b"file") else [])
    with Producer(config) as producer:
        for at in range(3, 6):
            producer.produce(topic, record(at))
    records = source(spark, broker, topic)
    run(records.transform(decode(config, mode="DROPMALFORMED", engine=engine, topics=topic)), tmp_path / "dropped")
    found = spark.read.parquet(str(tmp_path / "dropped" / "table")).orderBy("offset").collect()
    assert [one["value"].asDict() for one in found] == [record(at) for at in range(6)]

    def keep(batch: DataFrame, _number: int) -> None:
        checked = batch.transform(decode(config, mode="PERMISSIVE", raw=True, engine=engine, topics=topic)).cache()
        dead_letters(checked, "dead").write.mode("append").parquet(str(tmp_path / "dead"))
        checked.where("serde_error is null").write.mode("append").parquet(str(tmp_path / "good"))
        checked.unpersist()

    query = records.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "kept"))
    assert query.trigger(availableNow=True).start().awaitTermination(100)
    dead = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert sorted(bytes(one["value"]) for one in dead) == sorted(poison)
    good = spark.read.parquet(str(tmp_path / "good")).orderBy("offset").collect()
    assert [one["value"].asDict() for one in good] == [record(at) for at in range(6)]


@contextmanager
def gate(url: str, refusals: list[int]) -> Iterator[str]:
    """The address of a door to a registry, which answers as long as there are refusals with the next one of them."""
    base = url.partition("/apis")[0]

    def answer(request: BaseHTTPRequestHandler) -> None:
        if refusals:
            reply(request, refusals.pop(), b'{"error_code": 50001, "message": "refused"}')
            return
        try:
            with urllib.request.urlopen(base + request.path, timeout=30) as answered:  # noqa: S310, the registry
                reply(request, answered.status, answered.read())
        except urllib.error.HTTPError as error:
            reply(request, error.code, error.read())

    with serve(answer) as door:
        yield url.replace(base, door)


def ends_and_goes_on(query: Callable[[], None], error: str, mend: Callable[[], object]) -> None:
    with pytest.raises(StreamingQueryException, match=error):
        query()
    mend()
    # Spark 4.1.1's source ends a query once more when it has run a batch again (SPARK-57438).
    with contextlib.suppress(StreamingQueryException):
        query()
    query()


@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED"])
def test_a_store_that_is_down_for_a_while(  # noqa: PLR0917  fixtures
    spark: SparkSession, broker: KafkaBroker, topic: str, config: Config, tmp_path: Path, mode: str
) -> None:
    with Producer({**config, **broker.client_config()}) as producer:
        for at in range(6):
            producer.produce(topic, record(at))
    share, elsewhere = Path(config["local.path"]), tmp_path / "elsewhere"
    share.rename(elsewhere)
    share.mkdir()
    decoded = source(spark, broker, topic).transform(decode(config, mode=mode))

    def mend() -> None:
        share.rmdir()
        elsewhere.rename(share)

    ends_and_goes_on(lambda: run(decoded, tmp_path), "PayloadStoreUnavailableError", mend)
    found = spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    assert [one["value"].asDict() for one in found] == [record(at) for at in range(6)]


def test_a_registry_that_is_down_for_a_while(  # noqa: PLR0917  fixtures
    spark: SparkSession, broker: KafkaBroker, registry: SchemaRegistry, topic: str, config: Config, tmp_path: Path
) -> None:
    """A short while is passed over by the registry's client; after a long one, the query goes on where it was."""
    config["schema.registry.url"] = registry.url
    with Producer({**config, **broker.client_config()}) as producer:
        for at in range(6):
            producer.produce(topic, record(at))
    for name, count, retries in (("short", 2, "3"), ("long", 20, "0")):
        refusals = [503] * count
        with gate(registry.url, refusals) as url:
            reading = {**config, "schema.registry.url": url, "schema.registry.max.retries": retries}
            decoded = source(spark, broker, topic).transform(decode(reading))
            if name == "short":
                run(decoded, tmp_path / name)
            else:
                ends_and_goes_on(lambda frame=decoded: run(frame, tmp_path / "long"), "Registry", refusals.clear)  # type: ignore[misc]
        assert not refusals
        found = spark.read.parquet(str(tmp_path / name / "table")).orderBy("offset").collect()
        assert [one["value"].asDict() for one in found] == [record(at) for at in range(6)]
