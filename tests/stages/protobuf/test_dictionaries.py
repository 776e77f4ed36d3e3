"""Messages as dictionaries: ``Struct``, ``Value`` and ``ListValue`` as google.protobuf's ``json_format`` has them."""

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    field_mask_pb2,
    json_format,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import ConfigError, DeserializerChain, EncodeError, SerializerChain
from serde_chain.errors import BytesExpectedError
from serde_chain.stages.protobuf import misfits, proto_text
from serde_chain.stages.protobuf.dictionaries import filler
from serde_chain.stages.protobuf.schema import class_at
from serde_chain.testing import SerializerTests

WELL_KNOWN: Any = (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
# Each with the name of its type, in the three places that a field of its type has.
DYNAMIC = {"struct": "Struct", "value": "Value", "list": "ListValue"}
OTHERS: dict[str, tuple[str, Any]] = {
    "time": ("Timestamp", {"seconds": 1_700_000_000, "nanos": 5}),
    "span": ("Duration", {"seconds": -3, "nanos": -5}),
    "any": ("Any", {"type_url": "type.googleapis.com/event.First", "value": b"\x08\x01"}),
    "mask": ("FieldMask", {"paths": ["a.b", "c"]}),
    "text": ("StringValue", {"value": "M 51"}),
    "count": ("UInt64Value", {"value": 2**64 - 1}),
    "flag": ("BoolValue", {"value": False}),
    "data": ("BytesValue", {"value": b"\xff"}),
}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="event.proto",
        package="event",
        syntax="proto3",
        dependency=[module.DESCRIPTOR.name for module in WELL_KNOWN],
    )
    event = file.message_type.add(name="Event")
    event.oneof_decl.add(name="choice")
    numbers = iter(range(1, 100))

    def add(name: str, kind: str, label: int = 1, **options: Any) -> None:
        kind = kind if kind.startswith(".") else f".google.protobuf.{kind}"
        event.field.add(name=name, number=next(numbers), type=11, label=label, type_name=kind, **options)

    for name, kind in DYNAMIC.items():
        add(name, kind)
        add(f"{name}s", kind, 3)
        add(f"{name}_of", f".event.Event.{kind}Entry", 3)
        entry = event.nested_type.add(name=f"{kind}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=9, label=1)
        entry.field.add(name="value", number=2, type=11, label=1, type_name=f".google.protobuf.{kind}")
        add(f"chosen_{name}", kind, oneof_index=0)
    event.field.add(name="chosen_text", number=next(numbers), type=9, label=1, oneof_index=0)
    add("child", ".event.Event")
    add("children", ".event.Event", 3)
    add("child_of", ".event.Event.ChildEntry", 3)
    entry = event.nested_type.add(name="ChildEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=11, label=1, type_name=".event.Event")
    event.field.add(name="id", number=next(numbers), type=3, label=1)
    event.field.add(name="nothing", number=next(numbers), type=14, label=1, type_name=".google.protobuf.NullValue")
    for name, (kind, _) in OTHERS.items():
        add(name, kind)
    return file


def _class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in WELL_KNOWN:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(_file())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


EVENT = _class("event.Event")

TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
REAL = st.floats(allow_nan=False, allow_infinity=False)
VALUE = st.recursive(
    st.none() | st.booleans() | REAL | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OF: dict[str, st.SearchStrategy[Any]] = {
    "struct": st.dictionaries(TEXT, VALUE, max_size=3),
    "value": VALUE,
    "list": st.lists(VALUE, max_size=3),
}
CHOICES = [f"chosen_{name}" for name in OF]


def _events(child: st.SearchStrategy[Any] | None) -> st.SearchStrategy[dict[str, Any]]:
    """Dictionaries of events as a reader gives them: lists and maps are always there."""
    always = {
        **{f"{name}s": st.lists(of, max_size=2) for name, of in OF.items()},
        **{f"{name}_of": st.dictionaries(TEXT, of, max_size=2) for name, of in OF.items()},
        "children": st.lists(child, max_size=1) if child is not None else st.just([]),
        "child_of": st.dictionaries(TEXT, child, max_size=1) if child is not None else st.just({}),
        "id": st.integers(-5, 5),
        "nothing": st.just("NULL_VALUE"),
    }
    once = {**OF, **({} if child is None else {"child": child})}
    chosen = st.one_of(
        st.just({}), *(st.fixed_dictionaries({f"chosen_{name}": of}) for name, of in {**OF, "text": TEXT}.items())
    )
    return st.builds(lambda event, choice: event | choice, st.fixed_dictionaries(always, optional=once), chosen)


EVENTS = _events(_events(None))


def writer(kind: Any = EVENT) -> SerializerChain:
    return SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.message.class": kind})


def reader(kind: Any = EVENT) -> DeserializerChain:
    return DeserializerChain.from_config(
        {"value.deserializer": "protobuf", "protobuf.message.class": kind, "protobuf.values": "dict"}
    )


def as_json(event: dict[str, Any]) -> dict[str, Any]:
    """An event as JSON has it: 64 bits are text there, and an enum of NullValue is null."""
    inner: dict[str, Any] = {name: as_json(event[name]) for name in ("child",) if name in event}
    inner["children"] = [as_json(child) for child in event["children"]]
    inner["child_of"] = {key: as_json(child) for key, child in event["child_of"].items()}
    return event | inner | {"id": str(event["id"]), "nothing": None}


@pytest.mark.full
class TestEvents(SerializerTests):
    stage = "protobuf"
    values = EVENTS
    misfits: ClassVar[tuple[object, ...]] = (
        {"struct": 1},
        {"struct": [1]},
        {"struct": {1: 1}},
        {"list": {"a": 1}},
        {"list": "text"},
        {"value": b"bytes"},
        {"value": {"a": [Decimal(1)]}},
        {"values": {"a": 1}},
        {"values": "text"},
        {"value_of": [1]},
        {"structs": [None]},
        {"struct_of": {"a": None}},
        {"chosen_value": None, "chosen_text": "a"},
        {"value": 10**400},
    )
    detects_truncation = False

    @pytest.fixture
    def config(self, tmp_path: Path) -> Mapping[str, object]:
        path = tmp_path / "event.desc"
        path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[_file()]).SerializeToString())
        return {
            "protobuf.descriptor.set.file": str(path),
            "protobuf.message.name": "event.Event",
            "protobuf.values": "dict",
        }


@given(EVENTS)
def test_dictionaries_are_those_of_json_format(event: dict[str, Any]) -> None:
    expected = json_format.ParseDict(as_json(event), EVENT())
    written = writer()(event)
    assert EVENT.FromString(written) == expected
    assert reader()(written) == event
    found = json_format.MessageToDict(
        expected, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert found == as_json(event)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (struct_pb2.Struct, {"a": [1.0, None, {"b": "text"}], "c": {}, "d": []}),
        (struct_pb2.ListValue, [[], {}, True]),
        (struct_pb2.Value, "text"),
        (struct_pb2.Value, {"a": False}),
        (struct_pb2.Value, [0.0]),
    ],
)
def test_a_record_may_be_such_a_value(kind: Any, value: Any) -> None:
    written = writer(kind)(value)
    assert kind.FromString(written) == json_format.ParseDict(value, kind())
    assert reader(kind)(written) == value


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), -0.0])
def test_numbers_that_json_lacks(value: float) -> None:
    assert repr(reader()(writer()({"value": value}))["value"]) == repr(value)


