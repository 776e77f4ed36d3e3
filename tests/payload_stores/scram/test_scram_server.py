"""HTTP SCRAM, the server: exchanges are used once, unknown users look like wrong passwords, and headers are parsed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from payload_stores.errors import ConfigError
from payload_stores.scram import ScramAuth
from payload_stores.scram.server import Outcome, ScramServer, derive, invented
from payload_stores.scram.wire import (
    MECHANISMS,
    MalformedHeaderError,
    decode,
    encode,
    parse_challenges,
    parse_parameters,
    write,
)
from tests.payload_stores.scram.test_scram import KEYS, PASSWORD, USER, Site, Users


class Exchange:
    """A client's two messages, by hand."""

    def __init__(self, server: ScramServer, user: str = USER, password: str = PASSWORD) -> None:
        self.server = server
        self.client = ScramClient(["SCRAM-SHA-256"], user, password)
        first = server.answer(write("SCRAM-SHA-256", {"data": encode(self.client.get_client_first())}))
        assert first.user is None
        [(_, self.challenge)] = parse_challenges(first.headers["WWW-Authenticate"])
        self.client.set_server_first(decode(self.challenge["data"]))
        self.proof = self.client.get_client_final()

    def finish(self, sid: str | None = None, mechanism: str = "SCRAM-SHA-256") -> Outcome:
        sid = sid or self.challenge["sid"]
        return self.server.answer(write(mechanism, {"sid": sid, "data": encode(self.proof)}))


def test_exchanges_are_single_use_and_expire() -> None:
    site = Site()
    first = Exchange(site.scram)
    assert first.finish().user == USER
    assert first.finish().user is None
    second = Exchange(site.scram)
    site.now = 60.0
    assert second.finish().user is None
    failed = Exchange(site.scram, password="wrong")
    right = Exchange(site.scram)
    assert failed.finish().user is None
    assert failed.finish(right.challenge["sid"]).user is None
    assert right.finish().user is None  # used up by the one before


def test_sids_and_nonces_of_others() -> None:
    server = Site().scram
    mine, other = Exchange(server), Exchange(server, "mallory", "guess")
    assert other.finish(mine.challenge["sid"]).user is None
    mine = Exchange(server)
    assert mine.finish(mechanism="SCRAM-SHA-512").user is None
    assert Exchange(server).finish("unknown").user is None


def test_one_round_proofs_are_single_use() -> None:
    sent = []
    site = Site()

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request.headers["authorization"])
        return site(request)

    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth(USER, PASSWORD)) as client:
        for _ in range(3):
            client.get("http://site/")
    assert len(sent) == 4
    for header in sent:
        assert site.scram.answer(header).user is None
    stale = site.scram.answer(sent[-1]).headers["WWW-Authenticate"]
    assert stale == "SCRAM-SHA-256 stale=true, SCRAM-SHA-512 stale=true"


def test_new_password_and_deleted_user_count_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    with site.client() as client:
        assert client.get("/x").status_code == 200
        monkeypatch.setitem(KEYS, "SCRAM-SHA-256", derive("another", "SCRAM-SHA-256", 4096))
        assert client.get("/x").status_code == 401
        monkeypatch.setattr(Users, "find", lambda _, user, mechanism: invented(b"s", user, mechanism, 4096))
        assert client.get("/x").status_code == 401


def test_unknown_users_look_like_wrong_passwords() -> None:
    shapes = set()
    server = Site().scram
    for user, password in ((USER, "wrong"), ("nobody", "wrong"), ("nobody", PASSWORD)):
        exchange = Exchange(server, user, password)
        last = exchange.finish()
        lengths = tuple((name, len(value)) for name, value in exchange.challenge.items())
        shapes.add((lengths, exchange.client.iterations.value, len(bytes(exchange.client.salt)), str(last.headers)))
    assert len(shapes) == 1
    salts = {str(Exchange(server, "nobody").client.salt) for _ in range(3)}
    assert len(salts) == 1
    assert str(Exchange(server, "nobody2").client.salt) not in salts


