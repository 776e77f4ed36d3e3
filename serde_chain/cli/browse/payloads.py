"""Payloads as they lie in their stores: whether they are there, their beginnings, and all of one as a stream."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any, BinaryIO, Final

from payload_stores.base import PayloadStore, SupportsRanges, SupportsStreaming
from payload_stores.daemon_threads import run_elsewhere
from payload_stores.errors import PayloadStoreError, UntrustedReferenceError
from payload_stores.probes import see
from serde_chain.catalogue import StageItem
from serde_chain.chain import DeserializerChain
from serde_chain.clients.client_chains import MAX_POLL_INTERVAL, ClientChains
from serde_chain.clients.event_loop import elsewhere
from serde_chain.record import VALUE, RecordContext
from serde_chain.stages.large_message.options import REFERENCE_TOPICS, ReferenceTopics
from serde_chain.wire.reference_format import Reference

__all__ = ["Payloads", "blocks"]

_BLOCK: Final = 1 << 20


class Payloads:
    """Asks the stores of a configuration about payloads, each within the deadline that the configuration sets.

    Args:
        config: Flat configuration.

    Raises:
        ConfigError: It is wrong.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._setup = ClientChains.of(config, DeserializerChain, MAX_POLL_INTERVAL)
        chains = (self._setup.value, self._setup.key)
        self._stores: tuple[PayloadStore, ...] = tuple(store for chain in chains if chain for store in chain.stores)
        try:
            of_values = StageItem("large-message", {}).settings(config, is_key=False)
            self._topics = ReferenceTopics(REFERENCE_TOPICS.read(of_values), self._stores)
        except BaseException:
            self.close()
            raise

    def see(self, topic: str, reference: str, size: int | None) -> bool:
        """See that a payload is there, without reading it.

        Args:
            topic: The topic of the record that refers to it.
            reference: The reference.
            size: The payload's size in bytes, if the record tells it.

        Returns:
            Whether it was seen; False where nothing but a download would tell.

        Raises:
            PayloadStoreError: It is gone, of another size, not to be followed, or out of reach.
        """
        return bool(self._stores) and see(self._store(topic, reference), reference, size)

    def head(self, topic: str, reference: str, length: int) -> bytes | None:
        """The first bytes of a payload; None where only a download would give them. Errors as in :meth:`see`."""
        store = self._store(topic, reference)
        return store.read_range(reference, 0, length) if isinstance(store, SupportsRanges) else None

    def open(self, topic: str, reference: str) -> BinaryIO:
        """Open a payload as it lies in its store; the caller closes it.

        Raises:
            PayloadStoreError: As in :meth:`see`; or the store returns payloads only as a whole.
        """
        store = self._store(topic, reference)
        if not isinstance(store, SupportsStreaming):
            raise PayloadStoreError(
                "the store returns payloads only as a whole, which may not fit into memory",
                hint="Save the value by: serde-chain inspect --payload",
                store=store.scheme,
            )
        return store.open(reference)

    def _store(self, topic: str, reference: str) -> PayloadStore:
        """The store that is to follow a reference, by the rules of every reader."""
        if not self._stores:
            raise UntrustedReferenceError("the configuration names no deserializer that follows references")
        self._topics.check(Reference(reference), RecordContext(topic, VALUE), self._owner)
        return self._owner(reference)

    def _owner(self, reference: str) -> PayloadStore:
        return max(self._stores, key=lambda store: store.claim(reference))

    def close(self) -> None:
        """Close the stores."""
        self._setup.close()


async def blocks(head: bytes, file: BinaryIO) -> AsyncIterator[bytes]:
    """Read a file to its end, in threads, and close it, also when the rest is not wanted.

    Args:
        head: What was read of it already.
        file: The file.

    Yields:
        Its bytes, up to a MiB at a time.
    """
    lock = threading.Lock()  # a read that was left behind ends before the file is closed

    def read() -> Any:
        with lock:
            return file.read(_BLOCK)

    def close() -> None:
        with lock:
            file.close()

    try:
        yield head
        while block := await elsewhere(read):
            yield block
    finally:
        run_elsewhere(close)
