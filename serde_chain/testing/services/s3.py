"""An S3 server in this process: moto, over real HTTP."""

import logging
from types import TracebackType
from typing import Self

from moto.moto_server.threaded_moto_server import ThreadedMotoServer

from serde_chain.testing.services.errors import ServiceStartError
from serde_chain.testing.services.ports import HOST, require_free
from serde_chain.testing.services.s3_endpoint import S3Endpoint


class S3Server(S3Endpoint):
    """An S3 server that keeps its objects in this process's memory.

    It starts quickly but is lenient: it accepts wrong credentials and checksums. Tests that depend on those use
    `VersityGateway`. All servers of one process share their buckets. A stopped server starts again at the same address.

    Example:
        >>> with S3Server() as s3:  # doctest: +SKIP
        ...     store = open_store("s3", s3.store_config(s3.create_bucket()))
    """

    access_key = "test-access-key"
    secret_key = "test-secret-key"  # noqa: S105 - any is accepted

    def __init__(self, *, port: int = 0) -> None:
        """Create the server without starting it; `start`, or entering the context, does.

        Args:
            port: Its port; 0 for a free one.
        """
        self._server: ThreadedMotoServer | None = None
        self._port = port

    @property
    def url(self) -> str:
        """The endpoint's address."""
        if self._server is None:
            message = "the S3 server is not started: call start() or use it in a with statement"
            raise ServiceStartError(message)
        host, port = self._server.get_host_and_port()
        return f"http://{host}:{port}"

    def start(self) -> Self:
        """Start the server."""
        if self._port:
            require_free(self._port, "S3")
        requests = logging.getLogger("werkzeug")
        if requests.level == logging.NOTSET:
            requests.setLevel(logging.ERROR)  # it would print a line for every request
        self._server = ThreadedMotoServer(ip_address=HOST, port=self._port, verbose=False)
        self._server.start()
        _, self._port = self._server.get_host_and_port()
        return self

    def stop(self) -> None:
        """Stop the server. Does nothing if it is not running."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
