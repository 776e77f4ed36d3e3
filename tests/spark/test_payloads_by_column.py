"""Whole payloads in Spark: a query fetches those of the columns and rows it uses. An S3 server counts the requests."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.errors import ContextualError
from serde_chain.spark import decode
from serde_chain.spark.columns.types import as_nullable
from serde_chain.testing.services import S3Server
from tests.spark.records import encoded, kafka, row
from tests.spark.test_large_fields import Requests, counted

__all__ = ["counted"]

ENGINES = ["arrow", "native"]
COUNT = 32
# More than sockets hold of the rows of some steps.
SIZE = 1_000_000
SCHEMA = {
    "type": "record",
    "name": "Image",
    "fields": [{"name": "id", "type": "long"}, {"name": "pixels", "type": "bytes"}],
}


def settings(server: S3Server, engine: str) -> dict[str, Any]:
    """Spark's own from_avro reads bare Avro."""
    writes, reads = ("avro, large-message", "large-message, avro")
    if engine == "arrow":
        writes, reads = ("avro, zstd, encrypt, large-message", "large-message, encrypt, zstd, avro")
    return {
        "large.message.payload.store.class": "s3",
        **server.store_config(server.create_bucket()),
        "large.message.threshold.bytes": 1000,
        "value.serializers": writes,
        "value.deserializers": reads,
        "key.deserializer": "string",
        "avro.schema": json.dumps(SCHEMA),
        "encryption.key.id": "k",
        "encryption.keys": "k = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
    }


def image(at: int, size: int = SIZE) -> dict[str, Any]:
    """Each fourth one is small."""
    return {"id": at, "pixels": Random(at).randbytes(16 if at % 4 == 3 else size)}


def sent(config: dict[str, Any], at: int, size: int = SIZE) -> tuple[Any, ...]:
    headers: list[Any] = [("trace", b"%d" % at)] if at % 2 else []
    value = encoded(config, image(at, size), headers)
    return row(value, headers, at, key=b"k%d" % at)


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stored(
    spark: SparkSession, counted: tuple[S3Server, Requests], engine: str
) -> Iterator[tuple[dict[str, Any], DataFrame]]:
    """A configuration, and records as received."""
    config = settings(counted[0], engine)
    frame = kafka(spark, [sent(config, at) for at in range(COUNT)]).persist()
    assert frame.count() == COUNT
    yield config, frame
    frame.unpersist()


LARGE = COUNT * 3 // 4
HEADERS = {"large-message": b"true", "large-message-size": b"5"}


def test_what_is_fetched_by_what(
    stored: tuple[dict[str, Any], DataFrame], counted: tuple[S3Server, Requests], engine: str
) -> None:
    """The table in docs/spark-execution.md."""
    config, raw = stored
    requests = counted[1]
    decoded = raw.transform(decode(config, engine=engine))
    for names in (["key"], ["headers"], ["key", "headers", "topic", "partition", "offset", "timestamp"]):
        assert requests.of(decoded.select(*names)) == 0
    before = requests.count
    assert decoded.count() == decoded.where("topic = 'alerts'").select("offset").count() == COUNT
    assert requests.count == before
    assert requests.of(decoded.where("partition = 0 and offset < 3").select("value.id")) == 3
    assert requests.of(decoded.where("value.id > 3").select("value.id")) == LARGE
    # A row, and what a socket holds.
    assert 1 <= requests.of(decoded.limit(1)) <= LARGE // 2
    before = requests.count
    decoded.selectExpr("key", "value.id", "length(value.pixels)").show(3)
    # Four rows, a step, and what a socket holds.
    assert 3 <= requests.count - before <= LARGE // 2
    assert requests.of(decoded.select("value.id")) == LARGE
    assert requests.of(decoded.orderBy("value.id").limit(3)) == LARGE
    assert requests.of(decoded.orderBy("value.id")) == 2 * LARGE
    kept = decoded.persist()
    assert requests.of(kept.orderBy("value.id")) == LARGE
    assert requests.of(kept.orderBy("value.id").select("value.id")) == 0
    kept.unpersist()


def test_values_keys_and_headers(stored: tuple[dict[str, Any], DataFrame], engine: str) -> None:
    """The same as from one function for all columns, which retries=True still uses."""
    config, raw = stored
    apart = raw.transform(decode(config, engine=engine))
    whole = raw.transform(decode(config, engine=engine, retries=True)).drop("serde_retries")
    assert as_nullable(apart.schema) == as_nullable(whole.schema)
    rows = sorted(apart.drop("value").collect(), key=lambda each: each["offset"])
    assert rows == sorted(whole.drop("value").collect(), key=lambda each: each["offset"])
    assert [each["key"] for each in rows] == [f"k{at}" for at in range(COUNT)]
    # None where no header is left.
    left = [each["headers"] and [tuple(header) for header in each["headers"]] for each in rows]
    assert left == [[("trace", b"%d" % at)] if at % 2 else None for at in range(COUNT)]
    values = apart.where("offset < 4").select("value").collect()
    assert [each["value"].asDict() for each in values] == [image(at) for at in range(4)]


