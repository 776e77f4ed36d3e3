"""Batches of references: what is in flight, and what is left of those that cannot be read."""

import pickle
import threading
import tracemalloc
from typing import Any

import pytest

from payload_stores.memory import MemoryStore
from serde_chain import DeserializerChain, RecordContext, SerializerChain
from serde_chain.arrow import Batch, BatchResult
from serde_chain.errors import DecodeError, ForeignFormatError, PayloadIntegrityError

PAYLOAD = 9_000_000


class Together(MemoryStore):
    """Hands payloads out as soon as so many are being fetched; one payload stands for all."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self.barrier = threading.Barrier(parties, timeout=20)
        self.payload = b""

    def download(self, reference: str) -> bytes:
        self.payload = self.payload or super().download(reference.rpartition("-")[0])
        self.barrier.wait()
        return self.payload


def record(payload: bytes) -> tuple[bytes, list[tuple[str, Any]]]:
    config: dict[str, object] = {
        "value.serializers": "bytes, large-message",
        "large.message.payload.store.class": "memory",
        "large.message.threshold.bytes": 100,
    }
    ctx = RecordContext("t", "value", [])
    with SerializerChain.from_config(config) as write:
        value = write(payload, ctx)
    assert isinstance(ctx.headers, list)
    return value, ctx.headers


def reader(store: object = "memory", **more: object) -> DeserializerChain:
    config: dict[str, object] = {"value.deserializers": "large-message, bytes", **more}
    return DeserializerChain.from_config({**config, "large.message.payload.store.class": store})


def test_as_many_downloads_as_are_allowed_however_large_they_are() -> None:
    value, headers = record(bytes(PAYLOAD))
    values = [value + f"-{at}".encode() for at in range(16)]
    with reader(Together(8)) as read:
        assert len(read.to_arrow(values, [headers] * 16, topic="t")) == 16


def test_no_part_is_without_records() -> None:
    value, headers = record(bytes(1000))
    with reader() as read:
        parts = read.read_parts(Batch([value] * 2, [headers] * 2, topic="t"), 1000)
        assert [len(part) for part in parts] == [1, 1]


def read_and_held(read: DeserializerChain, batch: Batch) -> tuple[BatchResult, int]:
    """Read a batch; returns the result, and the bytes that are held then."""
    # What the first batch of a process imports is none of it.
    read.read_batch(Batch([b"another"], topic="t"))
    tracemalloc.start()
    result = read.read_batch(batch)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return result, held


@pytest.mark.parametrize("lie", ["large-message-size", "large-message-digest"])
def test_what_could_not_be_read_is_not_held_by_its_error(lie: str) -> None:
    records = [record(bytes([at]) * PAYLOAD) for at in range(6)]
    values = [value for value, _ in records]
    changed = [
        [(name, {"large-message-size": b"1"}.get(name, b"sha256:" + b"0" * 64) if name == lie else found)
         for name, found in headers]
        for _, headers in records
    ]  # fmt: skip
    with reader(Copies()) as read:
        result, held = read_and_held(read, Batch(values, changed, topic="t"))
    assert len(result.errors) == 6
    assert all(isinstance(error, PayloadIntegrityError) for error in result.errors.values())
    assert held < PAYLOAD


class Copies(MemoryStore):
    """Gives every reader bytes of its own, as stores do that are not in memory."""

    def download(self, reference: str) -> bytes:
        return bytes(bytearray(super().download(reference)))


def test_nor_is_what_a_later_stage_refused() -> None:
    config = {"value.deserializers": "gzip, string", "compression.max.output.bytes": 2 * PAYLOAD}
    with SerializerChain.from_config({"value.serializers": "bytes, gzip"}) as write:
        value = write(b"\xff" * PAYLOAD)
    with DeserializerChain.from_config(config) as read:
        result, held = read_and_held(read, Batch([value + b"x"] * 6 + [value] * 6, topic="t"))
    assert len(result.errors) == 12
    assert held < PAYLOAD


def test_nor_what_is_of_another_format() -> None:
    batch = Batch([b"a"], topic="t")
    error = ForeignFormatError("of another format")
    error.data = b"a"
    batch.fail(0, error)
    assert error.data is None


def test_what_an_error_says_stays() -> None:
    with DeserializerChain.from_config({"value.deserializer": "string"}) as read:
        (error,) = read.read_batch(Batch([b"secret \xff"], topic="t")).errors.values()
    assert error.stage == "string (1 of 1)"
    cause = error.__cause__
    assert isinstance(cause, UnicodeDecodeError)
    assert cause.start == 7
    assert "secret" not in repr((error, cause, cause.args, cause.object))
    assert b"secret" not in pickle.dumps(error)


def test_nor_does_the_cause_of_a_foreign_stages_error() -> None:
    def text(data: bytes, _ctx: object) -> str:
        return data.decode()

    with pytest.raises(DecodeError, match="can't decode byte 0xff in position 7") as caught:
        DeserializerChain([text])(b"secret \xff")
    assert b"secret" not in pickle.dumps(caught.value)


@pytest.mark.full
def test_one_deadline_for_all_that_is_held_together_and_another_for_the_next() -> None:
    hangs, release = threading.Event(), threading.Event()

    class Hanging(MemoryStore):
        def download(self, reference: str) -> bytes:
            if reference.endswith("-hangs"):
                hangs.set()
                release.wait(60)
            return b"x"

    value, headers = record(b"x" * 200)
    values = [value, value + b"-hangs", value + b"-hangs", value + b"-more"]
    said = [[header for header in headers if header[0] == "large-message"]] * 4
    try:
        with reader(Hanging(), **{"large.message.store.timeout.ms": 500}) as read:
            whole, after = ([*read.read_parts(Batch(values, said, topic="t"), most_bytes)] for most_bytes in (None, 1))
        assert hangs.is_set()
        assert [sorted(part.errors) for part in whole] == [[1, 2]]
        assert "within 500 ms" in str(whole[0].errors[2])
        # A part ends with each record here.
        assert [sorted(part.errors) for part in after][-1] == []
        assert not release.is_set()
    finally:
        release.set()
