"""Stores of other kinds and stores that fail, Bearer tokens, and what says who may do what being away."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO

import bson
import httpx2
import pytest

from payload_stores import PayloadNotFoundError, PayloadStore, PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.errors import ConfigError
from payload_stores.memory import MemoryStore
from payload_stores.offload_server import FileCredentials, Limits, OffloadApp, add_user
from payload_stores.offload_server import serve as serve_until_stopped
from payload_stores.scram import ScramAuth

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from payload_stores import PublishContext
    from payload_stores.buffers import Buffer
    from tests.payload_stores.offload_server.conftest import NewMessage, Serve

UPLOAD = "/topic/t+oversized"


class Shelf(PayloadStore):
    """A store with no more than a store must have."""

    scheme = "shelf"

    def __init__(self) -> None:
        self.payloads: dict[str, bytes] = {}

    def publish(self, topic: str, data: Buffer, context: PublishContext | None = None) -> str:
        reference = f"shelf:///{topic}/{len(self.payloads)}"
        self.payloads[reference] = bytes(data)
        return reference

    def download(self, reference: str) -> bytes:
        if reference not in self.payloads:
            raise PayloadNotFoundError("gone", store=self.scheme, reference=reference)
        return self.payloads[reference]


class Failing(MemoryStore):
    """A store that does something else."""

    def __init__(self, error: Exception | None = None, *, after: int = 0) -> None:
        self.error = error
        self.after = after
        self.began = threading.Event()
        self.wait = threading.Event()
        self.gone = threading.Event()
        self.deleted: list[str] = []

    def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
        self.began.set()
        if self.after:
            reader.read(self.after)
        if self.error is not None:
            raise self.error
        try:
            reader.read()
        finally:
            self.wait.wait(30)
        return "memory:///t/x"

    def delete(self, reference: str) -> None:
        self.deleted.append(reference)
        self.gone.set()


@pytest.fixture
def client() -> Iterator[httpx2.Client]:
    with httpx2.Client(auth=ScramAuth("alice", "alice-secret"), timeout=30) as opened:
        yield opened


@pytest.mark.parametrize("size", [0, 10, 5 << 20])
def test_store_without_streams(
    serve: Serve, client: httpx2.Client, new_message: NewMessage, tmp_path: Path, size: int
) -> None:
    store = Shelf()
    url = serve(store)
    message = new_message(b"s" * size)
    assert client.post(url + UPLOAD, content=message.body).status_code == 201
    assert bson.decode(client.get(url + message.path).content)["message"] == b"s" * size
    broken = new_message(b"s" * size)
    assert client.post(url + UPLOAD, content=broken.body + b"x").status_code == 400
    assert list(store.payloads.values()) == [b"s" * size]
    assert not [path.name for path in (tmp_path / "data").iterdir() if not path.name.startswith("index")]
    store.payloads.clear()
    assert client.get(url + message.path).status_code == 404


@pytest.mark.parametrize("after", [0, 1 << 20])
@pytest.mark.parametrize(
    ("error", "status"),
    [(PayloadStoreUnavailableError("s3 is down"), 503), (PayloadStoreError("no bucket"), 500), (OSError("odd"), 500)],
)
def test_store_that_fails(  # noqa: PLR0917  pytest passes them by name
    serve: Serve, client: httpx2.Client, new_message: NewMessage, error: Exception, status: int, after: int
) -> None:
    url = serve(Failing(error, after=after))
    message = new_message(b"s" * (6 << 20))
    answer = client.post(url + UPLOAD, content=message.body)
    assert answer.status_code == status
    assert "authentication-info" in answer.headers
    assert str(error) not in answer.text
    assert client.get(url + message.path).status_code == 404


def test_store_that_takes_a_failed_stream_for_good(
    serve: Serve, client: httpx2.Client, new_message: NewMessage
) -> None:
    class Careless(Failing):
        def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
            try:
                return super().publish_stream(topic, reader, context)
            except PayloadStoreError:
                return "memory:///t/half"

    store = Careless()
    store.wait.set()
    url = serve(store)
    assert client.post(url + UPLOAD, content=new_message(b"s" * (3 << 20), other=1).body).status_code == 400
    assert store.gone.wait(10)
    assert store.deleted == ["memory:///t/half"]


@pytest.mark.full
def test_store_that_hangs(serve: Serve, client: httpx2.Client, new_message: NewMessage) -> None:
    store = Failing()
    url = serve(store, Limits(store_seconds=1.0))
    message = new_message()
    assert client.post(url + UPLOAD, content=message.body).status_code == 503
    store.wait.set()  # it comes back when nobody waits any more
    assert store.gone.wait(10)
    assert store.deleted == ["memory:///t/x"]
    assert client.get(url + message.path).status_code == 404


@pytest.mark.full
def test_store_that_does_not_read(serve: Serve, client: httpx2.Client, new_message: NewMessage) -> None:
    class Sleeping(Failing):
        def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
            self.wait.wait(30)
            return "memory:///t/x"

    store = Sleeping()
    url = serve(store, Limits(store_seconds=1.0))
    assert client.post(url + UPLOAD, content=new_message(b"s" * (6 << 20)).body).status_code == 503
    store.wait.set()
    assert store.gone.wait(10)


@pytest.mark.full
def test_too_many_at_once(serve: Serve, client: httpx2.Client, new_message: NewMessage) -> None:
    store = Failing()
    url = serve(store, Limits(transfers=1, idle_seconds=1.0))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(client.post, url + UPLOAD, content=new_message().body)
        assert store.began.wait(30)
        with httpx2.Client(auth=ScramAuth("alice", "alice-secret"), timeout=30) as other:
            answer = other.post(url + UPLOAD, content=new_message().body)
        store.wait.set()
        assert first.result(30).status_code == 201
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_download_cut_by_the_store(serve: Serve, client: httpx2.Client, new_message: NewMessage) -> None:
    class Cutting(MemoryStore):
        def open(self, reference: str) -> BinaryIO:
            class Cut(io.BytesIO):
                def read(self, size: int | None = -1) -> bytes:
                    if self.tell():
                        raise PayloadStoreUnavailableError("down")
                    return super().read(size)

            return Cut(self.download(reference))

    url = serve(Cutting())
    message = new_message(b"s" * (3 << 20))
    assert client.post(url + UPLOAD, content=message.body).status_code == 201
    with pytest.raises(httpx2.RemoteProtocolError):
        client.get(url + message.path)
    assert client.get(url + "/msg/x").status_code == 404


class Tokens:
    def verify(self, token: str) -> str | None:
        if token == "away":
            raise PayloadStoreUnavailableError("the identity provider is away")
        return {"good": "tom"}.get(token)


def test_bearer_tokens(serve: Serve, new_message: NewMessage) -> None:
    url = serve(MemoryStore(), tokens=Tokens())
    message = new_message()
    for token, status in (("good", 201), ("bad", 401), ("", 401), ("x" * 9000, 401), ("away", 503), ("good", 422)):
        headers = {"Authorization": f"bearer {token}".strip()}
        answer = httpx2.post(url + UPLOAD, content=message.body, headers=headers)
        assert answer.status_code == status
        assert "authentication-info" not in answer.headers
    assert httpx2.get(url + message.path, headers={"Authorization": "Bearer good"}).status_code == 200
    assert httpx2.get(url).headers["www-authenticate"] == "SCRAM-SHA-256, SCRAM-SHA-512, Bearer"
    with httpx2.Client(auth=ScramAuth("alice", "alice-secret")) as client:
        assert client.get(url + message.path).status_code == 200


def test_no_bearer_tokens_where_none_are_configured(serve: Serve) -> None:
    url = serve(MemoryStore())
    answer = httpx2.get(url, headers={"Authorization": "Bearer good"})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "SCRAM-SHA-256, SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("error", "status"), [(PayloadStoreUnavailableError("broker away"), 503), (KeyError("x"), 500)]
)
def test_authorizer_that_fails(
    serve: Serve, client: httpx2.Client, new_message: NewMessage, error: Exception, status: int
) -> None:
    class Away:
        def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
            raise error

    store = Shelf()
    answer = client.post(serve(store, authorizer=Away()) + UPLOAD, content=new_message().body)
    assert answer.status_code == status
    assert "authentication-info" in answer.headers
    assert not store.payloads


def test_limits_that_do_not_fit(serve: Serve) -> None:
    store = Shelf()
    for limits in (Limits(max_bytes=(1 << 30) + 1), Limits(max_bytes=(1 << 31) - 1)):
        with pytest.raises(ConfigError):
            serve(store, limits)


def test_server_ends_when_it_cannot_be_announced(tmp_path: Path) -> None:
    def fail(url: str) -> None:
        assert httpx2.get(url + "/health").status_code == 200
        raise PayloadStoreUnavailableError("no broker")

    add_user(tmp_path / "users.json", "alice", "alice-secret")
    app = OffloadApp(Shelf(), tmp_path / "data", FileCredentials(tmp_path / "users.json"), Nobody())
    with pytest.raises(PayloadStoreUnavailableError, match="no broker"):
        serve_until_stopped(app, ready=fail)


class Nobody:
    def allows(self, user: str, operation: str, topic: str, address: str) -> bool:
        return False
