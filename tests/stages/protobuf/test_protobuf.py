"""``protobuf`` without a registry: messages, dictionaries, descriptor files, and what is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from google.protobuf import timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import ConfigError, DecodeError, DeserializerChain, EncodeError, SerializerChain
from serde_chain.testing import SerializerTests
from tests.stages.protobuf.protobuf_messages import ALERT, FILES, FIRST, POSITION, descriptor_set, make

REAL = st.floats(allow_nan=False)
TEXT = st.text(st.characters(codec="utf-8"), max_size=10)
ALERTS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": TEXT,
        "tags": st.lists(TEXT, max_size=3),
        "band": st.sampled_from([*"UGR", 7]),
        "cutout": st.binary(max_size=50),
        "scores": st.dictionaries(TEXT, REAL, max_size=3),
        "history": st.lists(st.fixed_dictionaries({"flux": st.lists(REAL, max_size=3)}), max_size=2),
    },
    optional={
        "position": st.fixed_dictionaries({"ra": REAL, "dec": REAL}),
        "time": st.fixed_dictionaries({"seconds": st.integers(0, 2**33), "nanos": st.integers(0, 10**9 - 1)}),
        "magnitude": REAL,
    },
)
ALERT_DICT: dict[str, Any] = {
    "id": 7, "name": "M 51", "tags": ["a"], "band": "G", "cutout": b"\x00", "scores": {"real": 0.5},
    "history": [{"flux": [1.5, 2.5]}], "position": {"ra": 202.5, "dec": 47.2}, "magnitude": 0.0,
}  # fmt: skip


def serializer(message: object = ALERT, **config: object) -> SerializerChain:
    return SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.message.class": message, **config})


def deserializer(message: object = ALERT, **config: object) -> DeserializerChain:
    return DeserializerChain.from_config(
        {"value.deserializer": "protobuf", "protobuf.message.class": message, **config}
    )


class TestDictionaries(SerializerTests):
    stage = "protobuf"
    values = ALERTS
    misfits: ClassVar[tuple[object, ...]] = (
        1,
        "text",
        b"bytes",
        [],
        {"no such field": 1},
        {"id": "1"},
        {"id": 1.5},
        {"id": 2**63},
        {"band": "Z"},
    )
    foreign: ClassVar[tuple[bytes, ...]] = (b"\x0b", b"\x00", b"\x12\x01\xff", b"\x08", b"\xff" * 20)
    detects_truncation = False  # a message cut off between two fields is a message

    @pytest.fixture
    def config(self, tmp_path: Path) -> Mapping[str, object]:
        (tmp_path / "alert.desc").write_bytes(descriptor_set())
        return {
            "protobuf.descriptor.set.file": str(tmp_path / "alert.desc"),
            "protobuf.message.name": "survey.Alert",
            "protobuf.values": "dict",
        }


class TestMessages(SerializerTests):
    stage = "protobuf"
    values = st.builds(timestamp_pb2.Timestamp, seconds=st.integers(0, 2**33), nanos=st.integers(0, 10**9 - 1))
    misfits: ClassVar[tuple[object, ...]] = (POSITION(ra=1.0), timestamp_pb2.Timestamp, object())
    detects_truncation = False

    def from_column(self, value: dict[str, int]) -> timestamp_pb2.Timestamp:
        return timestamp_pb2.Timestamp(**value)

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"protobuf.message.class": "google.protobuf.timestamp_pb2.Timestamp"}


def test_bytes_are_protobufs() -> None:
    message = ALERT(**ALERT_DICT)
    encoded = message.SerializeToString(deterministic=True)
    assert serializer()(message) == serializer()(ALERT_DICT) == encoded
    got = deserializer()(encoded)
    assert isinstance(got, ALERT)
    assert got == message
    assert deserializer(**{"protobuf.values": "dict"})(encoded) == ALERT_DICT


@given(ALERTS)
def test_dictionaries_are_taken_and_given_alike(value: dict[str, Any]) -> None:
    got = deserializer(**{"protobuf.values": "dict"})(serializer()(value))
    assert got == value
    assert ALERT(**got) == ALERT(**value)


def test_equal_messages_give_equal_bytes() -> None:
    names = [f"score {at}" for at in range(50)]
    forwards, backwards = (dict.fromkeys(order, 1.0) for order in (names, names[::-1]))
    assert serializer()({"scores": forwards}) == serializer()({"scores": backwards})


def test_an_empty_message_is_no_bytes() -> None:
    assert serializer()(ALERT()) == b""
    assert deserializer()(b"") == ALERT()


def nested(depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        size, encoded = len(data), bytearray(b"\x5a")  # field 11, parent
        while size > 127:
            encoded.append(size & 0x7F | 0x80)
            size >>= 7
        data = bytes(encoded) + bytes([size]) + data
    return data


def test_nesting_is_bounded() -> None:
    assert deserializer(**{"protobuf.values": "dict"})(nested(90))["parent"]
    for depth in (101, 20_000):
        with pytest.raises(DecodeError, match=r"survey\.Alert"):
            deserializer()(nested(depth))


@pytest.mark.full
def test_a_value_nested_too_deep_is_refused() -> None:
    value: dict[str, Any] = {}
    for _ in range(20_000):
        value = {"parent": value}
    with pytest.raises(EncodeError):
        serializer()(value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    for values in ("message", "dict"):
        try:
            deserializer(**{"protobuf.values": values})(data)
        except DecodeError as error:
            assert str(error)  # noqa: PT017, another error fails the test by itself


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x01\x02", b"\x02abc"])
def test_a_frame_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"protobuf\.framing"):
        deserializer(**{"protobuf.framing": "confluent"})(data)


def test_a_frame_is_read_without_a_registry() -> None:
    encoded = ALERT(id=7).SerializeToString()
    for frame in (b"\x00\x00\x00\x00\x01\x02\x02", b"\x01" + bytes(16) + b"\x02\x02", b"\x00\x00\x00\x00\x01\x00"):
        assert deserializer(**{"protobuf.framing": "confluent"})(frame + encoded).id == 7
    read = DeserializerChain.from_config(
        {"value.deserializer": "protobuf", "protobuf.message.class": FIRST, "protobuf.framing": "confluent"}
    )
    assert read(b"\x00\x00\x00\x00\x01\x00" + encoded).id == 7


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "no message to write"),
        ({"protobuf.message.class": "no.such.Message"}, "cannot be imported"),
        ({"protobuf.message.class": "json.JSONDecoder"}, "is not a message class"),
        ({"protobuf.message.class": ALERT(id=1)}, "is not a message class"),
        ({"protobuf.message.class": ALERT, "protobuf.framing": "confluent"}, "requires a schema registry"),
        ({"protobuf.type": int}, "protobuf.type is not a message class"),
        ({"protobuf.message.class": ALERT, "protobuf.type": ALERT}, "message.class and protobuf.type exclude each"),
        ({"protobuf.message.class": ALERT, "protobuf.framing": "single-object"}, "expected one of"),
        ({"protobuf.message.name": "survey.Alert"}, "requires protobuf.descriptor.set.file or a schema registry"),
        ({"protobuf.descriptor.set.file": "x"}, "requires protobuf.message.name"),
        ({"protobuf.descriptor.set.file": "/no/such", "protobuf.message.name": "A"}, "No such file"),
        ({"protobuf.descriptor.set.file": __file__, "protobuf.message.name": "A"}, "cannot be loaded"),
        (
            {
                "protobuf.descriptor.set.file": "x",
                "protobuf.message.name": "A",
                "protobuf.message.class": ALERT,
            },
            "exclude each other",
        ),
    ],
)
def test_wrong_settings_are_said(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SerializerChain.from_config({"value.serializer": "protobuf", **config})


def test_descriptor_files_that_lack_something_are_refused(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    whole, lacking = tmp_path / "whole", tmp_path / "lacking"
    whole.write_bytes(descriptor_set())
    lacking.write_bytes(descriptor_pb2.FileDescriptorSet(file=FILES[1:]).SerializeToString())
    for path, name, message in (
        (whole, "survey.Missing", r"survey\.Missing"),
        (whole, "survey.Alrt", r"did you mean survey\.Alert\? It has .*survey\.Alert.*Set the full name of a message"),
        (whole, "alert", r"did you mean survey\.Alert\?"),
        (lacking, "survey.Alert", r"sky/position\.proto.* is imported but missing"),
    ):
        with pytest.raises(ConfigError, match=message):
            SerializerChain.from_config(
                {
                    "value.serializer": "protobuf",
                    "protobuf.descriptor.set.file": str(path),
                    "protobuf.message.name": name,
                }
            )


@pytest.mark.full
@pytest.mark.timeout(30)
def test_any_number_of_imports_may_be_missing() -> None:
    """In linear time: a product of their numbers would exceed the time limit."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=[f"{at}.proto" for at in range(100_000)])
    file.public_dependency.extend(range(0, 100_000, 2))
    file.message_type.add(name="Alert")
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    config = {"protobuf.descriptor.set.file": files.SerializeToString(), "protobuf.message.name": "Alert"}
    assert SerializerChain.from_config({"value.serializer": "protobuf", **config})({}, None) == b""


def test_a_reader_needs_a_message_or_a_registry() -> None:
    with pytest.raises(ConfigError, match="no message to read"):
        DeserializerChain.from_config({"value.deserializer": "protobuf"})


def test_classes_of_other_pools_are_not_mixed_up() -> None:
    with pytest.raises(EncodeError, match=r"expected survey\.Alert"):
        serializer()(make("survey.Alert")(id=1))


@pytest.mark.parametrize("message", [timestamp_pb2.Timestamp, "google.protobuf.timestamp_pb2.Timestamp"])
def test_protobuf_type_names_the_class_too(message: object) -> None:
    write = SerializerChain.from_config({"value.serializer": "protobuf", "protobuf.type": message})
    read = DeserializerChain.from_config({"value.deserializer": "protobuf", "protobuf.type": message})
    value = timestamp_pb2.Timestamp(seconds=7)
    assert read(write(value)) == value
