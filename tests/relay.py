"""A TCP relay in front of a server, which counts the bytes that the server sends."""

import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

_BLOCK = 1 << 16


class CountingRelay:
    """Relays connections to a server.

    It reads from the server only what the client takes, but for the buffers of the sockets.

    Args:
        url: The server's address.

    Attributes:
        received: Bytes that the server has sent.
        url: The relay's address.
    """

    def __init__(self, url: str) -> None:
        self._target = (urlsplit(url).hostname, urlsplit(url).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.received = 0
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, target, source is server), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while block := source.recv(_BLOCK):
                if counts:
                    with self._lock:
                        self.received += len(block)
                target.sendall(block)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
