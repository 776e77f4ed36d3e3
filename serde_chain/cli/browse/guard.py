"""Access control of the pages: only a browser on this machine, with the printed link."""

from __future__ import annotations

import secrets
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_HEADERS: Final = {
    # Content of records is never run, never loaded from elsewhere, and never interpreted as another type.
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Guard:
    """Admits requests that only read, address this machine by name, and have the token.

    The printed link contains the token. The first request exchanges it for a cookie, so that no page's address contains
    it; other sites cannot make the browser send the cookie (``SameSite=Strict``).

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
            entry = RedirectResponse("/", 303)
            entry.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="strict")
            return entry
        if not self._is_right(request.cookies.get(self._cookie)):
            return PlainTextResponse("Open the link printed by serde-chain browse.\n", 403)
        return None

    def _is_right(self, token: str | None) -> bool:
        return token is not None and secrets.compare_digest(token.encode(), self._token)
