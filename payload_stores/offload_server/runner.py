"""Runs the application with uvicorn: time limits on headers, TLS, the address that it really got."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from payload_stores.errors import ConfigError

__all__ = ["Tls", "serve"]

_log = logging.getLogger(__name__)

# From the connection, or the end of the answer before, to the end of a request's header fields. A connection on which
# nothing has been sent of the next request may stay open longer, for clients that keep theirs.
_HEADER_SECONDS: Final = 15.0
_KEEP_ALIVE_SECONDS: Final = 60
# A client that takes nothing of an answer for so long is cut off; what was to be sent is forgotten.
_STALLED_SECONDS: Final = 35.0
_HEADER_BYTES: Final = 32 << 10
_SHUTDOWN_SECONDS: Final = 30
# Connections at once; more get 503.
_CONNECTIONS: Final = 1000


@dataclass(frozen=True, slots=True)
class Tls:
    """What HTTPS needs.

    Attributes:
        certificate: PEM file with the server's certificate and those of its issuers.
        key: PEM file with the private key.
    """

    certificate: Path
    key: Path


def serve(
    app: ASGIApp,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: Tls | None = None,
    ready: Callable[[str], object] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; what is under way then may finish, for half a minute.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port; 0 takes a free one.
        tls: Serve HTTPS.
        ready: Called in a thread once requests are answered, with the URL; what it raises ends the server.

    Raises:
        ConfigError: The address cannot be used, or the files for TLS cannot.
    """
    with _listen(host, port) as listener:
        url = _url(host, listener, tls)
        server = _server(app, url, tls, ready)
        if tls is None and not _is_loopback(listener):
            _log.warning("%s is served without TLS: what is sent can be read and changed on its way", url)
        server.run(sockets=[listener])
        if server.failure is not None:
            raise server.failure


def _server(app: ASGIApp, url: str, tls: Tls | None, ready: Callable[[str], object] | None) -> _Server:
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_HEADER_BYTES,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"certificate or key cannot be used: {error}") from error
    return _Server(config, url, ready)


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it is ready."""

    def __init__(self, config: uvicorn.Config, url: str, ready: Callable[[str], object] | None) -> None:
        super().__init__(config)
        self._url = url
        self._ready = ready
        self.failure: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is None:
            return
        try:
            await asyncio.to_thread(self._ready, self._url)
        except Exception as error:  # noqa: BLE001  raised by `serve`, when the server has shut down in order
            self.failure = error
            self.should_exit = True


class _Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 with what it lacks: time limits for header fields, and for clients that do not read."""

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    cycle: Any  # None before the first request, which uvicorn's annotation leaves out

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # asyncio sets it where a listener was made for TCP by name, which `socket.create_server` does not do. Without
        # it, the second part of an answer waits for the client's delayed acknowledgement of the first.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unwatch()
        self.resume_writing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(_STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _watch(self) -> None:
        """Begin to count when a request begins, stop when its header fields are there."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_HEADER_SECONDS, self._too_late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.abort()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"{host} port {port} cannot be listened on: {error}") from error


def _url(host: str, listener: socket.socket, tls: Tls | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{name}:{listener.getsockname()[1]}"


def _is_loopback(listener: socket.socket) -> bool:
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback
