"""Records that cost a validator of JSON Schema more than they are worth."""

import json
from decimal import Decimal
from typing import Any

import pytest

from serde_chain import DecodeError, DeserializerChain, EncodeError, SerializerChain

UNIQUE = {"type": "array", "uniqueItems": True}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {"node": {"anyOf": [{"properties": {"next": {"$ref": "#/$defs/node"}}, "type": "object"}]}},
}


def reader(schema: dict[str, Any]) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "json", "json.schema": json.dumps(schema)})


class Counted(dict[str, int]):
    """An object that counts its comparisons."""

    count = 0

    def __contains__(self, name: object) -> bool:
        Counted.count += 1
        return dict.__contains__(self, name)


def test_unique_items_are_not_compared_in_pairs() -> None:
    chain = SerializerChain.from_config({"value.serializers": "json", "json.schema": json.dumps(UNIQUE)})
    Counted.count = 0
    chain([Counted(id=at) for at in range(500)])
    assert Counted.count < 5_000


@pytest.mark.parametrize("text", ["[1, 1.0]", '[{"a": 1, "b": 2}, {"b": 2.0, "a": 1}]', "[[1], [1]]", "[null, null]"])
def test_equal_items_are_refused(text: str) -> None:
    with pytest.raises(DecodeError, match=r"\$ is list of length 2, against uniqueItems: true"):
        reader(UNIQUE)(text.encode())


@pytest.mark.parametrize("text", ["[1, true]", '[0, false, "0"]', "[[1, 2], [2, 1]]", '[{"a": 1}, {"a": true}]', "[]"])
def test_different_items_are_accepted(text: str) -> None:
    assert reader(UNIQUE)(text.encode()) == json.loads(text)


def test_only_some_violations_are_looked_at() -> None:
    with pytest.raises(DecodeError, match=r"\$\[\d{1,2}\] is str of length 1, against type"):
        reader({"items": {"type": "integer"}})(b"[" + b'"x",' * 1000 + b"1]")


def test_depth_is_an_error_of_the_record() -> None:
    with pytest.raises(DecodeError, match=r"does not match json\.schema: it is nested too deep"):
        reader(TREE)(b'{"next":' * 900 + b"1" + b"}" * 900)


@pytest.mark.parametrize("text", ["19.99", "0.07", "-3.3", "100.1", "1e300", "10" * 300, "7", "0"])
def test_multiples_of_decimal_fractions(text: str) -> None:
    """19.99 / 0.01 is 1998.9999999999998 in binary fractions, and 1e308 / 0.01 infinite."""
    reader({"multipleOf": 0.01})(text.encode())


def test_numbers_that_json_does_not_have_are_not_computed_with() -> None:
    """As a fraction, this one would have a thousand million digits."""
    config = {"value.serializer": "json", "json.schema": {"multipleOf": 0.01}, "json.validate": True}
    with SerializerChain.from_config(config) as write, pytest.raises(EncodeError):
        write(Decimal("1E+1000000000"))


@pytest.mark.parametrize("text", ["19.999", "0.001", "1e-300"])
def test_what_is_no_multiple(text: str) -> None:
    with pytest.raises(DecodeError, match=r"against multipleOf: 0\.01"):
        reader({"multipleOf": 0.01})(text.encode())
