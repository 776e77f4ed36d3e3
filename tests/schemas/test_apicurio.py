"""Apicurio Registry by its own interface: Apicurio's Java serde, against the same server."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from serde_chain import DecodeError, DeserializerChain, RecordContext, SchemaRegistryError, SerializerChain
from serde_chain.arrow.batch import Batch
from serde_chain.testing.services import SchemaRegistry
from tests.http_servers import reply, serve
from tests.java_serdes import JavaSerde
from tests.schemas.java import AVRO, JSON, VALUE, Java, running
from tests.schemas.messages import MESSAGE, VISIT, classes
from tests.stages.protobuf import protobuf_messages

# How Java is configured, and how the same is said here.
DEFAULT: dict[str, Any] = {}
LEGACY = "io.apicurio.registry.serde.Legacy8ByteIdHandler"
WAYS = {
    "contentId": (DEFAULT, DEFAULT),
    "globalId": ({"apicurio.registry.use-id": "globalId"}, {"apicurio.use.id": "globalId"}),
    "legacy": ({"apicurio.registry.id-handler": LEGACY}, {"apicurio.id.bytes": "8"}),
    "legacy globalId": (
        {"apicurio.registry.id-handler": LEGACY, "apicurio.registry.use-id": "globalId"},
        {"apicurio.id.bytes": "8", "apicurio.use.id": "globalId"},
    ),
    "header": ({"apicurio.registry.headers.enabled": "true"}, {"framing": "header"}),
    "header globalId": (
        {"apicurio.registry.headers.enabled": "true", "apicurio.registry.use-id": "globalId"},
        {"framing": "header", "apicurio.use.id": "globalId"},
    ),
}
EACH_WAY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(scope="module")
def java(java_serde_of_apicurio: JavaSerde) -> Iterator[Java]:
    with running(java_serde_of_apicurio.folder) as peer:
        yield peer


@pytest.fixture
def url(registry: SchemaRegistry) -> str:
    return registry.url.replace("/apis/ccompat/v7", "/apis/registry/v3")


Make = Callable[..., Any]


@pytest.fixture
def chains(url: str) -> Iterator[tuple[Make, Make]]:
    with ExitStack() as stack:

        def make(kind: Any, stage: str, config: dict[str, object]) -> Any:
            side = "serializer" if kind is SerializerChain else "deserializer"
            framing = {f"{stage}.framing": config.pop("framing")} if "framing" in config else {}
            common = {"schema.registry.type": "apicurio", "schema.registry.url": url}
            return stack.enter_context(kind.from_config({f"value.{side}": stage, **common, **framing, **config}))

        yield (
            lambda stage, config=DEFAULT, **more: make(SerializerChain, stage, {**config, **dotted(more)}),
            lambda stage, config=DEFAULT, **more: make(DeserializerChain, stage, {**config, **dotted(more)}),
        )


def dotted(config: dict[str, object]) -> dict[str, object]:
    return {key.replace("_", "."): value for key, value in config.items()}


class Serde:
    """Apicurio's serializer and deserializer of one format."""

    def __init__(
        self, java: Java, url: str, package: str, kind: str, config: dict[str, str], *, is_key: bool = False
    ) -> None:
        self._java = java
        serde = getattr(java.jvm.io.apicurio.registry.serde, package)
        settings = java.map({"apicurio.registry.url": url, "apicurio.registry.auto-register": "true", **config})
        self._serializer = getattr(serde, f"{kind}KafkaSerializer")()
        self._deserializer = getattr(serde, f"{kind}KafkaDeserializer")()
        for each in (self._serializer, self._deserializer):
            each.configure(settings, is_key)

    def write(self, topic: str, value: Any) -> tuple[bytes, list[tuple[str, bytes | str | None]]]:
        headers = self._headers([])
        data = bytes(self._serializer.serialize(topic, headers, value))
        return data, [(header.key(), bytes(header.value())) for header in headers.toArray()]

    def write_message(self, topic: str, message: Any) -> tuple[bytes, list[tuple[str, bytes | str | None]]]:
        return self.write(topic, self._java.message(message))

    def read(self, topic: str, headers: Any, data: bytes) -> Any:
        return self._deserializer.deserialize(topic, self._headers(headers), data)

    def _headers(self, pairs: Any) -> Any:
        headers = self._java.jvm.org.apache.kafka.common.header.internals.RecordHeaders()
        for name, value in pairs:
            headers.add(name, value)
        return headers


