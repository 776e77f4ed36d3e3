"""PIP-70's frame: Pulsar's bytes, protobuf's reading, and stricter refusals."""

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from serde_chain.errors import DecodeError
from serde_chain.wire.entry_metadata import MAX_OVERHEAD, EntryMetadata, EntryMetadataError, frame, peek, strip

VECTORS = json.loads((Path(__file__).parent.parent / "data" / "golden" / "pulsar_entry_metadata.json").read_text())
UINT64 = st.integers(0, 2**64 - 1) | st.integers(0, 2**36) | st.integers(2**34, 2**43)

# What our reader refuses and Pulsar's takes, or the reverse.
STRICTER = {
    "size_int_min_0x80000000",
    "size_minus_6_0xfffffffa",
    "size_too_small_3_of_7_overreads",
    "size_too_large_by_1_eats_a_payload_byte_as_tag",
}


def protobuf_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="entry_metadata.proto", syntax="proto2")
    message = file.message_type.add(name="BrokerEntryMetadata")
    for number, name in enumerate(("broker_timestamp", "index"), 1):
        message.field.add(name=name, number=number, type="TYPE_UINT64", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("BrokerEntryMetadata"))


BrokerEntryMetadata = protobuf_class()


def metadata_of(vector: dict[str, Any]) -> EntryMetadata:
    given_ = vector["in"]
    timestamp, before = given_["broker_timestamp"], given_["last_index_before"]
    index = None if before is None else int(before) + given_["number_of_messages"]
    return EntryMetadata(None if timestamp is None else int(timestamp), index)


def body_of(vector: dict[str, Any]) -> bytes:
    body = vector["body"]
    data = (
        bytes.fromhex(body["hex"]) if "hex" in body else bytes((31 * at + 7) & 0xFF for at in range(int(body["len"])))
    )
    assert hashlib.sha256(data).hexdigest() == body["sha256"]
    return data


@pytest.mark.parametrize("vector", VECTORS["positive"], ids=lambda vector: vector["name"])
def test_frames_are_those_of_pulsar(vector: dict[str, Any]) -> None:
    metadata, body = metadata_of(vector), body_of(vector)
    framed = frame(body, broker_timestamp=metadata.broker_timestamp, index=metadata.index)
    assert len(framed) == vector["frame"]["len"]
    assert hashlib.sha256(framed).hexdigest() == vector["frame"]["sha256"]
    for kind in (bytes, bytearray, memoryview):
        assert peek(kind(framed)) == metadata
        assert strip(kind(framed)) == body


@pytest.mark.parametrize("vector", VECTORS["malformed"], ids=lambda vector: vector["name"])
def test_malformed_frames_are_read_as_pulsar_does_or_refused(vector: dict[str, Any]) -> None:
    data, theirs = bytes.fromhex(vector["frame_hex"]), vector["pulsar"]["parse"]
    if not data:
        assert peek(data) is None  # nothing is no frame
        return
    if vector["name"] in STRICTER or not theirs["ok"]:
        with pytest.raises(EntryMetadataError):
            peek(data)
        return
    found, value = peek(data), theirs["value"]
    if value is None:
        assert found is None
        assert strip(data) == data
        return
    assert found is not None
    assert found.broker_timestamp == (int(value["broker_timestamp"]) if value["has_broker_timestamp"] else None)
    assert found.index == (int(value["index"]) if value["has_index"] else None)
    skipped = vector["pulsar"]["skip"]["value"]["body"]
    assert len(strip(data)) == skipped["len"]
    assert hashlib.sha256(strip(data)).hexdigest() == skipped["sha256"]


@given(st.none() | UINT64, st.none() | UINT64, st.binary(max_size=40))
def test_frames_are_protobufs_and_come_back(timestamp: int | None, index: int | None, payload: bytes) -> None:
    framed = frame(payload, broker_timestamp=timestamp, index=index)
    fields = BrokerEntryMetadata(broker_timestamp=timestamp, index=index).SerializeToString()
    assert framed == b"\x0e\x02" + len(fields).to_bytes(4, "big") + fields + payload
    assert len(framed) - len(payload) <= MAX_OVERHEAD
    for data in (framed, b"\x0e\x02" + (len(fields) + 2).to_bytes(4, "big") + b"\x28\x07" + fields + payload):
        assert peek(data) == (timestamp, index)  # with a field of number 5 in front as well
        assert strip(data) == payload


@given(st.binary(max_size=30), st.binary(max_size=20))
def test_metadata_are_read_as_protobuf_reads_them_or_refused(fields: bytes, payload: bytes) -> None:
    try:
        found = peek(b"\x0e\x02" + len(fields).to_bytes(4, "big") + fields + payload)
    except EntryMetadataError:
        return
    theirs = BrokerEntryMetadata.FromString(fields)
    assert found == tuple(
        getattr(theirs, name) if theirs.HasField(name) else None for name in ("broker_timestamp", "index")
    )


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda rest: b"\x0e\x02\x00\x00\x00" + rest))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for call in (peek, strip):
        try:
            call(data)
        except EntryMetadataError:
            assert data[:2] == b"\x0e\x02"


def test_a_numbers_bytes_decide_not_their_count() -> None:
    # The usual number of bytes, with an end in the middle: two fields, of which the second is cut off.
    with pytest.raises(EntryMetadataError):
        peek(bytes.fromhex("0e020000000708fb5095ffbc31") + bytes(20))
    with pytest.raises(EntryMetadataError, match="64 bits"):
        peek(bytes.fromhex("0e020000000b08ffffffffffffffffff02"))
    assert peek(bytes.fromhex("0e020000000b08ffffffffffffffffff01")) == (2**64 - 1, None)


def test_the_payload_is_neither_copied_nor_looked_at() -> None:
    payload = bytes(8 << 20)
    framed = frame(payload, broker_timestamp=1700000000123, index=9)
    view = strip(framed)
    assert view.obj is framed
    assert view.nbytes == len(payload)


@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_numbers_that_do_not_fit_are_refused(wrong: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        frame(b"", broker_timestamp=wrong)
    with pytest.raises(ValueError, match="64 bits"):
        frame(b"", index=wrong)


def test_errors_survive_pickling() -> None:
    with pytest.raises(EntryMetadataError) as caught:
        peek(b"\x0e\x02\x00")
    assert isinstance(caught.value, DecodeError)
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301, our own bytes