@pytest.mark.parametrize("value", [7, np.int64(7), np.float32(7), True, (7, 8)])
def test_python_values(value: Any) -> None:
    expected = [7.0, 8.0] if isinstance(value, tuple) else value if value is True else 7.0
    found = reader()(writer()({"value": value}))["value"]
    assert (found, type(found)) == (expected, type(expected))


def test_messages_within_dictionaries_of_the_same_and_of_another_pool() -> None:
    for kind in (struct_pb2.Struct, _class("google.protobuf.Struct")):
        struct = json_format.ParseDict({"a": [1]}, kind())
        event = {
            "struct": struct,
            "value": struct,
            "structs": [struct],
            "struct_of": {"k": struct},
            "child": {"list": [struct]},
        }
        found = reader()(writer()(event))
        assert found["struct"] == found["value"] == found["structs"][0] == found["struct_of"]["k"] == {"a": [1.0]}
        assert found["child"]["list"] == [{"a": [1.0]}]
    assert reader()(writer()({"child": EVENT(value={"bool_value": True})}))["child"]["value"] is True


def test_an_absent_struct_is_none_a_value_that_is_none_is_null() -> None:
    event = {"struct": None, "list": None, "value": None, "structs": None, "value_of": None, "child_of": None}
    assert EVENT.FromString(writer()(event)) == EVENT(value={"null_value": "NULL_VALUE"})
    # A Value without a kind is read as null, as by json_format.
    assert reader()(EVENT(value={}).SerializeToString())["value"] is None