def value_of(topic: str, headers: Any = None) -> RecordContext:
    return RecordContext(topic, "value", [] if headers is None else headers)


@EACH_WAY
def test_avro_is_read_both_ways(java: Java, url: str, chains: tuple[Make, Make], topic: str, way: str) -> None:
    theirs, ours = WAYS[way]
    serde = Serde(java, url, "avro", "Avro", theirs)
    write, read = chains[0]("avro", ours, avro_schema=AVRO), chains[1]("avro", ours)
    data, headers = serde.write(topic, java.avro(AVRO, VALUE))
    assert len(data) == 6 + {"l": 9, "h": 0}.get(way[0], 5)
    assert read(data, value_of(topic, headers)) == VALUE
    assert read.to_arrow([data, data], [headers, headers], topic=topic).to_pylist() == [VALUE, VALUE]
    ctx = value_of(topic)
    written = write(VALUE, ctx)
    assert json.loads(serde.read(topic, ctx.headers, written).toString()) == VALUE
    if not headers:
        assert len(written) == len(data)
    else:
        assert [pair[0] for pair in ctx.headers or ()] == [name for name, _ in headers if name.endswith("Id")]


@pytest.mark.parametrize("way", ["contentId", "header", "header globalId"])
def test_keys_are_read_both_ways(java: Java, url: str, topic: str, way: str) -> None:
    theirs, ours = WAYS[way]
    serde = Serde(java, url, "avro", "Avro", theirs, is_key=True)
    config = {
        "key.serializer": "avro",
        "key.deserializer": "avro",
        "avro.schema": AVRO,
        "avro.framing": ours.get("framing", "apicurio"),
        "schema.registry.type": "apicurio",
        "schema.registry.url": url,
        **{name: value for name, value in ours.items() if name != "framing"},
    }
    data, headers = serde.write(topic, java.avro(AVRO, VALUE))
    ctx = RecordContext(topic, "key", [])
    with SerializerChain.from_config(config, is_key=True) as write:
        written = write(VALUE, ctx)
    assert json.loads(serde.read(topic, ctx.headers, written).toString()) == VALUE
    # The same version, though Java writes the schema without spaces.
    assert (data, [pair for pair in headers if pair[0].endswith("Id")]) == (written, ctx.headers)
    with DeserializerChain.from_config(config, is_key=True) as read:
        assert read(data, RecordContext(topic, "key", list(headers))) == VALUE


def test_a_schema_of_records_within_records(java: Java, url: str, chains: tuple[Make, Make], topic: str) -> None:
    inner = {"type": "record", "name": "Visit", "fields": [{"name": "flux", "type": "double"}]}
    outer = {"type": "record", "name": "Night", "namespace": "survey", "fields": [{"name": "visit", "type": inner}]}
    visit = java.avro(json.dumps({**inner, "namespace": "survey"}), {"flux": 1.5})
    data, headers = Serde(java, url, "avro", "Avro", {}).write(topic, java.avro(json.dumps(outer), {"visit": visit}))
    assert chains[1]("avro")(data, value_of(topic, headers)) == {"visit": {"flux": 1.5}}


@EACH_WAY
def test_json_is_read_both_ways(java: Java, url: str, chains: tuple[Make, Make], topic: str, way: str) -> None:
    theirs, ours = WAYS[way]
    write, read = chains[0]("json", ours, json_schema=JSON), chains[1]("json", ours)
    ctx = value_of(topic)
    written = write(VALUE, ctx)
    # Its schema is the subject's latest, since Java does not derive one.
    serde = Serde(java, url, "jsonschema", "JsonSchema", {**theirs, "apicurio.registry.find-latest": "true"})
    assert json.loads(serde.read(topic, ctx.headers, written).toString()) == VALUE
    node = java.jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree(json.dumps(VALUE))
    data, headers = serde.write(topic, node)
    assert read(data, value_of(topic, headers)) == VALUE
    assert json.loads(read.to_arrow([data], [headers], topic=topic)[0].as_py()) == VALUE


