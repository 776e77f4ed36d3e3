"""How a record names its schema."""

from uuid import UUID

import pytest
from confluent_kafka.schema_registry.serde import SchemaId as ConfluentSchemaId
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_chain.errors import EncodeError
from serde_chain.schemas import schema_id
from serde_chain.schemas.framing import Apicurio
from serde_chain.schemas.registry import RegisteredSchema
from tests.hypothesis_profiles import examples

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def test_ids_are_confluents() -> None:
    theirs = ConfluentSchemaId("AVRO", 1159, str(GUID))
    assert schema_id.encode_id(1159) == theirs.id_to_bytes() == b"\x00\x00\x00\x04\x87"
    assert schema_id.encode_guid(GUID) == theirs.guid_to_bytes()


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_both_kinds_are_read(kind: type) -> None:
    assert schema_id.split_confluent(kind(b"\x00\x7f\xff\xff\xffrest")) == (2**31 - 1, 5)
    assert schema_id.split_confluent(kind(b"\x01" + GUID.bytes + b"rest")) == (GUID, 17)
    assert schema_id.split_single_object(kind(b"\xc3\x01fingerpr" + b"rest")) == (b"fingerpr", 10)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "begins with nothing"),
        (b"\x02abcdefgh", "begins with 02"),
        (b"\x00\x00\x00\x00", "truncated after 4 bytes"),
        (b"\x01" + bytes(15), "truncated after 16 bytes"),
    ],
)
def test_other_bytes_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schema_id.split_confluent(data)


@pytest.mark.parametrize("data", [b"", b"\xc3", b"\xc3\x01", b"\xc3\x01" + bytes(7), b"\xc3\x02" + bytes(20)])
def test_other_single_objects_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="instead of c301"):
        schema_id.split_single_object(data)


# Written by Glue's Java serde: {"x": 5, "s": "hi"}.
GLUE = bytes.fromhex("0300f8054338692141e8917682b8c43c240b0a046869")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_glue(kind: type) -> None:
    version = UUID("f8054338-6921-41e8-9176-82b8c43c240b")
    assert schema_id.split_glue(kind(GLUE)) == version
    assert schema_id.encode_glue(version) == GLUE[: schema_id.GLUE_BYTES]
    compressed = schema_id.encode_glue(version, compressed=True)
    assert (compressed[:2], schema_id.split_glue(compressed)) == (b"\3\5", version)
    assert [schema_id.is_compressed(kind(data)) for data in (GLUE, compressed, compressed[:-1])] == [False, True, False]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "nothing instead of 03"), (GLUE[:17], "instead of 03 and 17 more"), (b"\3\4" + bytes(16), "byte is 04")],
)
def test_other_bytes_are_not_glues(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schema_id.split_glue(data)


def test_apicurio() -> None:
    assert schema_id.split_apicurio(b"\0\0\0\0\7rest") == (7, 5)
    assert schema_id.split_apicurio(b"\0" + bytes(7) + b"\7rest") == (7, 9)
    assert schema_id.encode_apicurio(7) == b"\0\0\0\0\7"
    assert schema_id.encode_apicurio(1 << 40, 8) == b"\0\0\0\1" + bytes(5)
    assert schema_id.encode_ref("M1") == bytes.fromhex("040a024d31")
    assert schema_id.split_ref(bytes.fromhex("ff040a024d31ff"), 1) == ("M1", 6)
    with pytest.raises(ValueError, match="truncated after 5 bytes"):
        schema_id.split_apicurio(bytes(5))


def test_an_id_that_is_too_large_is_said() -> None:
    schema = RegisteredSchema(1 << 32, "")
    with pytest.raises(EncodeError, match=r"more than 4 bytes.*Set apicurio\.id\.bytes = 8"):
        Apicurio({}, in_header=False, is_key=False).frame(schema)
    wide = Apicurio({"apicurio.id.bytes": 8}, in_header=False, is_key=False)
    assert wide.frame(schema).prefix == b"\0\0\0\0\1" + bytes(4)


@pytest.mark.parametrize("data", ["", "04", "040a02", "040a034d31", "050a024d3100", "0412024d31", "040a02ffff"])
def test_other_bytes_are_no_ref(data: str) -> None:
    with pytest.raises(ValueError, match="does not name its message"):
        schema_id.split_ref(bytes.fromhex(data), 0)


@settings(max_examples=examples(200))
@given(st.binary(max_size=40))
def test_any_bytes_give_an_id_or_a_value_error(data: bytes) -> None:
    for split in (schema_id.split_confluent, schema_id.split_single_object, schema_id.split_apicurio):
        try:
            _, size = split(data)
        except ValueError:
            continue
        assert 0 < size <= len(data)
