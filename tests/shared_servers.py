"""One broker, one schema registry and one S3 server for all workers of a run.

The process that starts pytest-xdist's workers owns the servers, and is asked for them over a socket; without workers,
pytest's own process owns them. A server starts when the first test that needs it has been collected. Tests get objects
that know its address but cannot stop it: a test that kills a server starts one itself.
"""

from __future__ import annotations

import os
import secrets
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing.managers import BaseManager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from serde_chain.testing.services import KafkaBroker, OffloadServer, S3Server, SchemaRegistry
from serde_chain.testing.services.jars import broker_version
from tests.java_serdes import JavaSerde
from tests.servers import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Attributes = dict[str, Any]

__all__ = [
    "BOARD",
    "SHARED",
    "VARIABLE",
    "Board",
    "Owner",
    "attach",
    "connect",
    "connect_of_environment",
    "serve",
    "variables",
]


VARIABLE = "SERDE_CHAIN_TESTS_SERVERS"
"""The environment variable by which a pytest that a test of a worker starts finds the owner."""
_THREADS = 8


class Board(Protocol):
    """What workers ask the owner for."""

    def prepare(self, names: list[str]) -> None:
        """Begin to start servers, side by side, and to build programs of others, without waiting for them."""

    def attributes(self, name: str) -> Attributes:
        """Attributes of a running server, which is started if need be."""

    def note_units(self, units: Mapping[str, str]) -> None:
        """Note the unit of each test by its node id, see `tests.scheduling`."""


class Owner:
    """Starts each server once, and stops them all in the end."""

    def __init__(self) -> None:
        self.units: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._pool = ThreadPoolExecutor(_THREADS, "server")
        self._started: dict[str, Future[Attributes]] = {}
        self._built: set[str] = set()

    def prepare(self, names: list[str]) -> None:
        for name in SHARED.keys() & names:
            self._start(name)
        with self._lock:  # each worker asks for the same
            wanted = programs.PROGRAMS.keys() & set(names) - self._built
            self._built |= wanted
        if wanted:
            self._pool.submit(programs.get, wanted)

    def attributes(self, name: str) -> Attributes:
        return self._start(name).result()

    def note_units(self, units: Mapping[str, str]) -> None:
        self.units.update(units)

    def close(self) -> None:
        """Stop the servers, also those that are still starting."""
        self._pool.shutdown(cancel_futures=True)
        self._stack.close()

    def _start(self, name: str) -> Future[Attributes]:
        with self._lock:
            if name not in self._started:
                self._started[name] = self._pool.submit(self._enter, name)
            return self._started[name]

    def _enter(self, name: str) -> Attributes:
        make, _ = SHARED[name]
        server = make(self)
        self._stack.enter_context(server)
        if isinstance(server, S3Server):
            return {"_address": server.url}
        if isinstance(server, KafkaBroker):
            self._pool.submit(_make_internal_topics, server)
        return {key: value for key, value in vars(server).items() if key != "_process"}


class _Shared:
    """Not to be stopped by one test while others use it."""

    def start(self) -> NoReturn:
        self._refuse()

    stop = kill = restart = start

    def _refuse(self) -> NoReturn:
        message = "all tests share this server: start another one in the test"
        raise RuntimeError(message)


class _SharedBroker(_Shared, KafkaBroker):
    pass


class _SharedRegistry(_Shared, SchemaRegistry):
    pass


class _SharedOffloadServer(_Shared, OffloadServer):
    pass


class _SharedS3(_Shared, S3Server):
    _address: str

    @property
    def url(self) -> str:
        return self._address


def _broker(_board: Board) -> KafkaBroker:
    # The broker looks 30 s after its start, and every 5 minutes, for segments whose newest record is older than a week,
    # as those of tests with timestamps of their own are.
    hundred_years = timedelta(days=36_500)
    return KafkaBroker(config={"log.retention.hours": str(hundred_years // timedelta(hours=1))}, memory="1g")


def _share_broker(_board: Board) -> KafkaBroker:
    # Kafka 4.1 has share groups as a preview, which leaves some members without records.
    return KafkaBroker(version=max(broker_version(), "4.2.2"))


def _make_internal_topics(broker: KafkaBroker) -> None:
    """Create the topics of offsets and of transactions, which takes seconds when a test is the first to need them."""
    config = {**broker.client_config(), "log_level": 0}
    consumer = Consumer({**config, "group.id": "first"})
    consumer.committed([TopicPartition("first", 0)], timeout=30)
    consumer.close()
    Producer({**config, "transactional.id": "first"}).init_transactions(30)


def _offload_server_of_hop(board: Board) -> OffloadServer:
    broker = attach(board, "broker").client_config()
    return OffloadServer(broker=broker, announce=True, arguments=("--max-bytes", "40000000"))


SHARED: dict[str, tuple[Callable[[Board], Any], type[Any]]] = {
    "broker": (_broker, _SharedBroker),
    "share_broker": (_share_broker, _SharedBroker),
    "registry": (lambda _board: SchemaRegistry(), _SharedRegistry),
    "s3_server": (lambda _board: S3Server(), _SharedS3),
    "offload_server_of_hop": (_offload_server_of_hop, _SharedOffloadServer),
    # No servers, but they take as long to be there.
    "java_serde_of_glue": (lambda _board: JavaSerde("glue", "Glue's Java serde (39 MB)"), JavaSerde),
    "java_serde_of_apicurio": (lambda _board: JavaSerde("apicurio", "Apicurio's Java serde (32 MB)"), JavaSerde),
    "pulsar_reader": (lambda _board: JavaSerde("pulsar", "Pulsar's reader (6 MB)"), JavaSerde),
}
"""How the servers are started, and the classes of the objects that tests get, by the names of their fixtures."""
BOARD = pytest.StashKey[Board]()
"""Where the fixtures find the board."""


def attach(board: Board, name: str) -> Any:
    """An object for a shared server; waits until the server answers.

    Args:
        board: The owner, or the way to it.
        name: The name of the server's fixture.
    """
    _, kind = SHARED[name]
    server: Any = object.__new__(kind)
    vars(server).update(board.attributes(name), _process=None)
    return server


_CALLS = ("prepare", "attributes", "note_units")


def serve(owner: Owner) -> tuple[str, bytes]:
    """Let other processes of this machine ask the owner; returns the address and the key for `connect`."""

    class Manager(BaseManager):
        pass

    Manager.register("board", lambda: owner, exposed=_CALLS)
    key = secrets.token_bytes(32)
    server = Manager(authkey=key).get_server()
    threading.Thread(target=server.serve_forever, name="shared servers", daemon=True).start()
    return str(server.address), key


class _Asking(BaseManager):
    pass


_Asking.register("board", exposed=_CALLS)


def connect(address: str, key: bytes) -> Board:
    """The way to the owner in another process."""
    manager = _Asking(address, key)
    manager.connect()
    board: Board = manager.board()  # type: ignore[attr-defined]  # by `register`
    return board


def variables(address: str, key: bytes) -> dict[str, str]:
    """The environment of processes that `connect_of_environment` connects."""
    return {VARIABLE: f"{key.hex()} {address}"}


def connect_of_environment() -> Board:
    """The way to the owner, in a process that a worker has started."""
    key, _, address = os.environ[VARIABLE].partition(" ")
    return connect(address, bytes.fromhex(key))
