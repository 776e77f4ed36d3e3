"""Uploads taken apart while they arrive, compared with the bson package; what is no upload is refused."""

import random
import struct
import uuid
from itertools import pairwise
from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload_stores.offload_server.errors import MalformedUploadError, RefusedError, TooLargeError
from payload_stores.offload_server.responses import frame, stored_headers
from payload_stores.offload_server.uploads import Upload, UploadParser
from tests.payload_stores.hop.test_record_document import nested, with_headers

ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
ID_HEADER = ["_id", ID.bytes]
GOOD: dict[str, Any] = {"message": b"payload", "headers": [["a", b"1"], ID_HEADER], "key": b"k"}

NAMES = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name != "_id")
HEADERS = st.lists(st.tuples(NAMES, st.binary(max_size=40)), max_size=5)


def parse(
    data: bytes, cuts: list[int] | None = None, max_bytes: int = 1 << 20, length: int | None = None
) -> tuple[bytes, Upload]:
    """The payload and the rest of a document that arrives in pieces."""
    parser = UploadParser(max_bytes, length)
    ends = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts or [])})
    pieces = [bytes(piece) for start, end in pairwise(ends) for piece in parser.feed(data[start:end])]
    return b"".join(pieces), parser.upload()


@given(
    st.binary(max_size=300),
    HEADERS,
    st.none() | st.binary(max_size=40),
    st.lists(st.integers(0)),
    st.permutations(range(3)),
)
def test_any_order_in_any_pieces(
    message: bytes, headers: list[tuple[str, bytes]], key: bytes | None, cuts: list[int], order: list[int]
) -> None:
    headers = [*headers, ("_id", ID.bytes)]
    fields = [("message", message), ("headers", [list(pair) for pair in headers])]
    fields += [("key", key)] if key is not None else []
    document = {fields[at][0]: fields[at][1] for at in order if at < len(fields)}
    payload, upload = parse(bson.encode(document), cuts)
    assert payload == message
    assert upload == Upload(ID, headers, key, len(message))


@given(st.binary(max_size=300), HEADERS, st.none() | st.binary(max_size=40), st.integers(0, 2**62))
def test_answers_have_both_forms(
    message: bytes, headers: list[tuple[str, bytes]], key: bytes | None, timestamp: int
) -> None:
    head, tail = frame(len(message), stored_headers(headers), key, timestamp)
    pairs = [[name, value] for name, value in headers]
    found: dict[str, Any] = bson.decode(head + message + tail)
    keys: dict[str, Any] = {} if key is None else {"key": key}
    assert found == {
        "message": message,
        "headers": pairs,
        **keys,
        "metadata": {"headers": pairs, "timestamp": timestamp, **keys},
    }
    assert next(iter(found)) == "message"


@pytest.mark.parametrize(
    "change",
    [
        {"message": "text"},
        {"message": bson.Binary(b"x", 2)},
        {"message": bson.Binary(b"x" * 16, 4)},
        {"message": None},
        {"headers": {"a": "text", "_id": ID.bytes}},
        {"headers": {"a": bson.Binary(b"1", 4), "_id": ID.bytes}},
        {"headers": {"a": [b"1"]}},
        {"headers": [["a", "text"], ID_HEADER]},
        {"headers": [["a", bson.Binary(b"1", 4)], ID_HEADER]},
        {"headers": [["a", None], ID_HEADER]},
        {"headers": [["a"], ID_HEADER]},
        {"headers": [["a", b"1", b"2"], ID_HEADER]},
        {"headers": [[b"a", b"1"], ID_HEADER]},
        {"headers": [{"0": "a", "1": b"1"}, ID_HEADER]},
        {"headers": ["a", ID_HEADER]},
        {"headers": [[["a"], b"1"], ID_HEADER]},
        {"headers": [[bson.Code("a"), b"1"], ID_HEADER]},
        {"headers": {"$ref": "a", "$id": 1}},
        {"headers": None},
        {"key": 1},
        {"key": None},
        {"key": bson.Binary(b"x", 3)},
        {"other": 1},
        {"Message": b"x"},
        {"": b"x"},
        {"messages": b"x"},
        {"metadata": {}},
    ],
)
def test_documents_that_are_no_uploads(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedUploadError):
        parse(bson.encode({**GOOD, **change}))


@pytest.mark.parametrize("depth", [500, 5_000, 120_000])
def test_headers_in_headers_in_headers(depth: int) -> None:
    with pytest.raises(MalformedUploadError, match="header"):
        parse(with_headers(4, nested(depth)))


@pytest.mark.parametrize("key", ["", "ü\0", "k" * 1000])
def test_key_that_is_a_string(key: str) -> None:
    assert parse(bson.encode({**GOOD, "key": key}), [70, 90])[1].key == key.encode()
    body = bson.encode({**GOOD, "key": "k"})
    for wrong in (b"\x02\0\0\0\xff\0", b"\x02\0\0\0kk", b"\0\0\0\0k\0", b"\xff\xff\xff\xffk\0"):
        with pytest.raises(MalformedUploadError):
            parse(body.replace(b"\x02\0\0\0k\0", wrong))


def test_message_must_be_there() -> None:
    with pytest.raises(MalformedUploadError, match="no message"):
        parse(bson.encode({name: value for name, value in GOOD.items() if name != "message"}))


