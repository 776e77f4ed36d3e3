"""Configurations of bakdata's Java library, as they stand in its users' files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from serde_chain import ConfigError, DeserializerChain, RecordContext, SerializerChain, bakdata_config
from serde_chain import config as configuration
from serde_chain.catalogue import DESERIALIZERS, SERIALIZERS
from serde_chain.testing.services import S3Server

SHA256 = "260679791fa8da4dddc6aa3b243c514025e83d3a2f60800b9734b990be5d11a0"
MURMUR3 = "7546a5a807a92f5e73806d5f0c755565"
LARGE = b"A" * 5000
VALUE = "__large.message.backed.value"
PAGE = Path(__file__).parents[1] / "docs" / "migrations.md"

CLASSES = {
    "value.serializer": "com.bakdata.kafka.LargeMessageSerializer",
    "value.deserializer": "com.bakdata.kafka.LargeMessageDeserializer",
}


@pytest.fixture
def java(s3_server: S3Server) -> Iterator[dict[str, Any]]:
    """A configuration in bakdata's words, with the base path of the golden records."""
    ours = s3_server.store_config("my-bucket")
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.url,
        aws_access_key_id=ours["s3.access.key"],
        aws_secret_access_key=ours["s3.secret.key"],
        region_name="us-east-1",
    )
    client.create_bucket(Bucket="my-bucket")
    yield {
        **CLASSES,
        "large.message.base.path": "s3://my-bucket/pre/fix/",
        "large.message.max.byte.size": "100",
        "large.message.id.generator": "com.bakdata.kafka.Sha256HashIdGenerator",
        "large.message.s3.endpoint": s3_server.url,
        "large.message.s3.region": "us-east-1",
        "large.message.s3.access.key": ours["s3.access.key"],
        "large.message.s3.secret.key": ours["s3.secret.key"],
        "large.message.s3.path.style.access": "true",
        "large.message.s3.sts.role.arn": "",
    }
    client.close()


def context(headers: Any = None) -> RecordContext:
    return RecordContext("my-topic", "value", [] if headers is None else headers)


@pytest.mark.parametrize(
    ("more", "payload", "value", "headers"),
    [
        ({}, b"hello", b"\x00hello", []),
        ({}, b"A" * 99, b"\x00" + b"A" * 99, []),
        ({}, LARGE, b"\x01s3://my-bucket/pre/fix/my-topic/values/" + SHA256.encode(), []),
        ({"large.message.use.headers": "true"}, b"hello", b"hello", [(VALUE, b"\x00")]),
        (
            {
                "large.message.use.headers": True,
                "large.message.id.generator": "com.bakdata.kafka.MurmurHashIdGenerator",
            },
            LARGE,
            b"s3://my-bucket/pre/fix/my-topic/values/" + MURMUR3.encode(),
            [(VALUE, b"\x01")],
        ),
    ],
)
def test_records_are_those_of_the_java_library(
    java: dict[str, Any], more: dict[str, Any], payload: bytes, value: bytes, headers: Any
) -> None:
    config = {**java, **more}
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        ctx = context()
        assert write(payload, ctx) == value
        assert ctx.headers == headers
        assert read(value, ctx) == payload


def test_a_reader_takes_both_formats_and_plain_records_on_request(java: dict[str, Any]) -> None:
    with DeserializerChain.from_config(java) as read:
        assert read(b"\x00hello", context()) == b"hello"
        assert read(b"hello", context([(VALUE, b"\x00")])) == b"hello"
    with DeserializerChain.from_config({**java, "large.message.accept.no.headers": "true"}) as read:
        assert read(b"\x00hello", context()) == b"\x00hello"
        assert read(b"hello", context([(VALUE, b"\x00")])) == b"hello"