def test_other_well_known_types_are_dictionaries_of_their_fields() -> None:
    event = {name: value for name, (_, value) in OTHERS.items()}
    found = reader()(writer()(event))
    assert {name: found[name] for name in OTHERS} == event


def test_errors_name_the_field_and_no_value() -> None:
    for event, place in (
        ({"child": {"struct": {"secret": object()}}}, "event.Event.struct is of type object"),
        ({"list_of": {"secret": 5}}, "event.Event.list_of is of type int"),
        ({"structs": [{7: 1}]}, "event.Event.structs has a key of type int"),
    ):
        with pytest.raises(EncodeError, match=place) as caught:
            writer()(event)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"vaule": 1}, "event.Event has a key that is no field. Did you mean value?"),
        (
            {"time": {"seconds": 1, "nano": 5}},
            "event.Event.time has a key that is no field. Did you mean nanos?",
        ),
        ({"secret one": 1}, "event.Event has a key that is no field. It has struct, "),
        ({"time": {"seconds": "secret"}}, "event.Event.time.seconds is str of length 6, expected int64"),
        ({"data": {"value": "secret"}}, "event.Event.data.value is str of length 6, expected bytes"),
        ({"text": {"value": 7}}, "event.Event.text.value is int of 3 bits, expected string"),
        (
            {"children": [{}, {"time": {"nanos": 2**40}}]},
            "children[1].time.nanos is int of 41 bits, expected int32",
        ),
        ({"child_of": {"a": {"id": "secret"}}}, "event.Event.child_of[…].id is str of length 6, expected "),
        ({"time": [1]}, "event.Event.time is list of length 1, expected "),
    ],
)
def test_a_misfit_names_its_field_without_the_value(value: Any, message: str) -> None:
    with pytest.raises(EncodeError) as caught:
        writer()(value)
    assert message in caught.value.message
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, BytesExpectedError) is message.endswith("expected bytes")


@pytest.mark.parametrize("items", [[{"id": "secret"}], [{"id": 1}], []])
def test_an_iterator_in_place_of_a_list_is_refused(items: list[Any]) -> None:
    """It has no items left where a chain encodes a refused value once more: nothing was written, without an error."""
    with pytest.raises(EncodeError, match=r"event\.Event\.children is of type list_iterator, expected a list"):
        writer()({"children": iter(items)})


@pytest.mark.parametrize("wrap", [lambda value: {"a": value}, lambda value: [value]])
def test_what_is_written_can_be_read(wrap: Any) -> None:
    """Readers take 100 levels of messages, of which a dictionary has three, and a list two."""
    deepest = 0
    for depth in range(120):
        value: Any = 1.0
        for _ in range(depth):
            value = wrap(value)
        if deepest == depth - 1 or not depth:
            with suppress(EncodeError):
                assert reader()(writer()({"value": value}))["value"] == value
                deepest = depth
        else:
            with pytest.raises(EncodeError, match="deeper"):
                writer()({"value": value})
    assert 30 < deepest < 50


def test_a_message_nested_deeper_than_readers_take() -> None:
    event: dict[str, Any] = {}
    for _ in range(120):
        event = {"child": event}
    with pytest.raises(EncodeError, match="deeper than readers"):
        writer()(event)


