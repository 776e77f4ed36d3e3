"""Promises of a store with a server while the network fails."""

# ruff: noqa: D102, S101  the name of a test says what it shows, assert is how pytest checks

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from typing import ClassVar, Final, Protocol

import pytest

from payload_stores.base import PayloadStore, SupportsDelete, SupportsList
from payload_stores.errors import PayloadNotFoundError, PayloadStoreError
from payload_stores.middleware import Deadline
from payload_stores.registry import open_store
from payload_stores.testing.suite.base import StoreTests, payload

FAULTS: Final[Mapping[str, tuple[str, str, dict[str, int]]]] = {
    "a server that hangs": ("timeout", "upstream", {"timeout": 0}),
    "a connection that is cut after a while": ("timeout", "upstream", {"timeout": 100}),
    "a connection that is reset": ("reset_peer", "downstream", {"timeout": 0}),
    "an answer that is cut": ("limit_data", "downstream", {"bytes": 100}),
    "a request that is cut": ("limit_data", "upstream", {"bytes": 500}),
    "a kilobyte a second": ("bandwidth", "upstream", {"rate": 1}),
    "a server that is away": ("down", "", {}),
}
"""Toxics by the fault they simulate: kind, direction, attributes, with Toxiproxy's names."""


class Network(Protocol):
    """A network to the store's server with injectable faults, such as Toxiproxy."""

    def toxic(self, kind: str, *, stream: str, **attributes: int) -> AbstractContextManager[None]:
        """Disturb the connections during a ``with`` block.

        Args:
            kind: ``timeout``, ``reset_peer``, ``limit_data`` or ``bandwidth``, as in Toxiproxy.
            stream: ``downstream``, from the server, or ``upstream``.
            **attributes: Attributes of the kind.
        """

    def down(self) -> AbstractContextManager[None]:
        """Refuse connections, and cut open ones, during a ``with`` block."""


class PayloadStoreFaultTests(StoreTests):
    """A store whose server is reachable only through a faulty network.

    Whatever fails, a call ends within its deadline, with a documented error. No payload is damaged, and no partial
    payload is readable. When the network is back, the store works again without being reopened::

        class TestMyStoreOnABadDay(PayloadStoreFaultTests):
            store_class = MyStore

            @pytest.fixture
            def network(self): ...            # disturbs the connections to the server

            @pytest.fixture
            def config(self, network): ...    # of a store behind this network

    Attributes:
        deadline_ms: Maximum duration of a call.
        slack_ms: Allowance for a busy machine.
    """

    deadline_ms: ClassVar[int] = 2_000
    slack_ms: ClassVar[int] = 500

    @pytest.fixture
    def network(self) -> Network:
        """The network to the server; override it."""
        raise NotImplementedError("the suite needs a fixture `network`, which disturbs the way to the store's server")

    @pytest.fixture
    def store(self, config: Mapping[str, object]) -> Iterator[PayloadStore]:
        """The store, open, behind a deadline."""
        store = Deadline(open_store(self.store_class, config), self.deadline_ms)
        yield store
        store.close()

    @pytest.fixture(params=FAULTS)
    def fault(self, request: pytest.FixtureRequest, network: Network) -> AbstractContextManager[None]:
        """One fault after the other."""
        kind, stream, attributes = FAULTS[request.param]
        return network.down() if kind == "down" else network.toxic(kind, stream=stream, **attributes)

    @pytest.mark.parametrize("size", [1_000, 200_000])
    def test_faults_of_the_network(self, store: PayloadStore, fault: AbstractContextManager[None], size: int) -> None:
        data, other = payload(size), payload(size, 1)
        reference = store.publish(self.topic, data)
        with fault:
            with suppress(PayloadStoreError), self._in_time():
                store.publish(self.topic, other)
            # Payloads that were readable equal the published ones.
            with suppress(PayloadStoreError), self._in_time():
                assert store.download(reference) == data
        assert store.download(reference) == data
        assert store.download(store.publish(self.topic, other)) == other
        if isinstance(store, SupportsList):
            for info in store.list(self.topic):
                assert store.download(info.reference) in {data, other}

    def test_deleting_is_done_or_not(self, store: PayloadStore, fault: AbstractContextManager[None]) -> None:
        if not isinstance(store, SupportsDelete):
            pytest.skip("the store cannot delete")
        data = payload(1_000)
        reference = store.publish(self.topic, data)
        with fault, suppress(PayloadStoreError), self._in_time():
            store.delete(reference)
        with suppress(PayloadNotFoundError):
            assert store.download(reference) == data
        store.delete(reference)
        if self.deletes_later:
            assert not isinstance(store, SupportsList) or list(store.list(self.topic)) == []
            return
        with pytest.raises(PayloadNotFoundError):
            store.download(reference)

    def _in_time(self) -> AbstractContextManager[None]:
        return _Deadline((self.deadline_ms + self.slack_ms) / 1000)


class _Deadline(AbstractContextManager[None]):
    """Fails if a block exceeds its time, even if it ends with an error."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.monotonic()

    def __exit__(self, *_error: object) -> None:
        taken = time.monotonic() - self._begun
        assert taken <= self._seconds, f"the call took {taken:.1f} s"
