"""The fields that a JSON Schema describes, and paths of ``large-fields`` checked against it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload_stores.memory import MemoryStore
from serde_chain import ConfigError, RecordContext, SerializerChain
from serde_chain.stages.json.fields import field_type
from serde_chain.stages.large_fields.paths import Pattern

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "body": {"type": ["string", "null"]},
        "kind": {"enum": ["a", "b"]},
        "document": {"$ref": "#/$defs/document"},
        "pages": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/document"}, {"type": "null"}]}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "other": {"$ref": "https://example.org/other.json"},
        "any": {},
    },
    "$defs": {
        "document": {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/document"}},
                "a/b~c": {"type": "string"},
            },
        }
    },
}


@pytest.fixture
def config() -> dict[str, Any]:
    MemoryStore.clear()
    return {
        "value.serializers": "large-fields, json",
        "json.schema": json.dumps(SCHEMA),
        "json.validate": False,  # a reference leads to another server, which no value needs
        "large.message.payload.store.class": "memory",
        "large.fields.min.bytes": 100,
    }


@pytest.mark.parametrize(
    "path",
    [
        "body",
        "b*",
        "document.text",
        "pages[].text",
        "pages[].parts[].parts[].text",
        "labels.any",  # names that the schema leaves open
        "labels.*",
        "other.a[].b",
        "any.thing",
    ],
)
def test_paths_in_the_schema(path: str) -> None:
    assert Pattern(path).problem(field_type(SCHEMA)) is None


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("bodi", r"bodi is not in the schema.*Did you mean body\?"),
        ("document.tekst", r"Did you mean document\.text\?"),
        ("pages.text", r"Did you mean pages\[\]\.text\?"),
        ("id", "id is neither bytes nor string"),
        ("kind", "kind is neither bytes nor string"),  # a reference is none of the values
        ("document", r"document is a record, .*Did you mean document\.text\?"),
        ("x*", r"x\* is not in the schema"),
    ],
)
def test_misspelt_paths(config: dict[str, Any], path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config({**config, "large.fields.paths": path})


def test_fields_of_open_records_are_moved(config: dict[str, Any]) -> None:
    value = {"labels": {"one": "x" * 200, "two": "y"}, "body": "z" * 200, "document": {"text": "t", "a/b~c": ""}}
    with SerializerChain.from_config({**config, "large.fields.paths": "labels.*, b*"}) as chain:
        ctx = RecordContext("documents", "value", [])
        document = json.loads(chain(value, ctx))
    assert document["labels"]["one"].startswith("memory:///documents/")
    assert document["labels"]["two"] == "y"
    assert document["body"].startswith("memory:///documents/")


def test_a_schema_that_is_no_json_is_named() -> None:
    with pytest.raises(ConfigError, match=r"json\.schema is not a JSON Schema"):
        SerializerChain.from_config({"value.serializers": "json", "json.schema": "{", "json.validate": "false"})


_WORDS = st.sampled_from(["type", "properties", "items", "anyOf", "allOf", "$ref", "enum", "additionalProperties", "a"])
_SCHEMAS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 2)
    | st.sampled_from(["string", "object", "#", "#/properties/a", "#/a/0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(_SCHEMAS)
def test_any_schema_has_a_type(schema: Any) -> None:
    problem = Pattern("a.a[].b").problem(field_type(schema))
    assert problem is None or "neither bytes nor string" in problem[0] or "not in the schema" in problem[0]
