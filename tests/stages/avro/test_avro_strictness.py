"""Bytes that belong to no schema, and schemas that do not resolve: refused with and without the compiled part."""

from typing import Any

import pytest

from serde_chain import DecodeError, DeserializerChain
from serde_chain.arrow import Batch
from tests.stages.avro.test_schemas_of_others import decimal, sized

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}


def record(name: str, *kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def refused(data: bytes, **config: Any) -> None:
    """Whether a record is refused in every way of reading."""
    for native in ("auto", "off"):
        chain = DeserializerChain.from_config({"value.deserializers": "avro", "avro.native": native, **config})
        with pytest.raises(DecodeError):
            chain(data)
        for count in (1, 2000):
            assert len(chain.read_batch(Batch([data] * count, topic="t")).errors) == count


# A schema, and bytes with an index that it does not have.
INDEXES: tuple[tuple[Any, bytes], ...] = (
    (ENUM, b"\1"), (ENUM, b"\5"), (ENUM, b"\6"), (["null", "long"], b"\3"), (["null", "long"], b"\1\2"),
    (["null", "long"], b"\4"), (["null", ENUM], b"\2\1"), ({"type": "array", "items": ["null", ENUM]}, b"\2\3\0"),
    ({"type": "map", "values": ENUM}, b"\2\2k\1\0"), (record("R", ENUM, ["null", "long", "string"]), b"\0\5"),
    (record("R", ENUM, ["null", "E"]), b"\0\2\3"), (["null", {"type": "array", "items": ["null", "int"]}], b"\2\2\3\0"),
    (record("R", ["null", record("Q", ["string", "null"])]), b"\2\1"), (record("R", ["null", "int"]), b"\xff\x7f"),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("schema", "data"), INDEXES)
def test_negative_and_other_foreign_indexes(schema: Any, data: bytes) -> None:
    refused(data, **{"avro.schema": schema})
    # The same, resolved into another schema.
    wider = record("Outer", schema)
    more = {**wider, "fields": [*wider["fields"], {"name": "new", "type": "int", "default": 1}]}
    refused(data, **{"avro.schema": wider, "avro.reader.schema": more})


P, Q = record("P", "int"), record("Q", "int")
# A writer's type, a reader's that does not match, and a value of the writer's.
UNLIKE: tuple[tuple[Any, Any, bytes], ...] = (
    (fixed(8), fixed(4), b"12345678"), (fixed(4), fixed(8), b"1234"), (fixed(4), fixed(4, "G"), b"1234"),
    (fixed(4, logicalType="decimal", precision=4), fixed(3, logicalType="decimal", precision=4), b"\0\0\0\1"),
    (ENUM, {**ENUM, "name": "G"}, b"\0"), (ENUM, {**ENUM, "symbols": ["B", "C"]}, b"\0"), (Q, P, b"\2"),
    (record("R", Q), record("R", P), b"\2"),
)  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("writer", "reader", "data"), UNLIKE)
def test_types_that_do_not_resolve(writer: Any, reader: Any, data: bytes) -> None:
    for wrap, frame in (
        (lambda kind: kind, data),
        (lambda kind: record("Outer", kind), data),
        (lambda kind: {"type": "array", "items": kind}, b"\2" + data + b"\0"),
        (lambda kind: {"type": "map", "values": kind}, b"\2\2k" + data + b"\0"),
        (lambda kind: ["null", kind], b"\2" + data),
    ):
        refused(frame, **{"avro.schema": wrap(writer), "avro.reader.schema": wrap(reader)})


def test_what_is_skipped_may_be_a_wide_decimal() -> None:
    source = record("R", "int", decimal(precision=60))
    chain = DeserializerChain.from_config(
        {"value.deserializers": "avro", "avro.schema": source, "avro.reader.schema": record("R", "int")}
    )
    assert chain.to_arrow([b"\2" + sized(b"\1")] * 2000, topic="t").to_pylist() == [{"f0": 1}] * 2000
