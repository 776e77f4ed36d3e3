"""Every mode with every fault: a row is lost to what is wrong with its record, and to nothing else."""

import json
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from payload_stores.memory import MemoryStore
from serde_chain import RecordContext, SerializerChain
from serde_chain.errors import SerializationError
from serde_chain.spark import decode
from serde_chain.spark.chains.plan import ReadPlan
from serde_chain.spark.reading.worker import decode_batches
from serde_chain.testing.services import S3Server, SchemaRegistry
from tests.http_servers import reply, serve
from tests.spark.records import KAFKA, whole_plan

MODES = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
COLUMNS = ("value", "headers", "topic", "partition", "offset", "key")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
AVRO: dict[str, Any] = {"value.serializer": "avro", "value.deserializer": "avro", "avro.schema": json.dumps(SCHEMA)}
FRAMED = b"\0\0\0\0\1\2"


def rows(config: Mapping[str, object], mode: str, value: bytes, headers: list[Any] | None = None) -> list[Any]:
    """What becomes of one record."""
    gives = ("value", "headers", *(("error",) if mode != "FAILFAST" else ()))
    plan = ReadPlan(
        config, COLUMNS, whole_plan(config, is_key=False), None, gives=gives, mode=mode, python=sys.executable
    )
    listed = [{"key": name, "value": data} for name, data in headers or []]
    columns = (
        pa.array([value], pa.binary()),
        pa.array([listed], HEADERS),
        *(pa.array(["t"]), pa.array([0]), pa.array([7]), pa.array([b"k"], pa.binary())),
    )
    return [row for array in decode_batches(pickle.dumps(plan), iter([columns])) for row in array.to_pylist()]


def answering(status: int, body: bytes, kind: str) -> AbstractContextManager[str]:
    """The address of a server that answers everything alike."""
    return serve(lambda request: reply(request, status, body, kind))


def all_end(config: Mapping[str, object], value: bytes, headers: list[Any] | None = None) -> None:
    for mode in MODES:
        with pytest.raises(SerializationError) as caught:
            rows(config, mode, value, headers)
        assert not caught.value.about_record
        # Spark sends it from a worker to the driver.
        assert not pickle.loads(pickle.dumps(caught.value)).about_record  # noqa: S301


class Careless(MemoryStore):
    """Its library raises what it likes."""

    def download(self, reference: str) -> bytes:
        raise RuntimeError(f"quota of {reference}")


def test_exceptions_of_a_store_end_a_query() -> None:
    # Others of the topic are readable, so it could be this record's fault; nothing says so.
    references = [MemoryStore().publish("t", b"payload") for _ in range(3)]
    config = {"value.deserializers": "large-message", "large.message.payload.store.class": Careless}
    all_end(config, references[0].encode(), [("large-message", b"true")])


def is_passed_over(config: Mapping[str, object], value: bytes, headers: list[Any] | None = None) -> None:
    with pytest.raises(SerializationError) as caught:
        rows(config, "FAILFAST", value, headers)
    assert caught.value.about_record
    for mode in MODES[1:]:
        [row] = rows(config, mode, value, headers)
        assert row["value"] is None
        assert "offset=7" in row["error"]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_registry_that_refuses(status: int) -> None:
    body = json.dumps({"error_code": status * 100 + 1, "message": "refused"}).encode()
    with answering(status, body, "application/json") as url:
        all_end({**AVRO, "schema.registry.url": url, "schema.registry.max.retries": "0"}, FRAMED)


def test_a_registry_that_is_not_there_or_is_no_registry() -> None:
    all_end({**AVRO, "schema.registry.url": "http://127.0.0.1:1", "schema.registry.max.retries": "0"}, FRAMED)
    with answering(404, b"<html>no such page</html>", "text/html") as url:
        all_end({**AVRO, "schema.registry.url": url}, FRAMED)
        guid = [("__value_schema_id", b"\1" + bytes(range(16)))]
        all_end({**AVRO, "schema.registry.url": url, "avro.framing": "header"}, b"\2", guid)


@pytest.mark.full
def test_a_registry_that_does_not_know_the_schema(registry: SchemaRegistry) -> None:
    is_passed_over({**AVRO, "schema.registry.url": registry.url}, b"\0\x7f\xff\xff\xff\2")
    # A GUID that is none, asked of a registry that has no GUIDs: its 404 has no code.
    config = {**AVRO, "schema.registry.url": registry.url, "avro.framing": "header"}
    is_passed_over(config, b"\2", [("__value_schema_id", b"\1" + bytes(range(16)))])
    is_passed_over({**AVRO, "schema.registry.url": registry.url}, b"\1" + bytes(range(16)) + b"\2")


