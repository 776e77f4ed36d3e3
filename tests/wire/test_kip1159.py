"""The headers and the placeholder of KIP-1159."""

import hashlib
from typing import Any

import pytest

from serde_chain import RecordContext
from serde_chain.catalogue import find_format
from serde_chain.wire.kip1159 import FORMAT, MAX_REFERENCE_BYTES
from serde_chain.wire.reference_format import Reference

DIGEST = "sha256:" + hashlib.sha256(b"payload").hexdigest()
URL = "s3://bucket/alerts/f47ac10b"


def context(*headers: tuple[str, Any]) -> RecordContext:
    return RecordContext("alerts", "value", list(headers))


def test_a_reference_is_its_text_and_three_headers() -> None:
    ctx = context(("user", b"1"))
    assert FORMAT.write_reference(Reference(URL, 7, DIGEST), ctx, is_key=False) == URL.encode()
    assert ctx.headers == [
        ("user", b"1"),
        ("large-message", b"true"),
        ("large-message-size", b"7"),
        ("large-message-digest", DIGEST.encode()),
    ]
    assert FORMAT.read(URL.encode(), ctx, is_key=False) == Reference(URL, 7, DIGEST)


def test_a_key_has_headers_of_its_own() -> None:
    ctx = context()
    FORMAT.write_reference(Reference(URL, 7, DIGEST), ctx, is_key=True)
    assert [header[0] for header in ctx.headers or ()] == [
        "large-message-key", "large-message-key-size", "large-message-key-digest",
    ]  # fmt: skip
    assert FORMAT.read(URL.encode(), ctx, is_key=False) is None
    assert FORMAT.read(URL.encode(), ctx, is_key=True) == Reference(URL, 7, DIGEST)


def test_a_plain_kip_writer_is_understood() -> None:
    assert FORMAT.read(URL.encode(), context(("large-message", b"true")), is_key=False) == Reference(URL)
    assert FORMAT.read(URL.encode(), context(("large-message", "True")), is_key=False) == Reference(URL)
    assert FORMAT.read(b"inline", context(("large-message", b"false")), is_key=False) == b"inline"
    assert FORMAT.read(b"inline", context(), is_key=False) is None


def test_headers_of_a_relayed_record_are_replaced() -> None:
    ctx = context(("large-message", b"true"), ("large-message-size", b"1"))
    FORMAT.write_reference(Reference(URL, 7, DIGEST), ctx, is_key=False)
    assert FORMAT.read(URL.encode(), ctx, is_key=False) == Reference(URL, 7, DIGEST)
    assert len(ctx.headers or ()) == 3


@pytest.mark.parametrize(
    ("data", "headers", "message"),
    [
        (b"x", {"large-message": b"yes"}, "large-message is b'yes' instead of true or false"),
        (b"x", {"large-message": b""}, "instead of true or false"),
        (b"\xff", {"large-message": b"true"}, "not UTF-8"),
        (b"s3://" + bytes(MAX_REFERENCE_BYTES), {"large-message": b"true"}, "more than 8192"),
        (b"x", {"large-message": b"true", "large-message-size": b"-1"}, "instead of a number of bytes"),
        (b"x", {"large-message": b"true", "large-message-size": "\u0663".encode()}, "instead of a number"),
        (b"x", {"large-message": b"true", "large-message-size": b"9" * 19}, "instead of a number"),
        (b"x", {"large-message": b"true", "large-message-digest": b"md5:00"}, "instead of sha256"),
        (b"x", {"large-message": b"true", "large-message-digest": b"sha256:" + b"A" * 64}, "instead of sha256"),
        (b"x", {"large-message": b"true", "large-message-digest": b"\xff"}, "instead of sha256"),
    ],
)
def test_malformed_marks_are_refused(data: bytes, headers: dict[str, bytes], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FORMAT.read(data, RecordContext("alerts", "value", headers), is_key=False)


def test_the_format_is_found_by_name() -> None:
    assert find_format("kip1159") is FORMAT
    assert FORMAT.write_inline(b"data", context(), is_key=False) == b"data"


@pytest.mark.parametrize("is_key", [False, True])
def test_marks_of_an_earlier_record_go(is_key: bool) -> None:
    ctx = context(("user", b"1"))
    for large in (True, False):
        FORMAT.write_reference(Reference(URL, 7, DIGEST), ctx, is_key=large)
    FORMAT.write_inline(b"data", ctx, is_key=is_key)
    assert FORMAT.read(b"data", ctx, is_key=is_key) is None
    assert FORMAT.read(URL.encode(), ctx, is_key=not is_key) == Reference(URL, 7, DIGEST)
    assert isinstance(ctx.headers, list)
    assert ctx.headers[0] == ("user", b"1")
