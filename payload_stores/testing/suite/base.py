"""Parts shared by the whole suite: the store, and payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import pytest

from payload_stores.base import Buffer, PayloadStore, PublishContext
from payload_stores.errors import PayloadTooLargeError
from payload_stores.middleware import Middleware
from payload_stores.registry import ConfiguredStore, open_store
from payload_stores.testing.suite.options import check_options
from payload_stores.testing.suite.required import RequiredSettings


def payload(size: int, seed: int = 0) -> bytes:
    """Bytes that are neither constant nor repeat in blocks of a power of two.

    Args:
        size: Number of bytes.
        seed: Different seeds give different bytes.
    """
    block = bytes((number * 7 + seed) % 251 for number in range(251 * 16))
    return (block * (size // len(block) + 1))[:size]


def innermost(store: PayloadStore) -> PayloadStore:
    """The store inside all middleware, to which the calls are forwarded.

    Args:
        store: The outer store.
    """
    while isinstance(store, Middleware):
        store = store.store
    return store


class StoreTests(RequiredSettings):
    """Opens the store under test.

    Attributes:
        store_class: Required. The store's class, or any name that :func:`payload_stores.open_store` accepts.
        large_bytes: Size of a payload in bytes that the store treats as large.
        extra_memory: Memory a publish may use beyond the payload, in payloads; None if not measurable, because the
            store keeps payloads in this process's memory.
        deletes_later: Whether the server removes deleted payloads later, so that at first only listings show the
            deletion.
        page_size: Number of payloads that the store lists per request; None skips the test of a second page.
    """

    required_settings: ClassVar[Mapping[str, str]] = {"store_class": "MyStore"}

    store_class: ClassVar[str | type[PayloadStore]]
    large_bytes: ClassVar[int] = 3 << 20
    extra_memory: ClassVar[float | None] = 0.2
    deletes_later: ClassVar[bool] = False
    page_size: ClassVar[int | None] = None

    topic = "conformance"

    @pytest.fixture
    def config(self) -> Mapping[str, object]:
        """The configuration of an empty store; override it."""
        return {}

    @pytest.fixture
    def other_config(self) -> Mapping[str, object]:
        """The configuration of another place (bucket, folder) of the same kind of store; override it.

        With it, the suite checks that stores of different configurations share no state, such as a class attribute.
        """
        pytest.skip("the suite has no fixture other_config, the configuration of another place")

    @pytest.fixture
    def store(self, config: Mapping[str, object]) -> Iterator[PayloadStore]:
        """The store, open."""
        store = open_store(self.store_class, config)
        yield store
        store.close()

    def test_the_options_that_it_reads_are_declared(self, config: Mapping[str, object]) -> None:
        """An option missing from ``options`` cannot be set: its key is refused, or left to the client."""
        configured = ConfiguredStore.of(self.store_class, config)
        if isinstance(configured.target, type) and issubclass(configured.target, Middleware):
            pytest.skip("the store is a middleware, whose inner store reads the options")
        check_options(lambda: configured.open().close(), configured.settings, configured.options, configured.item.label)

    @pytest.fixture
    def asked_ids(self, store: PayloadStore) -> None:
        """Skip a test of ids that the store is asked for, if it is not: KIP-1159's ``publish(topic, data)``."""
        if not store.follows_context:
            pytest.skip("the store chooses its ids itself: its publish takes no context")

    def raw_read(self, reference: str) -> bytes:
        """Read a payload without the store, for instance with the server's own client; override it.

        With it, the suite checks the stored bytes; without it, the same code publishes and reads payloads.

        Args:
            reference: The payload's reference.
        """
        pytest.skip("the suite has no raw_read(reference), which reads a payload without the store")

    def raw_write(self, reference: str, name: str, data: bytes) -> None:
        """Write an object without the store, as other programs may; override it.

        Args:
            reference: A payload of the topic.
            name: The object's name, in place of the payload's id, unencoded.
            data: The object's bytes.

        Raises:
            ValueError: The server does not allow the name.
        """
        pytest.skip("the suite has no raw_write(reference, name, data), which writes without the store")

    def refuse_too_large(self, read: Callable[[], object]) -> None:
        """Check that reading a payload above the limit is refused.

        Args:
            read: Reads it.
        """
        try:
            read()
        except PayloadTooLargeError:
            return
        pytest.fail(
            f"a payload above {PayloadStore.MAX_PAYLOAD.name} was read: call self.check_size(size, reference), which "
            "raises PayloadTooLargeError, before reading the bytes; super().configure(config) reads the limit"
        )

    def open_with_id(self, config: Mapping[str, object], payload_id: str) -> PayloadStore:
        """The store with a custom id (KIP-1159: ``PayloadStore.id`` may be overridden)."""

        def fixed_id(data: Buffer, context: PublishContext | None = None) -> str:  # noqa: ARG001
            return payload_id

        store = open_store(self.store_class, config)
        innermost(store).id = fixed_id  # type: ignore[method-assign]
        return store