ROWS: list[dict[str, Any]] = [
    {"struct": {"a": 1.0}, "value": {"number_value": 2.0}, "list": [1.0], "chosen_value": None, "chosen_text": "a"},
    {"struct": None, "value": None, "list": None, "chosen_value": 5.0, "chosen_text": None},
]


def test_tables() -> None:
    """A column that looks like the fields of a Value is a value all the same; a null in a column is absent."""
    number = pa.struct([("number_value", pa.float64())])
    types = pa.schema(
        [
            ("struct", pa.map_(pa.string(), pa.float64())),
            ("value", number),
            ("list", pa.list_(pa.float64())),
            ("chosen_value", pa.float64()),
            ("chosen_text", pa.string()),
        ]
    )
    table = pa.Table.from_pylist([row | {"struct": row["struct"] and [*row["struct"].items()]} for row in ROWS], types)
    found = [reader()(data) for data in writer().from_arrow(table, topic="t").values.to_pylist()]
    wanted = [{name: value for name, value in row.items() if value is not None} for row in ROWS]
    assert [{name: event[name] for name in event if name in ROWS[0]} for event in found] == wanted
    only = pa.table({"value": pa.array([{"number_value": 1.0}], number)})
    [data] = writer().from_arrow(only, topic="t").values.to_pylist()
    assert reader()(data)["value"] == {"number_value": 1.0}
    with pytest.raises(ConfigError, match="recursive, for which Arrow has no type"):
        reader(struct_pb2.Struct).to_arrow([data], topic="t")


CHOICE = """syntax = "proto3"; message Choice {
    oneof kind { int32 number = 1; string text = 2; Choice inner = 3; }
    repeated Choice more = 4; map<string, Choice> named = 5; optional int32 alone = 6; }"""


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"number": 0, "text": "a"}, "number and text"),
        ({"inner": {}, "text": ""}, "text and inner"),
        ({"number": 1, "text": "a", "inner": {}}, "number and text and inner"),
        ({"inner": {"number": 1, "text": "a"}}, "number and text"),
        ({"more": [{}, {"number": 1, "inner": {}}]}, "number and inner"),
        ({"named": {"a": {"number": 1, "inner": {}}}}, "number and inner"),
    ],
)
def test_two_fields_of_a_oneof_are_refused(value: Any, names: str) -> None:
    """The class itself would keep the last, without a word."""
    kind = class_at([proto_text.parse("choice.proto", CHOICE)], (0,))
    with pytest.raises(EncodeError, match=f"{names} of Choice are set"):
        writer(kind)(value)


def test_one_field_of_a_oneof() -> None:
    kind = class_at([proto_text.parse("choice.proto", CHOICE)], (0,))
    value = {"number": None, "text": "a", "alone": 1, "inner": None, "more": [kind(number=1)]}
    assert reader(kind)(writer(kind)(value)) == {
        "text": "a",
        "alone": 1,
        "more": [{"number": 1, "more": [], "named": {}}],
        "named": {},
    }


@pytest.mark.parametrize("levels", [99, 100, 101, 500])
def test_message_objects_that_readers_refuse_are_refused(levels: int) -> None:
    """google.protobuf writes them."""
    kind = class_at([proto_text.parse("choice.proto", CHOICE)], (0,))
    message = kind()
    inner = message
    for _ in range(levels):
        inner = inner.inner
    inner.SetInParent()
    data = message.SerializeToString()
    if levels > 100:
        with pytest.raises(EncodeError, match="nests deeper than readers of Choice take"):
            writer(kind)(message)
    else:
        assert writer(kind)(message) == data
        assert reader(kind)(data)


FILE = descriptor_pb2.FileDescriptorProto


