"""``large.message.reference.topics``: of which topics payloads may be that a record refers to."""

from pathlib import Path
from typing import Any

import pytest

from payload_stores.middleware import Deadline
from payload_stores.registry import open_store
from payload_stores.testing import FaultyStore
from serde_chain import ConfigError, DeserializerChain, RecordContext, SerializerChain, UntrustedReferenceError
from serde_chain.arrow import Batch

PAYLOAD = b"payload" * 10
KEY = "large.message.reference.topics"


@pytest.fixture
def store(tmp_path: Path) -> FaultyStore:
    return FaultyStore(open_store("local", {"local.path": str(tmp_path / "p"), "local.fsync": False}))


def record(store: Any, topic: str, **more: Any) -> tuple[bytes, list[Any]]:
    config = {"value.serializers": "bytes, large-message", "large.message.payload.store.class": store, **more}
    ctx = RecordContext(topic, "value", [])
    data = SerializerChain.from_config({**config, "large.message.threshold.bytes": 10})(PAYLOAD, ctx)
    assert isinstance(ctx.headers, list)
    return data, ctx.headers


def reader(store: Any, topics: object, **more: Any) -> DeserializerChain:
    config = {"value.deserializers": "large-message, bytes", "large.message.payload.store.class": store, **more}
    return DeserializerChain.from_config({**config, KEY: topics} if topics is not None else config)


CASES = [
    (None, "own", True), (None, "other", True), ("any", "other", True),
    ("same", "own", True), ("same", "other", False), ("same", "same", False),
    ("other", "other", True), ("other, third", "third", True), (["other"], "own", False), ("other", "fourth", False),
    ("same, other", "own", True), ("same, other", "other", True), ("same, other", "third", False),
]  # fmt: skip


@pytest.mark.parametrize(("topics", "published_for", "followed"), CASES)
@pytest.mark.parametrize("style", ["random", "content", "bakdata"])
def test_which_references_are_followed(
    store: FaultyStore, topics: object, published_for: str, followed: bool, style: str
) -> None:
    more = {"large.message.format": "bakdata-headers"} if style == "bakdata" else {"large.message.id": style}
    data, headers = record(store, published_for, **more)
    store.calls.clear()
    with reader(store, topics) as read:
        batch = Batch([data, None], [list(headers), None], topic="own")
        if followed:
            assert read(data, RecordContext("own", "value", list(headers))) == PAYLOAD
            assert read.read_batch(batch).values.to_pylist() == [PAYLOAD, None]
        else:
            with pytest.raises(
                UntrustedReferenceError, match=f"its payload belongs to the topic {published_for}"
            ) as caught:
                read(data, RecordContext("own", "value", list(headers)))
            assert KEY in str(caught.value)
            assert caught.value.about_record
            (error,) = read.read_batch(batch).errors.values()
            assert isinstance(error, UntrustedReferenceError)
            assert store.calls == []  # nothing was asked for


def test_without_a_topic_of_its_own_a_record_refers_to_none(store: FaultyStore) -> None:
    data, headers = record(store, "own")
    with reader(store, "same") as read, pytest.raises(UntrustedReferenceError):
        read(data, RecordContext("", "value", headers))


def test_other_prefixes_are_asked_in_the_same_way(tmp_path: Path) -> None:
    other = {"local.path": str(tmp_path / "elsewhere"), "local.fsync": False}
    records = {topic: record("local", topic, **other) for topic in ("own", "other")}
    trusted = {"local.path": str(tmp_path / "p"), "large.message.trusted.references": f"file://{tmp_path}/elsewhere"}
    with reader("local", "same", **trusted) as read:
        data, headers = records["own"]
        assert read(data, RecordContext("own", "value", headers)) == PAYLOAD
        data, headers = records["other"]
        with pytest.raises(UntrustedReferenceError, match="to the topic other"):
            read(data, RecordContext("own", "value", headers))


@pytest.mark.parametrize(
    ("topics", "message"), [("", "expected any"), ([], "expected any"), ("any, t", "expected any")]
)
def test_settings_that_say_nothing_are_refused(store: FaultyStore, topics: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        reader(store, topics)


def test_a_store_whose_references_tell_no_topic_is_refused() -> None:
    hop = {"hop.offload.url": "https://offload.example.org", "hop.username": "me", "hop.password": "secret"}
    with reader("hop", "any", **hop):
        pass
    with pytest.raises(ConfigError, match=r"references of the store https? do not contain a topic"):
        reader("hop", "same", **hop)


def test_a_deadline_hides_nothing(store: FaultyStore) -> None:
    data, headers = record(store, "other")
    with reader(Deadline(store, 1000), "same") as read, pytest.raises(UntrustedReferenceError):
        read(data, RecordContext("own", "value", headers))
