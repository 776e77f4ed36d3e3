"""``serde-chain doctor`` on registries and schemas."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from serde_chain import Producer
from serde_chain.cli.doctor.examine import examine
from serde_chain.cli.findings import Finding, Level
from serde_chain.testing.services import KafkaBroker, SchemaRegistry
from tests.http_servers import reply, serve

IMAGE = '{"type": "record", "name": "Image", "namespace": "org.sky", "fields": [{"name": "id", "type": "long"}]}'
NAMED = IMAGE.replace("}]}", '}, {"name": "band", "type": "string"}]}')
REFUSED = "which refuses it: it is not compatible with the version there"
JSON = '{"title": "Image", "type": "object", "properties": {"id": {"type": "integer"}}}'


class Doctor:
    """Checks one topic whose values are Avro."""

    def __init__(self, broker: KafkaBroker, registry: SchemaRegistry, topic: str, client: SchemaRegistryClient) -> None:
        self.topic, self.client = topic, client
        self.server = registry.url.removesuffix("/apis/ccompat/v7")
        self.config: dict[str, object] = {
            **broker.client_config(),
            "schema.registry.url": registry.url,
            "key.serializer": "string",
            "value.serializer": "avro",
            "avro.schema": IMAGE,
        }

    def schemas(self, *, tries: bool = False, **settings: object) -> dict[str, Finding]:
        changed = {key.replace("_", "."): value for key, value in settings.items()}
        config = {key: value for key, value in {**self.config, **changed}.items() if value is not None}
        checks = examine(config, [self.topic], timeout_s=20, tries=tries)
        return {check.name: check for check in checks if "schema" in check.name or check.name == "registry"}

    def registered(self) -> bool:
        return f"{self.topic}-value" in self.client.get_subjects()


@pytest.fixture
def doctor(broker: KafkaBroker, registry: SchemaRegistry, topic: str) -> Iterator[Doctor]:
    with registry.client() as client:
        yield Doctor(broker, registry, topic, client)


def produce(doctor: Doctor, **settings: object) -> None:
    with Producer({**doctor.config, **{key.replace("_", "."): value for key, value in settings.items()}}) as producer:
        producer.produce(doctor.topic, {"id": 1}, key="M 51")


@pytest.mark.full
def test_keys_and_values_apart(doctor: Doctor) -> None:
    produce(doctor)
    checks = doctor.schemas()
    assert checks["key schema"].message == "no schema: its chain has string"
    assert checks["key schema"].facts == {"field": "key"}
    at = doctor.client.get_latest_version(f"{doctor.topic}-value")
    assert checks["value schema"].facts == {
        "field": "value",
        "subject": f"{doctor.topic}-value",
        "id": at.schema_id,
        "version": 1,
        "type": "AVRO",
        "name": "org.sky.Image",
    }
    assert checks["value schema"].message == (
        f"Avro org.sky.Image: subject {doctor.topic}-value, version 1, id {at.schema_id}"
    )
    both = doctor.schemas(key_serializer="avro", key_avro_schema='"string"')
    assert "Avro string is not registered under the subject" in both["key schema"].message


@pytest.mark.full
def test_a_reader_sees_the_latest_version(doctor: Doctor) -> None:
    produce(doctor)
    for name in ("key.serializer", "value.serializer", "avro.schema"):
        del doctor.config[name]
    checks = doctor.schemas(value_deserializer="avro")
    assert checks["key schema"].message == "no schema: there are no key.deserializers"
    assert checks["value schema"].message.startswith(
        f"Avro org.sky.Image: subject {doctor.topic}-value, version 1 (the latest), id "
    )
    other = doctor.schemas(value_deserializer="avro", subject_name_strategy="record")["value schema"]
    assert other.message == "Avro schemas are named by records"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["confluent", "apicurio"])
def test_compatibility_is_asked_for_and_nothing_is_registered(doctor: Doctor, kind: str) -> None:
    if kind == "apicurio":
        doctor.config |= {"schema.registry.type": kind, "schema.registry.url": f"{doctor.server}/apis/registry/v3"}
    assert doctor.schemas()["value schema"].message.endswith("is not registered under the subject "
        f"{doctor.topic}-value; the first record registers it")  # fmt: skip
    assert "which would accept it; the first" in doctor.schemas(tries=True)["value schema"].message
    assert not doctor.registered()
    refused = doctor.schemas(auto_register_schemas=False)["value schema"]
    assert (refused.level, refused.change) == (Level.ERROR, "Register it, or set auto.register.schemas = true")
    produce(doctor)
    subject = f"{doctor.topic}-value"
    doctor.client.set_compatibility(subject, "BACKWARD")
    # A new field without a default cannot be read from old records.
    wrong = doctor.schemas(tries=True, avro_schema=NAMED)["value schema"]
    assert (wrong.level, wrong.message) == (
        Level.ERROR,
        f"Avro org.sky.Image is not registered under the subject {subject}, {REFUSED}",
    )
    assert doctor.schemas(avro_schema=NAMED)["value schema"].level is Level.OK
    assert doctor.client.get_versions(subject) == [1]


def test_schemas_without_a_registry(doctor: Doctor) -> None:
    del doctor.config["schema.registry.url"]
    assert doctor.schemas()["value schema"].message == "Avro org.sky.Image; no registry"
    assert doctor.schemas(value_serializer="json")["value schema"].message == "no schema: json has none"
    named = doctor.schemas(value_serializer="json", json_schema=JSON)["value schema"]
    assert (named.message, named.facts["type"]) == ("JSON Image; no registry", "JSON")


def own(data: object, _ctx: object = None, /) -> bytes:
    return json.dumps(data).encode()


@pytest.mark.parametrize("stage", ["confluent_kafka.serialization.StringSerializer", own])
def test_other_stages_may_have_schemas(doctor: Doctor, stage: object) -> None:
    found = doctor.schemas(value_serializer=stage)["value schema"]
    assert found.message.startswith("not checked: ")


def test_a_registered_json_schema(doctor: Doctor) -> None:
    doctor.client.register_schema(f"{doctor.topic}-value", Schema(JSON, "JSON"))
    found = doctor.schemas(value_serializer="json", json_schema=JSON, json_framing="confluent")["value schema"]
    assert found.message.startswith(f"JSON Image: subject {doctor.topic}-value, version 1, id ")


def test_a_registered_protobuf_schema(doctor: Doctor) -> None:
    name = "google.protobuf.struct_pb2.Struct"
    protobuf: dict[str, Any] = {"value_serializer": "protobuf", "protobuf_message_class": name, "avro_schema": None}
    unknown = doctor.schemas(**protobuf, tries=True)["value schema"]
    assert "Protobuf google.protobuf.Struct is not registered" in unknown.message
    settings = {key.replace("_", "."): value for key, value in protobuf.items() if value}
    del doctor.config["avro.schema"]
    with Producer({**doctor.config, **settings}) as producer:
        producer.produce(doctor.topic, {}, key="M 51")
    found = doctor.schemas(**protobuf)["value schema"]
    assert found.message.startswith(f"Protobuf google.protobuf.Struct: subject {doctor.topic}-value, version 1, id ")


@pytest.mark.parametrize(
    ("path", "kind", "right"),
    [
        ("", "confluent", "/apis/ccompat/v7"),
        ("/apis/registry/v3", "confluent", "/apis/ccompat/v7"),
        ("", "apicurio", "/apis/registry/v3"),
    ],
)
def test_the_right_path_is_tried(doctor: Doctor, path: str, kind: str, right: str) -> None:
    login = doctor.server.replace("://", "://user:secret@") if kind == "confluent" else doctor.server
    found = doctor.schemas(schema_registry_url=login + path, schema_registry_type=kind)["registry"]
    assert (found.level, found.change) == (Level.ERROR, f"Set schema.registry.url to {doctor.server}{right}")
    assert "secret" not in str(found)


def test_the_page_of_a_console_is_no_registry(doctor: Doctor) -> None:
    def page(request: BaseHTTPRequestHandler) -> None:
        reply(request, 200, b"<!doctype html><title>Console</title>", "text/html")

    for kind, message in (("confluent", "is not JSON"), ("apicurio", "is a page")):
        with serve(page) as url:
            found = doctor.schemas(schema_registry_url=url, schema_registry_type=kind)["registry"]
        assert found.level is Level.ERROR
        assert message in found.message
        assert "Check the path in schema.registry.url" in str(found.change)


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("https://confluent.cloud/environments/env-1/schema-registry/schemas", "Confluent Cloud's console"),
        ("https://pkc-7prvp.centralindia.azure.confluent.cloud:443", "a Kafka cluster in Confluent Cloud"),
    ],
)
def test_addresses_of_confluent_cloud(doctor: Doctor, address: str, what: str) -> None:
    found = doctor.schemas(schema_registry_url=address)["registry"]
    assert found.message == f"schema.registry.url is the address of {what}"
    assert "https://psrc-" in str(found.change)
