"""References of JSON Schemas: resolved once, from places that the configuration names, and never a record's fault."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    EncodeError,
    RecordContext,
    SchemaRegistryError,
    SerializerChain,
)
from serde_chain.spark.chains.portable import load
from tests.http_servers import reply, serve
from tests.schemas.contexts import ContextRegistry, context_registry

AT = "https://survey.example.org/schema/main"
STAR = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GOOD: dict[str, Any] = {"star": {"name": "Vega"}}
BAD: dict[str, Any] = {"star": {}}


class Server:
    """Documents at addresses; each request is counted."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.asked: list[str] = []
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        found = self.documents.get(request.path)
        if isinstance(found, str):
            request.send_response(302)
            request.send_header("Location", found)
            request.send_header("Content-Length", "0")
            request.end_headers()
        else:
            reply(request, 404 if found is None else 200, json.dumps(found).encode())


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    with serve(running.answer) as running.url:
        yield running


@pytest.fixture
def contexts() -> Iterator[ContextRegistry]:
    with context_registry() as running:
        yield running


def pair(config: dict[str, Any]) -> tuple[SerializerChain, DeserializerChain]:
    config = {"value.serializer": "json", "value.deserializer": "json", **config}
    return SerializerChain.from_config(config), DeserializerChain.from_config(config)


def check(config: dict[str, Any]) -> None:
    """Good values are written and read; bad ones are refused, each time."""
    write, read = pair(config)
    with write, read:
        for _ in range(2):
            assert read(write(GOOD)) == GOOD
            with pytest.raises(EncodeError, match=r"\$\.star: 'name' is a required property"):
                write(BAD)
            with pytest.raises(DecodeError, match=r"\$\.star: 'name' is a required property"):
                read(json.dumps(BAD).encode())


def order(reference: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"star": {"$ref": reference}}, **more}


WITHIN: dict[str, dict[str, Any]] = {
    "definitions": order("#/definitions/star", definitions={"star": STAR}),
    "$defs": order("#/$defs/a~1b%25", **{"$defs": {"a/b%": STAR}}),
    "an anchor": order("#star", **{"$defs": {"star": {**STAR, "$anchor": "star"}}}),
    "an identified part": order("star.json", **{
        "$id": f"{AT}/o.json", "$defs": {"star": {**STAR, "$id": "star.json"}},
    }),
    "a relative identifier": order("#/$defs/star", **{"$id": "order.json", "$defs": {"star": STAR}}),
    "draft 4": order("#star", id=f"{AT}/o.json", **{
        "$schema": "http://json-schema.org/draft-04/schema#", "definitions": {"star": {**STAR, "id": "#star"}},
    }),
    "draft 7": order("#/definitions/star", **{
        "$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"star": STAR},
    }),
    "an unknown dialect": order("#/$defs/star", **{"$schema": f"{AT}/dialect", "$defs": {"star": STAR}}),
    "itself": {"type": "object", "properties": {"star": {**STAR, "properties": {"twin": {"$ref": "#"}}}}},
}  # fmt: skip


@pytest.mark.parametrize("name", WITHIN)
def test_within_the_document(name: str) -> None:
    check({"json.schema": WITHIN[name]})


LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a relative path": ("order.json", {"order.json": order("star.json"), "star.json": STAR}),
    "another folder": (
        "a/order.json",
        {
            "a/order.json": order("../core/star.json#/$defs/star"),
            "core/star.json": {"$defs": {"star": {"allOf": [{"$ref": "./base.json"}]}}},
            "core/base.json": STAR,
        },
    ),
    "identified as the files lie": (
        "a/order.json",
        {
            "a/order.json": order("../core/star.json", **{"$id": f"{AT}/a/order.json"}),
            "core/star.json": {"$id": f"{AT}/core/star.json", "allOf": [{"$ref": "base.json"}]},
            "core/base.json": {"$id": f"{AT}/core/base.json", **STAR},
        },
    ),
    "by address, as the files lie": (
        "order.json",
        {"order.json": order(f"{AT}/star.json", **{"$id": f"{AT}/order.json"}), "star.json": STAR},
    ),
    "names with blanks": ("order.json", {"order.json": order("my%20star.json"), "my star.json": STAR}),
    "each other": (
        "order.json",
        {"order.json": order("star.json"), "star.json": {**STAR, "properties": {"in": {"$ref": "order.json"}}}},
    ),
}