@EACH_WAY
def test_protobuf_is_read_both_ways(java: Java, url: str, chains: tuple[Make, Make], topic: str, way: str) -> None:
    for message in (MESSAGE, VISIT(flux=[2.5])):
        check_protobuf(Serde(java, url, "protobuf", "Protobuf", WAYS[way][0]), chains, topic, way, message)


def check_protobuf(serde: Serde, chains: tuple[Make, Make], topic: str, way: str, message: Any) -> None:
    _, ours = WAYS[way]
    data, headers = serde.write_message(topic, message)
    # Without a class, by the text that Java has registered.
    assert chains[1]("protobuf", ours)(data, value_of(topic, headers)).SerializeToString() == bytes(
        message.SerializeToString()
    )
    with_class = chains[1]("protobuf", ours, protobuf_message_class=type(message))
    assert with_class(data, value_of(topic, headers)) == message
    ctx = value_of(topic)
    written = chains[0]("protobuf", ours, protobuf_message_class=type(message))(message, ctx)
    assert bytes(serde.read(topic, ctx.headers, written).toByteArray()) == message.SerializeToString()


def test_imports_are_references(java: Java, url: str, chains: tuple[Make, Make], topic: str) -> None:
    message = protobuf_messages.ALERT(id=7, position={"ra": 202.5}, scores={"real": 0.5}, time={"seconds": 5})
    serde = Serde(java, url, "protobuf", "Protobuf", {})
    data, headers = serde.write(topic, java.message(message))
    assert chains[1]("protobuf", protobuf_values="dict")(data, value_of(topic, headers))["position"]["ra"] == 202.5
    other = f"{topic}-2"
    written = chains[0]("protobuf", protobuf_message_class=type(message))(message, value_of(other))
    assert bytes(serde.read(other, [], written).toByteArray()) == message.SerializeToString()
    assert chains[1]("protobuf")(written, value_of(other)).SerializeToString() == message.SerializeToString()


def test_a_batch_of_protobuf_has_its_newest_schema(chains: tuple[Make, Make], topic: str) -> None:
    text = 'syntax = "proto3"; package survey; message Star { int64 id = 1; }'
    wider = text.replace("}", "string name = 2; google.protobuf.Timestamp time = 3; }").replace(
        "message", 'import "google/protobuf/timestamp.proto"; message'
    )
    records = []
    for schema, value in ((text, {"id": 1}), (wider, {"id": 2, "name": "Vega", "time": {"seconds": 5}})):
        (star,) = classes(schema, "Star")
        records.append(chains[0]("protobuf", protobuf_message_class=star)(star(**value), value_of(topic)))
    read = chains[1]("protobuf")
    for order in (records, records[::-1]):
        values = read.to_arrow(order, topic=topic).to_pylist()
        assert sorted(values, key=lambda value: value["id"]) == [
            {"id": 1, "name": "", "time": None},
            {"id": 2, "name": "Vega", "time": {"seconds": 5, "nanos": 0}},
        ]
    with pytest.raises(DecodeError, match=r"the record is a survey\.Star, expected survey\.Alert"):
        chains[1]("protobuf", protobuf_message_name="survey.Alert")(records[0], value_of(topic))


def test_one_column_of_all_ways(chains: tuple[Make, Make], topic: str) -> None:
    records, headers = [], []
    for _, ours in WAYS.values():
        if "globalId" not in ours.values():
            write = chains[0]("avro", ours, avro_schema=AVRO)
            for at in range(200):
                ctx = value_of(topic)
                records.append(write({"id": at, "name": "a" * at}, ctx))
                headers.append(ctx.headers)
    records += [b"\0\0", b"", None]
    headers += [None, [("apicurio.value.contentId", b"short")], None]
    result = chains[1]("avro").read_batch(Batch(records, headers, topic=topic))
    assert [value["id"] for value in result.values.to_pylist()[:600]] == 3 * list(range(200))
    assert sorted(result.errors) == [600, 601]