def test_an_unreadable_value_ends_only_queries_that_use_it(
    spark: SparkSession, counted: tuple[S3Server, Requests]
) -> None:
    config = settings(counted[0], "native")
    gone = list(HEADERS.items())
    frame = kafka(
        spark, [sent(config, 3), row(b"s3://elsewhere/object", gone, 7, key=b"k7"), row(None, gone, 8, key=b"k8")]
    )
    decoded = frame.transform(decode(config))
    rows = decoded.select("key", "headers").collect()
    assert [each["key"] for each in rows] == ["k3", "k7", "k8"]
    # A tombstone keeps its headers.
    assert [each["headers"] and [header["key"] for header in each["headers"]] for each in rows] == [
        ["trace"],
        None,
        [*HEADERS],
    ]
    with pytest.raises(PythonException, match=r"UntrustedReferenceError.*topic=alerts, field=value.*offset=7"):
        decoded.select("value.id").collect()


def test_keys_that_are_references(spark: SparkSession, counted: tuple[S3Server, Requests]) -> None:
    """Each field is fetched by itself, and each removes its own headers."""
    server, requests = counted
    config = settings(server, "native") | {"key.deserializers": "large-message, string"}
    del config["key.deserializer"]
    headers: list[Any] = []
    value = encoded(config, image(1), headers)
    with SerializerChain.from_config({**config, "key.serializers": "string, large-message"}, is_key=True) as chain:
        key = chain("k" * 2000, RecordContext("alerts", "key", headers))
    decoded = kafka(spark, [row(value, headers, 0, key=key)]).transform(decode(config))
    assert requests.of(decoded.select("headers")) == 0
    assert requests.of(decoded.select("key")) == 1
    [found] = decoded.collect()
    assert (found["key"], found["value"]["id"], found["headers"]) == ("k" * 2000, 1, None)


MARKS = ["large-message", "__large.message.backed.value", "large-message-key", "__large.message.backed.key"]
OTHERS = ["large-message-size", "large-message-digest", "__large.message.backed.compression", "large-fields", "trace"]


def readable(config: dict[str, Any], random: Random) -> Iterator[tuple[Any, ...]]:
    """Records with any headers: foreign marks, several of a name, null ones; tombstones too."""
    writes = {**config, "value.serializers": "bytes, large-message"}
    with (
        DeserializerChain.from_config(config) as values,
        DeserializerChain.from_config({"key.deserializers": "bytes", **config}, is_key=True) as keys,
    ):
        for at in range(400):
            value, key = random.choice([b"", None, b"\0inline"]), random.choice([None, b"", b"k"])
            headers: list[Any] = []
            if at % 3 == 0:
                writes["large.message.format"] = random.choice(["kip1159", "bakdata-headers"])
                value = encoded(writes, b"x" * 200, headers)
            for _ in range(random.randrange(4)):
                mark = random.choice(MARKS), random.choice([b"true", b"false", b"TRUE", b"\0", b"\1", b"", None])
                other = random.choice(OTHERS), random.choice([b"\0", b"3", b"", None])
                headers.insert(random.randrange(len(headers) + 1), random.choice([mark, other]))
            left = list(headers)
            try:
                keys(key, RecordContext("alerts", "key", left))
                values(value, RecordContext("alerts", "value", left, key))
            except ContextualError:
                continue
            yield row(value, headers, at, key)


@pytest.mark.parametrize(
    ("accept", "keys"),
    [("", "bytes"), ("kip1159, bakdata-headers", "large-message, bytes"), ("kip1159, bakdata-flag", "")],
)
def test_headers_are_those_of_whole_records(spark: SparkSession, tmp_path: Path, accept: str, keys: str) -> None:
    config = {
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "large.message.threshold.bytes": 100,
        "value.deserializers": "large-message, bytes",
        **({"key.deserializers": keys} if keys else {}),
        **({"large.message.accept": accept} if accept else {}),
    }
    rows = list(readable(config, Random(7)))
    assert len(rows) > 150
    raw = kafka(spark, rows)
    whole = raw.transform(decode(config, retries=True)).select("offset", "key", "value", "headers").collect()
    assert raw.transform(decode(config)).select("offset", "key", "value", "headers").collect() == whole
    alone = raw.transform(decode(config)).select("offset", "headers").collect()
    assert alone == [(each.offset, each.headers) for each in whole]


def test_a_mark_of_fields_without_effect_stays(spark: SparkSession, tmp_path: Path) -> None:
    """A null header."""
    config = {
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path),
        "value.deserializers": "avro, large-fields",
        "large.fields.paths": "pixels",
        "avro.schema": json.dumps(SCHEMA),
    }
    raw = kafka(spark, [row(b"\2\2x", [("large-fields", None), ("trace", None)], 1)])
    whole = raw.transform(decode(config, retries=True)).select("headers").collect()
    assert [header.key for header in whole[0].headers] == ["large-fields", "trace"]
    assert raw.transform(decode(config)).select("headers").collect() == whole
    assert raw.transform(decode(config)).select("headers", "value").collect()[0].headers == whole[0].headers