def written(folder: Path, name: str, mark: bytes = b"") -> str:
    start, files = LAYOUTS[name]
    for path, document in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(mark + json.dumps(document).encode())
    return str(folder / start)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_beside_the_file(tmp_path: Path, name: str, mark: bytes) -> None:
    path = written(tmp_path, name, mark)
    check({"json.schema.file": path})
    # For Spark's workers, which do not have the files.
    config = load({"value.serializer": "json", "value.deserializer": "json", "json.schema.file": path})
    for file in tmp_path.rglob("*.json"):
        file.unlink()
    check({"json.schema.file": config["json.schema.file"]})


def test_the_files_are_read_once(tmp_path: Path) -> None:
    write, read = pair({"json.schema.file": written(tmp_path, "another folder")})
    for file in tmp_path.rglob("*.json"):
        file.unlink()
    with write, read:
        assert read(write(GOOD)) == GOOD


UNRESOLVED: dict[str, Any] = {
    "a definition that is not there": order("#/definitions/nova", definitions={"star": STAR}),
    "an anchor that is not there": order("#nova"),
    "a part of a text": order("#/title/x", title="Order"),
    "a file": order("file:///etc/hostname"),
    "a relative path": order("star.json"),
    "another server": order("https://survey.example.org/star.json"),
    "another scheme": order("ftp://survey.example.org/star.json"),
    "an urn": order("urn:example:star"),
    "nonsense": order("http://[::1"),
    "in a branch that no value takes": {"anyOf": [{}, {"$ref": "#/$defs/x"}]},
    "in a definition that is referred to": order("#/$defs/a", **{"$defs": {"a": {"$ref": "#/$defs/b"}}}),
    "itself, for the same value": {"$ref": "#"},
    "itself, in a circle": order("#/$defs/a", **{
        "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{}, {"$ref": "#/$defs/a"}]}},
    }),
}  # fmt: skip


@pytest.mark.parametrize("name", UNRESOLVED)
def test_what_leads_nowhere_is_said_when_the_chain_is_made(name: str) -> None:
    for side in ("serializer", "deserializer"):
        kind: Any = SerializerChain if side == "serializer" else DeserializerChain
        with pytest.raises(ConfigError, match=r"json\.schema: .*(leads nowhere|leads back)") as caught:
            kind.from_config({f"value.{side}": "json", "json.schema": UNRESOLVED[name]})
        assert caught.value.key == "json.schema"
        kind.from_config({f"value.{side}": "json", "json.schema": UNRESOLVED[name], "json.validate": False}).close()


@pytest.mark.parametrize("other", ["file", "json.schema.file"])
def test_only_relative_references_open_files(tmp_path: Path, other: str) -> None:
    """As documented: also from a file, whatever it or a file beside it says."""
    (tmp_path / "star.json").write_text(json.dumps(STAR))
    beside = {"$ref": (tmp_path / "star.json").as_uri()}
    (tmp_path / "order.json").write_text(json.dumps(beside if other == "file" else {"$ref": "between.json"}))
    (tmp_path / "between.json").write_text(json.dumps(beside))
    with pytest.raises(ConfigError, match=r"leads nowhere: files are opened by relative references only"):
        pair({"json.schema.file": str(tmp_path / "order.json")})


