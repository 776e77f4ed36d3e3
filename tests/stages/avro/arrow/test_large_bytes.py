"""Records with large fields into columns, whatever the schema and the bytes."""

import json
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde_chain.arrow import Batch
from tests.hypothesis_profiles import examples
from tests.stages.avro.arrow.test_avro_batch import chain, check, damage, encode, samples

LARGE = 20_000

STAMP = {
    "type": "record",
    "name": "Stamp",
    "fields": [{"name": "width", "type": "int"}, {"name": "pixels", "type": "bytes"}],
}
ALERT = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "mean", "type": ["null", "double"]},
        {"name": "error", "type": ["float", "null"]},
        {"name": "science", "type": ["null", STAMP]},
        {"name": "history", "type": ["null", {"type": "array", "items": ["Stamp", "null"]}]},
        {"name": "scores", "type": {"type": "map", "values": "bytes"}},
        {"name": "note", "type": ["null", "string", "bytes"]},
        {"name": "template", "type": ["bytes", "null"]},
        {"name": "last", "type": {"type": "array", "items": "double"}},
    ],
}
PARSED = fastavro.parse_schema(ALERT)


def stamp(number: int) -> dict[str, Any]:
    return {"width": number, "pixels": bytes([number]) * (LARGE + number)}


def alert(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "mean": None if number % 2 else 0.5,
        "error": 0.25 if number % 3 else None,
        "science": stamp(number) if number % 3 else None,
        "history": [stamp(n) if n % 2 else None for n in range(number % 4)] if number % 5 else None,
        "scores": {"real": b"x" * number},
        "note": [None, "text", b"bytes"][number % 3],
        "template": bytes([number]) * LARGE if number % 4 else None,
        "last": [float(n) for n in range(number)],
    }


RECORDS = [encode(PARSED, alert(number)) for number in range(1, 20)]


PLACES = {
    "type": "record",
    "name": "Places",
    "fields": [
        {"name": "plain", "type": "bytes"},
        {"name": "optional", "type": ["null", "bytes"]},
        {"name": "inner", "type": ["null", STAMP]},
        {"name": "listed", "type": {"type": "array", "items": ["null", "Stamp"]}},
    ],
}
PLACES_PARSED = fastavro.parse_schema(PLACES)
BYTES = st.binary(max_size=300)
STAMPS = st.none() | st.fixed_dictionaries({"width": st.integers(0, 500), "pixels": BYTES})
VALUES = st.fixed_dictionaries(
    {"plain": BYTES, "optional": st.none() | BYTES, "inner": STAMPS, "listed": st.lists(STAMPS, max_size=3)}
)


@st.composite
def with_fields(draw: st.DrawFn) -> tuple[Any, list[bytes]]:
    """Samples, with fields in front of them or behind: records one after the other are encoded as one."""
    schema, records = draw(samples())
    more = [encode(PLACES_PARSED, draw(VALUES)) for _ in records]
    if draw(st.booleans()):
        fields, pairs = [*PLACES["fields"], *schema["fields"]], zip(more, records, strict=True)
    else:
        fields, pairs = [*schema["fields"], *PLACES["fields"]], zip(records, more, strict=True)
    return {**schema, "fields": fields}, [first + second for first, second in pairs]


@pytest.mark.parametrize("chunk", ["binary", "large_binary"])
def test_fields_of_all_places(chunk: str) -> None:
    check(ALERT, RECORDS)
    made = chain(ALERT)
    padded = pa.array([None, *RECORDS, None], getattr(pa, chunk)())
    found = made.to_arrow(padded[1:-1], topic="t")
    assert found.to_pylist()[4]["history"] == made(RECORDS[4])["history"]
    assert made.to_arrow(padded, topic="t").to_pylist() == [None, *found.to_pylist(), None]


@pytest.mark.parametrize(
    ("wanted", "expect"),
    [
        ([{"name": "id", "type": "long"}], lambda record: {"id": record["id"]}),
        ([{"name": "id", "type": "double"}], lambda record: {"id": float(record["id"])}),
        (
            [
                {"name": "picture", "aliases": ["template"], "type": ["null", "bytes"]},
                {"name": "science", "type": ["null", {**STAMP, "fields": STAMP["fields"][1:]}]},
            ],
            lambda record: {
                "picture": record["template"],
                "science": record["science"] and {"pixels": record["science"]["pixels"]},
            },
        ),
        (
            [{"name": "template", "type": ["null", "string"]}],
            lambda record: {"template": record["template"] and record["template"].decode()},
        ),
    ],
    ids=["no field", "promoted", "other name and fewer", "bytes into a string"],
)
def test_into_another_schema(wanted: Any, expect: Callable[[Any], Any]) -> None:
    target = json.dumps({**ALERT, "fields": wanted})
    check(ALERT, RECORDS, **{"avro.reader.schema": target})
    found = chain(ALERT, **{"avro.reader.schema": target}).to_arrow(RECORDS, topic="t").to_pylist()
    assert found == [expect(alert(number)) for number in range(1, 20)]


