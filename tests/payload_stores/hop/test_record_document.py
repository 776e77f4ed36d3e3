"""Records as BSON: byte for byte as pymongo writes them, and read back whatever a server or a stranger sends."""

import datetime as dt
import mmap
import struct
import tracemalloc
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import bson
import pytest
from bson.binary import Binary
from hypothesis import given
from hypothesis import strategies as st

from payload_stores import PayloadTooLargeError, StoredRecord
from payload_stores.hop.record_document import MAX_BYTES, MAX_METADATA_BYTES, frame, holds, read

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
HEADERS = st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=12)
KEYS = st.none() | st.binary(max_size=20)


def unlimited(_size: int) -> None:
    pass


def load(document: bytes, size: int = 7) -> StoredRecord:
    return read((document[at : at + size] for at in range(0, len(document), size)), unlimited)


@given(st.binary(max_size=3000), HEADERS, KEYS, st.integers(1, 2000))
def test_bytes_are_those_of_pymongo(value: bytes, headers: Any, key: bytes | None, size: int) -> None:
    document: dict[str, Any] = {"message": value, "headers": [[name, data] for name, data in headers]}
    if key is not None:
        document["key"] = key
    written = frame(StoredRecord(value, tuple(headers), key, 99))
    whole = b"".join(written.chunks(size))
    assert whole == bson.encode(document)
    assert written.size == len(whole)
    assert load(whole, size) == StoredRecord(value, tuple(headers), key)


def test_payload_is_not_copied() -> None:
    data = bytearray(1000)
    written = frame(StoredRecord(data))
    data[0] = 1
    assert b"\1" in b"".join(written.chunks())


@given(st.binary(max_size=100), HEADERS, KEYS, st.integers(-(2**63), 2**63 - 1), st.sampled_from(["top", "in", "both"]))
def test_both_shapes_are_read(value: bytes, headers: Any, key: bytes | None, timestamp: int, where: str) -> None:
    inner: dict[str, Any] = {"headers": [[name, data] for name, data in headers], "timestamp": timestamp}
    inner |= {} if key is None else {"key": key}
    document: dict[str, Any] = {"message": value, "title": "of the server's own"}
    document |= {} if where == "in" else inner
    document |= {} if where == "top" else {"metadata": inner | {"topic": "t", "more": {"a": [1, {"b": None}]}}}
    assert load(bson.encode(document)) == StoredRecord(value, tuple(headers), key, timestamp)


def test_headers_may_be_a_dictionary_text_or_null() -> None:
    document = {"message": b"1", "headers": {"a": "text", "b": b"2", "c": None}, "key": "k"}
    assert load(bson.encode(document)) == StoredRecord(b"1", (("a", b"text"), ("b", b"2"), ("c", None)), b"k")
    assert load(bson.encode({"message": b"1", "headers": None, "key": None, "timestamp": None})) == StoredRecord(b"1")


def test_a_forged_size_is_not_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 2 GiB, more than some machines have."""

    def no_memory(_size: int) -> None:
        raise MemoryError

    monkeypatch.setattr("payload_stores.buffers.bytes", no_memory, raising=False)
    with pytest.raises(PayloadTooLargeError, match="does not fit into the memory of this process"):
        load(bson.encode({"message": b"1"}))


@pytest.mark.parametrize("subtype", [0, 2, 3, 4, 5, 128])
def test_binary_of_every_subtype(subtype: int) -> None:
    data = bytes(range(16))
    document = {"message": Binary(data, subtype), "key": Binary(data, subtype)}
    assert load(bson.encode(document)) == StoredRecord(data, (), data)


def test_keys_of_other_types_are_passed_over() -> None:
    document = {
        "a": 1.5, "b": "text", "c": {"d": [1]}, "e": b"1", "f": bson.ObjectId(), "g": True, "i": None,
        "h": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "j": bson.Regex("a", "i"), "k": bson.Code("x"),
        "l": bson.Code("x", {"y": 1}), "m": 1, "n": bson.Timestamp(1, 2), "o": bson.Int64(1), "p": bson.Decimal128("1"),
        "q": bson.MinKey(), "r": bson.MaxKey(), "s": bson.DBRef("a", "b"), "message": b"1",
    }  # fmt: skip
    assert load(bson.encode(document), 1) == StoredRecord(b"1")


@pytest.mark.parametrize("timestamp", [bson.Int64(5), 5, dt.datetime.fromtimestamp(0.005, dt.UTC)])
def test_timestamps(timestamp: Any) -> None:
    assert load(bson.encode({"message": b"", "timestamp": timestamp})).timestamp == 5


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"message": "text"},
        {"message": None},
        {"message": b"1", "headers": 1},
        {"message": b"1", "headers": "text"},
        {"message": b"1", "headers": [1]},
        {"message": b"1", "headers": [["a"]]},
        {"message": b"1", "headers": [["a", b"b", b"c"]]},
        {"message": b"1", "headers": [[b"a", b"b"]]},
        {"message": b"1", "headers": [["a", 1]]},
        {"message": b"1", "headers": {"a": 1}},
        {"message": b"1", "headers": {"a": {}}},
        {"message": b"1", "key": 1},
        {"message": b"1", "metadata": 1},
        {"message": b"1", "metadata": []},
        {"message": b"1", "metadata": {"headers": 1}},
        {"message": b"1", "metadata": {"key": 1.5}},
        {"message": b"1", "metadata": {"timestamp": "now"}},
        {"message": b"1", "metadata": None},
        {"message": b"1", "timestamp": True},
        {"message": b"1", "headers": [[bson.Code("a"), b"b"]]},
        {"message": b"1", "headers": {"$ref": "a", "$id": 1}},
        {"message": b"1", "key": bson.Code("a")},
        {"message": b"1", "a": b"x" * (MAX_METADATA_BYTES + 1)},
        {"message": b"1", "x" * 2000: 1},
        {"message": b"1", "headers": [None] * 100_001},
    ],
    ids=lambda document: str(document)[:60],
)
def test_other_documents_are_refused(document: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(bson.encode(document), 100_000)


def nested(depth: int) -> bytes:
    """An array in an array, and so on; pymongo would refuse to write it."""
    sizes = range(5 + 8 * depth, 5, -8)
    return b"".join(struct.pack("<i", size) + b"\x040\0" for size in sizes) + b"\5\0\0\0\0" + bytes(depth)


def with_headers(kind: int, headers: bytes) -> bytes:
    """A document with headers that are BSON already."""
    body = b"\5message\0" + struct.pack("<iB", 1, 0) + b"1" + bytes([kind]) + b"headers\0" + headers + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def test_headers_in_headers_in_headers() -> None:
    assert bson.decode(nested(3)) == {"0": [[[]]]}
    for depth in (500, 5_000, 300_000):
        with pytest.raises(ValueError, match=r"pair|malformed"):
            load(with_headers(4, nested(depth)), 100_000)


@pytest.mark.full
@pytest.mark.parametrize("element", [b"\3%d\0\5\0\0\0\0", b"\4%d\0\5\0\0\0\0", b"\n%d\0"])
def test_memory_of_what_describes_a_message(element: bytes) -> None:
    count = MAX_METADATA_BYTES // (len(element) + 5)
    elements = b"".join(element % number for number in range(count))
    document = with_headers(4, struct.pack("<i", len(elements) + 5) + elements + b"\0")
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="pair"):
            load(document, 1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 25 * MAX_METADATA_BYTES


GOOD = bson.encode({"message": b"payload", "headers": [["a", b"1"]], "key": b"k", "metadata": {"timestamp": 1}})


@pytest.mark.parametrize("size", range(len(GOOD)))
def test_cut_off_anywhere(size: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(GOOD[:size])


def test_what_follows_is_refused() -> None:
    with pytest.raises(ValueError, match="follow"):
        load(GOOD + b"\0")
    with pytest.raises(ValueError, match="two messages"):
        load(struct.pack("<i", 2 * len(GOOD) - 5) + GOOD[4:-1] + GOOD[4:])


@given(st.data())
def test_changed_bytes_give_a_record_or_a_value_error(data: st.DataObject) -> None:
    document = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        document[data.draw(st.integers(0, len(document) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        load(bytes(document))


@pytest.mark.parametrize("number", [-(2**31), -5, -4, -1, 0, 1, 4, 5, 2**31 - 1])
def test_every_length_changed(number: int) -> None:
    rich = bson.encode({"message": b"payload", "headers": {"a": b"1", "b": "text"}, "key": Binary(b"12345", 2)})
    for document in (GOOD, rich):
        for at in range(len(document) - 3):
            with suppress(ValueError):
                load(document[:at] + struct.pack("<i", number) + document[at + 4 :])


@given(st.binary(max_size=300), st.integers(0, 400))
def test_random_bytes(data: bytes, length: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        load(struct.pack("<i", length) + data + uuid.uuid4().bytes)


def test_size_is_checked_before_memory_is_taken() -> None:
    def check(size: int) -> None:
        raise PayloadTooLargeError(f"{size}")

    claims = struct.pack("<i", MAX_BYTES) + b"\5message\0" + struct.pack("<iB", MAX_BYTES - 100, 0)
    with pytest.raises(PayloadTooLargeError):
        read([claims], check)


def test_document_above_the_limit_of_bson() -> None:
    # Pages of an anonymous mapping take no memory until they are touched.
    with mmap.mmap(-1, MAX_BYTES) as region, memoryview(region) as view, pytest.raises(ValueError, match="at most"):
        frame(StoredRecord(view))


def test_a_document_holds_the_record_or_another() -> None:
    record = StoredRecord(b"value" * 100, (("a", b"1"), ("b", None)), b"k", 1)
    pieces = [bytes(chunk) for chunk in frame(record).chunks(7)]
    assert holds(pieces, record)
    for other in (
        record._replace(value=b"value" * 99 + b"other"),
        record._replace(value=b"value" * 101),
        record._replace(headers=(("a", b"1"),)),
        record._replace(headers=record.headers[::-1]),
        record._replace(key=None),
    ):
        assert not holds(pieces, other)
    assert not holds(pieces[:-1], record)


@pytest.mark.parametrize(("function", "most"), [("read", 1.1), ("holds", 0.1)])
def test_memory_of_reading(function: str, most: float) -> None:
    size = 16 << 20
    record = StoredRecord(bytes(size))
    written = frame(record)

    def chunks() -> Iterator[bytes]:
        for chunk in written.chunks(65_536):
            yield bytes(chunk)

    tracemalloc.start()
    try:
        if function == "read":
            read(chunks(), unlimited)
        else:
            assert holds(chunks(), record)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most * size
