"""``large.message.fetch = lazy``: handles, whose payloads are fetched when they are asked for."""

import hashlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from payload_stores import PayloadStore, PublishContext, open_store
from payload_stores.base import Buffer
from payload_stores.memory import MemoryStore
from payload_stores.testing import FaultyStore, Toxic
from serde_chain import (
    ConfigError,
    DecodeError,
    DeserializerChain,
    PayloadHandle,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    RecordContext,
    SerializationError,
    SerializerChain,
    UntrustedReferenceError,
)

STORE = "large.message.payload.store.class"
PAYLOAD = bytes(range(256)) * 5000
DIGEST = "sha256:" + hashlib.sha256(PAYLOAD).hexdigest()


@pytest.fixture
def store() -> Iterator[FaultyStore]:
    MemoryStore.clear()
    yield FaultyStore(MemoryStore())
    MemoryStore.clear()


def chains(store: Any, stages: str = "large-message", **config: Any) -> tuple[SerializerChain, DeserializerChain]:
    whole = {
        "value.serializers": "large-message",
        "value.deserializers": stages,
        STORE: store,
        "large.message.threshold.bytes": 10,
        "large.message.fetch": "lazy",
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    return SerializerChain.from_config(whole), DeserializerChain.from_config(whole)


def context(*headers: tuple[str, bytes]) -> RecordContext:
    return RecordContext("images", "value", list(headers), partition=3, offset=7)


def handle_of(write: SerializerChain, read: DeserializerChain, payload: bytes = PAYLOAD) -> PayloadHandle:
    ctx = context(("user", b"1"))
    handle = read(write(payload, ctx), ctx)
    assert ctx.headers == [("user", b"1")]
    assert isinstance(handle, PayloadHandle)
    return handle


@pytest.mark.parametrize("stages", ["large-message", "large-message, bytes"])
def test_nothing_is_fetched_before_it_is_asked_for(store: FaultyStore, stages: str) -> None:
    handle = handle_of(*chains(store, stages))
    assert store.calls == ["publish"]
    assert (handle.size, handle.digest) == (len(PAYLOAD), DIGEST)
    assert (handle.reference or "").startswith("memory:///images/")
    assert repr(handle) == f"<PayloadHandle of {len(PAYLOAD)} bytes, in a payload store>"
    assert handle.read() == PAYLOAD == handle.read()
    with handle.open() as file:
        assert file.read() == PAYLOAD
    assert store.calls == ["publish", "download", "download", "open"]


@pytest.mark.parametrize("stages", ["large-message", "large-message, bytes"])
@pytest.mark.parametrize("headers", [[], [("user", b"1")]])
def test_what_is_in_the_record_is_a_handle_too(store: FaultyStore, stages: str, headers: list[Any]) -> None:
    write, read = chains(store, stages)
    ctx = context(*headers)
    handle = read(write(b"small", ctx), ctx)
    assert isinstance(handle, PayloadHandle)
    assert (handle.size, handle.digest, handle.reference, handle.read()) == (5, None, None, b"small")
    assert "small" not in repr(handle)
    with handle.open() as file:
        assert file.read() == b"small"
    assert read(None, context()) is None
    assert store.calls == []


@pytest.mark.parametrize("payload", [PAYLOAD, b"small", b""])
def test_a_message_with_a_handle_has_its_length_and_truth(store: FaultyStore, payload: bytes) -> None:
    handle = handle_of(*chains(store), payload)
    assert handle
    assert len(handle) == len(payload)
    message: Any = Message(topic="images", value=b"placeholder")
    message.set_value(handle)
    assert len(message) == len(payload)
    assert bool(message) == bool(payload)  # as confluent_kafka says of bytes
    assert "download" not in store.calls


def test_eager_is_the_default(store: FaultyStore) -> None:
    write, read = chains(store, large_message_fetch=None)
    ctx = context()
    assert read(write(PAYLOAD, ctx), ctx) == PAYLOAD


def test_later_stages_need_the_bytes(store: FaultyStore) -> None:
    for stages in ("large-message, zstd", "large-message, string"):
        with pytest.raises(ConfigError, match=r"large\.message\.fetch"):
            chains(store, stages)
    with pytest.raises(ConfigError, match=r"large\.message\.fetch"):
        chains(store, "auto", serde_chain_allow="large-message, zstd")


def test_keys_are_never_lazy(store: FaultyStore) -> None:
    config = {"key.deserializers": "large-message, string", STORE: store, "large.message.fetch": "lazy"}
    assert DeserializerChain.from_config(config, is_key=True)(b"M 51", RecordContext("images", "key", [])) == "M 51"


def test_columns_hold_bytes(store: FaultyStore) -> None:
    write, read = chains(store)
    ctx = context()
    values = [write(PAYLOAD, ctx), b"small", None]
    column = read.to_arrow(values, [ctx.headers, [], []], topic="images")
    assert column.to_pylist() == [PAYLOAD, b"small", None]


# Verified


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"!", lambda data: b"!" + data[1:]])
@pytest.mark.parametrize("block", [-1, 1000])
def test_what_is_read_to_its_end_is_verified(store: FaultyStore, change: Any, block: int) -> None:
    handle = handle_of(*chains(store))
    path = tuple((handle.reference or "").removeprefix("memory:///").split("/"))
    data, modified = MemoryStore._payloads[path]
    MemoryStore._payloads[path] = (change(data), modified)
    with pytest.raises(PayloadIntegrityError) as caught:
        handle.read()
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("images", 3, 7)  # type: ignore[attr-defined]
    with handle.open() as file:
        got = b""

        def read_all() -> None:
            nonlocal got
            while piece := file.read(block):
                got += piece

        with pytest.raises(PayloadIntegrityError) as failure:
            read_all()
    assert isinstance(failure.value, SerializationError)
    assert failure.value.about_record
    assert len(got) < len(PAYLOAD)


