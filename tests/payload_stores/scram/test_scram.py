"""HTTP SCRAM: the vectors of the RFCs, both sides against each other, and what either refuses of the other."""

import asyncio
import base64
import hashlib
import hmac
import pickle
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from scramp import ScramClient, ScramMechanism

from payload_stores.errors import ConfigError, PayloadAccessDeniedError
from payload_stores.scram.auth import REPLAYABLE, ScramAuth
from payload_stores.scram.server import Credential, ScramServer, derive, invented
from payload_stores.scram.wire import (
    MECHANISMS,
    decode,
    encode,
    parse_challenges,
    parse_parameters,
    write,
)

USER, PASSWORD = "alice", "pencil"
KEYS = {mechanism: derive(PASSWORD, mechanism, 4096) for mechanism in MECHANISMS}

Change = Callable[[httpx2.Response], None]


class Users:
    """Knows alice."""

    def find(self, user: str, mechanism: str) -> Credential:
        return KEYS[mechanism] if user == USER else invented(b"secret", user, mechanism, 4096)


class Site:
    """A server in this process: answers with a status, keeps what it was sent."""

    def __init__(self, status: int = 200, change: Change | None = None, **options: int) -> None:
        self.now = 0.0
        self.scram = ScramServer(Users(), clock=lambda: self.now, **options)
        self.status = status
        self.change = change
        self.seen: list[tuple[int, bytes]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        outcome = self.scram.answer(request.headers.get("authorization"))
        status = self.status if outcome.user else 401
        self.seen.append((status, request.read()))
        response = httpx2.Response(status, headers=dict(outcome.headers))
        if self.change is not None:
            self.change(response)
        return response

    async def asynchronously(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        return self(request)

    def client(self, auth: httpx2.Auth | None = None) -> httpx2.Client:
        return httpx2.Client(
            transport=httpx2.MockTransport(self), auth=auth or ScramAuth(USER, PASSWORD), base_url="http://site"
        )


def test_vector_of_rfc_5802() -> None:
    client = ScramClient(["SCRAM-SHA-1"], "user", "pencil", c_nonce="fyko+d2lbbFgONRv9qkxdawL")
    assert client.get_client_first() == "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    client.set_server_first("r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096")
    assert client.get_client_final() == (
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    client.set_server_final("v=rmF9pqV8S7suAoZWja4dJRkFsKQ=")


def test_vector_of_rfc_7677_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scramp.core.token_hex", lambda: "rOprNGfwEbeRWgbNEkqO")
    sent = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        [(scheme, parameters)] = parse_challenges(request.headers["authorization"])
        sent.append((scheme, parameters.get("sid"), decode(parameters["data"])))
        if len(sent) == 1:
            first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
            # Quoted, behind another scheme: RFC 9110 allows both.
            challenge = f'Basic realm="a, b", scram-sha-256 sid="A\\BC", data="{encode(first)}"'
            return httpx2.Response(401, headers={"WWW-Authenticate": challenge})
        final = encode("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
        return httpx2.Response(200, headers={"Authentication-Info": f'sid=ABC, data="{final}"'})

    auth = ScramAuth("user", "pencil")
    assert httpx2.Client(transport=httpx2.MockTransport(answer), auth=auth).get("http://site/").status_code == 200
    assert sent == [
        ("SCRAM-SHA-256", None, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"),
        (
            "SCRAM-SHA-256",
            "ABC",
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        ),
    ]


def test_server_with_the_vector_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
    _, stored, key, _ = ScramMechanism("SCRAM-SHA-256").make_auth_info("pencil", 4096, salt)
    monkeypatch.setattr(Users, "find", lambda *_: Credential(salt, 4096, stored, key))
    monkeypatch.setattr("payload_stores.scram.server.secrets.token_urlsafe", lambda _: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    server = ScramServer(Users())
    first = server.answer(write("SCRAM-SHA-256", {"data": encode("n,,n=user,r=rOprNGfwEbeRWgbNEkqO")}))
    [(_, challenge)] = parse_challenges(first.headers["WWW-Authenticate"])
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert decode(challenge["data"]) == f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    last = server.answer(write("SCRAM-SHA-256", {"sid": challenge["sid"], "data": encode(proof)}))
    assert last.user == "user"
    info = parse_parameters(last.headers["Authentication-Info"])
    assert decode(info["data"]) == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_first_request_is_empty_and_a_generator_is_sent_once(mechanism: str) -> None:
    site = Site(201)
    with site.client(ScramAuth(USER, PASSWORD, mechanism=mechanism.lower())) as client:
        for _ in range(2):
            body = (block for block in (b"pay", b"load"))
            assert client.post("/x", content=body).status_code == 201
    assert site.seen == [(401, b""), (201, b"payload")] * 2


def test_one_round_trip_once_authenticated() -> None:
    site = Site(201)
    with site.client() as client:
        for number in range(3):
            client.post("/x", content=f"body {number}".encode())
        client.get("/x")
        blocks = [b"pay", b"load"]
        client.post("/x", content=blocks, extensions={REPLAYABLE: True})
    assert site.seen == [
        (401, b""), (201, b"body 0"), (201, b"body 1"), (201, b"body 2"), (201, b""), (201, b"payload"),
    ]  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_one_round_signs(mechanism: str) -> None:
    """RFC 5802 section 3 computed by hand, of the nonce that RFC 7804 section 5.1 prescribes."""
    sent: list[str] = []
    answers: list[httpx2.Response] = []
    site = Site()

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["authorization"])
        answers.append(site(request))
        return answers[-1]

    auth = ScramAuth(USER, PASSWORD, mechanism=mechanism)
    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=auth) as client:
        for _ in range(3):
            client.get("http://site/")
    [(_, challenge)] = parse_challenges(answers[0].headers["www-authenticate"])
    credential = KEYS[mechanism]
    for number, (header, response) in enumerate(zip(sent[2:], answers[2:], strict=True)):
        [(scheme, parameters)] = parse_challenges(header)
        assert (scheme, set(parameters)) == (mechanism, {"data"})
        without_proof, _, proof = decode(parameters["data"]).rpartition(",p=")
        nonce = without_proof.removeprefix("c=biws,r=")
        server_nonce = f"{credential.iterations + number}{challenge['sr']}"
        assert nonce.endswith(server_nonce)
        client_first = f"n={USER},r={nonce.removesuffix(server_nonce)}"
        server_first = f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        auth_message = f"{client_first},{server_first},{without_proof}".encode()
        hash_name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        salted = hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), credential.salt, credential.iterations)
        client_key = hmac.digest(salted, b"Client Key", hash_name)
        signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), auth_message, hash_name)
        assert base64.b64decode(proof) == bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        verifier = hmac.digest(hmac.digest(salted, b"Server Key", hash_name), auth_message, hash_name)
        final = decode(parse_parameters(response.headers["authentication-info"])["data"])
        assert final == f"v={base64.b64encode(verifier).decode()}"


