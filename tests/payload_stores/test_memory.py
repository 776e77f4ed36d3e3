"""The store in memory."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pytest

from payload_stores import PublishContext, open_store
from payload_stores.memory import MemoryStore
from payload_stores.testing import PayloadStoreTests


class TestMemoryStore(PayloadStoreTests):
    store_class = "memory"
    extra_memory = None

    @pytest.fixture
    def config(self) -> Iterator[Mapping[str, object]]:
        MemoryStore.clear()
        yield {}
        MemoryStore.clear()

    def raw_read(self, reference: str) -> bytes:
        return MemoryStore._payloads[tuple(reference.removeprefix("memory:///").split("/"))][0]

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        path = (*reference.removeprefix("memory:///").split("/")[:-1], *name.split("/"))
        MemoryStore._payloads[path] = data, datetime.now(UTC)


def test_bytes_are_not_copied() -> None:
    store = open_store("memory", {})
    data = bytes(1000)
    assert store.download(store.publish("topic", data)) is data


def test_clear_forgets_everything() -> None:
    store = MemoryStore()
    store.publish("topic", b"data", PublishContext("content"))
    MemoryStore.clear()
    assert list(store.list("topic")) == []