@pytest.mark.parametrize(
    ("serde", "stage"),
    [
        ("org.apache.kafka.common.serialization.Serdes$StringSerde", "string"),
        ("org.apache.kafka.common.serialization.Serdes$LongSerde", "long"),
        ("io.confluent.kafka.streams.serdes.avro.GenericAvroSerde", "avro"),
        ("io.confluent.kafka.streams.serdes.protobuf.KafkaProtobufSerde", "protobuf"),
        ("io.confluent.kafka.streams.serdes.json.KafkaJsonSchemaSerde", "json"),
        ("json", "json"),
    ],
)
@pytest.mark.parametrize("field", ["key", "value"])
def test_the_serde_within_is_a_stage(serde: str, stage: str, field: str) -> None:
    java = {
        f"{field}.serializer": CLASSES["value.serializer"],
        f"{field}.deserializer": CLASSES["value.deserializer"],
        f"large.message.{field}.serde": serde,
    }
    found = configuration.load(java)
    for word, catalogue, place in (("serializers", SERIALIZERS, 0), ("deserializers", DESERIALIZERS, 1)):
        items = found[f"{field}.{word}"]
        assert isinstance(items, list)
        assert items[1 - place] == "large-message"
        assert catalogue.find(items[place]) is catalogue.find(stage)


def test_the_class_is_a_stage_in_lists(java: dict[str, Any]) -> None:
    lists = {
        "value.serializers": "string, gzip, com.bakdata.kafka.LargeMessageSerializer",
        "value.deserializers": ["com.bakdata.kafka.LargeMessageDeserializer", "gzip", "string"],
    }
    config = {**{key: value for key, value in java.items() if key not in CLASSES}, **lists}
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        ctx = context()
        data = write("text", ctx)
        assert data[:1] == b"\x00"
        assert read(data, ctx) == "text"
    assert configuration.load(lists)["large.message.format"] == "bakdata-flag"
    assert configuration.load({"value.serializers": "avro, large-message"}).get("large.message.format") is None


def test_defaults_are_those_of_the_java_library() -> None:
    found = configuration.load(CLASSES)
    assert found == {
        "value.serializers": ["org.apache.kafka.common.serialization.ByteArraySerializer", "large-message"],
        "value.deserializers": ["large-message", "org.apache.kafka.common.serialization.ByteArrayDeserializer"],
        "large.message.threshold.bytes": 1_000_000,
        "large.message.format": "bakdata-flag",
        "large.message.accept": "bakdata-headers, bakdata-flag",
    }


def test_loading_again_changes_nothing(java: dict[str, Any]) -> None:
    once = configuration.load(java)
    assert configuration.load(once) == once
    assert not [key for key in configuration.resolve(once).client if key.startswith(("large", "s3"))]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("large.message.base.path", "s3://bucket/pre", "does not end in a slash"),
        ("large.message.base.path", "abs://container/", r"is not s3://.*az://"),
        ("large.message.base.path", "gs://bucket/pre/", r"is not s3://.*objects\.url"),
        ("large.message.base.path", "bucket", "is not s3://"),
        ("large.message.id.generator", "com.mine.Generator", "Sha256HashIdGenerator"),
        ("large.message.use.headers", "maybe", "true or false"),
        ("large.message.s3.sts.role.arn", "arn:aws:iam::1:role/r", "AWS_ROLE_ARN"),
        ("large.message.gs.key.path", "/key.json", r"objects\.url"),
        ("large.message.abs.connection.string", "secret", "az://"),
        ("large.message.threshold.bytes", 5, "exclude each other"),
        ("s3.bucket", "other", "exclude each other"),
        ("value.serializers", "bytes", "exclude each other"),
        ("large.message.key.serde", "string", r"key\.serializer"),
    ],
)
def test_what_cannot_be_followed_is_refused(key: str, value: object, message: str) -> None:
    java = {**CLASSES, "large.message.base.path": "s3://bucket/pre/", "large.message.max.byte.size": 9}
    with pytest.raises(ConfigError, match=message):
        configuration.load({**java, key: value})


def test_secrets_stay_secret(java: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        configuration.load({**java, "s3.secret.key": "hush-hush"})
    assert "hush" not in str(caught.value)
    assert java["large.message.s3.secret.key"] not in str(caught.value)


def test_the_page_names_every_key() -> None:
    words = re.findall(r"`([a-z0-9.]+)`", PAGE.read_text(encoding="utf-8"))
    assert set(words) >= bakdata_config._WORDS
