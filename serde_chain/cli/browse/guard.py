"""Access control of the pages: only a browser on this machine, with the printed link."""

from __future__ import annotations

import secrets
from html import escape
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS: Final = {
    # Content of records is never run, never loaded from elsewhere, and never interpreted as another type. The only
    # script is the file of this package, which asks this server alone.
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Guard:
    """Admits requests that only read, address this machine by name, and have the token.

    The printed link contains the token. The first request exchanges it for a cookie, so that no page's address contains
    it; other sites cannot make the browser send the cookie (``SameSite=Strict``). A link to any page may have the
    token; one without it, from an earlier start, leads to its page once the token is typed in.

    Args:
        app: The application.
        token: The token.
        port: The port of the server.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        # A host's cookies are shared by all its ports.
        self._cookie = f"serde-chain-browse-{port}"
        # Excludes other names that an attacker's DNS resolves to this machine.
        self._hosts = frozenset(host if port == 80 else f"{host}:{port}" for host in ("127.0.0.1", "localhost"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        answer = self._answer(Request(scope)) or self._app
        await answer(scope, receive, guarded)

    def _answer(self, request: Request) -> Response | None:
        if request.headers.get("host") not in self._hosts:
            return PlainTextResponse("These pages are available at 127.0.0.1 only.\n", 421)
        if request.method not in {"GET", "HEAD"}:
            return PlainTextResponse("These pages are read-only.\n", 405, {"allow": "GET, HEAD"})
        if self._is_right(request.query_params.get("token")):
            entry = RedirectResponse(_without_token(request), 303)
            entry.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="strict")
            return entry
        if not self._is_right(request.cookies.get(self._cookie)):
            return HTMLResponse(_entry(request), 403)
        return None

    def _is_right(self, token: str | None) -> bool:
        return token is not None and secrets.compare_digest(token.encode(), self._token)


def _rest(request: Request) -> list[tuple[str, str]]:
    return [(name, value) for name, value in parse_qsl(request.url.query) if name != "token"]


def _without_token(request: Request) -> str:
    """The requested address, on this server whatever its path."""
    query = urlencode(_rest(request))
    path = "/" + request.url.path.lstrip("/\\")
    return f"{path}?{query}" if query else path


def _entry(request: Request) -> str:
    """The page for a browser without the cookie."""
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in _rest(request)
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>serde-chain browse</title>'
        "<p>Open the link printed by serde-chain browse, or enter the token at its end:</p>"
        f'<form method="get">{hidden}<input name="token" autofocus autocomplete="off" aria-label="Token"> '
        "<button>Show</button></form></html>\n"
    )
