"""``serde-chain browse``: the command, and its server."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import click

from serde_chain.cli import arguments
from serde_chain.cli.arguments import example
from serde_chain.errors import ConfigError

if TYPE_CHECKING:
    from serde_chain.cli.browse.app import Pages

_ADDRESS = "127.0.0.1"
# Concurrent connections; a browser opens six.
_CONNECTIONS = 64
_SHUTDOWN_S = 1


@click.command(epilog=example("browse client.toml images"))
@arguments.configured(needs_topic=False)
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port on 127.0.0.1.  [default: a free one]")
@arguments.timeout(10.0)
def browse(config: dict[str, object], topic: str | None, port: int, timeout: float) -> None:
    """Show TOPIC, or all topics, as pages in a browser.

    CONFIG is a client's configuration (.toml or .properties). The pages are for browsers on this machine, until
    Ctrl-C. The printed link contains a token, which is required to see them. The pages only read: no consumer group
    is joined, no offset committed, and a payload is fetched only when its record is shown.
    """
    from payload_stores.plugins import require

    for module in ("starlette", "uvicorn", "jinja2", "imagesize"):
        require(module, "browse")
    from serde_chain.cli.browse.app import Pages

    with closing(Pages(config, timeout)) as pages:
        first = pages.check(topic)
        with suppress(KeyboardInterrupt):  # the regular end
            serve(pages, first, port, click.echo)


def serve(pages: Pages, first: str, port: int, ready: Callable[[str], object]) -> None:
    """Serve pages until SIGINT or SIGTERM.

    Args:
        pages: The pages.
        first: The path of the first page.
        port: Port on 127.0.0.1; 0 for a free one.
        ready: Called with the link, once signals shut the server down cleanly.

    Raises:
        ConfigError: The port is taken.
        KeyboardInterrupt: After SIGINT, once the server has shut down. After SIGTERM, its handler's exception.
    """
    import uvicorn

    from payload_stores.bounded_http import BoundedHttp
    from serde_chain.cli.browse.guard import Guard

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            try:
                ready(f"http://{_ADDRESS}:{port}{first}?token={token}")
            except BaseException:  # such as of a closed pipe
                await self.shutdown(sockets)
                raise

    try:
        listener = socket.create_server((_ADDRESS, port))
    except OSError as error:
        raise ConfigError(f"{_ADDRESS} port {port} cannot be listened on: {error}") from error
    with listener:
        token, port = secrets.token_urlsafe(32), listener.getsockname()[1]
        config = uvicorn.Config(
            Guard(pages.app, token, port),
            http=BoundedHttp,  # idle connections would exhaust the allowed number
            ws="none",
            lifespan="off",
            # The first address contains the token, and the pages report errors.
            access_log=False,
            log_config=None,
            log_level="critical",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        Server(config).run(sockets=[listener])
