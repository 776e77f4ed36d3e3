"""How a record names its schema."""

from uuid import UUID

import pytest
from confluent_kafka.schema_registry.serde import SchemaId as ConfluentSchemaId
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_chain.schemas import schema_id
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


@settings(max_examples=examples(200))
@given(st.binary(max_size=40))
def test_any_bytes_give_an_id_or_a_value_error(data: bytes) -> None:
    for split in (schema_id.split_confluent, schema_id.split_single_object):
        try:
            _, size = split(data)
        except ValueError:
            continue
        assert 0 < size <= len(data)