def test_a_missing_part_differs_from_an_unknown_document() -> None:
    for reference in ("#/definitions/nova", "#nova"):
        with pytest.raises(ConfigError, match=r"leads nowhere: the document has no such part \[") as caught:
            pair({"json.schema": order(reference)})
        assert caught.value.hint is None


def test_the_file_and_the_place_that_are_wrong_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"is not a JSON Schema: \$\.properties\.a\.type: 'objct' is not .* \[key"
    ) as caught:
        pair({"json.schema": {"properties": {"a": {"type": "objct"}}}})
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"For the path of a file, set json\.schema\.file"):
        pair({"json.schema": str(tmp_path / "order.json")})


@pytest.mark.parametrize("name", UNRESOLVED)
def test_a_registered_schema_that_leads_nowhere_is_no_records_fault(contexts: ContextRegistry, name: str) -> None:
    contexts.register("orders-value", json.dumps(UNRESOLVED[name]), "JSON")
    config = {"json.framing": "confluent", "schema.registry.url": contexts.url}
    ctx = RecordContext("orders", "value", [])
    with DeserializerChain.from_config({"value.deserializer": "json", "json.validate": True, **config}) as read:
        for _ in range(2):
            with pytest.raises(SchemaRegistryError, match=r"schema 1 of the registry: .*lead") as caught:
                read(b'\0\0\0\0\1{"star":{"name":"Vega"}}', ctx)
            assert not caught.value.about_record
            assert not caught.value.transient
    with (
        SerializerChain.from_config({"value.serializer": "json", "use.latest.version": True, **config}) as write,
        pytest.raises(SchemaRegistryError, match=r"schema 1 of the registry: .*lead"),
    ):
        write(GOOD, ctx)


@pytest.mark.full
def test_many_documents_have_a_limit(tmp_path: Path) -> None:
    for at in range(1100):
        (tmp_path / f"{at}.json").write_text(json.dumps({"properties": {"a": {"$ref": f"{at + 1}.json"}}}))
    with pytest.raises(ConfigError, match="refers to more than 1000 documents"):
        pair({"json.schema.file": str(tmp_path / "0.json")})


@pytest.mark.full
def test_a_chain_of_references_needs_no_recursion(tmp_path: Path) -> None:
    for at in range(900):
        (tmp_path / f"{at}.json").write_text(json.dumps({"properties": {"a": {"$ref": f"{at + 1}.json"}}}))
    (tmp_path / "900.json").write_text("{}")
    write, read = pair({"json.schema.file": str(tmp_path / "0.json")})
    with write, read:
        assert read(write({"a": {"a": 1}})) == {"a": {"a": 1}}


# Addresses


def test_a_named_address_is_asked_once(server: Server) -> None:
    server.documents = {"/core/star.json": {"$ref": "base.json"}, "/core/base.json": STAR}
    config = {"json.schema": order(f"{server.url}/core/star.json"), "json.schema.addresses": f"{server.url}/core"}
    check(config)
    assert server.asked == ["/core/star.json", "/core/base.json"] * 2  # by the writer, and by the reader


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ("/core/star.json", "/other"),
        ("/core.json", "/core"),
        ("/core/../star.json", "/core"),
        ("/core/%2e%2e/star.json", "/other"),
        ("/core/moved.json", "/core"),
    ],
)
def test_other_addresses_are_not_asked(server: Server, reference: str, named: str) -> None:
    with serve(server.answer) as elsewhere:
        server.documents = dict.fromkeys(("/core/star.json", "/core.json", "/star.json"), STAR)
        server.documents["/core/moved.json"] = f"{elsewhere}/core/star.json"
        with pytest.raises(ConfigError, match=r"leads nowhere.*json\.schema\.addresses"):
            pair({"json.schema": order(server.url + reference), "json.schema.addresses": server.url + named})
    assert server.asked == (["/core/moved.json"] if "moved" in reference else [])


