"""A real server over a local store, and messages for it."""

import queue
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import bson
import httpx2
import pytest

from payload_stores import PayloadStore
from payload_stores.offload_server import Authorizer, FileCredentials, Limits, OffloadApp, add_user, runner
from payload_stores.scram import ScramAuth
from serde_chain.testing.services import OffloadServer

PERMISSIONS = """
super-users = ["admin"]

[users.alice]
read = ["*"]
write = ["data", "data.*"]
deny = ["data.secret"]

[users.bob]
write = ["data"]
"""


class Message:
    """A message to upload, with an id of its own."""

    def __init__(self, message: bytes = b"payload", **more: Any) -> None:
        self.id = uuid.uuid4()
        self.fields: dict[str, Any] = {
            "message": message,
            "headers": [["a", b"1"], ["a", b"\xff"], ["_id", self.id.bytes], ["_format", b"blob"]],
            "key": b"key",
            **more,
        }

    @property
    def body(self) -> bytes:
        return bson.encode(self.fields)

    @property
    def path(self) -> str:
        return f"/msg/{self.id}"


class NewMessage(Protocol):
    """Makes a message with an id of its own."""

    def __call__(self, message: bytes = b"payload", **more: Any) -> Message: ...


class Anybody:
    """Lets everybody do everything."""

    def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
        return address.startswith("127.0.0.")


class Serve(Protocol):
    """Serves an application over a store in a thread of this process, and returns its URL."""

    def __call__(
        self, store: PayloadStore, limits: Limits | None = None, authorizer: Authorizer | None = None, **more: Any
    ) -> str: ...


class Site:
    """A running server, and clients for it."""

    def __init__(self, server: OffloadServer) -> None:
        self.server = server
        self._clients: list[httpx2.Client] = []

    def client(self, user: str = "alice", password: str | None = None, **options: Any) -> httpx2.Client:
        auth = ScramAuth(user, password or self.server.users[user], **options)
        client = httpx2.Client(base_url=self.server.url, auth=auth, timeout=30)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def stored(self) -> int:
        """How many payloads the local store has, parts of some included."""
        folder = self.server.folder / "payloads"
        return sum(1 for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="session")
def offload_server() -> Iterator[OffloadServer]:
    with OffloadServer(permissions=PERMISSIONS, arguments=["--max-bytes", str(8 << 20)]) as running:
        yield running


@pytest.fixture
def site(offload_server: OffloadServer) -> Iterator[Site]:
    opened = Site(offload_server)
    yield opened
    opened.close()


@pytest.fixture
def alice(site: Site) -> httpx2.Client:
    return site.client()


@pytest.fixture
def new_message() -> NewMessage:
    return Message


@pytest.fixture
def message() -> Message:
    return Message()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(
            store: PayloadStore, limits: Limits | None = None, authorizer: Authorizer | None = None, **more: Any
        ) -> str:
            users = tmp_path / "users.json"
            for user in ("alice", "bob"):
                add_user(users, user, f"{user}-secret")
            app = OffloadApp(
                store, tmp_path / "data", FileCredentials(users), authorizer or Anybody(), limits=limits, **more
            )
            return stack.enter_context(_served(app, (limits or Limits()).proxies))

        yield start


@contextmanager
def _served(app: OffloadApp, proxies: frozenset[str]) -> Iterator[str]:
    urls: queue.SimpleQueue[str] = queue.SimpleQueue()
    with runner._listen("127.0.0.1", 0) as listener:
        url = runner._url("127.0.0.1", listener, None)
        server = runner._server(app, url, None, urls.put, reload=app.reload, proxies=proxies)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield urls.get(timeout=30)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()
