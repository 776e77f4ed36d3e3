"""Dates, times and UUIDs that records cannot hold: refused by one rule in rows and columns, and read as numbers."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any
from uuid import UUID

import pytest

from serde_chain import ConfigError, DecodeError, DeserializerChain
from serde_chain.arrow import Batch
from serde_chain.wire import varint
from tests.stages.avro.test_schemas_of_others import in_a_file, sized

DAY_MS = 86_400_000
YEAR_10000_MS = 253_402_300_800_000
YEAR_1_MS = -62_135_596_800_000
FIRST = datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC).replace(tzinfo=None)
MICROS = LAST.replace(microsecond=999999)
NUMBER = "4ef2cbb4-2bfb-4a6c-b7f5-2d8a0a9b3f0b"
# A type, values that are refused, and values that are read.
TYPES: tuple[tuple[str, str, list[Any], list[tuple[Any, Any]]], ...] = (
    ("int", "date", [2_932_897, -719_163, 2**31 - 1], [(2_932_896, date.max), (-719_162, date.min)]),
    ("int", "time-millis", [DAY_MS, -1, 2**31 - 1], [(DAY_MS - 1, time(23, 59, 59, 999000)), (0, time())]),
    ("long", "time-micros", [DAY_MS * 1000, -1, 2**63 - 1], [(DAY_MS * 1000 - 1, time.max), (0, time())]),
    ("long", "timestamp-millis", [YEAR_10000_MS, YEAR_1_MS - 1, 2**63 - 1, -(2**63)],
     [(YEAR_10000_MS - 1, LAST.replace(tzinfo=UTC)), (YEAR_1_MS, FIRST.replace(tzinfo=UTC))]),
    ("long", "timestamp-micros", [YEAR_10000_MS * 1000, YEAR_1_MS * 1000 - 1, 2**63 - 1, -(2**63)],
     [(YEAR_10000_MS * 1000 - 1, MICROS.replace(tzinfo=UTC)), (YEAR_1_MS * 1000, FIRST.replace(tzinfo=UTC))]),
    ("long", "local-timestamp-millis", [YEAR_10000_MS, 2**62], [(YEAR_10000_MS - 1, LAST), (YEAR_1_MS, FIRST)]),
    ("long", "local-timestamp-micros", [YEAR_10000_MS * 1000, 2**62], [(YEAR_1_MS * 1000, FIRST)]),
    ("string", "uuid", ["unknown", "", NUMBER + "0", NUMBER[:-1], "g" + NUMBER[1:]],
     [(NUMBER, UUID(NUMBER)), (NUMBER.upper(), UUID(NUMBER)), ("{" + NUMBER + "}", UUID(NUMBER))]),
)  # fmt: skip
# How the type is nested, and its bytes.
PLACES: Mapping[str, tuple[Any, Any, Any]] = {
    "field": (lambda kind: kind, lambda data: data, lambda value: value),
    "optional": (lambda kind: ["null", kind], lambda data: b"\2" + data, lambda value: value),
    "array": (lambda kind: {"type": "array", "items": kind}, lambda data: b"\2" + data + b"\0", lambda value: [value]),
    "map": (
        lambda kind: {"type": "map", "values": ["null", kind]},
        lambda data: b"\2\2k\2" + data + b"\0",
        lambda value: {"k": value},
    ),
    "union": (lambda kind: ["null", "boolean", kind], lambda data: b"\4" + data, lambda value: value),
}


def schema(kind: Any) -> dict[str, Any]:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "at", "type": kind}]}
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "int"}, {"name": "inner", "type": ["null", inner]}],
    }


def written(value: Any) -> bytes:
    return sized(value.encode()) if isinstance(value, str) else varint.encode(varint.to_zigzag(value))


def reader(**config: Any) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "avro", **config})


@pytest.mark.parametrize("place", ["field", *(pytest.param(each, marks=pytest.mark.full) for each in [*PLACES][1:])])
@pytest.mark.parametrize(("base", "logical", "refused", "read"), TYPES)
def test_rows_and_columns_agree(place: str, base: str, logical: str, refused: Any, read: Any) -> None:
    wrap, frame, shape = PLACES[place]
    source, plain = schema(wrap({"type": base, "logicalType": logical})), schema(wrap(base))
    for native in ("auto", "off"):
        chain = reader(**{"avro.schema": source, "avro.native": native})
        numbers = reader(**{"avro.schema": source, "avro.reader.schema": plain, "avro.native": native})
        good = b"\0\2" + frame(written(read[0][0]))
        for value in refused:
            data = b"\0\2" + frame(written(value))
            with pytest.raises(
                DecodeError, match=rf"inner\.at is .*{logical}.* in which the field has no logicalType"
            ) as e:
                chain(data)
            for count in (1, 1500):
                result = chain.read_batch(Batch([good] * count + [data, None], topic="t"))
                assert {row: error.message for row, error in result.errors.items()} == {count: e.value.message}
                assert result.values.null_count == 2
            assert numbers(data)["inner"]["at"] == shape(value)
            assert not numbers.read_batch(Batch([data], topic="t")).errors
        for value, expected in read:
            data = b"\0\2" + frame(written(value))
            assert chain(data)["inner"]["at"] == shape(expected)
            assert not chain.read_batch(Batch([data] * 3, topic="t")).errors


def test_files_and_other_readers_agree() -> None:
    kind = schema({"type": "long", "logicalType": "timestamp-micros"})
    data = in_a_file(kind, b"\0\2" + written(2**62))
    chain = reader(**{"avro.framing": "container"})
    with pytest.raises(DecodeError, match=r"inner\.at is a timestamp-micros outside the years 1 to 9999"):
        chain(data)
    assert "inner.at" in chain.read_batch(Batch([data], topic="t")).errors[0].message
    # What a null hides is no value, and a column that is left out is not read.
    other = reader(**{"avro.schema": kind})
    assert other.to_arrow([b"\0\0"] * 3, topic="t").to_pylist() == [{"id": 0, "inner": None}] * 3
    assert other.to_arrow([b"\0\2" + written(2**62)], topic="t", columns=["id"]).to_pylist() == [{"id": 0}]


def test_decimals_that_columns_have_no_room_for() -> None:
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}
    source, fitting = schema(wide), schema({**wide, "precision": 38})
    assert str(reader(**{"avro.schema": source})(b"\0\2" + sized(b"\2"))["inner"]["at"]) == "0.02"
    with pytest.raises(ConfigError, match=r"inner\.at is a decimal of 40 digits.*avro\.reader\.schema .* 38 digits"):
        reader(**{"avro.schema": source}).to_arrow([b"\0\2" + sized(b"\2")], topic="t")
    chain = reader(**{"avro.schema": source, "avro.reader.schema": fitting})
    for count in (1, 1500):
        values = chain.to_arrow([b"\0\2" + sized(b"\2")] * count, topic="t")
        assert str(values[0].as_py()["inner"]["at"]) == "0.02"
    # One that is left out does not matter.
    short = {**source, "fields": source["fields"][:1]}
    chain = reader(**{"avro.schema": source, "avro.reader.schema": short})
    assert chain.to_arrow([b"\0\2" + sized(b"\2")] * 1500, topic="t").to_pylist() == [{"id": 0}] * 1500
