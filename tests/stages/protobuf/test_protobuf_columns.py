"""Columns as Protobuf messages: the bytes of Google's library, and what is left to it."""

import math
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import SerializationError, SerializerChain
from serde_chain.stages.protobuf.column_writer import ProtobufWriter
from tests.stages.protobuf.protobuf_messages import ALERT

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
UINT32, UINT64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "double": (pa.float64(), st.floats()),
    "float": (pa.float32(), st.floats(width=32)),
    "int64": (pa.int64(), INT64),
    "uint64": (pa.uint64(), UINT64),
    "int32": (pa.int32(), INT32),
    "fixed64": (pa.uint64(), UINT64),
    "fixed32": (pa.uint32(), UINT32),
    "bool": (pa.bool_(), st.booleans()),
    "string": (pa.string(), TEXT),
    "bytes": (pa.binary(), st.binary(max_size=20)),
    "uint32": (pa.uint32(), UINT32),
    "sfixed32": (pa.int32(), INT32),
    "sfixed64": (pa.int64(), INT64),
    "sint32": (pa.int32(), INT32),
    "sint64": (pa.int64(), INT64),
    "enum": (pa.string(), st.sampled_from("UGR")),
}


def everything() -> Any:
    """A message with four fields of each type: plain, optional, in lists, and in lists that are not packed."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax="proto3")
    band = file.enum_type.add(name="Band")
    for number, name in enumerate("UGR"):
        band.value.add(name=name, number=number * 1000)
    message = file.message_type.add(name="All")
    for at, kind in enumerate(KINDS):
        more: dict[str, Any] = {"type_name": ".all.Band"} if kind == "enum" else {}
        more["type"] = f"TYPE_{kind.upper()}"
        # Beside 15, tags take two bytes; the order of the numbers is not that of the names.
        message.field.add(number=4 * (20 - at), name=kind, label="LABEL_OPTIONAL", **more)
        message.field.add(
            number=4 * at + 1,
            name=f"{kind}_optional",
            label="LABEL_OPTIONAL",
            proto3_optional=True,
            oneof_index=at,
            **more,
        )
        message.oneof_decl.add(name=f"_{kind}")
        message.field.add(number=4 * at + 2, name=f"{kind}_list", label="LABEL_REPEATED", **more)
        if kind not in {"string", "bytes"}:
            loose = message.field.add(number=4 * at + 3, name=f"{kind}_loose", label="LABEL_REPEATED", **more)
            loose.options.packed = False
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("all.All"))


ALL = everything()
FIELDS = {
    field.name: (pa.list_(kind), st.none() | st.lists(values, max_size=3))
    if field.name.endswith(("_list", "_loose"))
    else (kind, st.none() | values)
    for field in ALL.DESCRIPTOR.fields
    for kind, values in [KINDS[field.name.partition("_")[0]]]
}
TYPE = pa.struct([(name, kind) for name, (kind, _) in FIELDS.items()])


def by_library(message: Any, row: Any) -> Any:
    return None if row is None else message(**row).SerializeToString(deterministic=True)


@pytest.mark.full
@given(st.lists(st.none() | st.fixed_dictionaries({name: values for name, (_, values) in FIELDS.items()}), max_size=3))
def test_all_types_are_written_as_by_the_library(rows: list[Any]) -> None:
    written, left = ProtobufWriter(ALL.DESCRIPTOR).write(pa.array(rows, TYPE))
    assert written.to_pylist() == [by_library(ALL, row) for row in rows]
    assert not left


def test_edges() -> None:
    rows = [
        {"double": -0.0, "float": math.nan, "int32": -1, "sint64": -(2**63), "uint64": 2**64 - 1},
        {"string": "x" * 20_000, "bytes_list": [b"", b"y" * 128], "bool_optional": False, "enum": "U"},
        {},
    ]
    column = pa.array(rows, TYPE)
    written, _ = ProtobufWriter(ALL.DESCRIPTOR, b"\x00\x00\x00\x00\x07\x00").write(column)
    assert written.to_pylist() == [b"\x00\x00\x00\x00\x07\x00" + by_library(ALL, row) for row in rows]
    # A part of a larger column, in which nulls hide values.
    masked = pa.StructArray.from_arrays(column.flatten(), fields=list(TYPE), mask=pa.array([False, True, False]))
    assert ProtobufWriter(ALL.DESCRIPTOR).write(masked.slice(1))[0].to_pylist() == [None, b""]


NESTED = pa.struct([
    ("name", pa.string()),
    ("position", pa.struct([("ra", pa.float64()), ("dec", pa.float64())])),
    ("history", pa.list_(pa.struct([("flux", pa.list_(pa.float64()))]))),
])  # fmt: skip


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.none() | TEXT,
                "position": st.none() | st.fixed_dictionaries({"ra": st.floats(), "dec": st.none() | st.floats()}),
                "history": st.lists(st.fixed_dictionaries({"flux": st.lists(st.floats(), max_size=3)}), max_size=3),
            }
        ),
        max_size=5,
    ),
    st.integers(0, 2),
)
def test_messages_in_messages(rows: list[Any], start: int) -> None:
    column = pa.array(rows, NESTED).slice(start)
    assert ProtobufWriter(ALERT.DESCRIPTOR).write(column)[0].to_pylist() == [
        by_library(ALERT, row) for row in rows[start:]
    ]


MAPS = pa.struct([("scores", pa.map_(pa.string(), pa.float64()))])


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"scores": {"b": 1.0, "a": 2.0}}, MAPS),
        ({"tags": ["a", None]}, None),
        ({"id": "1"}, None),
        ({"id": 1.5}, None),
        ({"id": True}, None),
        ({"name": b"M 51"}, None),
        ({"nothing": 1}, None),
        ({"band": "B"}, None),
        ({"id": 2**63}, pa.struct([("id", pa.uint64())])),
        ({"position": 1}, None),
    ],
)
def test_what_is_not_taken_is_left_to_the_library(row: dict[str, Any], kind: Any) -> None:
    pairs = {name: list(value.items()) if isinstance(value, dict) else value for name, value in row.items()}
    column = pa.array([None, pairs], kind)
    with pytest.raises(ValueError, match=r"."):
        ProtobufWriter(ALERT.DESCRIPTOR).write(column)
    chain = SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.type": ALERT})
    try:
        expected = by_library(ALERT, row)
    except (TypeError, ValueError):
        with pytest.raises(SerializationError) as raised:
            chain.from_arrow(column, topic="alerts")
        assert raised.value.row == 1
    else:
        assert chain.from_arrow(column, topic="alerts").values.to_pylist() == [None, expected]


def test_two_fields_of_a_oneof_are_left_to_the_library() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="one.proto", package="one", syntax="proto3")
    message = file.message_type.add(name="One")
    message.oneof_decl.add(name="kind")
    for number, name in enumerate(("a", "b"), 1):
        message.field.add(number=number, name=name, type="TYPE_INT32", label="LABEL_OPTIONAL", oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    one = message_factory.GetMessageClass(pool.FindMessageTypeByName("one.One"))
    kind = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    good = [{"a": 1, "b": None}, {"a": None, "b": 0}, {}]
    assert ProtobufWriter(one.DESCRIPTOR).write(pa.array(good, kind))[0].to_pylist() == [
        by_library(one, {name: value for name, value in row.items() if value is not None}) for row in good
    ]
    with pytest.raises(ValueError, match="several fields of kind"):
        ProtobufWriter(one.DESCRIPTOR).write(pa.array([{"a": 1, "b": 2}], kind))