def test_an_unknown_global_id_is_the_records_fault(chains: tuple[Make, Make], topic: str) -> None:
    with pytest.raises(SchemaRegistryError, match=r"was found|No version") as caught:
        chains[1]("avro", {"apicurio.use.id": "globalId"})(b"\0\xff\xff\xff\xff\2", value_of(topic))
    assert caught.value.about_record


def test_a_schema_of_another_kind_is_the_records_fault(chains: tuple[Make, Make], topic: str) -> None:
    data = chains[0]("avro", avro_schema=AVRO)(VALUE, value_of(topic))
    with pytest.raises(SchemaRegistryError, match="has the type AVRO or JSON, not PROTOBUF") as caught:
        chains[1]("protobuf")(data[:5] + b"\3\n\1A", value_of(topic))
    assert caught.value.about_record


def test_groups_are_apart(chains: tuple[Make, Make], topic: str) -> None:
    chains[0]("avro", avro_schema=AVRO, apicurio_group_id=f"group-{topic}")(VALUE, value_of(topic))
    with pytest.raises(SchemaRegistryError, match="the latest schema of"):
        chains[0]("avro", use_latest_version=True)(VALUE, value_of(topic))


@pytest.mark.parametrize(
    ("status", "body", "message", "transient"),
    [
        (404, b"<html>", "Check the path in schema.registry.url", False),
        (404, b"", "schema.registry.url has no Apicurio registry at its path: no answer on schema 1", False),
        (404, b'{"name": "NotFoundException", "title": "no such path"}', "no such path", False),
        (200, b"<html>", "its answer on schema 1 is not JSON", False),
        (401, b"[]", "HTTP 401", False),
        (503, b"", "HTTP 503", True),
        (500, b'{"title": "of the\\n database"}', "refused schema 1: of the database (HTTP 500)", True),
    ],
)
def test_another_server_is_not_the_records_fault(
    topic: str, status: int, body: bytes, message: str, *, transient: bool
) -> None:
    with serve(lambda request: reply(request, status, body)) as url:
        error = refused(topic, url)
    assert message in str(error)
    assert (error.about_record, error.transient) == (False, transient)


@pytest.mark.parametrize("kind", ["apicurio", "confluent"])
@pytest.mark.parametrize(("status", "transient"), [(500, False), (502, True), (403, False)])
def test_a_page_is_not_quoted(topic: str, kind: str, status: int, *, transient: bool) -> None:
    def page(request: BaseHTTPRequestHandler) -> None:
        reply(request, status, b"<!doctype html>\n<title>Error</title>" * 10_000, "text/html")

    with serve(page) as url:
        error = refused(topic, url, kind)
    assert error.message.endswith(f"refused schema 1: the answer is not that of a schema registry (HTTP {status})")
    assert error.transient == transient
    assert "html" not in "".join(traceback.format_exception(error))


def refused(topic: str, url: str, kind: str = "apicurio") -> SchemaRegistryError:
    config = {"value.deserializer": "avro", "schema.registry.type": kind, "schema.registry.url": url}
    with DeserializerChain.from_config(config) as read, pytest.raises(SchemaRegistryError) as caught:
        read(b"\0\0\0\0\1\2", value_of(topic))
    return caught.value


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", b"<html>maintenance</html>"),
        ("application/json", b'{"status": "maintenance"}'),
        ("application/json", b"[1]"),
        ("application/json", b"null"),
        ("application/json", b'[{"name": "a", "artifactId": "a", "version": null}]'),
    ],
    ids=range(5),
)
def test_the_answer_of_a_proxy_is_not_the_records_fault(kind: str, body: bytes) -> None:
    """Otherwise, policies would pass over every record."""

    def answer(request: Any) -> None:
        is_schema = kind != "text/html" and not request.path.endswith("references")
        reply(request, 200, AVRO.encode() if is_schema else body, kind)

    with serve(answer) as address:
        config = {"schema.registry.type": "apicurio", "schema.registry.url": f"{address}/apis/registry/v3"}
        with DeserializerChain.from_config({"value.deserializer": "avro", **config}) as read:
            with pytest.raises(SchemaRegistryError, match=r"the answer of schema\.registry\.url on schema 7") as caught:
                read(b"\0\0\0\0\7\2")
            assert not caught.value.about_record
