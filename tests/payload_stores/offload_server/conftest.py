"""A real server over a local store, and messages for it."""

import uuid
from collections.abc import Iterator
from typing import Any, Protocol

import bson
import httpx2
import pytest

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
