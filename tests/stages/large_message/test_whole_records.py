"""Formats whose store keeps the whole record: what goes to the store, what travels, and what comes back."""

import json
import uuid
from typing import Any

import pytest

from payload_stores import PayloadStoreUnavailableError, PublishContext, StoredRecord, SupportsOptOut, SupportsRecords
from payload_stores.base import Buffer, PayloadStore
from payload_stores.middleware import Deadline, Retry
from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    MessageTooLargeError,
    PayloadHandle,
    RecordContext,
    SerializerChain,
    UntrustedReferenceError,
)
from serde_chain.clients.client_limits import ClientLimits
from serde_chain.stages.large_message.write import LargeMessageSerializer
from serde_chain.transfer import finish

ENDPOINT = "shelf://host"


class Shelf(PayloadStore):
    """Keeps records in a dictionary."""

    scheme = "shelf"
    sender: str | None = "alice"
    offloads = True
    fetches = True
    reason: str | None = None

    def __init__(self) -> None:
        self.records: dict[str, StoredRecord] = {}
        self.failures = 0

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        raise NotImplementedError

    def publish_record(self, topic: str, record: StoredRecord, context: PublishContext | None = None) -> str:
        if self.failures:
            self.failures -= 1
            raise PayloadStoreUnavailableError("later")
        reference = f"{ENDPOINT}/msg/{uuid.uuid4()}"
        self.records[reference] = record
        return reference

    def download_record(self, reference: str) -> StoredRecord:
        return self.records[reference]

    def why_not(self) -> str | None:
        return self.reason


class NotFetching(Shelf):
    fetches = False


def config(store: PayloadStore, **more: Any) -> dict[str, Any]:
    return {
        "value.serializers": "json, large-message",
        "value.deserializers": "large-message, json",
        "large.message.payload.store.class": store,
        "large.message.format": "hop",
        "large.message.threshold.bytes": 100,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


@pytest.fixture
def store() -> Shelf:
    return Shelf()


def test_a_small_record_gets_the_headers_of_the_format(store: Shelf) -> None:
    chain = SerializerChain.from_config(config(store))
    ctx = RecordContext("t", "value", [("_id", b"old"), ("a", b"1"), ("_sender", b"eve")])
    assert chain({"a": 1}, ctx) == b'{"a":1}'
    assert isinstance(ctx.headers, list)
    assert [name for name, _ in ctx.headers] == ["a", "_id", "_sender", "_format"]
    found: dict[str, Any] = dict(ctx.headers)
    assert len(found["_id"]) == 16
    assert (found["_sender"], found["_format"]) == (b"alice", b"json")


def test_a_large_record_goes_to_the_store_whole(store: Shelf) -> None:
    value = {"a": "x" * 200}
    ctx = RecordContext("t", "value", [("a", b"1"), ("_test", b"true"), ("none", None)], b"key")
    placeholder = SerializerChain.from_config(config(store))(value, ctx)
    ((reference, stored),) = store.records.items()
    assert placeholder == json.dumps({"url": reference}).encode()
    assert stored.key == b"key"
    names = [name for name, _ in stored.headers]
    assert names == ["a", "none", "_id", "_sender", "_test", "_format"]
    assert isinstance(ctx.headers, list)
    own: dict[str, Any] = dict(ctx.headers)
    assert list(own) == ["_id", "_sender", "_test", "_format"]
    assert own["_id"] != dict(stored.headers)["_id"]
    assert own["_format"] == b"external"

    store.records[reference] = StoredRecord(stored.value, stored.headers, b"stored", 1234)
    read = RecordContext("t", "value", list(ctx.headers), b"key", 3, 99, 7)
    assert DeserializerChain.from_config(config(store))(placeholder, read) == value
    assert read == RecordContext("t", "value", list(stored.headers), b"stored", 3, 1234, 7)


def test_headers_may_be_a_dictionary(store: Shelf) -> None:
    ctx = RecordContext("t", "value", {"a": "1"})
    placeholder = SerializerChain.from_config(config(store))("x" * 200, ctx)
    read = RecordContext("t", "value", ctx.headers)
    assert DeserializerChain.from_config(config(store))(placeholder, read) == "x" * 200
    assert isinstance(read.headers, dict)
    assert list(read.headers) == ["a", "_id", "_sender", "_format"]


def test_what_the_bytes_are_is_said_by_the_stage_before(store: Shelf) -> None:
    for stages, given, expected in (
        ("json, zstd, large-message", [], b"blob"),
        ("bytes, large-message", [], b"blob"),
        ("json, large-message", [("_format", b"circular")], b"circular"),
    ):
        ctx = RecordContext("t", "value", list(given))
        SerializerChain.from_config(config(store, value_serializers=stages))(b"1" if "bytes" in stages else 1, ctx)
        assert isinstance(ctx.headers, list)
        assert [value for name, value in ctx.headers if name == "_format"] == [expected]


def test_store_that_does_not_keep_records_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"whole records; memory does not"):
        SerializerChain.from_config(config("memory"))  # type: ignore[arg-type]