def test_an_open_payload_can_be_sought(store: FaultyStore) -> None:
    with handle_of(*chains(store)).open() as file:
        assert file.seekable()
        assert file.seek(-10, os.SEEK_END) == len(PAYLOAD) - 10
        assert file.read() == PAYLOAD[-10:]
        file.seek(0)
        assert file.read(5) == PAYLOAD[:5]
        assert file.tell() == 5
        assert file.read() == PAYLOAD[5:]
        assert file.read() == b""


class Ranged(MemoryStore):
    """A store with ranges and without files."""

    open = None  # type: ignore[assignment]


def test_a_store_with_ranges_has_files_that_can_seek() -> None:
    ranged = FaultyStore(Ranged())
    handle = handle_of(*chains(ranged))
    ranged.calls.clear()
    with handle.open() as file:
        assert file.seek(-10, os.SEEK_END) == len(PAYLOAD) - 10
        assert file.read() == PAYLOAD[-10:]
        file.seek(0)
        assert file.read() == PAYLOAD
    assert set(ranged.calls) == {"read_range"}
    ranged.add(Toxic("cut"))
    with handle.open() as file, pytest.raises(PayloadIntegrityError):
        file.read()


def test_a_range_of_a_larger_payload_is_not_read() -> None:
    write, read = chains(Ranged())
    ctx = context()
    placeholder = write(PAYLOAD, ctx)
    published: Any = ctx.headers
    headers = [(name, b"10" if name == "large-message-size" else value) for name, value in published]
    handle = read(placeholder, context(*headers))
    with handle.open() as file, pytest.raises(PayloadIntegrityError, match="the 10 bytes that were published"):
        file.read(5)


def test_errors_have_the_place_of_the_record(store: FaultyStore) -> None:
    write, read = chains(store)
    handle = handle_of(write, read)
    store.fail(PayloadStoreUnavailableError("down"), times=2)
    for operation in (handle.read, handle.open):
        with pytest.raises(PayloadStoreUnavailableError, match=r"topic=images.*partition=3, offset=7") as caught:
            operation()
        assert isinstance(caught.value, SerializationError)
        assert caught.value.transient
    MemoryStore.clear()
    for operation in (handle.read, handle.open):
        with pytest.raises(PayloadNotFoundError, match="offset=7"):
            operation()
    other = read(b"s3://bucket/images/1", context(("large-message", b"true")))
    for operation in (other.read, other.open):
        with pytest.raises(UntrustedReferenceError, match="offset=7"):
            operation()
    with pytest.raises(DecodeError, match="malformed"):
        read(b"memory:///images/1", context(("large-message", b"maybe")))


