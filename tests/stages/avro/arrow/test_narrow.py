"""With columns, only these are decoded: the same values as those of the whole records."""

import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serde_chain import ConfigError, DecodeError
from serde_chain.arrow import Batch
from serde_chain.arrow.selection import Columns
from serde_chain.stages.avro.arrow.narrow import narrowed
from serde_chain.stages.avro.native import library
from serde_chain.stages.avro.schema import AvroSchema
from tests.hypothesis_profiles import examples
from tests.stages.avro.arrow.test_avro_batch import chain, encode, samples

READERS = [
    pytest.param({"avro.native": "off"}, id="record"),
    pytest.param(
        {"avro.native": "on"},
        id="native",
        marks=pytest.mark.skipif(library() is None, reason="without the compiled part"),
    ),
]
SOURCE = {
    "type": "record",
    "name": "Source",
    "fields": [
        {"name": "mjd", "type": "double"},
        {"name": "band", "type": ["null", "string"]},
        {"name": "flux", "type": {"type": "array", "items": "float"}},
    ],
}
ALERT = {
    "type": "record",
    "name": "Alert",
    "fields": [
        {"name": "note", "type": "string"},
        {"name": "source", "type": SOURCE},
        {"name": "history", "type": ["null", {"type": "array", "items": "Source"}]},
        {"name": "scores", "type": {"type": "map", "values": "Source"}},
        {"name": "either", "type": ["long", "Source", "null"]},
        {"name": "id", "type": "long", "aliases": ["number"]},
    ],
}
PARSED: Any = fastavro.parse_schema(ALERT)


def source(number: int) -> dict[str, Any]:
    return {"mjd": number / 2, "band": "r" if number % 2 else None, "flux": [float(n) for n in range(number)]}


def alert(number: int) -> dict[str, Any]:
    return {
        "note": f"note {number}",
        "source": source(number),
        "history": [source(n) for n in range(number % 3)] if number % 4 else None,
        "scores": {"s": source(number)},
        "either": [number, source(number), None][number % 3],
        "id": number,
    }


RECORDS = [encode(PARSED, alert(number)) for number in range(6)]


def paths(kind: pa.DataType, above: str = "") -> Iterator[str]:
    """All columns of a type."""
    if pa.types.is_list(kind):
        yield from paths(kind.value_type, above)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield above + field.name
            yield from paths(field.type, f"{above}{field.name}.")


@pytest.mark.parametrize("reader", READERS)
def test_any_columns_of_any_schema(reader: dict[str, Any]) -> None:
    @settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
    @given(samples(), st.data())
    def check(sample: tuple[Any, list[bytes]], data: st.DataObject) -> None:
        schema, records = sample
        made = chain(schema, **reader)
        whole = made.to_arrow(records, topic="t")
        known = list(paths(whole.type))
        if not known:
            return
        names = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        assert made.to_arrow(records, topic="t", columns=names).equals(Columns(names).of(whole))

    check()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "names",
    [
        ["id"],
        ["history.mjd", "source.band"],
        ["scores", "source.flux"],
        ["either.member1.band", "id"],
        ["history.flux", "note"],
    ],
)
def test_nested_columns(reader: dict[str, Any], names: list[str]) -> None:
    made = chain(ALERT, **reader)
    expected = Columns(names).of(made.to_arrow(RECORDS, topic="t"))
    assert made.to_arrow(RECORDS, topic="t", columns=names).equals(expected)
    assert made.to_arrow([*RECORDS, None], topic="t", columns=names).slice(0, len(RECORDS)).equals(expected)


@pytest.mark.parametrize("reader", READERS)
def test_other_fields_are_not_decoded(reader: dict[str, Any]) -> None:
    bad = RECORDS[1].replace(b"note 1", b"note \xff")
    made = chain(ALERT, **reader)
    with pytest.raises(DecodeError, match="row=0"):
        made.to_arrow([bad], topic="t")
    assert made.to_arrow([bad], topic="t", columns=["id"]).to_pylist() == [{"id": 1}]
    with pytest.raises(DecodeError, match="row=1"):
        made.to_arrow([bad, RECORDS[2][:-1]], topic="t", columns=["id"])


