"""Proxies of a broker: one refuses the first records of a topic, one never answers a kind of question."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

__all__ = ["DESCRIBE_CONFIGS", "NOT_LEADER", "refusing", "silent"]

NOT_LEADER = 6
"""Kafka's number of ``NOT_LEADER_OR_FOLLOWER``."""

DESCRIBE_CONFIGS = 32
"""Kafka's number of the question for the settings of a topic."""

_PRODUCE = 0
_HOST = "127.0.0.1"


@contextmanager
def refusing(servers: str, topic: str, code: int = NOT_LEADER) -> Iterator[str]:
    """Stand in front of a broker, and refuse the first batch of a topic's only partition once the second one has come.

    Args:
        servers: Where the broker is, ``127.0.0.1:port``.
        topic: The topic.
        code: Kafka's number of the error.

    Yields:
        Where the proxy is.
    """
    with _running(servers, lambda listener, broker: _Refusing(listener, broker, topic, code)) as address:
        yield address


@contextmanager
def silent(servers: str, kind: int = DESCRIBE_CONFIGS) -> Iterator[str]:
    """Stand in front of a broker, and never answer one kind of question.

    Args:
        servers: Where the broker is, ``127.0.0.1:port``.
        kind: Kafka's number of the question.

    Yields:
        Where the proxy is.
    """
    with _running(servers, lambda listener, broker: _Silent(listener, broker, kind)) as address:
        yield address


@contextmanager
def _running(servers: str, make: Callable[[socket.socket, int], _Proxy]) -> Iterator[str]:
    with closing(socket.create_server((_HOST, 0))) as listener:
        proxy = make(listener, int(servers.rpartition(":")[2]))
        thread = threading.Thread(target=proxy.accept)
        thread.start()
        try:
            yield f"{_HOST}:{proxy.port}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            proxy.close()
            thread.join(30)


class _Proxy:
    """Passes on all requests and answers."""

    def __init__(self, listener: socket.socket, broker: int) -> None:
        self.port: int = listener.getsockname()[1]
        self._listener, self._broker = listener, broker
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def _takes(self, frame: bytes, client: socket.socket, lock: threading.Lock) -> bool:
        """Whether a request goes to the broker."""
        del frame, client, lock
        return True

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                broker = socket.create_connection((_HOST, self._broker))
                self._sockets += [client, broker]
                lock = threading.Lock()
                for work, source, target in ((self._ask, client, broker), (self._answer, broker, client)):
                    self._threads.append(threading.Thread(target=work, args=(source, target, lock)))
                    self._threads[-1].start()

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(30)
        for each in self._sockets:
            each.close()

    def _ask(self, client: socket.socket, broker: socket.socket, lock: threading.Lock) -> None:
        with suppress(OSError):
            while frame := _frame(client):
                if self._takes(frame, client, lock):
                    broker.sendall(_with_length(frame))

    def _answer(self, broker: socket.socket, client: socket.socket, lock: threading.Lock) -> None:
        """What the broker says, with the proxy's port where its own is named."""
        host = _HOST.encode()
        own, other = (host + struct.pack(">i", port) for port in (self._broker, self.port))
        with suppress(OSError):
            while frame := _frame(broker):
                with lock:
                    client.sendall(_with_length(frame.replace(own, other)))


class _Silent(_Proxy):
    """Drops one kind of request."""

    def __init__(self, listener: socket.socket, broker: int, kind: int) -> None:
        super().__init__(listener, broker)
        self._kind = kind

    def _takes(self, frame: bytes, client: socket.socket, lock: threading.Lock) -> bool:
        del client, lock
        (kind,) = struct.unpack_from(">h", frame)
        return bool(kind != self._kind)


class _Refusing(_Proxy):
    """Refuses the first batch of a topic."""

    def __init__(self, listener: socket.socket, broker: int, topic: str, code: int) -> None:
        super().__init__(listener, broker)
        self._topic, self._code = topic, code
        self._batches = 0
        self._held = b""

    def _takes(self, frame: bytes, client: socket.socket, lock: threading.Lock) -> bool:
        kind, _, number = struct.unpack_from(">hhi", frame)
        if kind == _PRODUCE and self._topic.encode() in frame:
            self._batches += 1
            if self._batches == 1:
                self._held = self._refusal(number)
                return False
            if self._held:
                with lock:
                    client.sendall(_with_length(self._held))
                self._held = b""
        return True

    def _refusal(self, number: int) -> bytes:
        """The answer to a request to produce (versions 9 to 12): a header, topics, their partitions, throttling."""
        name = self._topic.encode()
        partition = struct.pack(">ihqqqbbb", 0, self._code, -1, -1, -1, 1, 0, 0)
        topics = bytes([2, len(name) + 1]) + name + bytes([2]) + partition + bytes([0])
        return struct.pack(">ib", number, 0) + topics + struct.pack(">ib", 0, 0)


def _frame(source: socket.socket) -> bytes:
    """The next request or answer; empty at the end."""
    length = _exactly(source, 4)
    return _exactly(source, *struct.unpack(">i", length)) if length else b""


def _exactly(source: socket.socket, size: int) -> bytes:
    blocks = bytearray()
    while len(blocks) < size:
        block = source.recv(size - len(blocks))
        if not block:
            return b""
        blocks += block
    return bytes(blocks)


def _with_length(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
