"""HTTP SCRAM with servers that answer before they look at the user."""

import pickle

import httpx2
import pytest

from payload_stores.errors import PayloadAccessDeniedError
from payload_stores.scram import ScramAuth
from payload_stores.scram.wire import encode, write
from tests.payload_stores.scram.test_scram import PASSWORD, USER, Site


def unasked(status: int, seen: list[str] | None = None) -> httpx2.MockTransport:
    """A server that answers before it looks at the user."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if seen is not None:
            seen.append(f"{request.method} {len(request.read())}")
        return httpx2.Response(status, content=b"said")

    return httpx2.MockTransport(answer)


@pytest.mark.parametrize(("status", "method"), [(200, "GET"), (200, "HEAD"), (400, "GET"), (404, "GET"), (404, "POST")])
def test_answers_that_need_no_user(status: int, method: str) -> None:
    for url, auth in (
        ("https://site/", ScramAuth("a", "b")),
        ("http://site/", ScramAuth("a", "b", public_over_http=True)),
        ("http://site/", pickle.loads(pickle.dumps(ScramAuth("a", "b", public_over_http=True)))),  # noqa: S301
    ):
        seen: list[str] = []
        client = httpx2.Client(transport=unasked(status, seen), auth=auth)
        assert client.request(method, url, content=b"x" if method == "POST" else None).status_code == status
        assert seen == [f"{method} 0"]
    client = httpx2.Client(transport=unasked(status), auth=ScramAuth("a", "b"))
    with pytest.raises(PayloadAccessDeniedError, match="not authenticated yet"):
        client.request(method, "http://site/")


@pytest.mark.parametrize("status", [200, 201, 204, 302])
def test_success_of_what_was_not_sent_is_refused(status: int) -> None:
    client = httpx2.Client(transport=unasked(status), auth=ScramAuth("a", "b", public_over_http=True))
    for method in ("POST", "PUT", "DELETE"):
        with pytest.raises(PayloadAccessDeniedError, match="not authenticated yet"):
            client.request(method, "https://site/", content=b"x")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_server_need_not_look_at_the_user(status: int) -> None:
    client = httpx2.Client(transport=unasked(status), auth=ScramAuth("a", "b"))
    assert client.post("http://site/", content=b"x").status_code == status


@pytest.mark.parametrize("path", ["/private", "/public"])
def test_what_is_public_after_one_round(path: str) -> None:
    """A proof that the server did not look at is not a reason to forget what authentication in one round needs."""
    site = Site()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/public":
            return httpx2.Response(200)
        return site(request)

    with httpx2.Client(transport=httpx2.MockTransport(answer), auth=ScramAuth(USER, PASSWORD)) as client:
        for address in ("/private", path, "/private"):
            assert client.get(f"https://site{address}").status_code == 200
    assert [status for status, _ in site.seen] == [401] + [200] * (3 if path == "/private" else 2)


def test_unsigned_success_after_a_challenge_is_refused() -> None:
    """Also over TLS: a server that asked for the proof has seen the user."""

    def unsigned(response: httpx2.Response) -> None:
        response.headers.pop("authentication-info", None)

    with Site(200, unsigned).client() as client, pytest.raises(PayloadAccessDeniedError, match="did not sign"):
        client.get("https://site/x")


def test_a_wrong_signature_is_no_answer_that_needs_no_user() -> None:
    """Over TLS too, and in one round: a server that signs has looked at the user."""
    site = Site()

    def forged(response: httpx2.Response) -> None:
        if len(site.seen) > 2:
            response.headers["authentication-info"] = write("", {"data": encode("v=" + "A" * 43 + "=")})

    site.change = forged
    with site.client() as client:
        assert client.get("https://site/x").status_code == 200
        with pytest.raises(PayloadAccessDeniedError, match="the signature does not match"):
            client.get("https://site/x")


def test_a_proof_is_not_sent_on_to_another_address() -> None:
    site = Site()

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.host == "site" and site.seen:
            return httpx2.Response(307, headers={"Location": "http://evil/"})
        return site(request) if request.url.host == "site" else httpx2.Response(401)

    client = httpx2.Client(
        transport=httpx2.MockTransport(answer), auth=ScramAuth(USER, PASSWORD), follow_redirects=True
    )
    with pytest.raises(PayloadAccessDeniedError, match="another address"):
        client.get("http://site/")
