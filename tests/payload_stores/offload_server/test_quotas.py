"""What one user, one address and one slow client may have of the server."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

import httpx2
import pytest

from payload_stores.memory import MemoryStore
from payload_stores.offload_server import Limits, runner
from payload_stores.scram import ScramAuth
from tests.payload_stores.offload_server.test_bad_requests import Raw, closed, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from payload_stores import PublishContext
    from tests.payload_stores.offload_server.conftest import Message, NewMessage, Serve

UPLOAD = "/topic/t+oversized"
ELSEWHERE = "127.0.0.2"


@contextlib.contextmanager
def client_of(url: str, user: str, address: str = "127.0.0.1") -> Iterator[httpx2.Client]:
    auth = ScramAuth(user, f"{user}-secret")
    transport = httpx2.HTTPTransport(local_address=address)
    with httpx2.Client(base_url=url, auth=auth, timeout=30, transport=transport) as client:
        yield client


@contextlib.contextmanager
def trickling(url: str, message: Message, count: int) -> Iterator[list[Raw]]:
    """So many uploads of alice's, each of which goes on by a byte now and then."""
    body = message.body
    uploads = [Raw(url, f"Content-Length: {len(body)}\r\n", body[:40]) for _ in range(count)]
    ended = threading.Event()

    def trickle() -> None:
        for at in range(40, len(body)):
            for upload in uploads:
                with contextlib.suppress(OSError):
                    upload.socket.sendall(body[at : at + 1])
            if ended.wait(0.1):
                return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield uploads
    finally:
        ended.set()
        thread.join(30)
        for upload in uploads:
            upload.close()


@pytest.mark.full
def test_one_user_does_not_take_all_transfers(serve: Serve, new_message: NewMessage) -> None:
    url = serve(MemoryStore(), Limits(idle_seconds=2.0, min_bytes_per_second=0))
    with trickling(url, new_message(bytes(5000)), 20), client_of(url, "bob", ELSEWHERE) as bob:
        for _ in range(3):
            message = new_message()
            assert bob.post(UPLOAD, content=message.body).status_code == 201
            assert bob.get(message.path).status_code == 200


@pytest.mark.full
@pytest.mark.parametrize(("share", "who"), [("user", "alice has 1"), ("address", "127.0.0.1 has 1")])
def test_shares(serve: Serve, new_message: NewMessage, caplog: pytest.LogCaptureFixture, share: str, who: str) -> None:
    shares = {"transfers_per_user": 4, "transfers_per_address": 4, f"transfers_per_{share}": 1}
    url = serve(MemoryStore(), replace(Limits(idle_seconds=1.0, min_bytes_per_second=0, transfers=4), **shares))  # type: ignore[arg-type]
    with trickling(url, new_message(bytes(5000)), 1):
        with client_of(url, "alice" if share == "user" else "bob") as same:
            answer = same.post(UPLOAD, content=new_message().body)
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert f"{who} transfers under way" in caplog.text
        with client_of(url, "bob", ELSEWHERE) as other:
            assert other.post(UPLOAD, content=new_message().body).status_code == 201
    # What was waited for is free again.
    with client_of(url, "alice") as alice:
        assert alice.post(UPLOAD, content=new_message().body).status_code == 201


def test_no_share_is_counted_for_a_proxy(serve: Serve, new_message: NewMessage) -> None:
    limits = Limits(idle_seconds=1.0, min_bytes_per_second=0, transfers_per_address=1, proxies=frozenset({"127.0.0.1"}))
    url = serve(MemoryStore(), limits)
    with trickling(url, new_message(bytes(5000)), 1), client_of(url, "bob") as bob:
        assert bob.post(UPLOAD, content=new_message().body).status_code == 201


def test_uploads_below_the_least_rate(serve: Serve, new_message: NewMessage) -> None:
    url = serve(MemoryStore(), Limits(idle_seconds=0.5))
    with trickling(url, new_message(bytes(5000)), 1) as [upload]:
        # Each piece comes in time, and all of them would take minutes.
        assert upload.answer()[0] == 408


@pytest.mark.full
def test_what_the_store_takes_does_not_count(serve: Serve, new_message: NewMessage) -> None:
    class Slow(MemoryStore):
        def publish_stream(self, topic: str, reader: BinaryIO, context: PublishContext | None = None) -> str:
            first = reader.read(1000)
            threading.Event().wait(1.5)  # the fault: a disk that hangs for a moment
            return self.publish(topic, first + reader.read(), context)

    url = serve(Slow(), Limits(idle_seconds=1.0, min_bytes_per_second=100_000_000))
    with client_of(url, "alice") as alice:
        assert alice.post(UPLOAD, content=new_message(bytes(4_000_000)).body).status_code == 201


def connect(url: str, address: str = "127.0.0.1") -> socket.socket:
    there = httpx2.URL(url)
    return socket.create_connection((there.host, there.port or 80), timeout=10, source_address=(address, 0))


def test_connections_of_one_address(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "_CONNECTIONS_PER_ADDRESS", 5)
    url = serve(MemoryStore())
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(url)) for _ in range(5)]
        for _ in range(3):
            assert closed(stack.enter_context(connect(url)))
        with client_of(url, "alice", ELSEWHERE) as other:
            assert other.get("/msg/x").status_code == 404
        for connection in silent:
            connection.close()
        assert eventually(lambda: not closed_at_once(url))
    # Who is refused does not fill the log.
    assert caplog.text.count("a connection from 127.0.0.1 was closed: it has 5 already") == 1


def closed_at_once(url: str) -> bool:
    try:
        httpx2.get(url + "/health")
    except httpx2.TransportError:
        return True
    return False


def test_connections_in_all(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_CONNECTIONS", 4)
    url = serve(MemoryStore())
    with contextlib.ExitStack() as stack:
        for number in range(4):
            stack.enter_context(connect(url, f"127.0.0.{number + 1}"))
        assert closed(stack.enter_context(connect(url, "127.0.0.9")))


def test_connections_of_a_proxy(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_CONNECTIONS_PER_ADDRESS", 2)
    url = serve(MemoryStore(), Limits(proxies=frozenset({"127.0.0.1"})))
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(url))
        assert httpx2.get(url + "/health").status_code == 200


def test_silent_tls_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cli.test_offload_server import make_certificate

    monkeypatch.setattr(runner, "_HANDSHAKE_SECONDS", 0.3)
    certificate, key = make_certificate(tmp_path)
    ready = threading.Event()
    urls: list[str] = []

    async def app(scope: object, receive: object, send: object) -> None: ...

    def remember(url: str) -> None:
        urls.append(url)
        ready.set()

    with runner._listen("127.0.0.1", 0) as listener:
        tls = runner.Tls(certificate, key)
        server = runner._server(app, runner._url("127.0.0.1", listener, tls), tls, remember)
        server.config.lifespan = "off"
        server.config.loaded = False
        server.config.load()
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert ready.wait(30)
            for sent in (b"", b"\x16\x03\x01"):
                with connect(urls[0]) as connection:
                    connection.sendall(sent)
                    assert closed(connection)
        finally:
            server.should_exit = True
            thread.join(30)
