"""Who is let in, and what the answers say to the browser."""

from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from serde_chain.cli.browse.guard import Guard
from tests.cli.browse.conftest import PORT, TOKEN, Answer, ask

APP = Guard(PlainTextResponse("shown"), TOKEN, PORT)


def refused(address: str = "/", **more: Any) -> Answer:
    answer = ask(APP, address, **more)
    assert answer.status >= 400
    assert "shown" not in answer.text
    return answer


def test_the_link_is_traded_for_a_cookie() -> None:
    entry = ask(APP, f"/?token={TOKEN}", cookie="")
    assert (entry.status, entry.headers["location"]) == (303, "/")
    cookie = entry.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask(APP, "/", cookie=cookie.partition(";")[0]).text == "shown"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/topics/images/records/0/5?a=1&b=%3C", "/topics/images/records/0/5?a=1&b=%3C"),
        ("//evil.example/x", "/evil.example/x"),
        ("/\\evil.example", "/%5Cevil.example"),
    ],
)
def test_a_link_to_a_page_survives_another_token(path: str, expected: str) -> None:
    path = f"http://127.0.0.1{path}"
    page = refused(path, cookie="")
    assert (page.status, 'name="token"' in page.text) == (403, True)
    if "a=1" in path:
        assert '<input type="hidden" name="a" value="1"><input type="hidden" name="b" value="&lt;">' in page.text
    entry = ask(APP, f"{path}{'&' if '?' in path else '?'}token={TOKEN}", cookie="")
    assert (entry.status, entry.headers["location"]) == (303, expected)


@pytest.mark.parametrize("token", ["", "other", TOKEN + "x", TOKEN.upper(), "\u00e9"])
def test_other_tokens(token: str) -> None:
    assert refused(f"/?token={token.replace(chr(0xE9), '%C3%A9')}", cookie="").status == 403
    assert refused(cookie=f"serde-chain-browse-{PORT}={token}").status == 403


@pytest.mark.parametrize(
    "host", ["", "localhost", "evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1:{PORT}."]
)
def test_other_hosts(host: str) -> None:
    assert refused(host=host).status == 421
    assert refused(f"/?token={TOKEN}", host=host, cookie="").status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods(method: str) -> None:
    assert refused(method=method).status == 405


@pytest.mark.parametrize("address", ["/", f"/?token={TOKEN}"])
@pytest.mark.parametrize("host", [f"localhost:{PORT}", f"127.0.0.1:{PORT}", "evil.example"])
def test_every_answer_has_the_headers(address: str, host: str) -> None:
    headers = ask(APP, address, host=host).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; ")
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert not any(name.startswith("access-control-") for name in headers)
