"""What the server does for those who may, and says to those who may not."""

from __future__ import annotations

import socket
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import bson
import httpx2
import pytest

from payload_stores.bounded_http import BoundedHttp
from payload_stores.errors import PayloadAccessDeniedError
from payload_stores.memory import MemoryStore
from payload_stores.offload_server import runner
from payload_stores.scram.auth import REPLAYABLE, ScramAuth
from payload_stores.scram.wire import MECHANISMS
from serde_chain.testing.services import OffloadServer, S3Server

if TYPE_CHECKING:
    from tests.payload_stores.offload_server.conftest import Message, NewMessage, Serve, Site

OVERSIZED = "/topic/data+oversized"


def requests_of(client: httpx2.Client) -> list[str]:
    """Methods and statuses of what a client really sends from now on."""
    seen: list[str] = []
    inner = client._transport

    class Counting(httpx2.BaseTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            response = inner.handle_request(request)
            seen.append(f"{request.method} {response.status_code}")
            return response

        def close(self) -> None:
            inner.close()

    client._transport = Counting()
    return seen


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("key", [b"key", b"", None])
def test_round_trip(site: Site, new_message: NewMessage, mechanism: str, key: bytes | None) -> None:
    client = site.client(mechanism=mechanism)
    message = new_message(b"\0payload" * 1000, key=key)
    if key is None:
        del message.fields["key"]
    assert client.post(OVERSIZED, content=message.body).status_code == 201
    answer = client.get(message.path)
    assert answer.status_code == 200
    found: dict[str, Any] = bson.decode(answer.content)
    metadata = found.pop("metadata")
    assert found == message.fields
    assert isinstance(metadata.pop("timestamp"), int)
    assert metadata == {name: value for name, value in message.fields.items() if name != "message"}


@pytest.mark.parametrize("size", [0, 1, 65_536, (1 << 20) + 1, 5 << 20])
def test_sizes(alice: httpx2.Client, new_message: NewMessage, size: int) -> None:
    message = new_message(b"x" * size)
    assert alice.post(OVERSIZED, content=message.body).status_code == 201
    assert bson.decode(alice.get(message.path).content)["message"] == message.fields["message"]


@pytest.mark.parametrize("order", [("headers", "message", "key"), ("key", "headers", "message")])
def test_other_orders_in_chunks(alice: httpx2.Client, new_message: NewMessage, order: tuple[str, ...]) -> None:
    message = new_message(b"y" * 300_000)
    body = bson.encode({name: message.fields[name] for name in order})
    blocks = (body[start : start + 1000] for start in range(0, len(body), 1000))
    assert alice.post(OVERSIZED, content=blocks).status_code == 201
    assert len(bson.decode(alice.get(message.path).content)["message"]) == 300_000


def test_one_round_trip_and_one_connection(alice: httpx2.Client, new_message: NewMessage) -> None:
    seen = requests_of(alice)
    connected: list[str] = []

    def trace(name: str, _: object) -> None:
        if name == "connection.connect_tcp.complete":
            connected.append(name)

    messages = [new_message() for _ in range(3)]
    for message in messages:
        blocks = [message.body[:9], message.body[9:]]
        answer = alice.post(OVERSIZED, content=blocks, extensions={REPLAYABLE: True, "trace": trace})
        assert answer.status_code == 201
        assert alice.get(message.path, extensions={"trace": trace}).status_code == 200
    assert seen == ["POST 401", *["POST 201", "GET 200"] * 3]
    assert len(connected) == 1
    # A body that can be sent once takes two rounds.
    assert alice.post(OVERSIZED, content=iter([messages[0].body])).status_code == 422
    assert seen[-2:] == ["POST 401", "POST 422"]


def test_exchange_over_two_connections(site: Site, message: Message) -> None:
    client = site.client()
    request = client.build_request("POST", OVERSIZED, content=message.body)
    assert client.auth is not None
    flow = client.auth.auth_flow(request)
    answers = []
    sent = next(flow)
    for _ in range(2):
        with httpx2.Client() as other:
            answers.append(other.send(sent))
        try:
            sent = flow.send(answers[-1])
        except StopIteration:
            break
    assert [answer.status_code for answer in answers] == [401, 201]
    assert answers[0].headers["www-authenticate"].startswith("SCRAM-SHA-256 sid=")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_is_done_before_the_proof(site: Site, message: Message, method: str) -> None:
    stored = site.stored()
    for headers in (
        {},
        {"Authorization": "Basic YTpi"},
        {"Authorization": "SCRAM-SHA-256 data=biwsbj1hbGljZSxyPWFiYw=="},
    ):
        for path in (OVERSIZED, message.path, "/nowhere", "/topic/..%2f..%2fx+oversized"):
            answer = httpx2.request(method, site.server.url + path, headers=headers, content=message.body)
            assert answer.status_code == 401
            assert "authentication-info" not in answer.headers
    assert site.stored() == stored
    assert site.client().get(message.path).status_code == 404


def test_wrong_passwords_and_unknown_users_look_the_same(site: Site) -> None:
    shapes = set()
    for user, password in (("alice", "wrong"), ("nobody", "wrong"), ("nobody", "alice-secret")):
        answers: list[httpx2.Response] = []
        client = site.client(user, password)
        client.event_hooks = {"response": [answers.append]}
        assert client.get("/msg/x").status_code == 401
        headers = [{name: len(value) for name, value in answer.headers.items() if name != "date"} for answer in answers]
        shapes.add(str(headers))
    assert len(shapes) == 1


@pytest.mark.parametrize(
    ("user", "method", "path", "status"),
    [
        ("bob", "POST", "/topic/data.x+oversized", 403),
        ("alice", "POST", "/topic/other+oversized", 403),
        ("alice", "POST", "/topic/data.secret+oversized", 403),
        ("alice", "GET", "/msg/00000000-0000-0000-0000-000000000000", 404),
        ("alice", "GET", "/msg/not-an-id", 404),
        ("alice", "GET", "/msg/%7B00000000-0000-0000-0000-000000000000%7D", 404),
        ("alice", "GET", "/msg/..%2f..%2fetc%2fpasswd", 404),
        ("alice", "GET", "/", 404),
        ("alice", "GET", "/topic", 404),
        ("alice", "POST", "/topic/data", 404),
        ("alice", "POST", "/topic/data+oversized/", 404),
        ("alice", "POST", "/topic/a/b+oversized", 404),
        ("alice", "POST", "/topic/a%2fb+oversized", 404),
        ("alice", "POST", "/topic/+oversized", 400),
        ("alice", "POST", "/topic/..+oversized", 400),
        ("alice", "POST", "/topic/a%00b+oversized", 400),
        ("alice", "POST", "/topic/a%5Cb+oversized", 400),
        ("alice", "POST", "/topic/%C3%BC+oversized", 400),
        ("alice", "POST", f"/topic/{'a' * 250}+oversized", 400),
        ("alice", "GET", OVERSIZED, 405),
        ("alice", "DELETE", "/msg/x", 405),
        ("alice", "HEAD", "/msg/x", 404),
        ("alice", "HEAD", OVERSIZED, 405),
    ],
)
def test_refused_with_a_signature(  # noqa: PLR0917  pytest passes them by name
    site: Site, message: Message, user: str, method: str, path: str, status: int
) -> None:
    client = site.client(user)
    for _ in range(2):  # by two rounds and by one
        # The auth object raises where an answer is not signed.
        body = message.body if method == "POST" else None
        request = client.build_request(method, "/", content=body)
        request.url = request.url.copy_with(raw_path=path.encode())
        assert client.send(request).status_code == status


def test_permission_to_read(site: Site, message: Message) -> None:
    bob = site.client("bob")
    assert bob.post(OVERSIZED, content=message.body).status_code == 201
    assert bob.get(message.path).status_code == 403
    assert site.client("alice").get(message.path).status_code == 200
    assert site.client("admin").get(message.path.upper().replace("/MSG", "/msg")).status_code == 200


def test_literal_and_encoded_plus(alice: httpx2.Client, new_message: NewMessage) -> None:
    for path in (OVERSIZED, "/topic/data%2Boversized", "/topic/d%61ta%2boversized"):
        assert alice.post(path, content=new_message().body).status_code == 201


@pytest.mark.parametrize("headers", [{"a": b"1"}, [["a", b"1"]], None])
def test_what_the_public_service_takes(alice: httpx2.Client, headers: Any) -> None:
    body = {"message": b"m"} if headers is None else {"message": b"m", "headers": headers}
    answer = alice.post(OVERSIZED, content=bson.encode(body))
    assert answer.status_code == 201
    found = bson.decode(alice.get(answer.headers["location"]).content)
    assert (found["message"], found["headers"]) == (b"m", [] if headers is None else [["a", b"1"]])


def test_two_ids(alice: httpx2.Client, message: Message) -> None:
    other = uuid.uuid4()
    message.fields["headers"] = [["_id", other.bytes], ["_id", message.id.bytes]]
    assert alice.post(OVERSIZED, content=message.body).headers["location"] == message.path
    assert alice.get(f"/msg/{other}").status_code == 404


def test_slashes_that_others_announced(alice: httpx2.Client, message: Message) -> None:
    for slashes in ("//", "///"):
        request = alice.build_request("POST", "/", content=message.body)
        request.url = request.url.copy_with(raw_path=f"{slashes}{OVERSIZED[1:]}".encode())
        assert alice.send(request).status_code == (201 if slashes == "//" else 422)
        request = alice.build_request("GET", "/")
        request.url = request.url.copy_with(raw_path=f"{slashes}{message.path[1:]}".encode())
        assert alice.send(request).status_code == 200
    assert httpx2.get(alice.base_url.copy_with(raw_path=b"//msg/x")).status_code == 401


def test_ids_are_taken_once(site: Site, alice: httpx2.Client, new_message: NewMessage) -> None:
    first = new_message(b"first")
    second = new_message(b"second")
    second.fields["headers"] = first.fields["headers"]
    assert alice.post(OVERSIZED, content=first.body).status_code == 201
    stored = site.stored()
    assert alice.post(OVERSIZED, content=second.body).status_code == 422
    assert alice.post("/topic/data.x+oversized", content=first.body).status_code == 422
    assert bson.decode(alice.get(first.path).content)["message"] == b"first"
    assert site.stored() == stored


def test_one_of_many_uploads_at_once_wins(site: Site, alice: httpx2.Client, new_message: NewMessage) -> None:
    alice.get("/msg/x")
    stored = site.stored()
    first = new_message()
    bodies = [{**first.fields, "message": bytes([at]) * 2_000_000} for at in range(8)]
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda body: alice.post(OVERSIZED, content=bson.encode(body)).status_code, bodies))
    assert sorted(answers) == [201] + [422] * 7
    winner = answers.index(201)
    assert bson.decode(alice.get(first.path).content)["message"] == bodies[winner]["message"]
    for _ in range(100):  # the losers' payloads are deleted when their answers are sent
        if site.stored() == stored + 1:
            break
        alice.get("/msg/x")
    assert site.stored() == stored + 1