def test_lists_of_records_without_their_fields() -> None:
    schema = {"type": "array", "items": STAMP}
    target = json.dumps({"type": "array", "items": {**STAMP, "fields": STAMP["fields"][:1]}})
    records = [encode(fastavro.parse_schema(schema), [stamp(n) for n in range(count)]) for count in (1, 2, 3)]
    check(schema, records, **{"avro.reader.schema": target})
    check(schema, records)


def test_unions_of_several_branches() -> None:
    """The reader has them in another order."""
    one = {"type": "record", "name": "One", "fields": [{"name": "a", "type": "bytes"}]}
    two = {"type": "record", "name": "Two", "fields": [{"name": "b", "type": "bytes"}, {"name": "n", "type": "int"}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["null", one, two]}, STAMP["fields"][1]]}
    target = {**schema, "fields": [{"name": "u", "type": [two, one, "null"]}, STAMP["fields"][1]]}
    parsed = fastavro.parse_schema(schema)
    values: list[Any] = [None, ("One", {"a": b"x" * 10}), ("Two", {"b": b"y" * 10, "n": 1})]
    records = [encode(parsed, {"u": value, "pixels": b"z" * LARGE}) for value in values]
    check(schema, records)
    check(schema, records, **{"avro.reader.schema": json.dumps(target)})


def test_every_schema_gives_the_same() -> None:
    @settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
    @given(with_fields())
    def every(sample: tuple[Any, list[bytes]]) -> None:
        check(*sample)

    every()


@pytest.mark.full
def test_every_schema_gives_the_same_in_another() -> None:
    @settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
    @given(with_fields(), st.data())
    def every(sample: tuple[Any, list[bytes]], data: st.DataObject) -> None:
        schema, records = sample
        fields = []
        for field in schema["fields"]:
            change = data.draw(st.sampled_from(["keep", "drop", "rename", "optional"]))
            changed = dict(field)
            if change == "drop" and "name" not in json.dumps(field["type"]):  # others may refer to a type in it
                continue
            if change == "rename":
                changed |= {"name": f"new_{field['name']}", "aliases": [field["name"]]}
            elif change == "optional" and not isinstance(field["type"], list) and field["type"] != "null":
                changed["type"] = ["null", field["type"]]
            fields.append(changed)
        check(schema, records, **{"avro.reader.schema": json.dumps({**schema, "fields": fields})})

    every()


@pytest.mark.full
@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(with_fields(), st.data())
def test_damaged_records_give_the_same(sample: tuple[Any, list[bytes]], data: st.DataObject) -> None:
    schema, records = sample
    damage(records, data)
    check(schema, records)


def test_a_bad_record_leaves_none_of_its_fields() -> None:
    """The look over the records does not see it: text that is no UTF-8."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "text", "type": "string"}, STAMP["fields"][1]]}
    good, bad = (b"\2" + text + b"\xc0\xb8\x02" + b"s" * LARGE for text in (b"a", b"\xff"))
    result = chain(schema).read_batch(Batch([good, bad], topic="t"))
    assert result.errors.keys() == {1}
    assert result.values.field("pixels").to_pylist() == [b"s" * LARGE, b""]


@pytest.mark.parametrize("claimed", [b"\xff" * 9 + b"\x01", b"\xfe" * 9 + b"\x01"], ids=["negative", "huge"])
def test_a_length_or_count_beyond_the_data(claimed: bytes) -> None:
    items = {"type": "array", "items": "double"}
    schema = {"type": "record", "name": "R", "fields": [STAMP["fields"][1], {"name": "a", "type": items}]}
    good = encode(fastavro.parse_schema(schema), {"pixels": b"s" * LARGE, "a": []})
    values = [good, claimed + good, good[:-1] + claimed]
    assert chain(schema).read_batch(Batch(values, topic="t")).errors.keys() == {1, 2}


def test_a_negative_length() -> None:
    schema = {"type": "record", "name": "R", "fields": [STAMP["fields"][1], {"name": "last", "type": "bytes"}]}
    good = encode(fastavro.parse_schema(schema), {"pixels": b"s" * LARGE, "last": b""})
    check(schema, [good, good[:-1] + b"\1", good])