@pytest.mark.parametrize("opens", [False, True])
def test_a_payload_above_the_limit(store: FaultyStore, opens: bool) -> None:
    handle = handle_of(*chains(store, large_message_max_payload_bytes=1000))
    with pytest.raises(PayloadTooLargeError):
        (handle.open if opens else handle.read)()
    assert store.calls == ["publish"]


def test_after_the_reader_was_closed(store: FaultyStore) -> None:
    write, read = chains(store)
    handle, inline = handle_of(write, read), handle_of(write, read, b"small")
    file = handle.open()
    read.close()
    for operation in (handle.read, handle.open):
        with pytest.raises(PayloadStoreError, match=r"its reader is closed.*Read payloads before") as caught:
            operation()
        assert not caught.value.about_record
    assert inline.read() == b"small"
    assert file.read() == PAYLOAD  # it was open already
    file.close()


# Stores and formats


class Whole(PayloadStore):
    """A store that cannot stream."""

    scheme = "whole"

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        return f"whole:///{topic}/1"

    def download(self, reference: str) -> bytes:
        return PAYLOAD


def test_a_store_that_cannot_stream() -> None:
    with handle_of(*chains(Whole())).open() as file:
        file.seek(10)
        assert file.read() == PAYLOAD[10:]


@pytest.mark.parametrize("name", ["bakdata-headers", "bakdata-flag"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_formats_without_size_and_digest(store: FaultyStore, name: str, codec: str) -> None:
    formats = {"large_message_format": name, "large_message_accept": name, "large_message_compression": codec}
    handle = handle_of(*chains(store, **formats))
    assert (handle.size, handle.digest) == (None, None)
    assert repr(handle) == "<PayloadHandle of unknown size, in a payload store>"
    assert handle
    assert store.calls == ["publish"]
    assert len(handle) == len(handle.read())
    assert handle.read() == PAYLOAD
    with handle.open() as file:
        assert file.read() == PAYLOAD
    assert handle_of(*chains(store, **formats), b"small").read() == b"small"


@pytest.mark.full
def test_two_gigabytes_are_read_in_less_than_32_mib(tmp_path: Path) -> None:
    """In a process of its own, by what the kernel says."""
    config = {STORE: "local", "local.path": str(tmp_path), "large.message.max.payload.bytes": 4 << 30}
    reference = open_store("local", config).publish("images", b"")
    path = Path(reference.removeprefix("file://"))
    with path.open("wb") as file:
        file.truncate(2 << 30)
    zeros = hashlib.sha256()
    for _ in range(2 << 10):
        zeros.update(bytes(1 << 20))
    program = f"""
from serde_chain import DeserializerChain, RecordContext
from tests.memory import peak_bytes, reset_peak

headers = [("large-message", b"true"), ("large-message-size", b"{2 << 30}"),
           ("large-message-digest", b"sha256:{zeros.hexdigest()}")]
with DeserializerChain.from_config({{
    "value.deserializers": "large-message, bytes", "large.message.fetch": "lazy", **{config!r}
}}) as read:
    handle = read({reference.encode()!r}, RecordContext("images", "value", headers))
    before = reset_peak()
    size = 0
    with handle.open() as file:
        while block := file.read(100_000):
            size += len(block)
    print(peak_bytes() - before, size)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stderr
    extra, size = map(int, done.stdout.split())
    assert size == 2 << 30
    assert extra <= 32 << 20


def test_a_file_of_the_store_that_fails(store: FaultyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError("disk on fire")

    monkeypatch.setattr(MemoryStore, "open", lambda *_: Broken())
    with handle_of(*chains(store)).open() as file, pytest.raises(PayloadStoreError, match="disk on fire"):
        file.read()