def test_what_was_remembered_ends_and_is_renewed() -> None:
    site = Site(session_seconds=600)
    with site.client() as client:
        client.post("/x", content=b"1")
        site.now = 600.0  # the client's own clock says that it is still good
        assert client.post("/x", content=b"2").status_code == 200
        assert client.post("/x", content=b"3").status_code == 200
    assert site.seen == [(401, b""), (200, b"1"), (401, b"2"), (401, b""), (200, b"2"), (200, b"3")]


@pytest.mark.parametrize(
    "offer",
    [
        {"ttl": "10"},  # ends before a request under way would
        {"ttl": "0"}, {"ttl": "soon"}, {"ttl": "-600"}, {"ttl": "9999999999"}, {"ttl": ""},
        {"ttl": '"\u0663\u0663\u0663"'},
        {"sr": "x" * 257}, {"sr": '"a b"'}, {"sr": '"a,b"'}, {"sr": ""},
    ],
)  # fmt: skip
def test_offers_of_one_round_that_are_not_taken(offer: dict[str, str]) -> None:
    def change(response: httpx2.Response) -> None:
        if "www-authenticate" in response.headers:
            [(scheme, parameters)] = parse_challenges(response.headers["www-authenticate"])
            fields = {"www-authenticate": write(scheme, {**parameters, **offer})}
            response.headers = httpx2.Headers(fields, encoding="utf-8")

    site = Site(200, change)
    with site.client() as client:
        assert [client.get("/x").status_code for _ in range(2)] == [200, 200]
    assert [status for status, _ in site.seen] == [401, 200, 401, 200]