def test_what_is_kept_is_bounded() -> None:
    site = Site(max_exchanges=10)
    first = Exchange(site.scram)
    for _ in range(30):
        Exchange(site.scram).finish()
        Exchange(site.scram)
    assert first.finish().user is None
    assert len(site.scram._exchanges) <= 10
    assert len(site.scram._sessions) <= 10
    site.now = 10_000.0
    Exchange(site.scram).finish()
    assert (len(site.scram._exchanges), len(site.scram._sessions)) == (0, 1)


def test_counts_that_are_remembered_are_bounded() -> None:
    site = Site()
    with site.client() as client:
        for _ in range(600):
            assert client.get("/x").status_code == 200
    [session] = site.scram._sessions.values()
    assert len(session.used) <= 256


@pytest.mark.parametrize("user", ["a,b", "a=b", "=2C,=3D"])
def test_names_with_commas_in_one_round(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Users, "find", lambda _, name, mechanism: {user: KEYS[mechanism]}[name])
    site = Site()
    with site.client(ScramAuth(user, PASSWORD)) as client:
        assert [client.get("/x").status_code for _ in range(2)] == [200, 200]
    assert [status for status, _ in site.seen] == [401, 200, 200]


@pytest.mark.parametrize("iterations", [0, 4095, 1_000_001])
def test_iterations_of_new_passwords_are_bounded(iterations: int) -> None:
    with pytest.raises(ConfigError, match="iterations are not between"):
        derive(PASSWORD, "SCRAM-SHA-256", iterations)


@pytest.mark.parametrize(
    "message", ["n,,n=alice,r=" + "x" * 1100, "n,,n=" + "x" * 1100 + ",r=x", "c=biws,r=" + "x" * 3000]
)
def test_long_messages_are_not_kept(message: str) -> None:
    server = Site().scram
    outcome = server.answer(write("SCRAM-SHA-256", {"data": encode(message)}))
    assert outcome.headers["WWW-Authenticate"] == "SCRAM-SHA-256, SCRAM-SHA-512"
    assert not server._exchanges


def test_server_in_many_threads() -> None:
    server = Site().scram
    barrier = threading.Barrier(4)
    exchange = Exchange(server)

    def race() -> bool:
        barrier.wait(10)
        return exchange.finish().user is not None

    with ThreadPoolExecutor(4) as threads:
        winners = [future.result() for future in [threads.submit(race) for _ in range(4)]]
    assert sum(winners) == 1


@given(
    st.text() | st.builds(lambda scheme, data: f"{scheme} data={encode(data)}", st.sampled_from(MECHANISMS), st.text())
)
def test_no_header_does_more_than_be_denied(header: str) -> None:
    outcome = Site().scram.answer(header)
    assert outcome.user is None
    assert "WWW-Authenticate" in outcome.headers


@given(st.text(alphabet='ab="\\, \t=/+-') | st.text())
def test_header_parsers_raise_nothing_else(text: str) -> None:
    for parse in (parse_challenges, parse_parameters):
        try:
            parse(text)
        except MalformedHeaderError:
            continue


def test_header_parsers() -> None:
    assert parse_challenges(' ,Basic realm="a\\"b, c" , SCRAM-SHA-256 Sid=1,data=YQ==,Negotiate YWI=, Digest') == [
        ("Basic", {"realm": 'a"b, c'}),
        ("SCRAM-SHA-256", {"sid": "1", "data": "YQ=="}),
        ("Negotiate", {"ywi": ""}),
        ("Digest", {}),
    ]
    assert parse_parameters('sid=a, data="b=="') == {"sid": "a", "data": "b=="}
    for text in ("a=1, A=2", 'a="b', "a b", "a=b c"):
        with pytest.raises(MalformedHeaderError):
            parse_parameters(text)
    for data in ("YQ", "Y Q=", "YQ!==", "ü", "/w=="):
        with pytest.raises(MalformedHeaderError):
            decode(data)