def test_keys_are_refused(store: Shelf) -> None:
    with pytest.raises(ConfigError, match="for values only"):
        LargeMessageSerializer().configure(config(store), is_key=True)


def test_nothing_can_be_offloaded(store: Shelf) -> None:
    store.reason = "the broker announces no endpoint"
    chain = SerializerChain.from_config(config(store))
    assert chain("x" * 200, RecordContext("t", "value")) == b'"' + b"x" * 200 + b'"'
    limited = chain.with_limits(ClientLimits(186, 0, None, is_key=False))
    with pytest.raises(MessageTooLargeError, match=r"202 bytes, at most \d+ can be sent.* no endpoint"):
        limited("x" * 200, RecordContext("t", "value"))
    assert chain("x" * 200, RecordContext("t", "value")), "the chain of others is as it was"


@pytest.mark.parametrize(("threshold", "is_offloaded"), [(None, False), ("auto", False), (100, True)])
def test_a_threshold_that_is_set_counts_beside_the_limit(
    store: Shelf, threshold: object, *, is_offloaded: bool
) -> None:
    settings = config(store)
    settings.pop("large.message.threshold.bytes", None)
    if threshold is not None:
        settings["large.message.threshold.bytes"] = threshold
    limited = SerializerChain.from_config(settings).with_limits(ClientLimits(10_000, 0, None, is_key=False))
    assert (b"shelf://" in limited("x" * 200, RecordContext("t", "value"))) == is_offloaded


def test_what_was_refused_is_offloaded_whatever_the_store_says(store: Shelf) -> None:
    store.reason = "the broker announces no endpoint"
    stage = SerializerChain.from_config(config(store)).stages[1]
    placeholder = finish(stage.offload(b"1", RecordContext("t", "value", [("_format", b"json")])))
    assert b"shelf://" in placeholder


def test_references_that_are_not_fetched_are_handed_over() -> None:
    reader = DeserializerChain.from_config(config(NotFetching()))
    ctx = RecordContext("t", "value", [("_format", b"external")])
    data = b'{"url": "shelf://host/msg/1"}'
    assert reader(data, ctx) == data


def test_only_the_store_that_is_switched_off_hands_references_over(store: Shelf) -> None:
    class Other(Shelf):
        scheme = "other"

    store.records["shelf://host/msg/1"] = StoredRecord(b"1")
    off = Other()
    off.fetches = False
    for stores in ((store, [off]), (off, [store])):
        settings = {**config(stores[0]), "large.message.payload.store.classes": stores[1]}
        reader = DeserializerChain.from_config(settings)
        ctx = RecordContext("t", "value", [("_format", b"external")])
        data = b'{"url": "other://host/msg/1"}'
        assert reader(data, ctx) == data
        assert reader(b'{"url": "shelf://host/msg/1"}', RecordContext("t", "value", [("_format", b"external")])) == 1


@pytest.mark.parametrize("mark", [b"external", b"External", b"EXTERNAL"])
def test_mark_is_compared_without_case(store: Shelf, mark: bytes) -> None:
    store.records["shelf://host/msg/1"] = StoredRecord(b"1")
    reader = DeserializerChain.from_config(config(store))
    assert reader(b'{"url": "shelf://host/msg/1"}', RecordContext("t", "value", [("_format", mark)])) == 1


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b'{"url": 1}', b'{"url": null}', b"\xff", b"[" * 8000, b'"' + b"x" * 9000 + b'"']
)
def test_malformed_placeholders(store: Shelf, data: bytes) -> None:
    reader = DeserializerChain.from_config(config(store))
    with pytest.raises(DecodeError):
        reader(data, RecordContext("t", "value", [("_format", b"external")]))


