"""hop's placeholders: read whatever stands in them, written as hop-client writes them."""

import json
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest
from hop.io import Producer
from hop.models import ExternalMessage
from hypothesis import given
from hypothesis import strategies as st

from serde_chain import EncodeError, RecordContext
from serde_chain.cli.inspect_topic import describe
from serde_chain.wire.hop import FORMAT
from serde_chain.wire.reference_format import Reference

URL = "https://host/api/msg/01234567-89ab-cdef-0123-456789abcdef"
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def context(*headers: tuple[str, bytes | str | None]) -> RecordContext:
    return RecordContext("t", "value", list(headers))


def test_placeholder_is_byte_for_byte_that_of_hop_client() -> None:
    ctx = context(("a", b"1"), ("_sender", b"alice"), ("_test", b"true"))
    assert FORMAT.write_reference(Reference(URL), ctx, is_key=False) == bytes(ExternalMessage(url=URL))

    class User:
        username = "alice"

    _, theirs = Producer.pack(ExternalMessage(url=URL), test=True, auth=User())
    ours: Any = ctx.headers
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    assert ours[1:] == theirs[1:]
    assert len(ours[0][1]) == len(theirs[0][1]) == 16


def test_hop_clients_placeholder_is_read() -> None:
    payload, headers = Producer.pack(ExternalMessage(url=URL))
    found = FORMAT.read(payload, RecordContext("t", "value", headers), is_key=False)
    assert found == Reference(URL, whole_record=True)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_give_a_reference_or_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        found = FORMAT.read(data, context(("_format", b"external")), is_key=False)
        assert isinstance(found, Reference)


@given(st.lists(st.tuples(st.sampled_from(["_format", "_id", "_test", "a"]), st.none() | st.binary() | st.text())))
def test_any_headers(headers: Any) -> None:
    ctx = RecordContext("t", "value", list(headers))
    with suppress(ValueError):
        FORMAT.read(b'{"url": "x"}', ctx, is_key=False)
    FORMAT.content(ctx)
    with suppress(EncodeError):
        FORMAT.prepare(ctx, content="json", sender="alice", is_key=False)
        written: Any = ctx.headers
        own = [name for name, _ in written if name != "a"]
        assert sorted(own) == sorted({"_id", "_sender", "_format"} | ({"_test"} if "_test" in dict(headers) else set()))


@pytest.mark.parametrize("headers", [[], [("_format", b"json")], [("_format", None)], [("a", b"external")]])
def test_other_records_bear_no_mark(headers: Any) -> None:
    assert FORMAT.read(b'{"url": "x"}', context(*headers), is_key=False) is None
    assert FORMAT.read(b'{"url": "x"}', context(("_format", b"external")), is_key=True) is None


def test_inspect_shows_a_placeholder() -> None:
    headers: Any = [("_format", b"external")]
    message = confluent_kafka.Message(
        topic="t", partition=0, offset=0, value=f'{{"url": "{URL}"}}'.encode(), headers=headers
    )
    seen = describe(message, ("kip1159", "hop"))["value"]
    assert seen == {"is": "a reference (hop)", "bytes": len(message), "reference": URL}