def test_servers_that_are_remembered_are_bounded() -> None:
    site, auth = Site(), ScramAuth(USER, PASSWORD)
    with site.client(auth) as client:
        for number in range(70):
            client.get(f"http://site{number}/")
        assert len(auth._sessions) == 64
        client.get("http://site69/")
        client.get("http://site0/")
    assert [status for status, _ in site.seen[140:]] == [200, 401, 200]


def test_an_answer_to_another_exchange_is_refused() -> None:
    def change(response: httpx2.Response) -> None:
        if "authentication-info" in response.headers:
            parameters = parse_parameters(response.headers["authentication-info"])
            response.headers["authentication-info"] = write("", {**parameters, "sid": "another"})

    with (
        Site(200, change).client() as client,
        pytest.raises(PayloadAccessDeniedError, match="its sid is that of another exchange"),
    ):
        client.get("/x")


def test_the_first_round_asks_for_an_answer_that_is_not_compressed() -> None:
    asked: list[str] = []
    site = Site()

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.headers["accept-encoding"])
        return site(request)

    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth(USER, PASSWORD)) as client:
        client.get("http://site/")
    assert asked[0] == "identity" != asked[1]


def test_server_without_one_round() -> None:
    site = Site(session_seconds=0)
    with site.client() as client:
        assert [client.get("/x").status_code for _ in range(2)] == [200, 200]
    assert [status for status, _ in site.seen] == [401, 200, 401, 200]


def test_a_server_that_refuses_the_one_round_that_it_offers_gets_few_bodies_twice() -> None:
    site = Site()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if len(request.read()) and not request.headers["authorization"].count("sid="):
            site.seen.append((401, request.read()))
            return httpx2.Response(401)
        return site(request)

    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth(USER, PASSWORD)) as client:
        for _ in range(10):
            assert client.post("http://site/", content=b"body").status_code == 200
    assert [body for _, body in site.seen].count(b"body") == 10 + 2


def test_a_server_that_is_restarted_often_goes_on_with_one_round() -> None:
    site = Site()
    with site.client() as client:
        for _ in range(10):
            client.post("/", content=b"body")
            client.post("/", content=b"body")
            site.scram = ScramServer(Users(), clock=lambda: 0.0)
    assert [status for status, _ in site.seen[-4:]] == [401, 401, 200, 200]


def test_connection_cut_in_one_round_means_two_rounds_next_time() -> None:
    site = Site()
    failing = False

    def answer(request: httpx2.Request) -> httpx2.Response:
        if failing:
            raise httpx2.ReadError("cut")
        return site(request)

    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth(USER, PASSWORD)) as client:
        client.get("http://site/")
        failing = True
        with pytest.raises(httpx2.ReadError):
            client.get("http://site/")
        failing = False
        client.get("http://site/")
    assert [status for status, _ in site.seen] == [401, 200, 401, 200]


def test_many_threads_share_one_auth() -> None:
    site = Site()
    with site.client() as client:
        client.get("/x")
        with ThreadPoolExecutor(8) as threads:
            statuses = list(threads.map(lambda _: client.get("/x").status_code, range(200)))
    assert statuses == [200] * 200
    assert len(site.seen) == 202  # counts that overtake each other are taken all the same


def test_asynchronous_client() -> None:
    site = Site(201)

    async def blocks() -> AsyncIterator[bytes]:
        yield b"pay"
        yield b"load"

    async def main() -> None:
        transport = httpx2.MockTransport(site.asynchronously)
        async with httpx2.AsyncClient(transport=transport, auth=ScramAuth(USER, PASSWORD)) as client:
            assert (await client.post("http://site/x", content=blocks())).status_code == 201
            assert (await client.get("http://site/x")).status_code == 201

    asyncio.run(main())
    assert site.seen == [(401, b""), (201, b"payload"), (201, b"")]


@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
def test_wrong_credentials_get_401(user: str, password: str) -> None:
    site = Site()
    with site.client(ScramAuth(user, password)) as client:
        assert client.get("/x").status_code == 401
    assert [status for status, _ in site.seen] == [401, 401]


@pytest.mark.parametrize("status", [200, 201, 400, 403, 404, 413, 422, 302])
def test_each_answer_must_be_signed(status: int) -> None:
    def unsigned(response: httpx2.Response) -> None:
        response.headers.pop("authentication-info", None)

    def forged(response: httpx2.Response) -> None:
        if "authentication-info" in response.headers:
            response.headers["authentication-info"] = write("", {"data": encode("v=" + "A" * 43 + "=")})

    assert Site(status).client().get("/x").status_code == status
    for change in (unsigned, forged):
        with Site(status, change).client() as client, pytest.raises(PayloadAccessDeniedError, match=f"HTTP {status}"):
            client.get("/x")