@pytest.mark.parametrize("answer", [None, "not JSON", "much"])
def test_what_a_named_address_may_answer(answer: Any) -> None:
    body = {"not JSON": b"<html>", "much": b'"' + b"x" * (5 << 20) + b'"'}.get(answer)
    with (
        serve(lambda request: reply(request, 404 if body is None else 200, body or b"")) as url,
        pytest.raises(ConfigError, match=r"cannot be fetched|is not JSON|has more than"),
    ):
        pair({"json.schema": order(f"{url}/star.json"), "json.schema.addresses": [url]})


def test_a_server_that_is_down_is_an_outage_for_a_registered_schema(contexts: ContextRegistry) -> None:
    contexts.register("orders-value", json.dumps(order("http://127.0.0.1:1/star.json")), "JSON")
    config = {
        "value.deserializer": "json",
        "json.validate": True,
        "json.framing": "confluent",
        "schema.registry.url": contexts.url,
        "json.schema.addresses": "http://127.0.0.1:1",
    }
    with DeserializerChain.from_config(config) as read:
        with pytest.raises(SchemaRegistryError, match="cannot be fetched") as caught:
            read(b"\0\0\0\0\1{}", RecordContext("orders", "value", []))
        assert caught.value.transient
        assert not caught.value.about_record


@pytest.mark.parametrize("value", ["gcn.nasa.gov", "file:///etc", 7])
def test_addresses_are_of_servers(value: object) -> None:
    with pytest.raises(ConfigError, match=r"json\.schema\.addresses"):
        pair({"json.schema": {}, "json.schema.addresses": value})


# The registry


@pytest.mark.parametrize(
    ("name", "reference", "more"),
    [
        ("star.json", "star.json", {}),
        ("star.json", "star.json", {"$id": f"{AT}/order.json"}),
        (f"{AT}/star.json", "star.json", {"$id": f"{AT}/order.json"}),
        (f"{AT}/star.json", f"{AT}/star.json#/$defs/star", {}),
        ("any name", f"{AT}/star.json", {}),
    ],
)
def test_registered_references(contexts: ContextRegistry, name: str, reference: str, more: dict[str, Any]) -> None:
    star = {"$id": f"{AT}/star.json", "$ref": "#/$defs/star", "$defs": {"star": STAR}}
    contexts.register("stars", json.dumps(star), "JSON")
    named = [{"name": name, "subject": "stars", "version": 1}]
    contexts.register("orders-value", json.dumps(order(reference, **more)), "JSON", references=named)
    config = {
        "value.serializer": "json",
        "value.deserializer": "json",
        "json.validate": True,
        "json.framing": "confluent",
        "schema.registry.url": contexts.url,
        "use.latest.version": True,
    }
    ctx = RecordContext("orders", "value", [])
    with SerializerChain.from_config(config) as write, DeserializerChain.from_config(config) as read:
        for _ in range(2):
            assert read(write(GOOD, ctx), ctx) == GOOD
            with pytest.raises(EncodeError, match="required property"):
                write(BAD, ctx)
        asked = len(contexts.asked)
        assert read(write(GOOD, ctx), ctx) == GOOD
        assert len(contexts.asked) == asked


