"""Fair shares for users and addresses, and limits for slow clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from starlette.types import Receive

from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.offload_server.errors import RefusedError, TooLargeError
from payload_stores.offload_server.requests import Caller, GoneError, Limits

K = TypeVar("K")
T = TypeVar("T")


class _Gates(Generic[K]):
    """A semaphore per key in use."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._gates: dict[K, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def place(self, key: K) -> AsyncIterator[None]:
        gate, users = self._gates.get(key, (asyncio.Semaphore(self._places), 0))
        self._gates[key] = gate, users + 1
        try:
            async with gate:
                yield
        finally:
            gate, users = self._gates.pop(key)
            if users > 1:
                self._gates[key] = gate, users - 1


class Shares:
    """Slots for transfers: a total number, and a number per user and per address.

    A user with a full share waits for that, not in the common queue.

    Args:
        limits: The numbers.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = asyncio.Semaphore(limits.transfers)
        self._users: _Gates[str] = _Gates(limits.transfers_per_user)
        self._addresses: _Gates[str] = _Gates(limits.transfers_per_address)

    @asynccontextmanager
    async def place(self, sender: Caller) -> AsyncIterator[None]:
        """Hold a slot for a transfer.

        Raises:
            PayloadStoreUnavailableError: None became free in time.
        """
        async with AsyncExitStack() as stack:
            what = f"{sender.user} has {self._limits.transfers_per_user} transfers under way"
            try:
                async with asyncio.timeout(self._limits.idle_seconds):
                    await stack.enter_async_context(self._users.place(sender.user))
                    if sender.address not in self._limits.proxies:
                        what = f"{sender.address} has {self._limits.transfers_per_address} transfers under way"
                        await stack.enter_async_context(self._addresses.place(sender.address))
                    what = "too many transfers at once"
                    await stack.enter_async_context(self._all)
            except TimeoutError:
                raise PayloadStoreUnavailableError(what) from None
            yield


class WaitBudget:
    """The remaining time a client may keep its transfer waiting.

    Only time waiting for the client counts, not the store's time.

    Args:
        limits: Longest waits, and the minimum rate.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + limits.transfer_seconds
        self._waited = 0.0
        self._moved = 0

    async def wait(self, waiting: Awaitable[T]) -> T:
        """Wait for the client.

        Raises:
            TimeoutError: This wait, or all waits together, took too long.
        """
        began = self._loop.time()
        allowed = self._limits.idle_seconds
        if self._limits.min_bytes_per_second:
            # Transferred bytes buy time; the first seconds are free.
            allowed = min(allowed, allowed + self._moved / self._limits.min_bytes_per_second - self._waited)
        try:
            async with asyncio.timeout_at(min(self._until, began + allowed)):
                return await waiting
        finally:
            self._waited += self._loop.time() - began

    async def body(self, receive: Receive) -> AsyncIterator[bytes]:
        """The pieces of a request's body.

        Raises:
            RefusedError: The client took too long (408), or is gone.
            TooLargeError: More bytes than allowed.
        """
        while True:
            try:
                message = await self.wait(receive())
            except TimeoutError:
                raise RefusedError("the body did not arrive in time", status=408) from None
            if message["type"] == "http.disconnect":
                raise GoneError("the client closed the connection before its body was complete")
            piece = message.get("body", b"")
            self.moved(len(piece))
            if self._moved > self._limits.max_bytes:
                raise TooLargeError(f"the body has more than the {self._limits.max_bytes} bytes allowed")
            if piece:
                yield piece
            if not message.get("more_body", False):
                return

    def moved(self, size: int) -> None:
        """Count transferred bytes."""
        self._moved += size
