"""Defaults of missing fields, in all ways of writing: JSON's text for bytes, fixed and decimals means bytes."""

import io
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from serde_chain import EncodeError, SerializerChain
from tests.stages.avro.test_schemas_of_others import decimal, sized

FIXED = {"type": "fixed", "name": "F", "size": 2}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "data", "type": "bytes", "default": "\u00ff"}, {"name": "n", "type": "int", "default": 1}],
}
# The type of a field, its default, and the bytes of that.
DEFAULTS: tuple[tuple[Any, Any, bytes], ...] = (
    (decimal(precision=9, scale=2), "\u0000\u00a0", sized(b"\0\xa0")),
    ("bytes", "\u0000\u00ff", sized(b"\0\xff")),
    ("bytes", "", sized(b"")),
    (FIXED, "\u0001\u00fe", b"\x01\xfe"),
    ({**FIXED, "logicalType": "decimal", "precision": 4}, "\u00ff\u00fe", b"\xff\xfe"),
    (["bytes", "null"], "\u00ff", b"\0" + sized(b"\xff")),
    (["null", "bytes"], None, b"\0"),
    (["null", decimal(precision=4)], "\u0007", b"\2" + sized(b"\7")),
    ([decimal(precision=4), "null"], "\u0007", b"\0" + sized(b"\7")),
    ({"type": "array", "items": "bytes"}, ["\u00ff", "a"], b"\4" + sized(b"\xff") + sized(b"a") + b"\0"),
    ({"type": "array", "items": ["null", FIXED]}, [None, "\u00ff\u00ff"], b"\4\0\2\xff\xff\0"),
    ({"type": "map", "values": decimal(precision=4)}, {"k": "\u0007"}, b"\2" + sized(b"k") + sized(b"\7") + b"\0"),
    (INNER, {"data": "\u00fe"}, sized(b"\xfe") + b"\2"),
    (INNER, {}, sized(b"\xff") + b"\2"),
    (["null", INNER], {"n": 2}, b"\2" + sized(b"\xff") + b"\4"),
    ("double", "0.5", b"\0\0\0\0\0\0\xe0\x3f"),
    ({"type": "int", "logicalType": "date"}, 1, b"\2"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}, "B", b"\2"),
)
KEYS: Any = [[("none", 0)]]


def schema(kind: Any, default: Any) -> dict[str, Any]:
    fields = [{"name": "id", "type": "int"}, {"name": "new", "type": kind, "default": default}]
    return {"type": "record", "name": "R", "fields": fields}


def writer(source: Any, **config: Any) -> SerializerChain:
    return SerializerChain.from_config({"value.serializers": "avro", "avro.schema": source, **config})


@pytest.mark.parametrize("native", ["auto", "off"])
@pytest.mark.parametrize(("kind", "default", "data"), DEFAULTS)
def test_missing_fields_have_their_defaults(kind: Any, default: Any, data: bytes, native: str) -> None:
    source = schema(kind, default)
    config = {"avro.native": native}
    for more in ({}, {"avro.validate": True}, {"avro.validate": "strict-allow-default"}):
        assert writer(source, **config, **more)({"id": 1}) == b"\2" + data
    nested = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "all", "type": {"type": "array", "items": source}}],
    }
    assert writer(nested, **config)({"all": [{"id": 1}]}) == b"\2\2" + data + b"\0"
    in_a_union = {"type": "record", "name": "Outer", "fields": [{"name": "one", "type": ["null", source]}]}
    assert writer(in_a_union, **config)({"one": {"id": 1}}) == b"\2\2" + data
    table = pa.table({"id": pa.array([1, 1], "int32")})
    assert writer(source, **config).from_arrow(table, topic="t").values.to_pylist() == [b"\2" + data] * 2
    columns = pa.table({"all": pa.array([[{"id": 1}]], pa.list_(pa.struct([("id", pa.int32())])))})
    assert writer(nested, **config).from_arrow(columns, topic="t").values.to_pylist() == [b"\2\2" + data + b"\0"]


def test_files_and_keys_have_defaults_too() -> None:
    source = schema(decimal(precision=9, scale=2), "\u0000\u00a0")
    data = writer(source, **{"avro.framing": "container"})({"id": 1})
    found: Any = next(fastavro.reader(io.BytesIO(data)))
    assert found["new"] == Decimal("1.60")
    config = {"key.serializers": "avro", "avro.schema": source}
    assert SerializerChain.from_config(config, is_key=True)({"id": 1}) == b"\2" + sized(b"\0\xa0")


def test_strict_validation() -> None:
    """fastavro's ``strict`` and ``strict_allow_default``, Confluent's ``validate.strict``."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": ["null", "int"], "default": None}]}
    source = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "in", "type": inner}]}
    whole, more, less = {"id": 1, "in": {"x": 2}}, {"id": 1, "in": {"x": 2, "y": 3}}, {"id": 1, "in": {}}
    for native in ("auto", "off"):
        for value, how in ((whole, "strict"), (whole, "strict-allow-default"), (less, "strict-allow-default"),
                           (more, "true"), (less, True), (more, "false")):  # fmt: skip
            assert writer(source, **{"avro.validate": how, "avro.native": native})(value)
        for value, how, name in ((more, "strict", "y"), (more, "strict-allow-default", "y"), (less, "strict", "x")):
            with pytest.raises(EncodeError, match=rf"\b{name}\b"):
                writer(source, **{"avro.validate": how, "avro.native": native})(value)
            table = pa.Table.from_pylist([value])
            with pytest.raises(EncodeError, match=rf"\b{name}\b"):
                writer(source, **{"avro.validate": how, "avro.native": native}).from_arrow(table, topic="t")