def test_gateways_need_not_sign_that_they_are_away() -> None:
    def unsigned(response: httpx2.Response) -> None:
        response.headers.pop("authentication-info", None)

    with Site(503, unsigned).client() as client:
        assert client.get("/x").status_code == 503


@pytest.mark.parametrize("status", [200, 201, 204, 302, 403, 404])
def test_nothing_but_401_is_believed_before_authentication(status: int) -> None:
    client = httpx2.Client(transport=httpx2.MockTransport(lambda _: httpx2.Response(status)), auth=ScramAuth("a", "b"))
    with pytest.raises(PayloadAccessDeniedError, match="not authenticated yet"):
        client.post("http://site/", content=b"x")


def test_redirects_are_refused() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "site":
            return httpx2.Response(307, headers={"Location": "http://evil/"})
        assert "authorization" not in request.headers
        return httpx2.Response(401)

    client = httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth("a", "b"), follow_redirects=True)
    with pytest.raises(PayloadAccessDeniedError, match="another address"):
        client.get("http://site/")


@pytest.mark.parametrize(
    "first",
    [
        "r={nonce}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095",
        "r={nonce}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1000001",
        "r={nonce}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999999999999999",
        "r={nonce}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=-1",
        "r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "r={nonce}x,s=!,i=4096",
        "e=unknown-user",
        "",
    ],
)
def test_first_messages_that_are_refused(first: str) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        [(_, parameters)] = parse_challenges(request.headers["authorization"])
        data = encode(first.format(nonce=decode(parameters["data"]).partition("r=")[2]))
        return httpx2.Response(401, headers={"WWW-Authenticate": f"SCRAM-SHA-256 sid=1, data={data}"})

    client = httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth("a", "b"))
    with pytest.raises(PayloadAccessDeniedError):
        client.get("http://site/")


@pytest.mark.parametrize("challenge", ["", "Basic", "SCRAM-SHA-512 data=eD14", "SCRAM-SHA-256", "Negotiate a=="])
def test_other_challenges_leave_the_401(challenge: str) -> None:
    answer = httpx2.MockTransport(lambda _: httpx2.Response(401, headers={"WWW-Authenticate": challenge}))
    assert httpx2.Client(transport=answer, auth=ScramAuth("a", "b")).get("http://site/").status_code == 401


def test_body_of_a_challenge_is_bounded() -> None:
    site = Site()

    class Endless(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                yield b"x" * 1000

    def answer(request: httpx2.Request) -> httpx2.Response:
        response = site(request)
        return httpx2.Response(response.status_code, headers=response.headers, stream=Endless())

    client = httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth(USER, PASSWORD))
    with pytest.raises(PayloadAccessDeniedError, match="65536 bytes"):
        client.get("http://site/")


@pytest.mark.parametrize("final", ["", "e=other-error", "v=", "v=!", "v=AAAA", "x=1", "vv", "v=\xff"])
def test_signatures_that_are_none(final: str) -> None:
    def forged(response: httpx2.Response) -> None:
        if "authentication-info" in response.headers:
            response.headers["authentication-info"] = write("", {"data": encode(final)})

    with Site(200, forged).client() as client, pytest.raises(PayloadAccessDeniedError, match="signed its answer wrong"):
        client.get("/x")


def test_auth_object() -> None:
    auth = ScramAuth(USER, PASSWORD, mechanism="scram-sha-512")
    assert PASSWORD not in repr(auth) + str(vars(auth)["mechanism"])
    copy = pickle.loads(pickle.dumps(auth))  # noqa: S301  our own bytes
    assert (copy.username, copy.mechanism) == (USER, "SCRAM-SHA-512")
    assert Site().client(copy).get("/x").status_code == 200
    mistakes: tuple[dict[str, Any], ...] = (
        {"mechanism": "SCRAM-SHA-1"},
        {"username": "\u0007"},
        {"password": "hush\u0007"},
        {"username": ""},
    )
    for wrong in mistakes:
        with pytest.raises(ConfigError) as error:
            ScramAuth(**{"username": "a", "password": "b"} | wrong)
        assert "hush" not in str(error.value)
