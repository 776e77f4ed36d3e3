"""Hostile schemas in a registry: documented errors, in bounded time."""

import json
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from serde_chain import ConfigError, DeserializerChain, RecordContext, SerializationError
from tests.http_servers import reply, serve


class Registry:
    """A registry with one schema for all ids.

    Attributes:
        url: Its address.
        asked: How often it was asked for a schema.
    """

    def __init__(self) -> None:
        self.url = ""
        self.asked = 0
        self._schema: dict[str, Any] = {}

    def keep(self, kind: str, text: str) -> None:
        self._schema = {"schema": text, "schemaType": kind}

    def answer(self, request: Any) -> None:
        self.asked += 1
        reply(request, 200, json.dumps(self._schema).encode())


def serving() -> Iterator[Registry]:
    registry = Registry()
    with serve(registry.answer) as registry.url:
        yield registry


first, second = (pytest.fixture(serving, name=name) for name in ("first", "second"))


def read(registry: Registry, stage: str, data: bytes, **settings: object) -> Any:
    config = {"value.deserializers": stage, "schema.registry.url": registry.url, **settings}
    with DeserializerChain.from_config(config) as chain:
        return chain(b"\0\0\0\0\1" + data, RecordContext("alerts", "value", []))


def test_an_address_that_is_refused_is_shown_without_its_login() -> None:
    with pytest.raises(ConfigError, match=r"schema\.registry\.url: expected an address") as caught:
        DeserializerChain.from_config(
            {"value.deserializers": "avro", "schema.registry.url": "htps://alice:hunter2@registry"}
        )
    shown = "".join(traceback.format_exception(caught.value))
    assert "alice" not in shown
    assert "hunter2" not in shown


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


ARRAYS = '{"type":"array","items":'
AVRO = {
    "thousand levels": ARRAYS * 1000 + '"int"' + "}" * 1000,
    "hundred thousand levels": ARRAYS * 100_000 + '"int"' + "}" * 100_000,
    "a name for two types": record({"name": "a", "type": {"type": "record", "name": "R", "fields": []}}),
    "an unknown name": '"nope.R"',
    "a file": '{"$ref": "file:///etc/passwd"}',
    "a union of many": json.dumps([{"type": "record", "name": f"R{at}", "fields": []} for at in range(40_000)]),
    "no size": '{"type": "fixed", "name": "F", "size": NaN}',
    "a size of many digits": '{"type": "fixed", "name": "F", "size": %s}' % ("9" * 100_000),
    "half of a document": "{",
    "nothing": "",
}
PROTO = 'syntax = "proto3"; '
PROTOBUF = {
    "thousand levels": PROTO + "message M { " * 1000 + "}" * 1000,
    "more than a megabyte": PROTO + "message M {" + ";" * (1 << 20) + "}",
    "a file": PROTO + 'import "/etc/passwd"; message M { root.Login login = 1; }',
    "an address": PROTO + 'import "http://127.0.0.1/m.proto"; message M { m.M m = 1; }',
    "itself": PROTO + 'import "record"; message M {}',
    "a name for two messages": PROTO + "message M {} message M {}",
    "a comment without an end": PROTO + "/*" + "*" * 1_000_000,
    "quotes": PROTO + "option a = " + "'" * 1_000_000,
    "a number for many fields": PROTO + "message M {" + "int32 f = 1; " * 20_000 + "}",
    "nothing but a zero": "\0",
}


@pytest.mark.parametrize("name", AVRO)
def test_avro(first: Registry, name: str) -> None:
    first.keep("AVRO", AVRO[name])
    with pytest.raises(
        SerializationError, match=r"schema 1 of the registry is not a(n| readable) Avro schema"
    ) as raised:
        read(first, "avro", b"\0")
    assert raised.value.about_record
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("name", PROTOBUF)
def test_protobuf(first: Registry, name: str) -> None:
    first.keep("PROTOBUF", PROTOBUF[name])
    with pytest.raises(SerializationError, match="schema 1 of the registry") as raised:
        read(first, "protobuf", b"\0")
    assert raised.value.about_record
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("address", ["/etc/passwd", "file:///etc/passwd", "http://127.0.0.1/m.proto"])
def test_imports_that_no_message_uses_are_not_followed(first: Registry, address: str) -> None:
    first.keep("PROTOBUF", PROTO + f'import "{address}"; message M {{}}')
    assert read(first, "protobuf", b"\0").DESCRIPTOR.full_name == "M"
    assert first.asked == 1


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"$ref": "file:///etc/passwd"}', '{"$ref": "#"}', '{"type": "string", "pattern": "^(a+)+$"}'],
    ids=["levels", "file", "cycle", "pattern"],
)
def test_json_is_not_read_by_the_schema_of_a_registry(first: Registry, text: str) -> None:
    """So its references are not followed, and its patterns not tried."""
    first.keep("JSON", text)
    value = "a" * 40 + "b"
    assert read(first, "json", json.dumps(value).encode(), **{"json.framing": "confluent"}) == value
    assert first.asked == 0


def test_registries_with_the_same_ids(first: Registry, second: Registry) -> None:
    """Of two clusters, for instance: each chain reads by its own."""
    first.keep("AVRO", record({"name": "id", "type": "int"}))
    second.keep("AVRO", record({"name": "name", "type": "string"}))
    for _ in range(2):
        assert read(first, "avro", b"\x02") == {"id": 1}
        assert read(second, "avro", b"\x02a") == {"name": "a"}
    first.keep("PROTOBUF", PROTO + "message M { int32 id = 1; }")
    second.keep("PROTOBUF", PROTO + "message M { string name = 1; }")
    for _ in range(2):
        assert read(first, "protobuf", b"\0\x08\x01").id == 1
        assert read(second, "protobuf", b"\0\x0a\x01a").name == "a"


def test_registries_of_key_and_value(first: Registry, second: Registry) -> None:
    first.keep("AVRO", record({"name": "id", "type": "int"}))
    second.keep("AVRO", record({"name": "name", "type": "string"}))
    config = {
        "key.deserializer": "avro",
        "value.deserializer": "avro",
        "key.schema.registry.url": first.url,
        "value.schema.registry.url": second.url,
    }
    with (
        DeserializerChain.from_config(config, is_key=True) as key,
        DeserializerChain.from_config(config) as value,
    ):
        for _ in range(2):
            assert key(b"\0\0\0\0\1\x02", RecordContext("alerts", "key", [])) == {"id": 1}
            assert value(b"\0\0\0\0\1\x02a", RecordContext("alerts", "value", [])) == {"name": "a"}
    assert (first.asked, second.asked) == (1, 1)
