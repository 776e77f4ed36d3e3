"""The hop store against servers that answer as they should not, and what goes where."""

import base64
import json
import logging
import struct
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import bson
import pytest

from payload_stores import (
    ConfigError,
    PayloadAccessDeniedError,
    PayloadIntegrityError,
    PayloadNotFoundError,
    PayloadStoreError,
    PayloadStoreUnavailableError,
    PayloadTooLargeError,
    StoredRecord,
    UntrustedReferenceError,
    open_store,
)
from payload_stores.hop import HopStore
from payload_stores.hop.endpoint import Endpoint
from payload_stores.scram.server import ScramServer
from tests.payload_stores.scram.test_scram import PASSWORD, USER, Users

ID = str(uuid.uuid4())
QUICK = {"hop.retry.attempts": 2, "hop.request.timeout.ms": 5000, "hop.connection.timeout.ms": 500}


class Server:
    """Answers by a list of functions, the last of which answers all further requests; remembers what it was asked."""

    def __init__(self, *answers: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self._lock = threading.Lock()

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        with self._lock:
            headers = {name.lower(): value for name, value in handler.headers.items()}
            self.requests.append((handler.command, handler.path, headers, body))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        answer(handler)


def says(
    status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def breaks_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(bson.encode({"message": bytes(900)})[:500])
    handler.close_connection = True


def hangs(handler: BaseHTTPRequestHandler) -> None:
    handler.rfile.read(1)  # until the client goes away


def document(message: bytes = b"data", **more: Any) -> bytes:
    return bson.encode({"message": message, **more})


@pytest.fixture
def opened() -> Iterator[Callable[..., HopStore]]:
    stores: list[HopStore] = []

    def make(url: str, **more: Any) -> HopStore:
        config = {"hop.offload.url": url, **QUICK, **{key.replace("_", "."): value for key, value in more.items()}}
        store = open_store("hop", config)
        assert isinstance(store, HopStore)
        stores.append(store)
        return store

    yield make
    for store in stores:
        store.close()


ANSWERS: list[tuple[int, type[PayloadStoreError]]] = [
    (202, PayloadStoreError),
    (301, PayloadStoreError),
    (307, PayloadStoreError),
    (400, PayloadStoreError),
    (401, PayloadAccessDeniedError),
    (403, PayloadAccessDeniedError),
    (404, PayloadNotFoundError),
    (413, PayloadTooLargeError),
    (422, PayloadStoreError),
    (500, PayloadStoreError),
    (502, PayloadStoreUnavailableError),
    (503, PayloadStoreUnavailableError),
    (504, PayloadStoreUnavailableError),
    (505, PayloadStoreError),
]


@pytest.mark.parametrize(("status", "kind"), ANSWERS)
def test_what_answers_mean(serve: Any, opened: Any, status: int, kind: type[PayloadStoreError]) -> None:
    server = Server(says(status, b"because\x1b[31m of \xff this", {"Location": "http://127.0.0.1:1/"}))
    with serve(server) as url:
        store = opened(url)
        calls: tuple[Callable[[], object], ...] = (
            lambda: store.publish("t", b"1"),
            lambda: store.download(f"{url}/msg/{ID}"),
        )
        for call in calls:
            server.requests.clear()
            with pytest.raises(PayloadStoreError, match=f"HTTP {status}") as caught:
                call()
            assert type(caught.value) is kind
            assert "\x1b" not in str(caught.value)
            assert caught.value.store == "hop"
            assert str(caught.value.reference).startswith(f"{url}/msg/")
            assert len(server.requests) == (2 if caught.value.transient else 1)


def test_upload(serve: Any, opened: Any) -> None:
    server = Server(says(201))
    with serve(server) as url:
        store = opened(url + "/api//")
        own = uuid.uuid4()
        headers = (("a", b"1"), ("_id", own.bytes), ("none", None), ("_id", b"second"))
        reference = store.publish_record("t", StoredRecord(memoryview(b"data"), headers, b"key"))
        assert reference == f"{url}/api/msg/{own}"
        ((method, path, sent, body),) = server.requests
        assert (method, path) == ("POST", "/api/topic/t+oversized")
        assert "transfer-encoding" not in sent
        assert bson.decode(body) == {
            "message": b"data",
            "headers": [["a", b"1"], ["_id", own.bytes], ["none", b""]],
            "key": b"key",
        }
        assert len(uuid.UUID(store.publish("t", b"x").rpartition("/")[2]).bytes) == 16


def test_connections_are_kept(serve: Any, opened: Any) -> None:
    ports = set()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        ports.add(handler.client_address[1])
        says(201)(handler)

    with serve(Server(answer)) as url:
        store = opened(url)
        for _ in range(5):
            store.publish("t", b"1")
        assert len(ports) == 1


@pytest.mark.parametrize("trouble", [says(503), hangs, lambda handler: setattr(handler, "close_connection", True)])
def test_transient_trouble_is_tried_again(serve: Any, opened: Any, trouble: Any) -> None:
    more = {"hop_request_timeout_ms": 300} if trouble is hangs else {}
    with serve(Server(trouble, says(201))) as url:
        assert opened(url, **more).publish("t", b"1").startswith(url)
    with serve(Server(trouble, says(200, document()))) as url:
        assert opened(url, **more).download(f"{url}/msg/{ID}") == b"data"


def test_a_body_that_breaks_off(serve: Any, opened: Any) -> None:
    with serve(Server(breaks_off, says(200, document()))) as url:
        assert opened(url).download(f"{url}/msg/{ID}") == b"data"
    with serve(Server(breaks_off)) as url, pytest.raises(PayloadStoreUnavailableError):
        opened(url).download(f"{url}/msg/{ID}")


def test_nobody_there(opened: Any) -> None:
    with pytest.raises(PayloadStoreUnavailableError, match="did not answer"):
        opened("http://127.0.0.1:1").publish("t", b"1")


def test_nothing_here_takes_records(serve: Any, opened: Any) -> None:
    with (
        serve(Server(says(404))) as url,
        pytest.raises(PayloadNotFoundError, match="does not accept records") as caught,
    ):
        opened(url).publish("t", b"1")
    assert not caught.value.about_record


@pytest.mark.parametrize("body", [b"", b"junk", document()[:-3], bson.encode({"a": 1}), document() + b"\0"])
def test_answers_that_are_no_record(serve: Any, opened: Any, body: bytes) -> None:
    with serve(Server(says(200, body))) as url, pytest.raises(PayloadIntegrityError, match="cannot be read"):
        opened(url).download(f"{url}/msg/{ID}")


@pytest.mark.parametrize("length", [-1, -2, -5, -(2**31)])
def test_binary_of_a_negative_length(serve: Any, opened: Any, length: int) -> None:
    key = b"\5key\0" + struct.pack("<i", length)
    metadata = b"\3metadata\0" + struct.pack("<i", len(key) + 5) + key + b"\0"
    for element in (key, metadata):
        elements = document()[4:-1] + element
        body = struct.pack("<i", len(elements) + 5) + elements + b"\0"
        with serve(Server(says(200, body))) as url, pytest.raises(PayloadIntegrityError) as caught:
            opened(url).download(f"{url}/msg/{ID}")
        assert caught.value.about_record


def test_record_of_both_shapes(serve: Any, opened: Any) -> None:
    metadata = {"headers": [["a", b"1"]], "key": b"k", "timestamp": 5}
    for shape in (metadata, {"metadata": metadata}, {**metadata, "metadata": metadata}):
        with serve(Server(says(200, document(**shape)))) as url:
            found = opened(url).download_record(f"{url}/msg/{ID}")
            assert found == StoredRecord(b"data", (("a", b"1"),), b"k", 5)


def test_payload_above_the_limit(serve: Any, opened: Any) -> None:
    with serve(Server(says(200, document(bytes(101))))) as url, pytest.raises(PayloadTooLargeError):
        opened(url, large_message_max_payload_bytes=100).download(f"{url}/msg/{ID}")


def test_a_larger_payload_than_published_is_not_received(serve: Any, opened: Any) -> None:
    """The document breaks off behind its length: whatever reads on fails in another way."""
    size = 500 << 20
    begin = struct.pack("<i", size + 32) + b"\x05message\0" + struct.pack("<iB", size, 0)

    def announces(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(size + 32))
        handler.end_headers()
        handler.wfile.write(begin)
        handler.close_connection = True

    with serve(Server(announces)) as url, pytest.raises(PayloadIntegrityError, match="10 were published"):
        opened(url).download_verified(f"{url}/msg/{ID}", size=10)


# Where credentials and requests go.


def test_bearer_token(serve: Any, opened: Any) -> None:
    server = Server(says(201))
    with serve(server) as url:
        opened(url, hop_token="abc.def").publish("t", b"1")
        assert server.requests[-1][2]["authorization"] == "Bearer abc.def"


def test_oauth_callback(serve: Any) -> None:
    server = Server(says(201))
    calls: list[str] = []

    def callback(setting: str) -> tuple[str, float]:
        calls.append(setting)
        return "from-callback", 4e9

    with serve(server) as url:
        config = {"hop.offload.url": url, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": callback}
        store = open_store("hop", {**config, "sasl.oauthbearer.config": "a=b"})
        store.publish("t", b"1")
        store.publish("t", b"1")
        assert calls == ["a=b"]
        assert server.requests[-1][2]["authorization"] == "Bearer from-callback"
        store.close()
        for bad in (lambda _: 1 / 0, lambda _: "token", lambda _: ("two words", 4e9)):
            store = open_store("hop", {**config, "oauth_cb": bad})
            with pytest.raises(PayloadAccessDeniedError) as caught:
                store.publish("t", b"1")
            assert "two words" not in str(caught.value)
            store.close()


def test_openid_connect(serve: Any) -> None:
    token = json.dumps({"access_token": "issued", "token_type": "Bearer", "expires_in": 3600}).encode()
    issuer, server = Server(says(200, token), says(200, b'{"token_type": "mac"}')), Server(says(201))
    with serve(issuer) as token_url, serve(server) as url:
        config = {
            "hop.offload.url": url,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": token_url,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "hidden",
            "sasl.oauthbearer.scope": "hop",
        }
        store = open_store("hop", config)
        store.publish("t", b"1")
        assert server.requests[-1][2]["authorization"] == "Bearer issued"
        _, _, headers, body = issuer.requests[0]
        assert body == b"grant_type=client_credentials&scope=hop"
        assert base64.b64decode(headers["authorization"].removeprefix("Basic ")) == b"me:hidden"
        store.close()
        store = open_store("hop", config)
        with pytest.raises(PayloadAccessDeniedError, match="did not return a token") as caught:
            store.publish("t", b"1")
        assert "hidden" not in repr(caught.value)
        store.close()


FOREIGN = [
    "https://{host}/api/msg/{id}",
    "http://{host}/msg/{id}",
    "http://{host}/apix/msg/{id}",
    "http://{host}/api//msg/{id}",
    "http://{host}/api/./msg/{id}",
    "http://{host}/api/../api/msg/{id}",
    "http://{host}/api/%6dsg/{id}",
    "http://{host}/api/msg/{id}?x",
    "http://{host}/api/msg/{id}#x",
    "http://{host}/api/msg/{id}/",
    "http://{host}/api/msg/{id}\n",
    "http://{host}/api/msg/x",
    "http://{host}/api/msg/",
    "http://{host}/api/topic/{id}",
    "http://{host}1/api/msg/{id}",
    "http://elsewhere/api/msg/{id}",
    "http://user@{host}/api/msg/{id}",
    "http://{host}@elsewhere/api/msg/{id}",
    "http://{host}\\@elsewhere/api/msg/{id}",
    "file:///api/msg/{id}",
    "//{host}/api/msg/{id}",
    "",
]


@pytest.mark.parametrize("reference", FOREIGN)
def test_foreign_references_are_not_fetched(serve: Any, opened: Any, reference: str) -> None:
    server = Server(says(200, document()))
    with serve(server) as url:
        store = opened(f"{url}/api")
        with pytest.raises(UntrustedReferenceError):
            store.download(reference.format(host=url.removeprefix("http://"), id=ID))
        assert server.requests == []
        assert store.download(f"{url.upper().replace('HTTP', 'http')}/api/msg/{ID}") == b"data"


def test_trusted_references_are_fetched_without_credentials(serve: Any, opened: Any) -> None:
    server = Server(says(200, document()))
    with serve(server) as url, serve(Server(says(201))) as own:
        store = opened(own, large_message_trusted_references=f"{url}/other/, s3://bucket", hop_token="secret")
        assert store.download(f"{url}/other/msg/{ID}") == b"data"
        assert "authorization" not in server.requests[0][2]
        for reference in (f"{url}/msg/{ID}", f"{url}/other", f"{url}/other2/a", f"{url}/other/../a"):
            with pytest.raises(UntrustedReferenceError):
                store.download(reference)


def test_slashes_that_the_broker_announces_are_in_references_of_hop_client() -> None:
    announced = Endpoint.parse("http://host/api/")
    assert announced.own(f"http://host/api//msg/{ID}") == f"http://host/api/msg/{ID}"
    assert announced.own(f"http://host:80/api/msg/{ID}") == f"http://host/api/msg/{ID}"
    assert announced.own(f"http://host/api///msg/{ID}") is None
    assert Endpoint.parse("https://host").own(f"https://HOST:443/msg/{ID.upper()}") == f"https://host/msg/{ID.upper()}"


def test_plain_http(opened: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        opened("http://host")
        opened("https://host")
        opened("http://localhost:1")
        opened("http://127.0.0.1:1")
    assert [record.message.split()[0] for record in caplog.records] == ["http://host"]
    with pytest.raises(ConfigError, match=r"hop\.allow\.http"):
        opened("http://host", hop_allow_http="false")


TOKENS = [{"hop.token": "abc"}, {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: ("abc", 4e9)}]


@pytest.mark.parametrize("token", TOKENS)
def test_tokens_over_plain_http_only_where_asked_for(token: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"a token can be copied: hop\.allow\.http = true"):
        open_store("hop", {"hop.offload.url": "http://host", **token})
    for url in ("https://host", "http://localhost:1", "http://127.0.0.2", "http://[::1]"):
        open_store("hop", {"hop.offload.url": url, **token}).close()
    open_store("hop", {"hop.offload.url": "http://host", **token, "hop.allow.http": "true"}).close()
    # A proof is of no use to who listens.
    open_store("hop", {"hop.offload.url": "http://host", "hop.username": "a", "hop.password": "b"}).close()


# Settings.


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize("rounds", [1, 2])
def test_an_unsigned_refusal_names_user_and_password(serve: Any, opened: Any, status: int, rounds: int) -> None:
    """So the public service answers to users that it does not know, and to wrong passwords."""
    scram = ScramServer(Users())

    def answer(handler: BaseHTTPRequestHandler) -> None:
        outcome = scram.answer(handler.headers.get("Authorization"))
        asks = rounds == 2 and "sid=" not in (handler.headers.get("Authorization") or "")
        says(401 if asks else status, b"", dict(outcome.headers) if asks else {})(handler)

    with serve(Server(answer)) as url:
        store = opened(url, hop_username=USER, hop_password=PASSWORD)
        with pytest.raises(PayloadStoreError) as caught:
            store.publish("topic", b"data")
    assert "Check user and password" in str(caught.value)
    assert "the same permission" not in str(caught.value)
