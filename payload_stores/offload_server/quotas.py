"""Shares of users and addresses in the server, and a bound on slow clients: none of them gets all of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

from starlette.types import Receive

from payload_stores.errors import PayloadStoreUnavailableError
from payload_stores.offload_server.errors import RefusedError, TooLargeError
from payload_stores.offload_server.requests import GoneError, Limits, Sender

__all__ = ["Pace", "Shares"]

K = TypeVar("K")
T = TypeVar("T")


class _Gates(Generic[K]):
    """A semaphore for each key that is in use."""

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
    """Places for transfers: a number in all, and a number for one user and for one address.

    A user whose share is taken waits for it, not in the line of all others.

    Args:
        limits: How many there are.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = asyncio.Semaphore(limits.transfers)
        self._users: _Gates[str] = _Gates(limits.transfers_per_user)
        self._addresses: _Gates[str] = _Gates(limits.transfers_per_address)

    @asynccontextmanager
    async def place(self, sender: Sender) -> AsyncIterator[None]:
        """Have a place for a transfer.

        Raises:
            PayloadStoreUnavailableError: There is none for too long.
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


class Pace:
    """The time for which a client may still keep its transfer waiting.

    Only the time counts in which the server waits for the client, not what the store takes.

    Args:
        limits: Longest waits, and the least rate.
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
            TimeoutError: It took too long, this time or in all.
        """
        began = self._loop.time()
        allowed = self._limits.idle_seconds
        if self._limits.min_bytes_per_second:
            # Bytes that arrived buy time; the first seconds are free.
            allowed = min(allowed, allowed + self._moved / self._limits.min_bytes_per_second - self._waited)
        try:
            async with asyncio.timeout_at(min(self._until, began + allowed)):
                return await waiting
        finally:
            self._waited += self._loop.time() - began

    async def body(self, receive: Receive) -> AsyncIterator[bytes]:
        """The pieces of a request's body.

        Raises:
            RefusedError: The client took too long (408), or has gone.
            TooLargeError: There are more bytes than allowed.
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
                raise TooLargeError(f"the body has more than the {self._limits.max_bytes} bytes that are taken")
            if piece:
                yield piece
            if not message.get("more_body", False):
                return

    def moved(self, size: int) -> None:
        """Count bytes that have come or gone."""
        self._moved += size