def test_a_schema_of_several_files_is_not_registered_without_them(contexts: ContextRegistry, tmp_path: Path) -> None:
    config = {
        "value.serializer": "json",
        "json.framing": "confluent",
        "schema.registry.url": contexts.url,
        "json.schema.file": written(tmp_path, "a relative path"),
    }
    with pytest.raises(ConfigError, match=r"refers to other documents.*schema\.references"):
        SerializerChain.from_config(config)
    contexts.register("stars", json.dumps(STAR), "JSON")
    named = [{"name": "star.json", "subject": "stars", "version": 1}]
    with SerializerChain.from_config({**config, "schema.references": named}) as write:
        assert write(GOOD, RecordContext("orders", "value", [])).endswith(b"}}")
        with pytest.raises(EncodeError):
            write(BAD, RecordContext("orders", "value", []))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"json.schema": "{}", "json.schema.file": "x.json"}, "exclude each other"),
        (
            {"json.schema.file": "/nowhere/x.json"},
            r"json\.schema\.file = '/nowhere/x\.json' cannot be read: No such.*looked",
        ),
        ({"json.schema.file": __file__}, r"json\.schema\.file is not a JSON Schema"),
        ({"json.schema": "[" * 100_000}, r"json\.schema is not a JSON Schema"),
        ({"json.schema": {"type": 7}}, r"json\.schema is not a JSON Schema"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pair(settings)


def test_threads_validate_at_once() -> None:
    write, read = pair({"json.schema": WITHIN["definitions"]})
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                assert read(write(GOOD)) == GOOD
        except BaseException as error:  # noqa: BLE001  shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    write.close()
    read.close()
    assert failures == []


# Documents that are no schemas, and what a reference leads to.
NOT_SCHEMAS: dict[str, Any] = {
    "properties": {"properties": []},
    "items of older versions": {"items": [{"type": "integer"}]},
    "dialect": {"$schema": 5, "type": "integer"},
    "address": {"$id": "http://[::1", "type": "integer"},
    "definition": {"$ref": "#/$defs/a", "$defs": {"a": 5}},
    "outside of keywords": {"$ref": "#/parts/a", "parts": {"a": {"properties": 5}}},
    "a number outside of keywords": {"$ref": "#/parts/a", "parts": {"a": 5}},
}


@pytest.mark.parametrize("name", NOT_SCHEMAS)
def test_what_is_no_schema_is_refused_before_its_references_are_followed(
    contexts: ContextRegistry, tmp_path: Path, name: str
) -> None:
    document = NOT_SCHEMAS[name]
    for side in (SerializerChain, DeserializerChain):
        with pytest.raises(ConfigError, match="not a JSON Schema"):
            side.from_config({"value.serializer": "json", "value.deserializer": "json", "json.schema": document})
    (tmp_path / "other.json").write_text(json.dumps(document))
    (tmp_path / "main.json").write_text(json.dumps({"$ref": "other.json"}))
    with pytest.raises(ConfigError, match=r"not a JSON Schema|leads nowhere"):
        SerializerChain.from_config({"value.serializer": "json", "json.schema.file": str(tmp_path / "main.json")})
    number = contexts.register("orders-value", json.dumps(document), "JSON")
    record = b"\0" + number.to_bytes(4, "big") + b"1"
    config = {"schema.registry.url": contexts.url, "value.deserializer": "json", "json.framing": "confluent"}
    with pytest.raises(SchemaRegistryError, match="not a JSON Schema"):
        DeserializerChain.from_config({**config, "json.validate": True})(record, RecordContext("orders", "value", []))


@pytest.mark.parametrize("pattern", ["\\p{L}+", "(?<name>x)", "["])
def test_patterns_of_other_languages_are_no_records_fault(contexts: ContextRegistry, pattern: str) -> None:
    """JSON Schema's patterns are JavaScript's; readers in Java and JavaScript take them."""
    document = {"properties": {"name": {"pattern": pattern}}}
    number = contexts.register("orders-value", json.dumps(document), "JSON")
    config = {"schema.registry.url": contexts.url, "value.deserializer": "json", "json.framing": "confluent"}
    record, ctx = b"\0" + number.to_bytes(4, "big") + b'{"name":"x"}', RecordContext("orders", "value", [])
    assert DeserializerChain.from_config(config)(record, ctx) == {"name": "x"}
    with pytest.raises(SchemaRegistryError, match="no regular expression of Python") as caught:
        DeserializerChain.from_config({**config, "json.validate": True})(record, ctx)
    assert not caught.value.about_record
    assert "json.validate = false" in str(caught.value)
    with pytest.raises(ConfigError, match="no regular expression of Python's"):
        SerializerChain.from_config({"value.serializer": "json", "json.schema": document})
