"""An S3 server in this process: moto, over real HTTP."""

import logging
import threading
from pathlib import Path
from typing import Any, Self

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

from serde_chain.testing.services.errors import ServiceStartError
from serde_chain.testing.services.ports import HOST, require_free
from serde_chain.testing.services.s3_endpoint import S3Endpoint
from serde_chain.testing.services.s3_folder import KeptObjects


class S3Server(S3Endpoint):
    """An S3 server that keeps its objects in this process's memory, and on request in a folder.

    It starts quickly but is lenient: it accepts wrong credentials and checksums. Tests that depend on those use
    `VersityGateway`. All servers of one process share their buckets. A stopped server starts again at the same address.

    Example:
        >>> with S3Server() as s3:  # doctest: +SKIP
        ...     store = open_store("s3", s3.store_config(s3.create_bucket()))
    """

    access_key = "test-access-key"
    secret_key = "test-secret-key"  # noqa: S105 - any is accepted

    def __init__(self, *, port: int = 0, folder: Path | None = None) -> None:
        """Create the server without starting it; `start`, or entering the context, does.

        Args:
            port: Its port; 0 for a free one.
            folder: Where its objects stay for the next start; by default they are gone with the process.
        """
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._kept: KeptObjects | None = None
        self._port = port
        self._folder = folder

    @property
    def url(self) -> str:
        """The endpoint's address."""
        if self._server is None:
            message = "the S3 server is not started: call start() or use it in a with statement"
            raise ServiceStartError(message)
        return f"http://{HOST}:{self._port}"

    def start(self) -> Self:
        """Start the server.

        Raises:
            ServiceStartError: Its port is in use, or its folder.
        """
        if self._port:
            require_free(self._port, "S3")
        requests = logging.getLogger("werkzeug")
        if requests.level == logging.NOTSET:
            requests.setLevel(logging.ERROR)  # it would print a line for every request
        application: Any = DomainDispatcherApplication(create_backend_app)
        if self._folder is not None:
            application = self._kept = KeptObjects(application, self._folder)
        try:
            self._server = make_server(HOST, self._port, application, threaded=True, request_handler=MotoRequestHandler)
            self._port = self._server.server_port
            self._thread = threading.Thread(target=self._server.serve_forever, name="serde-chain-s3", daemon=True)
            self._thread.start()
            if self._kept is not None:
                self._kept.load(self.client())
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the server. Does nothing if it is not running."""
        if self._server is not None:
            if self._thread is not None:
                self._server.shutdown()
                self._thread.join()
            self._server.server_close()
        self._server = self._thread = None
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