@pytest.mark.parametrize("reader", READERS)
def test_a_recursive_field_is_left_out(reader: dict[str, Any]) -> None:
    """Although it has an array of numbers, which readers skip only after a check."""
    node: Any = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "flux", "type": {"type": "array", "items": "double"}},
            {"name": "id", "type": "long"},
            {"name": "next", "type": ["null", "Node"]},
        ],
    }
    nodes = [{"flux": [1.0], "id": at, "next": {"flux": [], "id": 9, "next": None}} for at in range(3)]
    records = [encode(fastavro.parse_schema(dict(node)), each) for each in nodes]
    made = chain(node, **reader)
    assert made.to_arrow(records, topic="t", columns=["id"]).to_pylist() == [{"id": 0}, {"id": 1}, {"id": 2}]
    many = b"\xfe" + b"\xff" * 8 + b"\x01"  # an array of 2**63 - 1 items
    with pytest.raises(DecodeError, match="row=1"):
        made.to_arrow([records[0], b"\x00\x02\x02" + many], topic="t", columns=["id"])
    with pytest.raises(ConfigError, match="recursive"):
        made.to_arrow(records, topic="t", columns=["next"])


@pytest.mark.parametrize("reader", READERS)
def test_columns_of_a_reader_schema(reader: dict[str, Any]) -> None:
    wanted = {
        "type": "record",
        "name": "Alert",
        "fields": [
            {"name": "key", "type": "double", "aliases": ["id"]},
            {"name": "new", "type": ["null", SOURCE], "default": None},
            {"name": "source", "type": "Source"},
            {"name": "missing", "type": "string"},
        ],
    }
    made = chain(ALERT, **reader, **{"avro.reader.schema": json.dumps(wanted)})
    names = ["source.band", "new.mjd", "key"]
    assert made.to_arrow(RECORDS[:2], topic="t", columns=names).to_pylist() == [
        {"source": {"band": band}, "new": None, "key": float(number)} for number, band in enumerate([None, "r"])
    ]
    with pytest.raises(DecodeError, match="missing: the writer's schema lacks it"):
        made.to_arrow(RECORDS, topic="t", columns=["key", "missing"])


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["id", "notes"], "there is no column notes"),
        (["source.flux", "history.magnitude"], r"there is no column history\.magnitude"),
        (["source.mjd.x"], r"column source\.mjd has no fields"),
        (["scores.s"], "column scores has no fields"),
    ],
)
def test_columns_that_do_not_exist(reader: dict[str, Any], names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        chain(ALERT, **reader).to_arrow(RECORDS, topic="t", columns=names)
    if names == ["id", "notes"]:
        assert caught.value.hint == "Did you mean note?"


def field_names(schema: AvroSchema) -> list[str]:
    return [field["name"] for field in schema.parsed["fields"]]


def test_what_is_left_of_a_schema() -> None:
    whole = AvroSchema.parse(json.dumps(ALERT))
    left = narrowed(whole, Columns(["id"]))
    # fastavro's records would have to be checked before it skips an array of numbers.
    assert field_names(left) == ["source", "history", "scores", "either", "id"]
    assert narrowed(whole, Columns(["id", "nothing"])) is whole
    plain = AvroSchema.parse(
        '{"type": "record", "name": "n.P", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "P"}]}'
    )
    assert field_names(narrowed(plain, Columns(["a"]))) == ["a"]
    assert narrowed(plain, Columns(["a"])).parsed["aliases"] == ["n.P"]


def test_a_chain_may_be_asked_for_other_columns() -> None:
    made = chain(ALERT)
    for names in (["id"], ["note"], ["id", "note"], ["id"]):
        array = made.read_batch(Batch(RECORDS, topic="t", columns=names)).values
        assert [field.name for field in array.type] == names
    assert [field.name for field in made.to_arrow(RECORDS, topic="t").type] == [
        field["name"] for field in PARSED["fields"]
    ]