def test_payload_gone_from_the_store(site: Site, alice: httpx2.Client, message: Message) -> None:
    folder = site.server.folder / "payloads" / "data.gone"
    assert alice.post("/topic/data.gone+oversized", content=message.body).status_code == 201
    [path] = folder.iterdir()
    path.write_bytes(b"short")
    with pytest.raises(httpx2.RemoteProtocolError):  # the length was announced: the connection is cut
        alice.get(message.path)
    path.unlink()
    assert alice.get(message.path).status_code == 404


def test_small_answers_are_sent_at_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the client has acknowledged what came before, which takes it 40 ms."""
    seen: list[int] = []

    class Looking(BoundedHttp):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            accepted = transport.get_extra_info("socket")
            seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(runner, "BoundedHttp", Looking)
    assert httpx2.get(serve(MemoryStore()) + "/health").status_code == 200
    assert [bool(value) for value in seen] == [True]


def test_health_needs_no_authentication(site: Site) -> None:
    answer = httpx2.get(site.server.url + "/health")
    assert (answer.status_code, answer.text) == (200, "ok\n")
    assert httpx2.post(site.server.url + "/health").status_code == 405


@pytest.mark.full
def test_restart_between_upload_and_download(new_message: NewMessage) -> None:
    with OffloadServer() as server, _client(server) as client:
        message = new_message(b"z" * 100_000)
        assert client.post("/topic/t+oversized", content=message.body).status_code == 201
        seen = requests_of(client)
        server.restart()
        assert client.get(message.path).status_code == 200
        assert client.post("/topic/t+oversized", content=message.body).status_code == 422
        # What was remembered for one round went with the server.
        assert seen == ["GET 401", "GET 401", "GET 200", "POST 422"]
        assert server.users["alice"] not in (server.folder / "offload-server.log").read_text()


@pytest.mark.full
def test_over_s3(s3_server: S3Server, bucket: str, new_message: NewMessage) -> None:
    with (
        OffloadServer(store="s3", store_config=s3_server.store_config(bucket)) as server,
        _client(server) as client,
    ):
        for size in (100, 20 << 20):
            message = new_message(b"s" * size)
            assert client.post("/topic/t+oversized", content=message.body).status_code == 201
            assert len(bson.decode(client.get(message.path).content)["message"]) == size
            broken = new_message(b"s" * size, other=1)
            assert client.post("/topic/t+oversized", content=broken.body).status_code == 400
    objects = s3_server.client().list_objects_v2(Bucket=bucket)
    assert objects["KeyCount"] == 2
    assert "Uploads" not in s3_server.client().list_multipart_uploads(Bucket=bucket)


def _client(server: OffloadServer) -> httpx2.Client:
    return httpx2.Client(base_url=server.url, auth=ScramAuth("alice", server.users["alice"]), timeout=60)


def test_server_that_signs_with_other_keys(site: Site) -> None:
    """A server in between, which does not know the user, is found out."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        upstream = httpx2.request(request.method, request.url, headers=request.headers, content=request.read())
        headers = dict(upstream.headers)
        if "authentication-info" in headers:
            headers["authentication-info"] = headers["authentication-info"][:-6] + "AAAA=="
        return httpx2.Response(upstream.status_code, headers=headers, content=upstream.content)

    client = site.client()
    client._transport = httpx2.MockTransport(answer)
    with pytest.raises(PayloadAccessDeniedError):
        client.get(f"/msg/{uuid.uuid4()}")
