"""Runs the application with uvicorn: timeouts, TLS, signals, the actual address."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from payload_stores.bounded_http import BoundedHttp
from payload_stores.errors import ConfigError
from payload_stores.offload_server.connections import Connections
from payload_stores.offload_server.log_throttle import ThrottleFilter
from payload_stores.offload_server.requests import is_loopback

_log = logging.getLogger(__name__)

# A connection on which nothing has been sent of the next request may stay open so long, for clients that keep theirs.
_KEEP_ALIVE_SECONDS: Final = 60
_HANDSHAKE_SECONDS: Final = 15.0
_SHUTDOWN_SECONDS: Final = 30
# Maximum connections; further ones are closed.
_CONNECTIONS: Final = 1000
_CONNECTIONS_PER_ADDRESS: Final = 250


@dataclass(frozen=True, slots=True)
class Tls:
    """The files for HTTPS.

    Attributes:
        certificate: PEM file with the server's certificate and its issuers'.
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
    reload: Callable[[], object] | None = None,
    proxies: Collection[str] = (),
) -> None:
    """Serve until SIGINT or SIGTERM; transfers in flight then have half a minute to finish.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port; 0 takes a free one.
        tls: Serve HTTPS. SIGHUP reloads the files.
        ready: Called in a thread with the URL once the server answers requests; an exception ends the server.
        reload: Called in a thread upon SIGHUP, such as :meth:`OffloadApp.reload`.
        proxies: Addresses of reverse proxies, which may have more connections than others.

    Raises:
        ConfigError: The address or the TLS files are unusable.
    """
    with _listen(host, port) as listener:
        url = _url(host, listener, tls)
        server = _server(app, url, tls, ready, reload=reload, proxies=proxies)
        if tls is None and not is_loopback(listener.getsockname()[0]):
            _log.warning("%s is served without TLS: what is sent can be read and changed on its way", url)
        # Any client could fill the log with a line per broken request.
        quiet = ThrottleFilter()
        logging.getLogger("uvicorn.error").addFilter(quiet)
        try:
            server.run(sockets=[listener])
        finally:
            logging.getLogger("uvicorn.error").removeFilter(quiet)
        if server.failure is not None:
            raise server.failure


def _server(
    app: ASGIApp,
    url: str,
    tls: Tls | None,
    ready: Callable[[str], object] | None,
    *,
    reload: Callable[[], object] | None = None,
    proxies: Collection[str] = (),
) -> _Server:
    config = uvicorn.Config(
        app,
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    config.load()
    return _Server(config, url, tls, ready, reload, proxies)


class _Server(uvicorn.Server):
    """uvicorn's server with limited connections, reloadable files, and a callback when ready."""

    def __init__(  # noqa: PLR0917  as `serve` has them
        self,
        config: uvicorn.Config,
        url: str,
        tls: Tls | None,
        ready: Callable[[str], object] | None,
        reload: Callable[[], object] | None,
        proxies: Collection[str],
    ) -> None:
        super().__init__(config)
        self._url = url
        self._ready = ready
        self._reload = reload
        self._tls = tls
        self._context = None if tls is None else _context(tls)
        self._connections = Connections(
            most=_CONNECTIONS,
            per_address=_CONNECTIONS_PER_ADDRESS,
            exempt=proxies,
            handshake_seconds=_HANDSHAKE_SECONDS,
            tls=lambda: self._context,
        )
        self._accepting: list[asyncio.Task[None]] = []
        self.failure: BaseException | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            self.should_exit = True
            return
        loop = asyncio.get_running_loop()
        self.servers = []
        self._accepting = [loop.create_task(self._connections.accept(one, self._protocol)) for one in sockets or ()]
        self.started = True
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        if self._ready is None:
            return
        try:
            await asyncio.to_thread(self._ready, self._url)
        except Exception as error:  # noqa: BLE001  raised by `serve` after an orderly shutdown
            self.failure = error
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    def _protocol(self, lost: Callable[[], None]) -> asyncio.Protocol:
        return BoundedHttp(self.config, self.server_state, self.lifespan.state, on_lost=lost)

    def _hang_up(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self.read_again)

    def read_again(self) -> None:
        """Reload the certificate and the application's files; unreadable ones keep their previous content."""
        if self._tls is not None:
            try:
                self._context = _context(self._tls)
                _log.info("the certificate %s was read again", self._tls.certificate)
            except ConfigError as error:
                _log.error("the certificate that is in use stays: %s", error)
        if self._reload is not None:
            self._reload()


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"certificate or key cannot be used: {error}") from error
    return context


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ConfigError(f"{host} port {port} cannot be listened on: {error}") from error


def _url(host: str, listener: socket.socket, tls: Tls | None) -> str:
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{name}:{listener.getsockname()[1]}"
