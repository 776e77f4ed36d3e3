"""bakdata's formats: the records that its library 3.1.1 wrote, keys and values, ids, compression."""

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload_stores.memory import MemoryStore
from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    EncodeError,
    RecordContext,
    SerializerChain,
    UntrustedReferenceError,
)
from serde_chain.record import get_header
from serde_chain.stages.large_message.offload_codecs import NAMES, compressor
from serde_chain.testing.services import S3Server
from serde_chain.wire.bakdata import COMPRESSION_HEADERS, FLAG, HEADERS

SHA256 = "260679791fa8da4dddc6aa3b243c514025e83d3a2f60800b9734b990be5d11a0"
MURMUR3 = "7546a5a807a92f5e73806d5f0c755565"
LARGE = b"A" * 5000
VALUE, KEY = "__large.message.backed.value", "__large.message.backed.key"
BUCKET = "my-bucket"
FORMATS = ("bakdata-flag", "bakdata-headers")


@pytest.fixture
def settings(s3_server: S3Server) -> dict[str, Any]:
    """The base path of the golden records: s3://my-bucket/pre/fix/."""
    config = s3_server.store_config(BUCKET)
    client(config).create_bucket(Bucket=BUCKET)
    return {
        **config,
        "s3.prefix": "pre/fix/",
        "large.message.payload.store.class": "s3",
        "large.message.threshold.bytes": 100,
    }


def client(config: Any) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=config["s3.endpoint.url"],
        aws_access_key_id=config["s3.access.key"],
        aws_secret_access_key=config["s3.secret.key"],
        region_name="us-east-1",
    )


@pytest.fixture
def memory() -> Iterator[dict[str, Any]]:
    MemoryStore.clear()
    yield {"large.message.payload.store.class": "memory", "large.message.threshold.bytes": 100}
    MemoryStore.clear()


def chains(settings: dict[str, Any], name: str, *, is_key: bool = False, **more: object) -> tuple[Any, Any]:
    field = "key" if is_key else "value"
    config = {
        f"{field}.serializers": "bytes, large-message",
        f"{field}.deserializers": "large-message, bytes",
        **settings,
        "large.message.format": name,
        "large.message.accept": "bakdata-headers, bakdata-flag",
        **{f"large.message.{key}": value for key, value in more.items()},
    }
    return SerializerChain.from_config(config, is_key=is_key), DeserializerChain.from_config(config, is_key=is_key)


def context(*, is_key: bool = False, headers: Any = None) -> RecordContext:
    return RecordContext("my-topic", "key" if is_key else "value", [] if headers is None else headers)


@pytest.mark.parametrize(
    ("name", "payload", "value", "headers"),
    [
        ("bakdata-flag", b"hello", b"\x00hello", []),
        ("bakdata-flag", b"", b"\x00", []),
        ("bakdata-flag", LARGE, b"\x01s3://my-bucket/pre/fix/my-topic/values/" + SHA256.encode(), []),
        ("bakdata-headers", b"hello", b"hello", [(VALUE, b"\x00")]),
        ("bakdata-headers", LARGE, b"s3://my-bucket/pre/fix/my-topic/values/" + SHA256.encode(), [(VALUE, b"\x01")]),
    ],
)
def test_records_are_those_of_the_java_library(
    settings: dict[str, Any], name: str, payload: bytes, value: bytes, headers: Any
) -> None:
    write, read = chains(settings, name, id="content")
    ctx = context()
    assert write(payload, ctx) == value
    assert ctx.headers == headers
    assert read(value, ctx) == payload
    assert ctx.headers == []


@pytest.mark.full
@pytest.mark.parametrize("name", FORMATS)
def test_ids(settings: dict[str, Any], name: str) -> None:
    base = b"s3://my-bucket/pre/fix/my-topic/values/"
    for strategy, expected in (("content", SHA256), ("murmur3", MURMUR3)):
        written = chains(settings, name, id=strategy)[0](LARGE, context())
        assert written.removeprefix(b"\x01") == base + expected.encode()
    found = {chains(settings, name)[0](LARGE, context()).rpartition(b"/")[2].decode() for _ in range(2)}
    assert len({str(uuid.UUID(item)) for item in found}) == 2


@pytest.mark.parametrize("name", FORMATS)
def test_keys(settings: dict[str, Any], name: str) -> None:
    write, read = chains(settings, name, is_key=True)
    for payload in (b"hello", LARGE):
        ctx = context(is_key=True)
        key = write(payload, ctx)
        assert (get_header(ctx, KEY) is not None) == (name == "bakdata-headers")
        assert get_header(ctx, VALUE) is None
        if payload is LARGE:
            assert key.endswith(b"/my-topic/keys/" + SHA256.encode())
        assert read(key, ctx) == payload
        assert ctx.headers == []


def test_the_threshold_itself_is_offloaded(memory: dict[str, Any]) -> None:
    for name in FORMATS:
        write, _ = chains(memory, name)
        assert b"memory://" not in write(bytes(99), context())
        assert b"memory://" in write(bytes(100), context())
    write, _ = chains(memory, "kip1159")
    assert write(bytes(100), context()) == bytes(100)


@pytest.mark.full
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("codec", NAMES)
def test_compression(settings: dict[str, Any], name: str, codec: str) -> None:
    write, read = chains(settings, name, compression=codec, id="content")
    ctx = context()
    value = write(LARGE, ctx)
    number = bytes([("gzip", "snappy", "lz4", "zstd").index(codec) + 1])
    assert [pair for pair in ctx.headers or () if "compression" in pair[0]] == [
        (header, number) for header in COMPRESSION_HEADERS
    ]
    stored = compressor(codec)(LARGE)
    # Ids are of what is stored, and Java leaves zero bytes behind it.
    path = f"pre/fix/my-topic/values/{hashlib.sha256(stored).hexdigest()}"
    assert value.endswith(path.encode())
    assert client(settings).get_object(Bucket=BUCKET, Key=path)["Body"].read() == stored
    client(settings).put_object(Bucket=BUCKET, Key=path, Body=stored + bytes(50))
    for kept in COMPRESSION_HEADERS:  # one name is enough for reading
        headers = [pair for pair in ctx.headers or () if pair[0] not in COMPRESSION_HEADERS or pair[0] == kept]
        one = context(headers=headers)
        assert read(value, one) == LARGE
        assert one.headers == []
    assert write(b"small", context()).endswith(b"small")


def test_key_and_value_share_the_compression_header(memory: dict[str, Any]) -> None:
    write_key, read_key = chains(memory, "bakdata-headers", is_key=True, compression="gzip")
    write, read = chains(memory, "bakdata-headers", compression="gzip")
    ctx = context()
    key, value = write_key(LARGE, ctx), write(LARGE, ctx)
    assert read_key(key, ctx) == LARGE
    assert read(value, ctx) == LARGE
    assert ctx.headers == []
    other, _ = chains(memory, "bakdata-headers", compression="zstd")
    write_key(LARGE, ctx)
    with pytest.raises(EncodeError, match="another value"):
        other(LARGE, ctx)


def test_readers_take_what_is_accepted(memory: dict[str, Any]) -> None:
    write, _ = chains(memory, "bakdata-headers")
    plain = DeserializerChain.from_config({"value.deserializers": "large-message, bytes", **memory})
    ctx = context()
    assert plain(write(LARGE, ctx), ctx) == LARGE  # header mode is among what all readers take
    assert plain(b"\x00hello", context()) == b"\x00hello"  # the flag only by name
    _, read = chains(memory, "bakdata-headers")
    kip, _ = chains(memory, "kip1159")
    both = DeserializerChain.from_config(
        {
            "value.deserializers": "large-message, bytes",
            **memory,
            "large.message.accept": "bakdata-flag, kip1159, bakdata-headers",
        }
    )
    for writer in (kip, write, chains(memory, "bakdata-flag")[0]):
        ctx = context()
        assert both(writer(LARGE, ctx), ctx) == LARGE
    for data in (b"", b"\x02hello"):
        with pytest.raises(DecodeError, match="instead of 00 or 01"):
            read(data, context())


def test_foreign_places_are_not_followed(settings: dict[str, Any]) -> None:
    _, read = chains(settings, "bakdata-flag")
    for url in (
        "s3://other/pre/fix/t/values/x",
        "gs://my-bucket/pre/fix/t/values/x",
        "s3://my-bucket/pre/fix/../x",
        "",
    ):
        with pytest.raises(UntrustedReferenceError):
            read(b"\x01" + url.encode(), context())


def test_percent_encoded_references_are_read(settings: dict[str, Any]) -> None:
    client(settings).put_object(Bucket=BUCKET, Key="pre/fix/my-topic/values/a b", Body=LARGE)
    _, read = chains(settings, "bakdata-flag")
    for written in (b"a%20b", b"a b"):
        assert read(b"\x01s3://my-bucket/pre/fix/my-topic/values/" + written, context()) == LARGE


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("kip1159", {"compression": "gzip"}, "is not available in the format kip1159"),
        ("kip1159", {"id": "murmur3"}, "is not available in the format kip1159"),
        ("bakdata-flag", {"id": "keyed"}, "is not available in the format bakdata-flag"),
        ("bakdata-flag", {"compression": "brotli"}, "expected one of"),
        ("bakdata-flags", {}, "Did you mean bakdata-flag"),
    ],
)
def test_wrong_settings_are_said(memory: dict[str, Any], name: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chains(memory, name, **more)


def test_headers_need_a_place(memory: dict[str, Any]) -> None:
    class Foreign:
        topic, field, headers = "t", "value", None

    write, _ = chains(memory, "bakdata-headers")
    with pytest.raises(EncodeError, match="without a list of headers"):
        write(b"small", Foreign())


@given(
    st.binary(max_size=60),
    st.lists(st.tuples(st.sampled_from([VALUE, KEY, *COMPRESSION_HEADERS]), st.binary(max_size=2)), max_size=4),
)
def test_any_record_is_read_or_refused(data: bytes, headers: list[Any]) -> None:
    for found in (FLAG, HEADERS):
        for is_key in (False, True):
            try:
                found.read(data, context(headers=list(headers)), is_key=is_key)
            except ValueError:
                continue


@pytest.mark.parametrize("name", FORMATS)
def test_the_stores_s3_and_objects_have_the_same_references(
    settings: dict[str, Any], s3_server: S3Server, name: str
) -> None:
    """As Google's cloud is read and written, which bakdata's own keys cannot name here."""
    others = {**s3_server.objects_config(BUCKET, "pre/fix/"), "large.message.payload.store.class": "objects"}
    (write, _), (_, read) = chains(settings, name), chains({**settings, **others}, name)
    ctx = RecordContext("topic", "value", [])
    data = write(LARGE, ctx)
    assert b"s3://my-bucket/pre/fix/topic/values/" in data
    assert read(data, ctx) == LARGE
