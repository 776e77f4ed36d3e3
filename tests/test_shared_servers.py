"""The servers of a run: started once, side by side, and stopped by no test."""

import threading
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from serde_chain.testing.services import KafkaBroker, S3Server, SchemaRegistry, ServiceError
from tests import shared_servers
from tests.servers import programs


class Server:
    """Notes how often it starts and stops."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.address = "127.0.0.1:1"
        self._process = "this process's own"

    def __enter__(self) -> Self:
        self.calls.append("start")
        return self

    def __exit__(self, *_error: object) -> None:
        self.calls.append("stop")

    def client_config(self) -> str:
        return self.address


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setitem(shared_servers.SHARED, "one", (lambda _board: made, Server))
    return made


def test_a_server_starts_once_for_all_that_ask(server: Server) -> None:
    owner = shared_servers.Owner()
    board = shared_servers.connect(*shared_servers.serve(owner))
    board.prepare(["one"])
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(shared_servers.attach(board, "one"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [each.client_config() for each in found] == [server.address] * 4
    assert all(each._process is None for each in found)
    assert server.calls == ["start"]
    owner.close()
    assert server.calls == ["start", "stop"]


def test_programs_are_built_once_in_their_order_and_an_error_is_left_to_the_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[str] = []

    def build(name: str) -> Path:
        built.append(name)
        if name == "first":
            raise ServiceError("no Go here")
        return Path(name)

    made = {name: partial(build, name) for name in ("first", "second", "of no test")}
    monkeypatch.setattr(programs, "PROGRAMS", made)
    owner = shared_servers.Owner()
    board = shared_servers.connect(*shared_servers.serve(owner))
    for _worker in range(3):
        board.prepare(["second", "tmp_path", "first"])
    owner.close()  # and wait for what goes on
    assert built == ["first", "second"]


def test_why_a_server_did_not_start_reaches_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(_board: shared_servers.Board) -> Server:
        raise RuntimeError("no Java here")

    monkeypatch.setitem(shared_servers.SHARED, "one", (make, Server))
    owner = shared_servers.Owner()
    board = shared_servers.connect(*shared_servers.serve(owner))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no Java here"):
            shared_servers.attach(board, "one")
    owner.close()


@pytest.mark.parametrize("call", ["start", "stop", "kill", "restart"])
def test_no_test_stops_what_others_use(
    call: str, broker: KafkaBroker, registry: SchemaRegistry, s3_server: S3Server
) -> None:
    for server in (broker, registry, s3_server):
        with pytest.raises(RuntimeError, match="all tests share this server"):
            getattr(server, call)()


def test_a_process_that_a_worker_starts_asks_the_same_owner(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = shared_servers.Owner()
    address, key = shared_servers.serve(owner)
    for name, value in shared_servers.variables(address, key).items():
        monkeypatch.setenv(name, value)
    told = shared_servers.connect_of_environment()
    assert told.attributes("one") == owner.attributes("one") == {"calls": ["start"], "address": "127.0.0.1:1"}
    owner.close()
    assert server.calls == ["start", "stop"]
