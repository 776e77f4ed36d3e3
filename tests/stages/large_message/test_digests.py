"""A payload's SHA-256 is computed once on its way up, and once on its way down."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from payload_stores.memory import MemoryStore
from serde_chain import DeserializerChain, PayloadHandle, RecordContext, SerializerChain
from serde_chain.testing.services import S3Server

PAYLOAD = bytes(range(256)) * 4096


class Hashed:
    """How many bytes were hashed."""

    def __init__(self) -> None:
        self.bytes = 0

    def take(self) -> float:
        """Payloads that were hashed since the last call."""
        size, self.bytes = self.bytes, 0
        return size / len(PAYLOAD)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Hashed:
    counts = Hashed()
    real = hashlib.sha256

    class Counting:
        def __init__(self, data: Any = b"", **options: Any) -> None:
            self._hash = real(data, **options)
            counts.bytes += memoryview(data).nbytes

        def update(self, data: Any) -> None:
            self._hash.update(data)
            counts.bytes += memoryview(data).nbytes

        def __getattr__(self, name: str) -> Any:
            return getattr(self._hash, name)

    monkeypatch.setattr(hashlib, "sha256", Counting)
    return counts


@pytest.fixture(params=["memory", "local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        yield {"large.message.payload.store.class": "s3", **server.store_config(server.create_bucket())}
    else:
        yield {"large.message.payload.store.class": request.param, "local.path": str(tmp_path), "local.fsync": False}
    MemoryStore.clear()


def chains(store: dict[str, Any], **settings: Any) -> tuple[SerializerChain, DeserializerChain]:
    own = {f"large.message.{name.replace('_', '.')}": value for name, value in settings.items()}
    config = {"value.serializers": "large-message", "value.deserializers": "large-message", **store, **own}
    config["large.message.threshold.bytes"] = 100
    return SerializerChain.from_config(config), DeserializerChain.from_config(config)


@pytest.mark.parametrize("cache", [0, 16 << 20])
@pytest.mark.parametrize("strategy", ["random", "content"])
def test_a_payload_is_hashed_once_in_each_direction(
    store: dict[str, Any], hashed: Hashed, strategy: str, cache: int
) -> None:
    write, read = chains(store, id=strategy, store_cache_bytes=cache)
    ctx = RecordContext("topic", "value", [])
    data = write(PAYLOAD, ctx)
    headers: Any = list(ctx.headers or ())
    assert 1 <= hashed.take() < 1.05
    for again in range(3):
        assert read(data, RecordContext("topic", "value", list(headers))) == PAYLOAD
        expected = 0 if cache and again else 1  # a kept payload was verified against the same digest
        assert expected <= hashed.take() < expected + 0.05
    assert read.to_arrow([data] * 8, [headers] * 8, topic="topic")[7].as_py() == PAYLOAD
    assert hashed.take() < 1.05


def test_a_stream_is_hashed_as_it_is_read(store: dict[str, Any], hashed: Hashed) -> None:
    write, read = chains(store, fetch="lazy")
    ctx = RecordContext("topic", "value", [])
    data = write(io.BytesIO(PAYLOAD), ctx)
    # S3 wants the checksum of a single request before its body, and who reads the stream knows it only afterwards.
    most = 2 if store["large.message.payload.store.class"] == "s3" else 1
    assert 1 <= hashed.take() < most + 0.05
    handle = read(data, ctx)
    assert isinstance(handle, PayloadHandle)
    assert hashed.take() == 0
    assert handle.read() == PAYLOAD
    assert 1 <= hashed.take() < 1.05
    with handle.open() as file:
        assert file.read() == PAYLOAD
    assert 1 <= hashed.take() < 1.05
