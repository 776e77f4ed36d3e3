"""Bodies that are broken, too long, too slow or cut off: the right status, and never a stored half."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bson
import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payload_stores import bounded_http
from payload_stores.memory import MemoryStore
from payload_stores.offload_server import Limits
from payload_stores.scram import ScramAuth
from serde_chain.testing.services import OffloadServer
from tests.hypothesis_profiles import examples

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.payload_stores.offload_server.conftest import Message, NewMessage, Serve, Site

# Faults and attacks; the ordinary way has tests of its own.
pytestmark = pytest.mark.full

OVERSIZED = "/topic/data+oversized"
MAX_BYTES = 8 << 20


class Raw:
    """One authenticated request, written by hand."""

    def __init__(self, url: str, head: str, body: bytes = b"", *, path: str = OVERSIZED) -> None:
        self.address = httpx2.URL(url)
        auth = ScramAuth("alice", "alice-secret")
        flow = auth.auth_flow(httpx2.Request("POST", url + path, content=b""))
        with httpx2.Client() as client:
            request = flow.send(client.send(next(flow)))
        self.socket = socket.create_connection((self.address.host, self.address.port or 80), timeout=30)
        authorization = request.headers["authorization"]
        text = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {authorization}\r\n{head}\r\n"
        self.socket.sendall(text.encode() + body)

    def answer(self) -> tuple[int, str]:
        """Status and header fields of the answer; (0, "") if the connection is closed without one."""
        received = b""
        while b"\r\n\r\n" not in received:
            block = self.socket.recv(65536)
            if not block:
                return 0, ""
            received += block
        head = received.partition(b"\r\n\r\n")[0].decode("latin-1").lower()
        return int(head.split()[1]), head

    def close(self) -> None:
        self.socket.close()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"message": "text"}, "message is not a binary"),
        ({"headers": {"_id": "x" * 16}}, "not a string and a binary"),
        ({"headers": "text"}, "neither an array of"),
        ({"headers": [["_id", "x" * 16]]}, "not a string and a binary"),
        ({"key": 1.5}, "key is not a binary"),
        ({"metadata": {}}, "the known ones are message, headers, key"),
    ],
)
def test_documents_that_are_no_uploads(
    site: Site, alice: httpx2.Client, new_message: NewMessage, change: dict[str, Any], text: str
) -> None:
    stored = site.stored()
    for size in (10, 3 << 20):
        message = new_message(b"x" * size)
        message.fields |= change
        answer = alice.post(OVERSIZED, content=message.body)
        assert answer.status_code == 400
        assert text in answer.text
    assert site.stored() == stored


@pytest.mark.parametrize("kind", ["length", "chunks"])
def test_bodies_over_the_limit(site: Site, alice: httpx2.Client, message: Message, kind: str) -> None:
    stored = site.stored()
    room = MAX_BYTES - len(message.body) + len(message.fields["message"])
    for over, status in ((0, 201), (1, 413), (MAX_BYTES, 413)):
        message.fields["message"] = bytes(room + over)
        body = message.body
        content = body if kind == "length" else (body[at : at + 60_000] for at in range(0, len(body), 60_000))
        assert alice.post(OVERSIZED, content=content).status_code == status
    assert site.stored() == stored + 1


def test_length_over_the_limit_is_refused_before_a_byte_is_read(site: Site) -> None:
    for head in (f"Content-Length: {MAX_BYTES + 1}\r\n", "Content-Length: 99999999999999999999\r\n"):
        raw = Raw(site.server.url, head)
        status, fields = raw.answer()
        assert status == 413
        assert "authentication-info:" in fields
        raw.close()


def test_document_that_says_it_is_too_large(site: Site) -> None:
    start = struct.pack("<i", MAX_BYTES + 1) + b"\5message\0"
    raw = Raw(site.server.url, "Transfer-Encoding: chunked\r\n", b"%x\r\n%b\r\n" % (len(start), start))
    assert raw.answer()[0] == 413
    raw.close()


@pytest.mark.parametrize("kind", ["length", "chunks"])
def test_what_is_no_bson(alice: httpx2.Client, kind: str) -> None:
    body = b'{"message": "this is JSON", "headers": []}'
    answer = alice.post(OVERSIZED, content=body if kind == "length" else iter([body]))
    assert answer.status_code == 400
    assert "not an upload" in answer.text


@pytest.mark.parametrize("cut", [0, 3, 30, 100_000, 2_000_000, -60, -1])
def test_bodies_cut_off(site: Site, new_message: NewMessage, cut: int) -> None:
    stored = site.stored()
    message = new_message(b"c" * 2_100_000)
    body = message.body
    raw = Raw(site.server.url, f"Content-Length: {len(body)}\r\n", body[:cut] if cut else b"")
    raw.close()
    chunk = b"%x\r\n" % len(body) + body
    raw = Raw(site.server.url, "Transfer-Encoding: chunked\r\n", chunk[:cut] if cut else b"")
    raw.close()
    # An end that is announced, but comes too early.
    short = body[:cut] if cut else b""
    raw = Raw(site.server.url, f"Content-Length: {len(short)}\r\n", short)
    assert raw.answer()[0] == 400
    raw.close()
    client = site.client()
    assert client.get(message.path).status_code == 404
    assert client.post(OVERSIZED, content=body).status_code == 201
    assert eventually(lambda: site.stored() == stored + 1)


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether a condition comes true within some seconds: the server learns of a cut connection when it can."""
    until = time.monotonic() + 10
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def test_length_that_lies(site: Site, message: Message) -> None:
    body = message.body
    raw = Raw(site.server.url, f"Content-Length: {len(body) - 1}\r\n", body)
    assert raw.answer()[0] == 400
    raw.close()
    for head in ("Content-Length: x\r\n", "Content-Length: -1\r\n", "Content-Length: 5\r\nContent-Length: 6\r\n"):
        raw = Raw(site.server.url, head, body)
        assert raw.answer()[0] == 400
        raw.close()
    raw = Raw(site.server.url, "Transfer-Encoding: chunked\r\n", b"zz\r\n" + body)
    assert raw.answer()[0] in {0, 400}
    raw.close()
    assert site.client().get(message.path).status_code == 404


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.booleans())
def test_flipped_bytes(site: Site, alice: httpx2.Client, source: random.Random, count: int, chunked: bool) -> None:
    stored = site.stored()
    identifier = source.randbytes(16)
    body = bytearray(bson.encode({"message": b"m" * 50, "headers": [["_id", identifier], ["a", b"1"]], "key": b"k"}))
    for _ in range(count):
        body[source.randrange(len(body))] = source.choice([0, 1, 2, 3, 4, 5, 127, 255, source.randrange(256)])
    content = iter([bytes(body[:20]), bytes(body[20:])]) if chunked else bytes(body)
    status = alice.post(OVERSIZED, content=content).status_code
    assert status in {201, 400, 413, 422}
    assert site.stored() == stored + (status == 201)


