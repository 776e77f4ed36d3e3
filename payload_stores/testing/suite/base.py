"""Parts that the whole suite shares: the store, and payloads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.registry import open_store, store_class

__all__ = ["StoreTests", "payload"]


def payload(size: int, seed: int = 0) -> bytes:
    """Bytes that are neither all the same nor repeated in blocks of a power of two.

    Args:
        size: How many.
        seed: Another seed, other bytes.
    """
    block = bytes((number * 7 + seed) % 251 for number in range(251 * 16))
    return (block * (size // len(block) + 1))[:size]


class StoreTests:
    """Opens the store under test.

    Attributes:
        store_class: The store's class, or any name that :func:`payload_stores.open_store` takes.
        large_bytes: Size of a large payload in bytes; choose it so that the store treats it as large.
        extra_memory: How many payloads of memory a publish may take beyond the payload itself; None where that cannot
            be measured, because the store keeps payloads in this process's memory.
        deletes_later: Whether the server removes a deleted payload some time afterwards, so that only listings show at
            once that it is gone.
    """

    store_class: ClassVar[str | type[PayloadStore]]
    large_bytes: ClassVar[int] = 3 << 20
    extra_memory: ClassVar[float | None] = 0.2
    deletes_later: ClassVar[bool] = False

    topic = "conformance"

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        """The store's configuration, of a store that is empty; to be overridden."""
        return {}

    @pytest.fixture
    def store(self, config: Mapping[str, object]) -> Iterator[PayloadStore]:
        """The store, open."""
        store = open_store(self.store_class, config)
        yield store
        store.close()

    def raw_read(self, reference: str) -> bytes:
        """Read a payload past the store, such as by a client of the server's own; to be overridden.

        With it, the suite sees what a store really keeps; without it, payloads are published and read by the same code.

        Args:
            reference: What the store returned for the payload.
        """
        pytest.skip("the suite has no raw_read(reference), which reads a payload past the store")

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        """Write something past the store, as other programs may, in place of a payload's id; to be overridden.

        Args:
            reference: A payload of the topic.
            name: What is written in place of its id, as it is.
            data: The bytes.

        Raises:
            ValueError: The server has no such names.
        """
        pytest.skip("the suite has no raw_write(reference, name, data), which writes past the store")

    def open_with_id(self, config: Mapping[str, object], payload_id: str) -> PayloadStore:
        """The store with an id of the user's own (KIP-1159: ``PayloadStore.id`` may be overridden)."""

        def fixed_id(_self: PayloadStore, data: Buffer, context: PublishContext | None = None) -> str:  # noqa: ARG001
            return payload_id

        return open_store(type("WithId", (store_class(self.store_class),), {"id": fixed_id}), config)
