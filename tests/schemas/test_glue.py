"""AWS Glue Schema Registry: Glue's own Java serde, against the same registry (moto's)."""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import boto3
import pytest

from serde_chain import DecodeError, DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.arrow.batch import Batch
from serde_chain.stages.protobuf import proto_text
from serde_chain.testing.services import S3Server
from tests.http_servers import reply, serve
from tests.java_serdes import JavaSerde
from tests.schemas.java import AVRO, JSON, VALUE, Java, running
from tests.schemas.messages import ALERT, MESSAGE, VISIT
from tests.stages.protobuf.protobuf_messages import make as make_class

COMPRESSIONS = pytest.mark.parametrize("compression", ["none", "zlib"])


@pytest.fixture(scope="module")
def java(java_serde_of_glue: JavaSerde) -> Iterator[Java]:
    with pytest.MonkeyPatch.context() as patch:
        credentials(patch)
        with running(java_serde_of_glue.folder) as peer:
            yield peer


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    credentials(monkeypatch)


def credentials(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("AWS_ACCESS_KEY_ID", "test")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.fixture
def settings(s3_server: S3Server) -> dict[str, object]:
    return {
        "schema.registry.type": "glue",
        "glue.region": "eu-west-1",
        "glue.endpoint.url": s3_server.url,
    }


Make = Callable[..., Any]


@pytest.fixture
def chains(settings: dict[str, object]) -> Iterator[tuple[Make, Make]]:
    with ExitStack() as stack:

        def make(kind: Any, stage: str, config: dict[str, object]) -> Any:
            side = "serializer" if kind is SerializerChain else "deserializer"
            named = {key.replace("_", "."): value for key, value in config.items()}
            return stack.enter_context(kind.from_config({f"value.{side}": stage, **settings, **named}))

        yield (
            lambda stage, **config: make(SerializerChain, stage, config),
            lambda stage, **config: make(DeserializerChain, stage, config),
        )


def serde(java: Java, settings: dict[str, object], kind: str, compression: str = "none") -> tuple[Any, Any]:
    """Glue's serializer and deserializer."""
    config = java.map(
        {
            "region": settings["glue.region"],
            "endpoint": settings["glue.endpoint.url"],
            "schemaAutoRegistrationEnabled": "true",
            "dataFormat": kind,
            "avroRecordType": "GENERIC_RECORD",
            "protobufMessageType": "DYNAMIC_MESSAGE",
            "compression": compression.upper(),
        }
    )
    glue = java.jvm.com.amazonaws.services.schemaregistry
    return glue.serializers.GlueSchemaRegistryKafkaSerializer(config), (
        glue.deserializers.GlueSchemaRegistryKafkaDeserializer(config)
    )


def value_of(topic: str) -> RecordContext:
    return RecordContext(topic, "value", [])


@pytest.mark.full
@COMPRESSIONS
def test_avro_is_read_both_ways(
    java: Java, settings: dict[str, object], chains: tuple[Make, Make], topic: str, compression: str
) -> None:
    serializer, deserializer = serde(java, settings, "AVRO", compression)
    write, read = chains[0]("avro", avro_schema=AVRO, glue_compression=compression), chains[1]("avro")
    theirs = bytes(serializer.serialize(topic, java.avro(AVRO, VALUE)))
    assert theirs[:2] == (b"\3\0" if compression == "none" else b"\3\5")
    assert read(theirs, value_of(topic)) == VALUE
    ours = write(VALUE, value_of(topic))
    # The same version: Java has registered it, under the topic's name.
    assert ours[:18] == theirs[:18]
    assert json.loads(deserializer.deserialize(topic, ours).toString()) == VALUE


def test_a_schema_that_is_registered_here_is_javas(
    java: Java, settings: dict[str, object], chains: tuple[Make, Make], topic: str
) -> None:
    serializer, _ = serde(java, settings, "AVRO")
    ours = chains[0]("avro", avro_schema=AVRO)(VALUE, value_of(topic))
    assert bytes(serializer.serialize(topic, java.avro(AVRO, VALUE))) == ours


@COMPRESSIONS
def test_json_is_read_both_ways(
    java: Java, settings: dict[str, object], chains: tuple[Make, Make], topic: str, compression: str
) -> None:
    serializer, deserializer = serde(java, settings, "JSON", compression)
    write, read = chains[0]("json", json_schema=JSON, glue_compression=compression), chains[1]("json")
    data = java.jvm.com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema
    theirs = bytes(serializer.serialize(topic, data.builder(JSON, json.dumps(VALUE)).build()))
    assert read(theirs, value_of(topic)) == VALUE
    assert read.to_arrow([theirs], topic=topic).to_pylist() == [json.dumps(VALUE, separators=(",", ":"))]
    ours = write(VALUE, value_of(topic))
    assert json.loads(deserializer.deserialize(topic, ours).getPayload()) == VALUE


@pytest.mark.full
@COMPRESSIONS
def test_protobuf_is_read_both_ways(
    java: Java, settings: dict[str, object], chains: tuple[Make, Make], topic: str, compression: str
) -> None:
    for message in (MESSAGE, VISIT(flux=[2.5])):
        serializer, deserializer = serde(java, settings, "PROTOBUF", compression)
        theirs = bytes(serializer.serialize(topic, java.message(message)))
        written = chains[0]("protobuf", protobuf_message_class=type(message), glue_compression=compression)
        check_protobuf(message, theirs, written, deserializer, chains=chains, topic=topic)


def check_protobuf(
    message: Any, theirs: bytes, write: Any, deserializer: Any, *, chains: tuple[Make, Make], topic: str
) -> None:
    # Without a class, by the text that Java has registered.
    assert chains[1]("protobuf")(theirs, value_of(topic)).SerializeToString() == message.SerializeToString()
    assert chains[1]("protobuf", protobuf_message_class=type(message))(theirs, value_of(topic)) == message
    other = f"{topic}-2"
    ours = write(message, value_of(other))
    assert bytes(deserializer.deserialize(other, ours).toByteArray()) == message.SerializeToString()
    assert chains[1]("protobuf")(ours, value_of(other)).SerializeToString() == message.SerializeToString()


def test_one_column_of_versions_and_compressions(chains: tuple[Make, Make], topic: str) -> None:
    older = json.loads(AVRO)
    older["fields"].pop()
    newer = json.loads(AVRO)
    newer["fields"][1]["default"] = ""
    records = []
    for schema, compression in ((older, "none"), (newer, "none"), (newer, "zlib")):
        write = chains[0]("avro", avro_schema=json.dumps(schema), glue_compression=compression)
        records += [write({"id": at, "name": "a" * at}, value_of(topic)) for at in range(200)]
    records += [b"\3\5" + records[0][2:18] + b"no zlib", b"\3\0short", None]
    result = chains[1]("avro").read_batch(Batch(records, topic=topic))
    values = result.values.to_pylist()
    assert values[5] == {"id": 5, "name": ""}
    assert values[205] == values[405] == {"id": 5, "name": "aaaaa"}
    assert sorted(result.errors) == [600, 601]
    assert "zlib" in str(result.errors[600])


def test_a_version_of_another_format_is_the_records_fault(chains: tuple[Make, Make], topic: str) -> None:
    data = chains[0]("json", json_schema=JSON)(VALUE, value_of(topic))
    with pytest.raises(SchemaRegistryError, match="has the type JSON, not AVRO") as caught:
        chains[1]("avro")(data, value_of(topic))
    assert caught.value.about_record


@pytest.mark.parametrize("stage", ["avro", "json", "protobuf"])
def test_a_compressed_record_has_a_limit(chains: tuple[Make, Make], topic: str, stage: str) -> None:
    bomb = b"\3\5" + uuid.uuid4().bytes + zlib.compress(bytes(10_000))
    with pytest.raises(DecodeError, match="more than 1000 bytes"):
        chains[1](stage, compression_max_output_bytes=1000)(bomb, value_of(topic))


def test_a_missing_class_is_found_by_its_name(chains: tuple[Make, Make], topic: str) -> None:
    data = chains[0]("protobuf", protobuf_message_class=ALERT)(MESSAGE, value_of(topic))
    with pytest.raises(SchemaRegistryError, match="there is no message 99 among") as caught:
        chains[1]("protobuf")(data[:18] + b"\x63" + data[19:], value_of(topic))
    assert caught.value.about_record


@pytest.mark.parametrize("first_answer", ["PENDING", "FAILURE"])
def test_an_incompatible_schema_is_refused(
    settings: dict[str, object], topic: str, monkeypatch: pytest.MonkeyPatch, first_answer: str
) -> None:
    """As Glue's API describes it; moto accepts all schemas."""
    monkeypatch.setattr("serde_chain.schemas.glue._PENDING_S", 0.01)
    version = str(uuid.uuid4())
    states = [first_answer, "PENDING", "FAILURE"]
    asked: list[str] = []

    def answer(request: Any) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        operation = request.headers["X-Amz-Target"].partition(".")[2]
        asked.append(operation)
        body: dict[str, Any] = {"__type": "EntityNotFoundException", "Message": "Schema is not found."}
        status = 400
        if operation != "GetSchemaByDefinition":
            body, status = {"SchemaVersionId": version, "VersionNumber": 2, "Status": states.pop(0)}, 200
        reply(request, status, json.dumps(body).encode(), "application/x-amz-json-1.1")

    with serve(answer) as url:
        config = {**settings, "glue.endpoint.url": url, "value.serializer": "avro", "avro.schema": AVRO}
        with SerializerChain.from_config(config) as write, pytest.raises(SchemaRegistryError) as raised:
            write(VALUE, value_of(topic))
    error = raised.value
    assert f"the version {version} of the schema {topic} in Glue has the status FAILURE" in str(error)
    assert "not compatible with the versions before it" in str(error)
    assert (error.about_record, error.transient, error.topic) == (False, False, topic)
    waits = ["GetSchemaVersion"] * 2 if first_answer == "PENDING" else []
    assert asked == ["GetSchemaByDefinition", "RegisterSchemaVersion", *waits]


@pytest.mark.parametrize("by", ["latest", "id"])
def test_a_message_has_the_rank_of_the_registered_file(
    settings: dict[str, object], chains: tuple[Make, Make], topic: str, by: str
) -> None:
    """Names of messages that the registered file has, and one's own has not, come first."""
    own = proto_text.parse("own.proto", f'syntax = "proto3"; package p{topic[6:]}; message User {{ string name = 1; }}')
    text = f'syntax = "proto3"; package p{topic[6:]}; message User {{ string name = 1; }} message Audit {{}}'
    client = boto3.client("glue", region_name="eu-west-1", endpoint_url=str(settings["glue.endpoint.url"]))
    found = client.create_schema(
        RegistryId={"RegistryName": "default-registry"},
        SchemaName=topic,
        DataFormat="PROTOBUF",
        Compatibility="BACKWARD",
        SchemaDefinition=text,
    )
    chosen: dict[str, object] = (
        {"use_latest_version": True} if by == "latest" else {"use_schema_id": found["SchemaVersionId"]}
    )
    cls = make_class(f"p{topic[6:]}.User", [own])
    data = chains[0]("protobuf", protobuf_message_class=cls, **chosen)(cls(name="x"), value_of(topic))
    assert data[18:] == b"\1" + cls(name="x").SerializeToString()
    assert chains[1]("protobuf")(data, value_of(topic)).DESCRIPTOR.full_name == f"p{topic[6:]}.User"
    other = make_class(f"p{topic[6:]}.Other", [proto_text.parse("o.proto", str(text).replace("User", "Other"))])
    with pytest.raises(SchemaRegistryError, match=r"does not describe p.*\.Other"):
        chains[0]("protobuf", protobuf_message_class=other, **chosen)(other(name="x"), value_of(topic))
