"""``entry-metadata``: order of times, indexes, versions, and its place around large-message."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import strategies as st

from serde_chain import DecodeError, DeserializerChain, EncodeError, RecordContext, SerializerChain
from serde_chain.testing import SerializerTests
from serde_chain.wire.entry_metadata import frame, peek


def serializer(**config: object) -> SerializerChain:
    return SerializerChain.from_config({"value.serializers": "bytes, entry-metadata", **config})


def deserializer(**config: object) -> DeserializerChain:
    return DeserializerChain.from_config({"value.deserializers": "entry-metadata, bytes", **config})


class TestConformance(SerializerTests):
    stage = "entry-metadata"
    values = st.binary(max_size=200)
    foreign = (b"", b"\x0e\x02", b"\x0e\x03" + bytes(20), b"anything", b"\x0e\x02\xff\xff\xff\xff" + bytes(20))
    detects_truncation = False  # a shorter payload is a payload
    expects_type = bytes

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        return {"entry.metadata.index": "true", "entry.metadata.required": "true"}

    def context(self, *, is_key: bool = False) -> RecordContext:
        return RecordContext("conformance", "key" if is_key else "value", [("user", b"header")], b"key", partition=3)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    times: list[int] = []
    monkeypatch.setattr(time, "time_ns", lambda: times.pop(0) * 1_000_000 + 999_999)
    return times


def test_times_never_go_backwards(clock: list[int]) -> None:
    clock += [1000, 2000, 1500, 1999, 2001]
    chain = serializer()
    stamps = [found.broker_timestamp for _ in range(5) if (found := peek(chain(b"", RecordContext("t", "value"))))]
    assert stamps == [1000, 2000, 2000, 2000, 2001]


def test_threads_get_each_index_once() -> None:
    chain = serializer(**{"entry.metadata.index": True})
    start = threading.Barrier(8)

    def work(partition: int) -> list[Any]:
        start.wait(30)
        return [peek(chain(b"", RecordContext("t", "value", partition=partition % 2))) for _ in range(200)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8), timeout=60))
    for partition in (0, 1):
        found = [metadata for result in results[partition::2] for metadata in result]
        assert sorted(metadata.index for metadata in found) == list(range(800))
        by_index = sorted(found, key=lambda metadata: metadata.index)
        assert [metadata.broker_timestamp for metadata in by_index] == sorted(
            metadata.broker_timestamp for metadata in found
        )


def test_each_partition_of_each_topic_counts_for_itself() -> None:
    chain = serializer(**{"entry.metadata.index": True, "entry.metadata.timestamp": False})
    places = [("a", 0), ("a", 0), ("a", 1), ("b", 0), ("a", 0)]
    found = [peek(chain(b"", RecordContext(topic, "value", partition=partition))) for topic, partition in places]
    assert found == [(None, 0), (None, 1), (None, 0), (None, 0), (None, 2)]


@pytest.mark.parametrize("ctx", [None, RecordContext("t", "value"), RecordContext("t", "value", partition=-1)])
def test_an_index_needs_the_partition(ctx: RecordContext | None) -> None:
    with pytest.raises(EncodeError, match="requires the record's partition"):
        serializer(**{"entry.metadata.index": True})(b"x", ctx)


def test_records_without_metadata_pass_unless_they_are_required() -> None:
    for data in (b"", b"plain", b"\x0e", b"\x0e\x01crc", b"\x0e\x03new"):
        assert deserializer()(data) == data
        with pytest.raises(DecodeError):
            deserializer(**{"entry.metadata.required": True})(data)
    with pytest.raises(DecodeError, match="unknown version 0E03"):
        deserializer(**{"entry.metadata.required": True})(b"\x0e\x03new")
    with pytest.raises(DecodeError, match="begins with 706c"):
        deserializer(**{"entry.metadata.required": True})(b"plain")


def test_damaged_metadata_are_an_error_even_if_not_required() -> None:
    with pytest.raises(DecodeError, match="truncated"):
        deserializer()(b"\x0e\x02\x00\x00")
    with pytest.raises(DecodeError, match="wire type"):
        deserializer()(bytes.fromhex("0e02000000021b1c07"))


def test_a_payload_that_looks_like_a_frame_is_framed_too() -> None:
    payload = frame(b"inner", index=7)
    assert deserializer()(serializer()(payload)) == payload


def test_it_stands_around_a_placeholder() -> None:
    config = {
        "value.serializers": "bytes, large-message, entry-metadata",
        "value.deserializers": "entry-metadata, large-message, bytes",
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": 10,
        "entry.metadata.index": True,
    }
    write, read = SerializerChain.from_config(config), DeserializerChain.from_config(config)
    for index, payload in enumerate((b"small", b"larger than ten bytes")):
        ctx = RecordContext("t", "value", [], partition=0)
        record = write(payload, ctx)
        found = peek(record)
        assert found is not None
        assert found.index == index
        assert read(record, ctx) == payload
