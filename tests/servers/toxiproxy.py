"""Network faults between a client and a server, on demand."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from serde_chain.testing.services.errors import ServiceError
from serde_chain.testing.services.ports import HOST, http_answers
from serde_chain.testing.services.process import Service
from tests.servers.golang import go_program

_PACKAGE = "github.com/Shopify/toxiproxy/v2/cmd/server"
_VERSION = "v2.5.0"


def program() -> Path:
    """Toxiproxy, built the first time."""
    return go_program(_PACKAGE, _VERSION, is_measured=True)


class Toxiproxy(Service):
    """A TCP proxy that delays, throttles, cuts or swallows what goes through it.

    Example:
        >>> with VersityGateway() as s3, Toxiproxy() as toxiproxy:  # doctest: +SKIP
        ...     proxy = toxiproxy.proxy("s3", s3.url.removeprefix("http://"))
        ...     with proxy.toxic("latency", latency=30):
        ...         ...  # requests to proxy.address take 30 ms longer
    """

    name = "toxiproxy"

    def proxy(self, name: str, upstream: str) -> "Proxy":
        """Listen on a free port for connections to a server.

        Args:
            name: A name that no other proxy of this server has.
            upstream: Host and port of the server, as ``127.0.0.1:9000``.
        """
        answer = self.request("POST", "/proxies", {"name": name, "listen": f"{HOST}:0", "upstream": upstream})
        return Proxy(self, name, str(answer["listen"]))

    def request(self, method: str, path: str, body: object = None) -> dict[str, object]:
        """Call Toxiproxy's own HTTP interface.

        Raises:
            ServiceError: It did not accept the request.
        """
        connection = http.client.HTTPConnection(HOST, self._port(), timeout=10)
        try:
            connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            message = f"toxiproxy refused {method} {path}: {content.decode(errors='replace')}"
            raise ServiceError(message)
        parsed: dict[str, object] = json.loads(content or b"{}")
        return parsed

    def _prepare(self, folder: Path) -> list[str]:
        return [str(program()), "-host", HOST, "-port", str(self._port())]

    def _ready(self) -> bool:
        return http_answers(self._port(), "/version")


class Proxy:
    """One proxied server."""

    def __init__(self, server: Toxiproxy, name: str, address: str) -> None:
        """Made by `Toxiproxy.proxy`."""
        self._server = server
        self._path = f"/proxies/{name}"
        self.address = address
        """Host and port to connect to instead of the server's."""

    @contextmanager
    def toxic(
        self,
        kind: Literal["latency", "bandwidth", "timeout", "reset_peer", "slow_close", "slicer", "limit_data"],
        *,
        stream: Literal["downstream", "upstream"] = "downstream",
        **attributes: int,
    ) -> Iterator[None]:
        """Disturb the connections while the context lasts.

        Args:
            kind: Toxiproxy's name of the fault.
            stream: What the server sends (downstream) or what the client sends (upstream). A server that
                hangs is ``timeout`` upstream: downstream, a server that closes the connection after
                its answer closes the client's as well.
            **attributes: Of the fault: ``latency`` and ``timeout`` in milliseconds, ``rate`` in KB per
                second, ``bytes``, ...
        """
        toxic = {"name": f"{kind}-{stream}", "type": kind, "stream": stream, "attributes": attributes}
        self._server.request("POST", f"{self._path}/toxics", toxic)
        try:
            yield
        finally:
            self._server.request("DELETE", f"{self._path}/toxics/{toxic['name']}")

    @contextmanager
    def down(self) -> Iterator[None]:
        """Refuse connections, and cut those that are open, while the context lasts."""
        self._server.request("POST", self._path, {"enabled": False})
        try:
            yield
        finally:
            self._server.request("POST", self._path, {"enabled": True})

    def remove(self) -> None:
        """Stop listening."""
        self._server.request("DELETE", self._path)