@given(st.dictionaries(NAMES.filter(lambda name: "\0" not in name), st.binary(max_size=40)), st.lists(st.integers(0)))
def test_headers_as_an_object(headers: dict[str, bytes], cuts: list[int]) -> None:
    body = bson.encode({**GOOD, "headers": {**headers, "_id": ID.bytes}})
    assert parse(body, cuts) == (b"payload", Upload(ID, [*headers.items(), ("_id", ID.bytes)], b"k", 7))


@pytest.mark.parametrize("headers", [None, [], {}, [["_id", b"short"]], {"_id": str(ID).encode()}])
def test_an_id_is_made_up_where_none_is_given(headers: Any) -> None:
    document = {"message": b"payload"} if headers is None else {"message": b"payload", "headers": headers}
    first, second = (parse(bson.encode(document))[1] for _ in range(2))
    assert first.id != second.id
    assert first.headers == second.headers == [tuple(pair) for pair in dict(headers or []).items()]
    assert first.key is None


def test_the_last_id_that_is_one_counts() -> None:
    other = uuid.uuid4()
    headers = [["_id", other.bytes], ID_HEADER, ["_id", b"short"]]
    upload = parse(bson.encode({**GOOD, "headers": headers}))[1]
    assert upload.id == ID
    assert upload.headers == [tuple(pair) for pair in headers]


@pytest.mark.parametrize("body", [b'{"message": "not BSON"}', b"message=1&headers=2", b"\xff" * 50, b"\0" * 50])
def test_what_is_no_bson_has_no_size(body: bytes) -> None:
    for length in (None, len(body)):
        with pytest.raises(MalformedUploadError):
            parse(body, max_bytes=1 << 20, length=length)


def test_length_is_that_of_the_body() -> None:
    body = bson.encode(GOOD)
    assert parse(body, length=len(body))[0] == b"payload"
    for length in (len(body) - 1, len(body) + 1):
        with pytest.raises(MalformedUploadError, match="length"):
            parse(body[:-1], length=length)


def test_fields_that_stand_twice() -> None:
    body = bson.encode(GOOD)
    element = b"\x05key\0" + struct.pack("<i", 1) + b"\0x"
    with pytest.raises(MalformedUploadError, match="twice"):
        parse(struct.pack("<i", len(body) + len(element)) + body[4:-1] + element + b"\0")


@pytest.mark.parametrize("cut", range(len(bson.encode(GOOD))))
def test_cut_off_anywhere(cut: int) -> None:
    with pytest.raises(MalformedUploadError, match="cut off"):
        parse(bson.encode(GOOD)[:cut])


@pytest.mark.parametrize("more", [b"\0", b"x" * 1000, bson.encode(GOOD)])
def test_bytes_behind_the_end(more: bytes) -> None:
    body = bson.encode(GOOD)
    for cuts in ([], [len(body)]):
        with pytest.raises(MalformedUploadError, match="follow"):
            parse(body + more, cuts)


@pytest.mark.parametrize("length", [-1, 0, 4, -(2**31)])
def test_impossible_lengths(length: int) -> None:
    body = bson.encode(GOOD)
    with pytest.raises(MalformedUploadError):
        parse(struct.pack("<i", length) + body[4:])
    at = body.index(b"message\0") + 8
    with pytest.raises(MalformedUploadError):
        parse(body[:at] + struct.pack("<i", -1 if length >= 0 else length) + body[at + 4 :])


def test_length_that_lies() -> None:
    body = bson.encode(GOOD)
    for length in (len(body) - 1, len(body) + 1):
        with pytest.raises(MalformedUploadError):
            parse(struct.pack("<i", length) + body[4:])
    at = body.index(b"message\0") + 8
    with pytest.raises(MalformedUploadError):
        parse(body[:at] + struct.pack("<i", len(body)) + body[at + 4 :])


def test_too_large() -> None:
    body = bson.encode(GOOD)
    assert parse(body, max_bytes=len(body))[0] == b"payload"
    with pytest.raises(TooLargeError):
        parse(body, max_bytes=len(body) - 1)
    with pytest.raises(TooLargeError, match="headers and key"):
        parse(bson.encode({**GOOD, "key": bytes(1 << 20)}), max_bytes=1 << 30)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with pytest.raises(RefusedError):
        parse(data)


@given(st.randoms(use_true_random=False), st.integers(1, 6), st.lists(st.integers(0), max_size=3))
def test_flipped_bytes(source: random.Random, count: int, cuts: list[int]) -> None:
    body = bytearray(bson.encode(GOOD))
    for _ in range(count):
        body[source.randrange(len(body))] = source.choice([0, 1, 2, 3, 4, 5, 127, 128, 255, source.randrange(256)])
    try:
        payload, upload = parse(bytes(body), cuts)
    except RefusedError:
        return
    # What is taken is what the bson package reads.
    found: dict[str, Any] = bson.decode(bytes(body), bson.CodecOptions(unicode_decode_error_handler="strict"))
    assert found["message"] == payload
    headers = found.get("headers", [])
    assert [tuple(pair) for pair in (headers.items() if isinstance(headers, dict) else headers)] == upload.headers


def test_pieces_share_the_chunk() -> None:
    parser = UploadParser(1 << 30)
    body = bson.encode({**GOOD, "message": bytes(1000)})
    [piece] = parser.feed(body)
    assert piece.obj is body
    assert parser.size == 1000