@pytest.mark.parametrize(
    ("kind", "value", "place"),
    [
        (
            FILE,
            {"syntx": "secret"},
            r"google.protobuf.FileDescriptorProto has a key that is no field. Did you mean syntax\?",
        ),
        (FILE, {"syntax": 5}, "google.protobuf.FileDescriptorProto.syntax is int of 3 bits, expected string"),
        (FILE, {"dependency": 5}, "FileDescriptorProto.dependency is int of 3 bits, expected a list"),
        (
            FILE,
            {"dependency": ["a", b"\xff"]},
            r"FileDescriptorProto.dependency\[1\] is bytes of length 1, expected string",
        ),
        (FILE, {"options": 5}, "options is int of 3 bits, expected google.protobuf.FileOptions or a dictionary"),
        (
            FILE,
            {"message_type": [{}, {"field": [{"number": "secret"}]}]},
            r"FileDescriptorProto.message_type\[1\].field\[0\].number is str of length 6, expected int32",
        ),
        (FILE, {"message_type": [None]}, r"message_type\[0\] is None, expected google.protobuf.DescriptorProto or"),
        (
            descriptor_pb2.FieldDescriptorProto,
            {"type": "secret"},
            "type is str of length 6, expected a name or number of google.protobuf.FieldDescriptorProto.Type",
        ),
        (
            wrappers_pb2.Int32Value,
            {"value": 2**31},
            "google.protobuf.Int32Value.value is int of 32 bits, expected int32",
        ),
        (wrappers_pb2.StringValue, {"value": "\ud800"}, "StringValue.value is str of length 1, expected string"),
        (wrappers_pb2.StringValue, {7: 1}, "google.protobuf.StringValue has a key that is no field"),
        (wrappers_pb2.StringValue, {"secret\ud800": 1}, "google.protobuf.StringValue has a key that is no field"),
        (wrappers_pb2.StringValue, {("secret",): 1}, "google.protobuf.StringValue has a key that is no field"),
        (descriptor_pb2.UninterpretedOption, {"name": [{"name_part": "x"}]}, "missing required fields"),
    ],
)
def test_values_that_the_library_refuses_are_named_by_their_place(kind: Any, value: Any, place: str) -> None:
    write = SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.message.class": kind})
    with pytest.raises(EncodeError, match=place) as caught:
        write(value)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_entries_of_maps_are_named_by_their_place() -> None:
    file = proto_text.parse(
        "maps.proto",
        "syntax = 'proto3'; message Maps { map<string, int32> counts = 1; map<int32, Maps> inner = 2; }",
    )
    kind = class_at([file], "Maps")
    write = SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.message.class": kind})
    for value, place in (
        ({"counts": [1]}, "Maps.counts is list of length 1, expected a dictionary"),
        ({"counts": {"a": 1, "secret": "b"}}, "an entry of Maps.counts is str of length 6 to str of length 1, "),
        ({"inner": {5: {"counts": {"a": "secret"}}}}, r"an entry of Maps.inner\[…\].counts is str of length 1 to str"),
    ):
        with pytest.raises(EncodeError, match=place) as caught:
            write(value)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"), [("dependency", "abc"), ("dependency", {"abc": 1}), ("public_dependency", b"abc")]
)
def test_text_in_place_of_a_list_is_refused(field: str, value: object) -> None:
    """The library takes its characters."""
    inner = descriptor_pb2.FileDescriptorSet
    for kind, data in ((FILE, {field: value}), (inner, {"file": [{field: value}]})):
        write = SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.message.class": kind})
        with pytest.raises(EncodeError, match=f"FileDescriptorProto.{field} is of type .*, expected a list"):
            write(data)
    assert (
        SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.message.class": FILE})(
            {"dependency": ("a", "b"), "public_dependency": np.array([1, 2])}
        )
        == FILE(dependency=["a", "b"], public_dependency=[1, 2]).SerializeToString()
    )


def test_a_long_list_is_searched_with_one_filler(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counted(descriptor: Any) -> Any:
        made.append(descriptor.full_name)
        return filler(descriptor)

    monkeypatch.setattr(misfits, "filler", counted)
    descriptor = descriptor_pb2.FileDescriptorProto.DESCRIPTOR
    found = misfits.misfit(descriptor, {"message_type": [{"name": "A"}] * 1000 + [{"nam": "B"}]})
    where = "google.protobuf.FileDescriptorProto.message_type[1000]"
    assert found == (f"{where} has a key that is no field. Did you mean name?", False)
    assert len(made) <= 1  # none if another test has asked
