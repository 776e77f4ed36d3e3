"""Payloads in their stores: existence, first bytes, and streams."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import BinaryIO, Final

from payload_stores.base import PayloadStore, SupportsRanges, SupportsStreaming
from payload_stores.errors import PayloadStoreError, UntrustedReferenceError
from payload_stores.probes import refuse_larger, see
from serde_chain.catalogue import settings_of
from serde_chain.clients.client_chains import ClientChains
from serde_chain.record import VALUE, RecordContext
from serde_chain.stages.large_message.options import REFERENCE_TOPICS, ReferenceTopics
from serde_chain.wire.reference_format import Reference

_BLOCK: Final = 1 << 20


class Payloads:
    """Queries the stores of a configuration, each within the configured deadline.

    Args:
        config: Flat configuration.

    Raises:
        ConfigError: The configuration is wrong.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._setup = ClientChains.of_reader(config)
        chains = (self._setup.value, self._setup.key)
        self._stores: tuple[PayloadStore, ...] = tuple(store for chain in chains if chain for store in chain.stores)
        try:
            of_values = settings_of(config, is_key=False)
            self._topics = ReferenceTopics(REFERENCE_TOPICS.read(of_values), self._stores)
        except BaseException:
            self.close()
            raise

    def see(self, topic: str, reference: str, size: int | None) -> bool:
        """Check that a payload exists, without reading it.

        Args:
            topic: The topic of the record that refers to it.
            reference: The reference.
            size: The payload's size in bytes, if the record states it.

        Returns:
            Whether it exists; False if only a download would show that.

        Raises:
            PayloadStoreError: It is gone, has another size, is untrusted, or is unreachable.
        """
        return bool(self._stores) and see(self._store(topic, reference), reference, size)

    def head(self, topic: str, reference: str, length: int) -> bytes | None:
        """The first bytes of a payload; None if they require a download. Errors as in :meth:`see`."""
        store = self._store(topic, reference)
        return store.read_range(reference, 0, length) if isinstance(store, SupportsRanges) else None

    def open(self, topic: str, reference: str, size: int | None) -> BinaryIO:
        """Open a stored payload; the caller closes it.

        Args:
            topic: As in :meth:`see`.
            reference: As in :meth:`see`.
            size: As in :meth:`see`.

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
        file = store.open(reference)
        try:
            refuse_larger(file, reference, size)
        except BaseException:
            file.close()
            raise
        return file

    def _store(self, topic: str, reference: str) -> PayloadStore:
        """The store of a reference, by the rules of every reader."""
        if not self._stores:
            raise UntrustedReferenceError("the configuration names no deserializer that follows references")
        self._topics.check(Reference(reference), RecordContext(topic, VALUE), self._owner)
        return self._owner(reference)

    def _owner(self, reference: str) -> PayloadStore:
        return max(self._stores, key=lambda store: store.claim(reference))

    def close(self) -> None:
        """Close the stores."""
        self._setup.close()


def blocks(head: bytes, file: BinaryIO) -> Generator[bytes, None, None]:
    """Read a file to its end, and close it.

    Args:
        head: The bytes already read.
        file: The file.

    Yields:
        Its bytes, at most 1 MiB at a time.
    """
    with file:
        yield head
        while block := file.read(_BLOCK):
            yield block