@given(st.binary(max_size=200))
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes(alice: httpx2.Client, body: bytes) -> None:
    assert alice.post(OVERSIZED, content=body).status_code == 400


def test_bodies_that_stop(serve: Serve, message: Message) -> None:
    url = serve(MemoryStore(), Limits(idle_seconds=0.3))
    raw = Raw(url, f"Content-Length: {len(message.body)}\r\n", message.body[:40])
    status, fields = raw.answer()
    assert status == 408
    assert "authentication-info:" in fields
    raw.close()


def test_bodies_that_trickle(serve: Serve, message: Message) -> None:
    url = serve(MemoryStore(), Limits(transfer_seconds=0.5))
    raw = Raw(url, f"Content-Length: {len(message.body)}\r\n")
    started = time.monotonic()
    for byte in message.body[:-1]:
        raw.socket.sendall(bytes([byte]))
        time.sleep(0.02)
        if time.monotonic() - started > 0.7:
            break
    assert raw.answer()[0] == 408
    raw.close()


@pytest.mark.parametrize("sent", [b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n"])
def test_headers_that_do_not_come(serve: Serve, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(bounded_http, "_HEADER_SECONDS", 0.2)
    url = httpx2.URL(serve(MemoryStore()))
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        connection.sendall(sent)
        assert closed(connection)


def closed(connection: socket.socket) -> bool:
    """Whether the server closes a connection without an answer."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (b"a: b\r\n" * 90, 401),
        (b"a: b\r\n" * 110, 431),
        (b"a:\n" * 60_000, 431),
        (b"a: " + b"b" * 40_000 + b"\r\n", 431),
        (b"a: b\r\n c\r\n" * 60, 431),
    ],
    ids=["few", "many", "very many", "long", "folded"],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_header_fields_are_counted(site: Site, fields: bytes, status: int, at_once: bool) -> None:
    url = httpx2.URL(site.server.url)
    request = b"GET / HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n"
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        with contextlib.suppress(OSError):  # it may be cut off already
            for start in range(0, len(request), len(request) if at_once else 1000):
                connection.sendall(request[start : start + (len(request) if at_once else 1000)])
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100).startswith(b"HTTP/1.1 %d" % status)


def test_requests_that_do_not_wait_for_the_answer(site: Site) -> None:
    url = httpx2.URL(site.server.url)
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
        received = b"".join(iter(lambda: connection.recv(1000), b""))
    assert received.count(b"HTTP/1.1 200") == 1


BROKEN = [
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /%ff%00 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET x HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01",
    b"\r\n\r\n\r\n",
    b"\xff\xfe\r\n\r\n",
]


@pytest.mark.parametrize("request_bytes", BROKEN, ids=range(len(BROKEN)))
def test_broken_requests_leave_no_traceback(
    serve: Serve, caplog: pytest.LogCaptureFixture, request_bytes: bytes
) -> None:
    url = httpx2.URL(serve(MemoryStore()))
    for _ in range(3):
        with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
            connection.sendall(request_bytes)
            connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1000):
                    pass
    assert httpx2.get(str(url) + "/health").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.exc_info or record.levelname == "ERROR"] == []


def test_headers_that_are_too_long(site: Site) -> None:
    url = httpx2.URL(site.server.url)
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 40_000)
        assert connection.recv(100).startswith(b"HTTP/1.1 4")


def test_client_that_does_not_read(serve: Serve, new_message: NewMessage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_http, "_STALLED_SECONDS", 1.5)
    url = serve(MemoryStore(), Limits(idle_seconds=0.3, transfers=1))
    message = new_message(b"r" * (40 << 20))
    with httpx2.Client(base_url=url, auth=ScramAuth("alice", "alice-secret"), timeout=30) as client:
        assert client.post(OVERSIZED, content=message.body).status_code == 201
        auth = ScramAuth("alice", "alice-secret")
        flow = auth.auth_flow(httpx2.Request("GET", url + message.path))
        request = flow.send(client.send(next(flow), auth=None))
        address = httpx2.URL(url)
        with socket.create_connection((address.host, address.port or 80), timeout=10) as connection:
            head = (
                f"GET {message.path} HTTP/1.1\r\nHost: x\r\nAuthorization: {request.headers['authorization']}\r\n\r\n"
            )
            connection.sendall(head.encode())
            assert connection.recv(12) == b"HTTP/1.1 200"
            # Its place is free again soon.
            assert eventually(lambda: client.get(message.path).status_code == 200)
            # Then it is cut off, and what waited for it is forgotten.
            left = []
            with contextlib.suppress(ConnectionResetError):
                left = list(iter(lambda: connection.recv(1 << 20), b""))
            assert sum(map(len, left)) < 40 << 20


def test_stopped_in_the_middle(new_message: NewMessage, request: pytest.FixtureRequest) -> None:
    """SIGTERM: what is under way may finish, nothing new begins."""
    with OffloadServer() as server:
        process = re.findall(r"Started server process \[(\d+)\]", (server.folder / "offload-server.log").read_text())[
            -1
        ]
        body = new_message(b"m" * 1_000_000).body
        raw = Raw(server.url, f"Content-Length: {len(body)}\r\n", body[:500_000])
        request.addfinalizer(raw.close)
        payloads = server.folder / "payloads"
        temporary = payloads / ".payload-store"
        assert eventually(lambda: temporary.exists() and bool(list(temporary.iterdir())))
        os.kill(int(process), signal.SIGTERM)
        assert eventually(lambda: refuses(server.url))
        raw.socket.sendall(body[500_000:])
        assert raw.answer()[0] == 201
        assert eventually(lambda: not Path("/proc", process).exists())
        assert list(temporary.iterdir()) == []
        assert len(list((payloads / "data").iterdir())) == 1


def refuses(url: str) -> bool:
    try:
        httpx2.get(url + "/health")
    except httpx2.ConnectError:
        return True
    except httpx2.TransportError:
        return False  # taken in just before, and dropped
    return False