def test_reference_to_a_store_without_records_is_not_followed() -> None:
    reader = DeserializerChain.from_config(config("memory", large_message_accept="hop"))  # type: ignore[arg-type]
    with pytest.raises(UntrustedReferenceError):
        reader(b'{"url": "memory:///t/1"}', RecordContext("t", "value", [("_format", b"external")]))


def test_a_stored_record_that_is_external_is_not_followed(store: Shelf) -> None:
    inner = b'{"url": "shelf://host/msg/2"}'
    store.records["shelf://host/msg/1"] = StoredRecord(inner, (("_format", b"external"),))
    reader = DeserializerChain.from_config(config(store))
    ctx = RecordContext("t", "value", [("_format", b"external")])
    assert reader(b'{"url": "shelf://host/msg/1"}', ctx) == inner


@pytest.mark.parametrize(
    ("stages", "marks", "expected"),
    [
        ("large-message, json", [b"json"], 1),
        ("large-message, json", [b"JSON", b"avro"], 1),
        ("large-message, json", [], 1),
        ("large-message, json", [b"blob"], b"1"),
        ("large-message, json", [b"voevent"], b"1"),
        ("large-message, json", [b"\xff"], b"1"),
        ("large-message, bytes", [b"blob"], b"1"),
        ("large-message, bytes", [b"json"], b"1"),
        ("large-message, string", [b"blob"], "1"),
        ("large-message, string", [b"json"], b"1"),
        ("large-message", [b"voevent"], b"1"),
    ],
)
def test_values_of_another_format_are_handed_over_as_they_are(
    store: Shelf, stages: str, marks: list[bytes], expected: object
) -> None:
    reader = DeserializerChain.from_config(config(store, value_deserializers=stages))
    headers: Any = [("_format", mark) for mark in marks]
    ctx = RecordContext("t", "value", list(headers))
    assert reader(b"1", ctx) == expected
    assert ctx.headers == headers
    store.records["shelf://host/msg/1"] = StoredRecord(b"1", tuple(headers))
    ctx = RecordContext("t", "value", [("_format", b"external")])
    assert reader(b'{"url": "shelf://host/msg/1"}', ctx) == expected
    assert ctx.headers == headers


def test_the_format_of_the_value_is_not_that_of_the_key(store: Shelf) -> None:
    keys = {"key.deserializers": "large-message, string", "large.message.payload.store.class": store}
    reader = DeserializerChain.from_config(keys, is_key=True)
    assert reader(b"key", RecordContext("t", "key", [("_format", b"json")])) == "key"
    assert reader(b"key", RecordContext("t", "key", [("_format", b"external")])) == "key"


def test_records_pass_through_deadline_and_retry(store: Shelf) -> None:
    around = Deadline(Retry(store, wait_ms=1), 10_000)
    store.failures = 1
    assert isinstance(around, SupportsRecords)
    reference = around.publish_record("t", StoredRecord(b"1", (("a", b"b"),)))
    assert around.download_record(reference) == StoredRecord(b"1", (("a", b"b"),))
    assert not isinstance(Deadline(NoRecords(), 1000), SupportsRecords)
    assert isinstance(around, SupportsOptOut)
    assert (around.sender, around.fetches, around.why_not()) == ("alice", True, None)


class NoRecords(PayloadStore):
    scheme = "none"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        raise NotImplementedError

    def download(self, reference: str) -> bytes:
        raise NotImplementedError


def test_a_whole_record_is_fetched_at_once_though_its_reader_is_lazy(store: Shelf) -> None:
    """Its headers and key lie in the store as well."""
    whole = config(
        store, large_message_fetch="lazy", value_serializers="large-message", value_deserializers="large-message"
    )
    ctx = RecordContext("t", "value", [("a", b"1")], key=b"k")
    placeholder = SerializerChain.from_config(whole)(bytes(1000), ctx)
    [reference] = store.records
    read_ctx = RecordContext("t", "value", ctx.headers)
    handle = DeserializerChain.from_config(whole)(placeholder, read_ctx)
    assert isinstance(handle, PayloadHandle)
    assert ("a", b"1") in (read_ctx.headers or [])
    assert read_ctx.key == b"k"
    store.records.clear()
    assert (handle.read(), handle.size, handle.reference) == (bytes(1000), 1000, reference)
