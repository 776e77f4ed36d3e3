"""Batches of Protobuf as Arrow columns."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import ConfigError, DecodeError, DeserializerChain, RecordContext
from serde_chain.arrow import Batch
from serde_chain.stages.protobuf import proto_text
from serde_chain.stages.protobuf.batch import arrow_type
from serde_chain.stages.protobuf.schema import class_at
from tests.stages.protobuf.protobuf_messages import ALERT, FILES, POSITION, make

EVENT_FILE = type(FILES[0]).FromString(FILES[1].SerializeToString())
# The same message without the field that makes it contain itself.
EVENT_FILE.name, EVENT_FILE.package = "survey/event.proto", "events"
for message in EVENT_FILE.message_type:
    kept = [field for field in message.field if field.name != "parent"]
    del message.field[:]
    message.field.extend(kept)
    for field in (field for field in message.field if field.type_name):
        field.type_name = field.type_name.replace(".survey.", ".events.")
EVENT = make("events.Alert", [FILES[0], EVENT_FILE])
TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("position", pa.struct([("ra", pa.float64()), ("dec", pa.float64())])),
        ("time", pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())])),
        ("band", pa.string()),
        ("cutout", pa.binary()),
        ("scores", pa.map_(pa.string(), pa.float64())),
        ("history", pa.list_(pa.struct([("flux", pa.list_(pa.float64()))]))),
        ("magnitude", pa.float64()),
    ]
)


def chain(message: Any = EVENT, **config: object) -> DeserializerChain:
    return DeserializerChain.from_config(
        {"value.deserializer": "protobuf", "protobuf.message.class": message, **config}
    )


def test_types_are_those_of_the_descriptor() -> None:
    assert arrow_type(EVENT.DESCRIPTOR) == TYPE
    with pytest.raises(ConfigError, match=r"survey\.Alert is recursive"):
        arrow_type(ALERT.DESCRIPTOR)


@pytest.mark.parametrize("values", ["message", "dict"])
def test_a_batch_is_a_column_of_structs(values: str) -> None:
    records = [
        EVENT(id=1, tags=["a"], position={"ra": 1.5}, band="G", scores={"x": 0.5}, history=[{"flux": [1.0]}]),
        None,
        EVENT(cutout=b"\x00", magnitude=2.5, time={"seconds": 5}),
    ]
    data = [None if record is None else record.SerializeToString() for record in records]
    column = chain(**{"protobuf.values": values}).to_arrow(data, topic="t")
    assert column.type == TYPE
    first, nothing, last = column.to_pylist()
    assert nothing is None
    assert first == {
        "id": 1, "name": "", "tags": ["a"], "position": {"ra": 1.5, "dec": 0.0}, "time": None, "band": "G",
        "cutout": b"", "scores": [("x", 0.5)], "history": [{"flux": [1.0]}], "magnitude": None,
    }  # fmt: skip
    assert (last["cutout"], last["magnitude"], last["time"]) == (b"\x00", 2.5, {"seconds": 5, "nanos": 0})


def test_bad_records_are_named_and_the_others_read() -> None:
    data = [EVENT(id=1).SerializeToString(), b"\xff", EVENT(id=3).SerializeToString()]
    with pytest.raises(DecodeError) as caught:
        chain().to_arrow(data, topic="t")
    assert caught.value.row == 1
    result = chain().read_batch(Batch(data, topic="t"))
    assert [row and row["id"] for row in result.values.to_pylist()] == [1, None, 3]
    assert list(result.errors) == [1]


def test_empty_batches_have_the_type_too() -> None:
    assert chain().to_arrow([], topic="t").type == TYPE
    assert chain(POSITION).to_arrow([None], topic="t").type == pa.struct([("ra", pa.float64()), ("dec", pa.float64())])


@given(st.lists(st.none() | st.binary(max_size=40), max_size=5))
def test_any_bytes_give_a_row_or_an_error(data: list[bytes | None]) -> None:
    result = chain().read_batch(Batch(data, topic="t"))
    assert len(result.values) == len(data)
    for row, value in enumerate(result.values.to_pylist()):
        assert (value is None) == (data[row] is None or row in result.errors)


def test_texts_of_proto2_that_are_not_utf8_are_refused_in_rows_and_columns() -> None:
    """The library reads them as bytes, and refuses those of proto3 itself."""
    file = proto_text.parse(
        "text.proto",
        "syntax = 'proto2'; package t; message Text { optional string one = 1; repeated string many = 2; "
        "map<string, string> by = 3; optional Inner inner = 4; } message Inner { optional string two = 1; }",
    )
    kind = class_at([file], "Text")
    bad = {
        "t.Text.one": b"\x0a\x01\xff",
        "t.Text.many": b"\x12\x01\xff",
        "t.Text.ByEntry.key": b"\x1a\x06\x0a\x01\xff\x12\x01a",
        "t.Text.ByEntry.value": b"\x1a\x06\x0a\x01a\x12\x01\xff",
        "t.Inner.two": b"\x22\x03\x0a\x01\xff",
    }
    for place, data in bad.items():
        with pytest.raises(DecodeError, match=f"{place} is not UTF-8") as caught:
            chain(kind, **{"protobuf.values": "dict"})(data, RecordContext("texts", "value"))
        assert caught.value.about_record
        assert isinstance(chain(kind)(data, RecordContext("texts", "value")), kind)
    result = chain(kind).read_batch(Batch([b"\x0a\x01a", *bad.values()], topic="texts"))
    assert result.values.to_pylist()[0]["one"] == "a"
    assert {row: str(error).split(" is not")[0] for row, error in result.errors.items()} == dict(enumerate(bad, 1))
