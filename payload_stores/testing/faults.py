"""A payload store that fails on demand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from payload_stores.base import PayloadStore
from payload_stores.middleware import Middleware

__all__ = ["FaultyStore"]

T = TypeVar("T")


class FaultyStore(Middleware):
    """A store that fails on request, for tests of the layers above a store.

    Args:
        store: The store that does the work.

    Attributes:
        calls: Names of the operations that were asked for, in order.
    """

    wrapped = frozenset({"delete", "publish_stream", "open", "list"})

    def __init__(self, store: PayloadStore) -> None:
        super().__init__(store)
        self.calls: list[str] = []
        self._errors: list[BaseException] = []
        self._changes: list[Callable[[bytes], bytes]] = []
        self._open = threading.Event()
        self._open.set()

    def fail(self, error: BaseException, times: int = 1) -> None:
        """Let the next operations raise an error instead of doing anything.

        Args:
            error: The error.
            times: How many operations.
        """
        self._errors += [error] * times

    def damage(self, change: Callable[[bytes], bytes] = lambda data: data[:-1]) -> None:
        """Let the next download return other bytes.

        Args:
            change: Makes the damaged payload of the real one; by default, the last byte is missing.
        """
        self._changes.append(change)

    def flip_bit(self, position: int = 0) -> None:
        """Let the next download return a payload with one bit changed.

        Args:
            position: In which byte.
        """
        self.damage(lambda data: data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Let operations hang that begin within a ``with`` block, until it ends."""
        self._open.clear()
        try:
            yield
        finally:
            self._open.set()

    def call(self, operation: Callable[..., T], *args: Any) -> T:
        """Do what the test asked for, then call the real store."""
        self.calls.append(operation.__name__)
        self._open.wait()
        if self._errors:
            raise self._errors.pop(0)
        return operation(*args)

    def download(self, reference: str) -> bytes:
        """Download, perhaps damaged."""
        data = super().download(reference)
        return self._changes.pop(0)(data) if self._changes else data
