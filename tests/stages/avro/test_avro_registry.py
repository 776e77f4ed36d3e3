"""Avro with a real schema registry, next to Confluent's own serializers."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    RecordContext,
    SchemaRegistryError,
    SerializerChain,
)
from serde_chain.testing.services import SchemaRegistry

V1 = json.dumps({"type": "record", "name": "Alert", "namespace": "survey", "fields": [{"name": "id", "type": "long"}]})
V2 = json.dumps(
    {
        "type": "record",
        "name": "Alert",
        "namespace": "survey",
        "fields": [{"name": "id", "type": "long"}, {"name": "band", "type": "string", "default": "r"}],
    }
)

PEER = SchemaRegistry.serializer_conf()


class Make(Protocol):
    """Makes a chain of one Avro stage; it is closed when the test ends. Keys are written with underscores."""

    def __call__(self, schema: str | None = None, **config: object) -> Any: ...


@pytest.fixture
def writer(registry: SchemaRegistry) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(schema: str | None = None, **config: object) -> SerializerChain:
            config = {"avro.schema": schema, **{key.replace("_", "."): value for key, value in config.items()}}
            config |= {"value.serializer": "avro", "schema.registry.url": registry.url}
            return stack.enter_context(SerializerChain.from_config(config))

        yield make


@pytest.fixture
def reader(registry: SchemaRegistry) -> Iterator[Make]:
    with ExitStack() as stack:

        def make(schema: str | None = None, **config: object) -> DeserializerChain:
            config = {"avro.schema": schema, **{key.replace("_", "."): value for key, value in config.items()}}
            config |= {"value.deserializer": "avro", "schema.registry.url": registry.url}
            return stack.enter_context(DeserializerChain.from_config(config))

        yield make


def value_of(topic: str, headers: Any = None) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE, headers)


# Confluent's serializers, both directions


def test_bytes_are_those_of_confluents_serializer(client: SchemaRegistryClient, writer: Make, topic: str) -> None:
    theirs = AvroSerializer(client, V2, conf=PEER)({"id": 7, "band": "g"}, value_of(topic))
    assert writer(V2)({"id": 7, "band": "g"}, value_of(topic)) == theirs
    assert theirs is not None
    assert theirs[0] == 0


def test_confluents_reader_reads_ours(client: SchemaRegistryClient, writer: Make, topic: str) -> None:
    value = {"id": 7, "band": "longer than a prefix"}
    for framing in ("confluent", "header"):
        headers: list[Any] = []
        data = writer(V2, avro_framing=framing)(value, RecordContext(topic, "value", headers))
        assert AvroDeserializer(client, conf=PEER)(data, value_of(topic, headers)) == value
        assert [name for name, _ in headers] == (["__value_schema_id"] if framing == "header" else [])


def test_ours_reads_confluents(client: SchemaRegistryClient, writer: Make, reader: Make, topic: str) -> None:
    in_front = AvroSerializer(client, V1, conf=PEER)({"id": 7}, value_of(topic))
    ctx = RecordContext(topic, "value", [])
    assert reader()(in_front, ctx) == reader(avro_framing="header")(in_front, ctx) == {"id": 7}
    # No setting says where the schema is named: readers look at the header, then at the prefix.
    in_header = writer(V1, avro_framing="header")({"id": 8}, ctx)
    assert reader()(in_header, ctx) == {"id": 8}


def test_guids_in_headers() -> None:
    # This registry has no GUIDs; Confluent's stand-in has them.
    with SchemaRegistryClient.new_client({"url": "mock://guids"}) as client:
        config = {"value.serializer": "avro", "value.deserializer": "avro", "schema.registry.url": "mock://guids"}
        write = SerializerChain.from_config({**config, "avro.schema": V1, "avro.framing": "header"})
        read = DeserializerChain.from_config(config)
        for chain in (write, read):
            chain.stages[0]._registry._client = client
        theirs: list[Any] = []
        confluents = AvroSerializer(client, V1, conf={"schema.id.serializer": header_schema_id_serializer})
        data = confluents({"id": 7}, value_of("t", theirs))
        ours: list[Any] = []
        assert write({"id": 7}, value_of("t", ours)) == data
        assert ours == theirs
        assert (theirs[0][0], theirs[0][1][0], len(theirs[0][1])) == ("__value_schema_id", 1, 17)
        assert read(data, value_of("t", theirs)) == {"id": 7}


def test_keys_have_a_header_and_a_subject_of_their_own(
    client: SchemaRegistryClient, registry: SchemaRegistry, topic: str
) -> None:
    config = {
        "key.serializer": "avro", "key.deserializer": "avro", "avro.schema": V1, "avro.framing": "header",
        "schema.registry.url": registry.url,
    }  # fmt: skip
    ctx = RecordContext(topic, "key", [])
    with (
        SerializerChain.from_config(config, is_key=True) as write,
        DeserializerChain.from_config(config, is_key=True) as read,
    ):
        data = write({"id": 1}, ctx)
        assert [header[0] for header in ctx.headers or ()] == ["__key_schema_id"]
        assert read(data, ctx) == {"id": 1}
    assert client.get_latest_version(f"{topic}-key").version == 1


def test_confluents_serializers_are_stages(client: SchemaRegistryClient, topic: str) -> None:
    write = SerializerChain.from_config({"value.serializers": [AvroSerializer(client, V1, conf=PEER), "zstd"]})
    read = DeserializerChain.from_config({"value.deserializers": ["zstd", AvroDeserializer(client, conf=PEER)]})
    ctx = value_of(topic)
    assert read(write({"id": 3}, ctx), ctx) == {"id": 3}
    assert write(None, ctx) is None


# Evolution


def test_schema_ids_mix_in_one_topic(writer: Make, reader: Make, topic: str) -> None:
    ctx = RecordContext(topic, "value", [])
    old, new = writer(V1)({"id": 1}, ctx), writer(V2)({"id": 2, "band": "g"}, ctx)
    assert old[:5] != new[:5]
    each_its_own = reader()
    assert [each_its_own(data, ctx) for data in (old, new, old)] == [{"id": 1}, {"id": 2, "band": "g"}, {"id": 1}]
    for into_new, into_old in (
        (reader(V2), reader(V1)),
        (reader(avro_reader_schema=V2), reader(V2, avro_reader_schema=V1)),
    ):
        assert [into_new(data, ctx) for data in (old, new)] == [{"id": 1, "band": "r"}, {"id": 2, "band": "g"}]
        assert [into_old(data, ctx) for data in (old, new)] == [{"id": 1}, {"id": 2}]


def test_schemas_refer_to_others(client: SchemaRegistryClient, writer: Make, reader: Make, topic: str) -> None:
    point = {"type": "record", "name": "Point", "namespace": "geo", "fields": [{"name": "x", "type": "int"}]}
    line = {
        "type": "record",
        "name": "Line",
        "namespace": "geo",
        "fields": [{"name": "a", "type": "geo.Point"}, {"name": "b", "type": "geo.Point"}],
    }
    drawing = {
        "type": "record",
        "name": "Drawing",
        "namespace": "geo",
        "fields": [{"name": "lines", "type": {"type": "array", "items": "geo.Line"}}, {"name": "at", "type": "Point"}],
    }
    at_point = SchemaReference("geo.Point", f"{topic}-point", 1)
    at_line = SchemaReference("geo.Line", f"{topic}-line", 1)
    client.register_schema(f"{topic}-point", Schema(json.dumps(point), "AVRO"))
    client.register_schema(f"{topic}-line", Schema(json.dumps(line), "AVRO", [at_point]))
    client.register_schema(f"{topic}-value", Schema(json.dumps(drawing), "AVRO", [at_line, at_point]))
    value = {"lines": [{"a": {"x": 1}, "b": {"x": 2}}], "at": {"x": 3}}
    ctx = RecordContext(topic, "value", [])
    data = writer(use_latest_version=True)(value, ctx)
    assert reader()(data, ctx) == value
    assert AvroDeserializer(client, conf=PEER)(data, value_of(topic)) == value


# Which schema a writer takes


def test_the_latest_version(client: SchemaRegistryClient, writer: Make, reader: Make, topic: str) -> None:
    ctx = RecordContext(topic, "value", [])
    for schema in (V1, V2):
        client.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
    for own in (None, V1):
        data = writer(own, use_latest_version="true")({"id": 1, "band": "g"}, ctx)
        assert reader()(data, ctx) == {"id": 1, "band": "g"}
    with pytest.raises(
        SchemaRegistryError, match=r"the latest schema of .*-value.*HTTP 404.*Check schema.*registry\.type"
    ):
        writer(use_latest_version=True)({"id": 1}, RecordContext(topic + "x", "value", []))


def test_schemas_are_not_registered_when_so_configured(client: SchemaRegistryClient, writer: Make, topic: str) -> None:
    ctx = RecordContext(topic, "value", [])
    strict = writer(V1, auto_register_schemas="false")
    with pytest.raises(SchemaRegistryError, match=r"refused the schema of .*-value") as caught:
        strict({"id": 1}, ctx)
    assert (caught.value.topic, caught.value.stage, caught.value.transient) == (topic, "avro (1 of 1)", False)
    number = client.register_schema(f"{topic}-value", Schema(V1, "AVRO"))
    assert strict({"id": 1}, ctx)[:5] == b"\x00" + number.to_bytes(4, "big")  # no restart needed


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "{topic}-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "survey.{topic}"),
        ("topic.record.name.strategy", None),
        ("TopicRecordNameStrategy", "{topic}-survey.{topic}"),
        (lambda ctx, name: f"own-{ctx.topic}-{ctx.field}-{name}", "own-{topic}-value-survey.{topic}"),
    ],
)
def test_subjects(client: SchemaRegistryClient, writer: Make, topic: str, strategy: Any, subject: str | None) -> None:
    schema = V1.replace('"Alert"', f'"{topic.replace("-", "_")}"')
    if subject is None:
        with pytest.raises(ConfigError, match=r"subject\.name\.strategy.*expected TopicNameStrategy"):
            writer(schema, subject_name_strategy=strategy)
        return
    for key in ("subject_name_strategy", "value_subject_name_strategy"):
        writer(schema, **{key: strategy})({"id": 1}, RecordContext(topic, "value", []))
        record = topic.replace("-", "_")
        wanted = subject.replace("survey.{topic}", f"survey.{record}").format(topic=topic)
        assert client.get_latest_version(wanted).version == 1


def test_a_subject_needs_a_topic(writer: Make) -> None:
    with pytest.raises(SchemaRegistryError, match="subject requires the record's topic"):
        writer(V1)({"id": 1})
    assert writer(V1, subject_name_strategy="RecordNameStrategy")({"id": 1})[0] == 0


# Bad input


def test_an_incompatible_schema_is_refused(client: SchemaRegistryClient, writer: Make, topic: str) -> None:
    client.set_compatibility(f"{topic}-value", level="BACKWARD")
    ctx = RecordContext(topic, "value", [])
    writer(V1)({"id": 1}, ctx)
    with pytest.raises(SchemaRegistryError, match=r"refused registering the schema of .*-value.*HTTP 409"):
        writer(V1.replace("long", "string"))({"id": "a"}, ctx)


@pytest.mark.parametrize("prefix", [b"\x00\x7f\xff\xff\xff", b"\x00\xff\xff\xff\xff", b"\x01" + bytes(15) + b"\x09"])
def test_an_unknown_id_is_said(reader: Make, topic: str, prefix: bytes) -> None:
    named = r"schema (2147483647|4294967295|00000000-0000-0000-0000-000000000009)"
    with pytest.raises(SchemaRegistryError, match=named) as caught:
        reader()(prefix + b"\x02", RecordContext(topic, "value", []))
    assert caught.value.about_record


@pytest.mark.full
def test_an_unknown_guid_is_not_the_records_fault_where_there_is_no_registry(
    registry: SchemaRegistry, topic: str
) -> None:
    config = {"value.deserializers": "avro", "schema.registry.url": f"{registry.url}/elsewhere"}
    with DeserializerChain.from_config(config) as chain, pytest.raises(SchemaRegistryError) as caught:
        chain(b"\x01" + bytes(17), RecordContext(topic, "value", []))
    assert not caught.value.about_record
    assert "has no schema registry at its path" in str(caught.value)
    assert "None" not in str(caught.value)


@pytest.mark.parametrize(
    "own",
    [
        {"avro.schema": V1},
        {"avro.schema": V1, "auto.register.schemas": False},
        {"use.latest.version": True},
        {"use.latest.with.metadata": "a=b"},
        {"avro.schema": V1, "schema.references": [{"name": "survey.Other", "subject": "others"}]},
        None,
    ],
)
@pytest.mark.parametrize("path", ["", "/elsewhere"])
def test_a_wrong_path_is_explained_alike_to_writers_and_readers(
    registry: SchemaRegistry, topic: str, path: str, own: dict[str, object] | None
) -> None:
    url = registry.url.removesuffix("/apis/ccompat/v7") + path
    config = {"value.deserializer": "avro", "value.serializer": "avro", "schema.registry.url": url, **(own or {})}
    kind: Any = DeserializerChain if own is None else SerializerChain
    with kind.from_config(config) as chain, pytest.raises(SchemaRegistryError) as caught:
        chain({"id": 1} if own else bytes(6), RecordContext(topic, "value", []))
    assert not caught.value.about_record
    assert caught.value.message.startswith("schema.registry.url has no schema registry at its path")
    assert str(caught.value.hint).startswith("Check the path in schema.registry.url: Confluent's has none")


def test_a_schema_of_another_kind_is_said(client: SchemaRegistryClient, reader: Make, topic: str) -> None:
    number = client.register_schema(
        f"{topic}-json", Schema('{"$schema": "http://json-schema.org/draft-07/schema#"}', "JSON")
    )
    with pytest.raises(SchemaRegistryError, match=f"schema {number} of the registry has the type JSON") as caught:
        reader()(b"\x00" + number.to_bytes(4, "big") + b"\x02", RecordContext(topic, "value", []))
    assert caught.value.about_record  # a record of six bytes would stop all readers of the topic


def test_bytes_without_a_framing_are_said(reader: Make) -> None:
    with pytest.raises(DecodeError, match=r"begins with 7b instead of a schema id.*avro\.framing"):
        reader()(b'{"id": 1}', RecordContext("t", "value", []))


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def accept() -> None:
            try:
                while True:
                    held.append(server.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for connection in held:
            connection.close()


@pytest.mark.full
def test_a_registry_that_is_down_is_said_soon(silent: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    settings = {"schema.registry.max.retries": "1", "schema.registry.timeout": "1", "value.serializer": "avro"}
    for port in (free, silent):
        started = time.monotonic()
        chain = SerializerChain.from_config(
            {**settings, "avro.schema": V1, "schema.registry.url": f"http://127.0.0.1:{port}"}
        )
        with pytest.raises(SchemaRegistryError, match="did not answer on registering the schema") as caught:
            chain({"id": 1}, RecordContext("t", "value", []))
        assert caught.value.transient
        assert caught.value.__cause__ is not None
        assert time.monotonic() - started < 20
        chain.close()


# Bytes alone


@pytest.mark.full
def test_the_schema_bytes_is_written_as_confluents_clients_do(
    client: SchemaRegistryClient, writer: Make, reader: Make, topic: str
) -> None:
    """Without Avro's length in front, in the prefix's framing and in the header's."""
    for number, schema in enumerate(('"bytes"', '{"type": "bytes"}')):
        for content in (b"", b"\x02a", bytes(range(256)) * 300):
            topic_of_both = f"{topic}-{number}"
            for framing in ("confluent", "header"):
                headers: list[Any] = []
                around = RecordContext(topic_of_both, "value", headers)
                data = writer(schema, avro_framing=framing)(content, around)
                assert data.endswith(content)
                assert len(data) == len(content) + (5 if framing == "confluent" else 0)
                if len(data) > 5:  # their own readers refuse less
                    assert AvroDeserializer(client, conf=PEER)(data, value_of(around.topic, headers)) == content
                assert reader()(data, around) == content
                # To Arrow too, and as text for a reader.
                columns = reader().to_arrow([data] * 2, [headers] * 2, topic=around.topic)
                assert columns.to_pylist() == [content] * 2
            theirs = AvroSerializer(client, schema, conf=PEER)(content, value_of(topic_of_both))
            around = RecordContext(topic_of_both, "value")
            assert theirs == writer(schema)(content, around)
            assert reader()(theirs, around) == content
    assert reader('"string"')(writer('"bytes"')(b"text", value_of(topic)), value_of(topic)) == "text"
    table = pa.table({"value": pa.array([b"a", b"bc"])})
    rows = writer('"bytes"').from_arrow(table.column("value").combine_chunks(), topic=topic)
    assert [row[5:] for row in rows.values.to_pylist()] == [b"a", b"bc"]


def test_bytes_within_others_keep_their_length(client: SchemaRegistryClient, writer: Make, topic: str) -> None:
    for number, (schema, value) in enumerate(
        (('["null", "bytes"]', b"a"), ('{"type": "array", "items": "bytes"}', [b"a"]))
    ):
        around = value_of(f"{topic}-{number}")
        data = writer(schema)(value, around)
        assert data == AvroSerializer(client, schema, conf=PEER)(value, around)