def offloaded(config: Mapping[str, object]) -> tuple[bytes, list[Any]]:
    headers: list[Any] = []
    with SerializerChain.from_config({**config, "value.serializers": "bytes, large-message"}) as chain:
        return chain(b"payload", RecordContext("t", "value", headers)), headers


def large(store: str, **more: object) -> dict[str, object]:
    return {
        "value.deserializers": "large-message, bytes",
        "large.message.payload.store.class": store,
        "large.message.threshold.bytes": 0,
        **more,
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (403, "AccessDenied"),
        (403, "InvalidAccessKeyId"),
        (400, "ExpiredToken"),
        (403, "SignatureDoesNotMatch"),
        (404, "NoSuchBucket"),
        (503, "SlowDown"),
        (500, "InternalError"),
    ],
)
def test_s3_that_refuses(s3_server: S3Server, bucket: str, status: int, code: str) -> None:
    config = large("s3", **s3_server.store_config(bucket), **{"s3.retry.attempts": 1})
    value, headers = offloaded(config)
    body = f"<Error><Code>{code}</Code><Message>refused</Message></Error>".encode()
    with answering(status, body, "application/xml") as url:
        all_end({**config, "s3.endpoint.url": url}, value, headers)


def test_s3_that_is_not_there(s3_server: S3Server, bucket: str) -> None:
    config = large("s3", **s3_server.store_config(bucket), **{"s3.retry.attempts": 1})
    value, headers = offloaded(config)
    all_end({**config, "s3.endpoint.url": "http://127.0.0.1:1"}, value, headers)


def test_a_share_that_is_not_mounted(tmp_path: Path) -> None:
    config = large("local", **{"local.path": str(tmp_path / "share")})
    value, headers = offloaded(config)
    (tmp_path / "share").rename(tmp_path / "elsewhere")
    (tmp_path / "share").mkdir()
    all_end(config, value, headers)


class Vault:
    """A provider of keys that is there, or is not."""

    error: Exception | None = None

    def key(self, _key_id: str) -> bytes:
        if Vault.error is not None:
            raise Vault.error
        return bytes(range(32))


def test_a_key_provider_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, Any] = {
        "value.serializers": "bytes, encrypt",
        "value.deserializers": "encrypt, bytes",
        "encryption.key.provider.class": Vault,
        "encryption.key.id": "k1",
    }
    with SerializerChain.from_config(config) as chain:
        value = chain(b"secret", RecordContext("t", "value"))
    monkeypatch.setattr(Vault, "error", ConnectionRefusedError(111, "the vault is down"))
    all_end({**config, "encryption.key.provider.note": "one reader"}, value)
    monkeypatch.setattr(Vault, "error", KeyError("k1"))
    is_passed_over({**config, "encryption.key.provider.note": "another"}, value)


def test_what_is_wrong_with_the_record_itself() -> None:
    is_passed_over(AVRO, b"")
    for break_it in breakages():
        MemoryStore.clear()
        config = large("memory")
        value, headers = offloaded(config)
        is_passed_over(config, *break_it(value, headers))


def breakages() -> list[Callable[[bytes, list[Any]], tuple[bytes, list[Any]]]]:
    def gone(value: bytes, headers: list[Any]) -> tuple[bytes, list[Any]]:
        MemoryStore.clear()
        return value, headers

    def damaged(value: bytes, headers: list[Any]) -> tuple[bytes, list[Any]]:
        return value, [(name, b"sha256:" + b"0" * 64 if name.endswith("digest") else data) for name, data in headers]

    def elsewhere(_value: bytes, headers: list[Any]) -> tuple[bytes, list[Any]]:
        return b"file:///etc/passwd", headers

    return [gone, damaged, elsewhere]


def test_in_spark_a_query_ends_when_its_store_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    mode = "DROPMALFORMED"
    config = large("local", **{"local.path": str(tmp_path / "share")})
    value, headers = offloaded(config)
    records = spark.createDataFrame([(b"k", value, "t", 0, 7, None, headers)], KAFKA)
    [row] = records.transform(decode(config, mode=mode)).collect()
    assert bytes(row["value"]) == b"payload"
    (tmp_path / "share").rename(tmp_path / "elsewhere")
    (tmp_path / "share").mkdir()
    with pytest.raises(Exception, match="PayloadStoreUnavailableError"):
        records.transform(decode(config, mode=mode)).collect()
