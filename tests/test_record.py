"""Contexts and headers, ours and confluent_kafka's."""

from typing import Any
from unittest.mock import ANY

import pytest
from confluent_kafka.serialization import MessageField, SerializationContext

from serde_chain import EncodeError, RecordContext, SerializerChain
from serde_chain.record import get_header, remove_headers, require_headers, set_header, topic_of
from serde_chain.testing.services import S3Server

LARGE = {"value.serializers": "bytes, large-message", "large.message.threshold.bytes": 0}


def ours(headers: Any) -> RecordContext:
    return RecordContext("t", "value", headers)


def theirs(headers: Any) -> SerializationContext:
    return SerializationContext("t", MessageField.VALUE, headers)


def test_equal_contexts_have_equal_parts() -> None:
    ctx = RecordContext("t", "value", [("a", b"1")], b"k", 3, 1234, 7)
    assert ctx == RecordContext("t", "value", [("a", b"1")], b"k", 3, 1234, 7)
    assert ctx != RecordContext("t", "value", [("a", b"1")], b"k", 3, 1234, 8)
    assert ctx != ("t", "value", [("a", b"1")], b"k", 3, 1234, 7)
    assert ctx == ANY
    assert repr(ours(None)).startswith("RecordContext(topic='t', field='value', headers=None, key=None, ")
    with pytest.raises(TypeError, match="unhashable"):
        hash(ctx)


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_list_is_changed_in_place(make: Any) -> None:
    headers = [("a", b"1"), ("b", b"2"), ("a", b"3")]
    ctx = make(headers)
    assert get_header(ctx, "a") == b"3"  # Kafka's lastHeader
    set_header(ctx, "a", b"4")
    assert headers == [("b", b"2"), ("a", b"4")]
    remove_headers(ctx, ["b", "c"])
    assert ctx.headers is headers
    assert headers == [("a", b"4")]


@pytest.mark.parametrize("make", [ours, theirs])
def test_a_dict_is_changed_in_place(make: Any) -> None:
    headers: dict[str, bytes | str] = {"a": b"1", "text": "as text"}
    ctx = make(headers)
    set_header(ctx, "a", b"2")
    set_header(ctx, "b", b"3")
    assert get_header(ctx, "text") == b"as text"
    remove_headers(ctx, ["a", "c"])
    assert headers == {"b": b"3", "text": "as text"}


def test_header_without_value() -> None:
    assert get_header(ours([("a", None)]), "a") is None
    assert get_header(None, "a") is None
    assert get_header(ours(None), "a") is None


def test_our_context_gets_a_list_when_it_has_none() -> None:
    ctx = ours(None)
    set_header(ctx, "a", b"1")
    assert ctx.headers == [("a", b"1")]
    assert require_headers(ctx) is ctx.headers


@pytest.mark.parametrize("ctx", [None, theirs(None), theirs((("a", b"1"),))])
def test_headers_that_would_be_lost_are_an_error(ctx: Any) -> None:
    with pytest.raises(EncodeError, match=r"headers cannot be written.*Pass headers=\[\]"):
        set_header(ctx, "a", b"1")
    remove_headers(ctx, ["a"])


def test_a_foreign_context_without_headers_fails_before_the_upload(s3_server: S3Server, bucket: str) -> None:
    config = {**LARGE, "large.message.payload.store.class": "s3", **s3_server.store_config(bucket)}
    with SerializerChain.from_config(config) as chain:
        with pytest.raises(EncodeError, match=r"headers cannot be written.*stage=large-message \(2 of 2\)"):
            chain(b"payload", theirs(None))
        headers: list[Any] = []
        reference = chain(b"payload", theirs(headers)).decode()
    assert [name for name, _ in headers] == ["large-message", "large-message-size", "large-message-digest"]
    objects = s3_server.client().list_objects_v2(Bucket=bucket)["Contents"]
    assert [reference.endswith(found["Key"]) for found in objects] == [True]


def test_a_stage_that_needs_the_topic_says_so() -> None:
    with pytest.raises(EncodeError, match="large-message needs the record's topic"):
        SerializerChain.from_config({**LARGE, "large.message.payload.store.class": "memory"})(
            b"payload", RecordContext("", "value", [])
        )
    assert topic_of(ours([]), "any") == "t"
