"""Accepts connections, limited in total, per address, and in idle time."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from payload_stores.offload_server.log_throttle import LogThrottle

_log = logging.getLogger(__name__)

# Pause after the system ran out of file descriptors.
_AGAIN_SECONDS: Final = 0.1

Lost = Callable[[], None]


class Connections:
    """Open connections, including those in their TLS handshake.

    asyncio's own servers do not count them, and allow a minute for a handshake.

    Args:
        most: Maximum number; further ones are closed at once.
        per_address: Maximum number per address.
        exempt: Addresses of proxies, with many clients behind them.
        handshake_seconds: Time for TLS.
        tls: Returns the SSL context for a new connection; None for plain http.
    """

    def __init__(
        self,
        *,
        most: int,
        per_address: int,
        exempt: Collection[str],
        handshake_seconds: float,
        tls: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._most = most
        self._per_address = per_address
        self._exempt = frozenset(exempt)
        self._handshake_seconds = handshake_seconds
        self._tls = tls
        self._of: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rarely = LogThrottle()

    async def accept(self, listener: socket.socket, make: Callable[[Lost], asyncio.Protocol]) -> None:
        """Accept connections until cancelled.

        Args:
            listener: The listening socket.
            make: Makes the protocol of a connection, which calls its argument when the connection is lost.
        """
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        while True:
            try:
                connection, name = await loop.sock_accept(listener)
            except OSError as error:
                if self._rarely.due("accept") is not None:
                    _log.error("no connection can be accepted: %s", error.strerror)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            address = str(name[0])
            if reason := self._why_not(address):
                connection.close()
                if (omitted := self._rarely.due(address)) is not None:
                    _log.warning("a connection from %s was closed: %s (%d more before)", address, reason, omitted)
                continue
            self._of[address] += 1
            task = loop.create_task(self._connect(connection, address, make))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(self, connection: socket.socket, address: str, make: Callable[[Lost], asyncio.Protocol]) -> None:
        counted = True

        def lost() -> None:
            nonlocal counted
            if counted:
                counted = False
                self._of[address] -= 1
                if not self._of[address]:
                    del self._of[address]

        loop = asyncio.get_running_loop()
        tls = self._tls()
        try:
            # Without it, the second part of an answer waits for the client's delayed acknowledgement of the first;
            # asyncio sets it for listeners that were made for TCP by name, which `socket.create_server` does not do.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            seconds = None if tls is None else self._handshake_seconds
            await loop.connect_accepted_socket(lambda: make(lost), connection, ssl=tls, ssl_handshake_timeout=seconds)
        except (OSError, TimeoutError):
            # Cut off, silent, or no TLS: any client can do this, so it is not logged.
            with suppress(OSError):
                connection.close()
            lost()
        except BaseException:
            connection.close()
            lost()
            raise

    def _why_not(self, address: str) -> str | None:
        if self._of.total() >= self._most:
            return f"there are {self._most} in all"
        if address not in self._exempt and self._of.get(address, 0) >= self._per_address:
            return f"it has {self._per_address} already"
        return None
