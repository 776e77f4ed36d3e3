"""The formats of other systems, byte by byte."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import EncodeError, RecordContext
from serde_chain.catalogue import find_format
from serde_chain.wire.aws_extended import MAX_POINTER_BYTES
from serde_chain.wire.foreign import MAX_DOCUMENT_BYTES
from serde_chain.wire.json_text import take_out
from serde_chain.wire.reference_format import Reference

NAMES = ("aws-extended", "cloudevents", "eventbridge", "kafscale", "ticdc")
SHA256 = "239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5"  # of b"payload"
POINTER = "software.amazon.payloadoffloading.PayloadS3Pointer"
LEGACY = "com.amazon.sqs.javamessaging.MessageS3Pointer"
STRUCTURED = ("content-type", b"application/cloudevents+json; charset=UTF-8")
LOCATION = "s3:/bucket/claim/u.json"

# Written by lfs.EncodeEnvelope of github.com/KafScale/platform/pkg/lfs (f7e2336, Go 1.25).
ENVELOPE = (
    b'{"kfs_lfs":1,"bucket":"payloads","key":"ns/alerts/lfs/2026/11/25/obj-1","size":7,"sha256":"%s","checksum":"deadbeef",'
    b'"checksum_alg":"crc32","content_type":"image/fits","original_headers":{"telescope":"blanco"},'
    b'"created_at":"2026-11-25T00:00:00Z","proxy_id":"proxy-1"}' % SHA256.encode()
)
SPACED_ENVELOPE = f'{{"kfs_lfs":1,"bucket":"payloads","key":"a b/ü","size":7,"sha256":"{SHA256}"}}'.encode()
# Written by Go 1.25's encoding/json and encoding/binary for tiflow's structs MessageKey and ClaimCheckMessage.
OPEN_KEY = bytes.fromhex(
    "000000000000000100000000000000477b227473223a3430302c2273636d223a2274657374222c2274626c223a2274222c2274223a312c2263636c22"
    "3a2273333a2f6275636b65742f636c61696d2f752e6a736f6e227d"
)
STORED = {
    b'{"key":"aw==","value":"dmFsdWU="}': (b"k", b"value"),
    b'{"key":null,"value":"dmFsdWU="}': (b"given", b"value"),
    b'{"key":"aw==","value":null}': (b"k", b""),
    b'{"id":0,"data":[{}]}': (b"given", b'{"id":0,"data":[{}]}'),  # claim-check-raw-value
}


def context(*headers: tuple[str, Any], key: bytes | None = None) -> RecordContext:
    return RecordContext("alerts", "value", list(headers), key=key)


def read(name: str, data: Any, *headers: tuple[str, Any], key: bytes | None = None, is_key: bool = False) -> Any:
    data = data if isinstance(data, bytes) else json.dumps(data).encode()
    return find_format(name).read(data, context(*headers, key=key), is_key=is_key)


@pytest.mark.parametrize("kind", [POINTER, LEGACY])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_pointers_of_extended_clients(kind: str, separators: tuple[str, str]) -> None:
    data = json.dumps([kind, {"s3BucketName": "payloads", "s3Key": "2026/a b"}], separators=separators).encode()
    assert read("aws-extended", data) == Reference("s3://payloads/2026/a%20b")
    assert read("aws-extended", data, ("ExtendedPayloadSize", b"7")).size == 7
    assert read("aws-extended", data, ("SQSLargePayloadSize", "8")).size == 8
    ctx = context(("ExtendedPayloadSize", b"7"), ("user", b"1"))
    find_format("aws-extended").restore_headers(data, ctx, is_key=False)
    assert ctx.headers == [("user", b"1")]


@pytest.mark.parametrize(
    "data",
    [
        b'{"s3BucketName":"payloads","s3Key":"2026/a b"}',
        b'{"s3Key": "2026/a b", "s3BucketName": "payloads"}',
        b'{\n  "s3BucketName" : "payloads",\n  "s3Key" : "2026/a b"\n}\n',
        b'{"s3BucketName":"payloads","s3Key":"2026\\/a b"}',
    ],
)
def test_pointers_of_clients_in_other_languages(data: bytes) -> None:
    assert read("aws-extended", data) == Reference("s3://payloads/2026/a%20b")
    assert read("aws-extended", data, ("SQSLargePayloadSize", b"7")).size == 7


@pytest.mark.parametrize(
    "data",
    [
        b'{"s3BucketName":"payloads","s3Key":"1","etag":"2"}',
        b'{"s3Key":"1"}',
        b'{"s3Key":"1","s3BucketName":"payloads"} and text',
        b'{"id":1,"s3BucketName":"payloads","s3Key":"1"}',
        b'{"s3Key":"1","s3BucketName":"payloads","notes":"%s"}' % (b"x" * MAX_POINTER_BYTES),
    ],
)
def test_objects_with_more_than_a_pointer_are_data(data: bytes) -> None:
    assert find_format("aws-extended").read(data, context(), is_key=False) is None


def test_envelopes_of_kafscale() -> None:
    url = "s3://payloads/ns/alerts/lfs/2026/11/25/obj-1"
    assert read("kafscale", ENVELOPE) == Reference(url, 7, f"sha256:{SHA256}")
    assert read("kafscale", SPACED_ENVELOPE).url == "s3://payloads/a%20b/%C3%BC"


@pytest.mark.parametrize("url", ["s3://payloads/1", "https://example.org/1"])
def test_events_with_their_data_elsewhere(url: str) -> None:
    assert read("cloudevents", b"", ("ce_dataref", url.encode())) == Reference(url)
    assert read("cloudevents", b"data", ("ce_dataref", url.encode())) == b"data"
    assert read("cloudevents", {"id": "1", "dataref": url}, STRUCTURED) == Reference(url)
    assert read("cloudevents", {"id": "1", "dataref": url, "data": "text"}, STRUCTURED) == b'"text"'
    assert read("cloudevents", b"", ("ce_dataref", b"arn:aws:s3:::payloads/a b/1")).url == "s3://payloads/a%20b/1"


def test_a_reference_beside_the_data_is_in_use() -> None:
    found = find_format("cloudevents")
    headers = context(("ce_dataref", b"s3://payloads/1"))
    data = json.dumps({"id": "1", "dataref": "s3://payloads/1", "data": 5}).encode()
    assert found.beside(b"data", headers, is_key=False) == Reference("s3://payloads/1")
    assert found.beside(data, context(STRUCTURED), is_key=False) == Reference("s3://payloads/1")
    assert found.beside(b'{"data": 5}', context(STRUCTURED), is_key=False) is None
    assert found.beside(b"data", headers, is_key=True) is None


@pytest.mark.parametrize(
    ("members", "data"),
    [
        ({"data": {"a": [1, "ü"]}}, b'{"a": [1, "\\u00fc"]}'),
        ({"data": "text"}, b'"text"'),
        ({"data": "text", "datacontenttype": "text/plain"}, b"text"),
        ({"data": "text", "datacontenttype": "application/vnd.x+json; charset=utf-8"}, b'"text"'),
        ({"data_base64": "AAE="}, b"\0\1"),
        ({"data": None}, b""),
        ({}, b""),
    ],
)
def test_structured_events_with_their_data(members: dict[str, Any], data: bytes) -> None:
    assert read("cloudevents", {"id": "1", **members}, STRUCTURED) == data


@pytest.mark.parametrize(
    "data",
    [
        b'{ "flux": 1.10, "id": 0.12345678901234567890, "big": 1e999, "x": -0, "x": 1 }',
        b'[{"text": "]}, \\" \\\\"}, [], {}]',
        b"12.50",
        b"true",
        b'"\\ud800"',
        b'{"cutout": "' + b"." * 2 * MAX_DOCUMENT_BYTES + b'"}',
    ],
    ids=["numbers", "brackets", "a number", "a word", "text", "above 1 MiB"],
)
def test_json_inside_a_structured_event_stays_as_it_is_written(data: bytes) -> None:
    for text in (b'{"data":%b}', b' {"id" : "1" ,\n"d\\u0061ta" : %b , "n": 5 }\n', b'{"data": {"a": 1}, "data": %b}'):
        assert read("cloudevents", text % data, STRUCTURED) == data
    ctx = context(STRUCTURED)
    find_format("cloudevents").restore_headers(b'{"id": "7", "data": %b, "n": 5}' % data, ctx, is_key=False)
    assert ctx.headers == [("ce_id", b"7"), ("ce_n", b"5")]


def test_members_are_taken_out_of_a_document_that_may_be_accepted() -> None:
    text = b'{"data": 1, "id": "' + b"." * 50 + b'", "data": 2}'
    assert take_out(text, ["data"]) == (text.replace(b"1", b"null").replace(b"2", b"null"), {"data": b"2"})
    assert take_out(text, ["data"], 40) == (text.replace(b"1", b"null"), {"data": b"1"})
    for event in (
        b'{"data":1' + b',"data":1' * MAX_DOCUMENT_BYTES + b"}",
        b'{"x":"' + b"." * MAX_DOCUMENT_BYTES + b'"}',
    ):
        with pytest.raises(ValueError, match="more than 1048576"):
            read("cloudevents", event, STRUCTURED)


def test_numbers_of_eventbridge_keep_their_digits() -> None:
    rest = b'{"a":[1.10,0.12345678901234567890,1e400,-2E-7,7],"b":"1.10","dataref":"arn:aws:s3:::b-c/1",'
    restored = find_format("eventbridge").restore(rest + b'"datarefPath":"$.detail.value"}', b'{"z":1.0}', context())
    expected = b'{"a":[1.10,0.12345678901234567890,1e400,-2E-7,7],"b":"1.10","value":{"z":1.0}}'
    assert restored == expected


def test_attributes_of_structured_events_become_headers() -> None:
    event = {"specversion": "1.0", "id": "ü", "n": 5, "flag": True, "gone": None, "datacontenttype": "image/fits"}
    data = json.dumps({**event, "dataref": "s3://payloads/1"}).encode()
    ctx = context(STRUCTURED, ("user", b"1"))
    find_format("cloudevents").restore_headers(data, ctx, is_key=False)
    assert dict(ctx.headers or ()) == {
        "user": b"1",
        "content-type": b"image/fits",
        "ce_specversion": b"1.0",
        "ce_id": "ü".encode(),
        "ce_n": b"5",
        "ce_flag": b"true",
    }
    binary = context(("ce_dataref", b"s3://payloads/1"), ("ce_id", b"1"), ("content-type", b"image/fits"))
    find_format("cloudevents").restore_headers(b"", binary, is_key=False)
    assert binary.headers == [("ce_id", b"1"), ("content-type", b"image/fits")]


@pytest.mark.parametrize(
    ("location", "url"),
    [
        (LOCATION, "s3://bucket/claim/u.json"),
        ("s3://bucket/claim/u.json", "s3://bucket/claim/u.json"),
        ("file:/data/claim/u v.json", "file:///data/claim/u%20v.json"),
        ("gcs:/bucket/u.json", "gs://bucket/u.json"),
        ("azblob://container/u.json", "az://container/u.json"),
    ],
)
def test_claim_checks_of_ticdc(location: str, url: str) -> None:
    canal = {"id": 0, "data": [{"k": "1"}], "_tidb": {"commitTs": 400, "claimCheckLocation": location}}
    simple = {"version": 1, "type": "INSERT", "claimCheckLocation": location}
    assert read("ticdc", canal) == read("ticdc", simple) == Reference(url)
    assert read("ticdc", canal, is_key=True) is None


def test_claim_checks_in_the_key() -> None:
    assert read("ticdc", b"handle key columns", key=OPEN_KEY).url == "s3://bucket/claim/u.json"
    assert read("ticdc", b"value", key=OPEN_KEY[:-1]) is None
    assert read("ticdc", b"value", key=b"other") is None


@pytest.mark.parametrize("payload", STORED)
def test_records_of_ticdc(payload: bytes) -> None:
    ctx = context(key=b"given")
    assert find_format("ticdc").restore(b"", payload, ctx) == STORED[payload][1]
    assert ctx.key == STORED[payload][0]


@pytest.mark.parametrize("name", ["datarefJsonPath", "datarefPath"])
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    ("rest", "path", "payload", "value"),
    [
        ({}, "$.detail.value", b'{"a":1}', {"a": 1}),
        ({"value": {"x": 1}}, "$.detail.value.y", b"[1,2]", {"x": 1, "y": [1, 2]}),
        ({"value": {"x": {}}}, "$['detail']['value'][\"x\"]['a b']", b'say "hi"', {"x": {"a b": 'say "hi"'}}),
        ({"value": [1, 3]}, "$.detail.value[1]", b"{}", [1, {}, 3]),
    ],
)
def test_parts_of_eventbridge_are_put_back(
    name: str, rest: dict[str, Any], path: str, payload: bytes, value: Any, *, is_whole: bool
) -> None:
    detail = {"topic": "alerts", **rest, "dataref": "arn:aws:s3:::payloads/7d7c", name: path}
    data = json.dumps({"id": "1", "detail": detail} if is_whole else detail).encode()
    assert read("eventbridge", data) == Reference("s3://payloads/7d7c")
    restored = json.loads(bytes(find_format("eventbridge").restore(data, payload, context())))
    whole = {"topic": "alerts", "value": value}
    assert restored == ({"id": "1", "detail": whole} if is_whole else whole)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"plain",
        b"[1, 2]",
        b'["software.amazon.other", {}]',
        b'{"a": "kfs_lfs"}',
        b'{"text": "dataref"}',
        b'{"dataref": "arn:aws:s3:::b/1"}',
        b'{"claimCheckLocation": ""}',
        b'{"mine": {"claimCheckLocation": "s3:/b/1"}}',
        b'{"dataref": "x", "claimCheckLocation"',
        b'{"dataref": "arn:aws:s3:::bucket/1", "x": "' + b"." * MAX_DOCUMENT_BYTES + b'"}',
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_other_data_is_left_alone(name: str, data: bytes) -> None:
    assert read(name, data, ("content-type", b"application/json"), key=b"key") is None
    assert read(name, memoryview(data).tobytes()) is None


@pytest.mark.parametrize(
    ("name", "data", "headers", "message"),
    [
        ("aws-extended", b'["%s", {}]' % POINTER.encode(), [], "bucket's name"),
        ("aws-extended", b'["%s", 1]' % POINTER.encode(), [], "form"),
        ("aws-extended", b'{"s3BucketName": 1, "s3Key": "1"}', [], "bucket's name"),
        ("aws-extended", b'["%s", {' % POINTER.encode(), [], "not JSON"),
        ("aws-extended", b'["%s", "%s"]' % (POINTER.encode(), b"x" * 9000), [], "more than 8192"),
        ("aws-extended", [POINTER, {"s3BucketName": "b/c", "s3Key": "k"}], [], "bucket's name"),
        ("aws-extended", [POINTER, {"s3BucketName": "bucket", "s3Key": ""}], [], "key is missing"),
        ("aws-extended", [POINTER, {"s3BucketName": "bucket", "s3Key": "\ud800"}], [], "Unicode"),
        (
            "aws-extended",
            [POINTER, {"s3BucketName": "bucket", "s3Key": "k"}],
            [("ExtendedPayloadSize", b"-1")],
            "bytes",
        ),
        ("kafscale", b'{"kfs_lfs":1', [], "not JSON"),
        ("kafscale", {"kfs_lfs": True}, [], "version"),
        ("kafscale", {"kfs_lfs": 1, "bucket": "bucket", "key": "k", "sha256": "x"}, [], "64"),
        ("kafscale", {"kfs_lfs": 1, "bucket": "bucket", "key": "k", "size": -1, "sha256": SHA256}, [], "size"),
        ("kafscale", b'{"kfs_lfs":1,"x":"' + b"." * MAX_DOCUMENT_BYTES, [], "more than 1048576"),
        ("cloudevents", b"[]", [STRUCTURED], "not a JSON object"),
        ("cloudevents", {"dataref": 5}, [STRUCTURED], "not text"),
        ("cloudevents", {"data_base64": "?"}, [STRUCTURED], "base64"),
        ("cloudevents", {"data_base64": 5}, [STRUCTURED], "base64"),
        ("cloudevents", b'{"data": "a\nb", "datacontenttype": "text/plain"}', [STRUCTURED], "UTF-8"),
        ("cloudevents", b'{"data": [1, "id": 1}', [STRUCTURED], "not a JSON object"),
        ("cloudevents", b'{"data": [1]], "id": 1}', [STRUCTURED], "not a JSON object"),
        ("cloudevents", b'{"data": "a, "id": 1}', [STRUCTURED], "not a JSON object"),
        ("cloudevents", b'{"data": NaN1}', [STRUCTURED], "not a JSON object"),
        ("cloudevents", b'{"data": [1], "x": "' + b"." * MAX_DOCUMENT_BYTES + b'"}', [STRUCTURED], "more than 1048576"),
        ("cloudevents", {"data": "\ud800", "datacontenttype": "text/plain"}, [STRUCTURED], "Unicode"),
        ("cloudevents", b"", [("ce_dataref", b"\xff")], "Unicode"),
        ("cloudevents", b"", [("ce_dataref", b"arn:aws:sqs:::x")], "no ARN"),
        ("cloudevents", b"", [("ce_dataref", b"s3://" + b"x" * 9000)], "9005"),
        ("ticdc", {"claimCheckLocation": 5}, [], "no URL"),
        ("ticdc", {"claimCheckLocation": "u.json"}, [], "no URL"),
        ("ticdc", {"claimCheckLocation": "s3://\ud800"}, [], "Unicode"),
        ("eventbridge", {"dataref": 5, "datarefPath": "$"}, [], "not text"),
        ("eventbridge", {"dataref": "s3://b/1", "datarefPath": "$.detail.value"}, [], "no ARN"),
        ("eventbridge", {"dataref": "arn:aws:s3:::bucket/1", "datarefPath": "$.detail.other"}, [], "below"),
        ("eventbridge", {"dataref": "arn:aws:s3:::bucket/1", "datarefPath": "$.detail.value[*]"}, [], "step"),
        ("eventbridge", {"dataref": "arn:aws:s3:::bucket/1", "datarefPath": 5}, [], "begin"),
    ],
)
def test_what_has_the_mark_and_is_malformed(name: str, data: Any, headers: list[Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(name, data, *headers)


@pytest.mark.parametrize(
    ("name", "placeholder", "payload", "message"),
    [
        ("ticdc", b"", b'{"key":null,"value":"a"}', "base64"),
        ("eventbridge", b'{"detail": {}}', b"", "no dataref"),
        (
            "eventbridge",
            b'{"value": 5, "dataref": "arn:aws:s3:::bucket/1", "datarefPath": "$.detail.value.a"}',
            b"",
            "'a' is of another kind",
        ),
        (
            "eventbridge",
            b'{"dataref": "arn:aws:s3:::bucket/1", "datarefPath": "$.detail.value.a"}',
            b"",
            "there is no 'value'",
        ),
        (
            "eventbridge",
            b'{"x": NaN, "dataref": "arn:aws:s3:::bucket/1", "datarefPath": "$.detail.value"}',
            b"",
            "UTF-8",
        ),
    ],
)
def test_payloads_that_do_not_fit(name: str, placeholder: bytes, payload: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_format(name).restore(placeholder, payload, context())


@pytest.mark.parametrize("value", [[1], {"a": 1}, 1.5])
def test_attributes_of_other_types(value: Any) -> None:
    data = json.dumps({"id": value, "dataref": "s3://payloads/1"}).encode()
    with pytest.raises(ValueError, match="attribute 'id'"):
        find_format("cloudevents").restore_headers(data, context(STRUCTURED), is_key=False)


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"x" * 200_000,
        "aé\U0001f600".encode() * 50_000,
        b'\xff\x01"\\' * 50_000,
        b"x" * 65_535 + "é".encode(),
        b"\xf0\x9f",
    ],
)
def test_parts_are_quoted_as_a_whole(part: bytes) -> None:
    """Wherever they are cut into pieces."""
    event = {"value": {}, "dataref": "arn:aws:s3:::bucket/1", "datarefPath": "$.detail.value.a"}
    restored = find_format("eventbridge").restore(json.dumps(event).encode(), part, None)
    assert json.loads(bytes(restored)) == {"value": {"a": part.decode(errors="replace")}}


def test_parts_are_quoted_in_little_memory() -> None:
    event = {"value": {}, "dataref": "arn:aws:s3:::bucket/1", "datarefPath": "$.detail.value.a"}
    part = b"x" * 4_000_000 + "\U0001f600".encode()
    tracemalloc.start()
    try:
        find_format("eventbridge").restore(json.dumps(event).encode(), part, None)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(part)
    finally:
        tracemalloc.stop()


def test_attributes_whose_names_no_client_can_encode() -> None:
    ctx = context(STRUCTURED)
    with pytest.raises(ValueError, match="Unicode"):
        find_format("cloudevents").restore_headers(b'{"\\ud800": "x", "data": 1}', ctx, is_key=False)
    assert ctx.headers == [STRUCTURED]


class Scanned(list[Any]):
    """Headers that count how many of them were looked at."""

    seen = 0

    def __iter__(self) -> Any:
        for header in super().__iter__():
            self.seen += 1
            yield header


def test_many_attributes_are_set_in_one_pass() -> None:
    event = json.dumps({f"a{at}": 1 for at in range(2000)}).encode()
    headers = Scanned([STRUCTURED])
    find_format("cloudevents").restore_headers(event, RecordContext("alerts", "value", headers), is_key=False)
    assert len(headers) == 2000
    assert headers.seen < 10


@pytest.mark.parametrize("name", NAMES)
def test_they_are_only_read(name: str) -> None:
    with pytest.raises(EncodeError, match="only read"):
        find_format(name).write_reference(Reference("s3://b/1"), context(), is_key=False)


MEMBERS = st.sampled_from(
    ["kfs_lfs", "bucket", "key", "sha256", "size", "s3BucketName", "s3Key", "id"]
) | st.sampled_from(
    [
        "dataref",
        "data",
        "data_base64",
        "datacontenttype",
        "detail",
        "value",
        "datarefPath",
        "_tidb",
        "claimCheckLocation",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | MEMBERS, inner, max_size=4),
    max_leaves=8,
)
DOCUMENTS = st.one_of(
    st.binary(max_size=50),
    st.dictionaries(
        MEMBERS, JSON | st.sampled_from(["arn:aws:s3:::bucket/1", "$.detail.value.a", LOCATION]), max_size=6
    ),
    st.tuples(st.sampled_from([POINTER, LEGACY]), JSON),
)


@given(
    name=st.sampled_from(NAMES),
    value=DOCUMENTS,
    payload=st.binary(max_size=40) | st.sampled_from([*STORED]),
    headers=st.lists(
        st.sampled_from(
            [STRUCTURED, ("ce_dataref", b"s3://b/1"), ("ce_dataref", b"\xff"), ("ExtendedPayloadSize", b"x")]
        ),
        max_size=2,
    ),
    key=st.none() | st.binary(max_size=30) | st.sampled_from([OPEN_KEY, OPEN_KEY[:-2]]),
    is_key=st.booleans(),
)
def test_whatever_is_in_a_record(
    name: str, value: Any, payload: bytes, headers: list[Any], key: bytes | None, *, is_key: bool
) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    reference_format, ctx = find_format(name), context(*headers, key=key)
    try:
        content = reference_format.read(data, ctx, is_key=is_key)
        if isinstance(content, Reference):
            restored = reference_format.restore(data, payload, ctx)
            assert isinstance(restored, bytes)
        if content is not None:
            reference_format.restore_headers(data, ctx, is_key=is_key)
    except ValueError:
        pass
