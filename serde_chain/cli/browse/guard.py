"""Who may see the pages: a browser on this machine, with the link that was printed."""

from __future__ import annotations

import secrets
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_HEADERS: Final = {
    # Nothing in a record is run, loaded from elsewhere, or taken for another type than it was sent as.
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Guard:
    """Lets requests through that only read, are for this machine by name, and have the token.

    The token is in the link that is printed. The first request trades it for a cookie, so that it stays in no address
    of a page; other sites' pages cannot have the browser send the cookie (``SameSite=Strict``).

    Args:
        app: The application.
        token: The token.
        port: The port of the server.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        # Cookies are for all ports of a host.
        self._cookie = f"serde-chain-browse-{port}"
        # Another name that is resolved to this machine, by the DNS of an attacker, is not one of these.
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
            return PlainTextResponse("These pages are at 127.0.0.1 only.\n", 421)
        if request.method not in {"GET", "HEAD"}:
            return PlainTextResponse("These pages can only be read.\n", 405, {"allow": "GET, HEAD"})
        if self._is_right(request.query_params.get("token")):
            entry = RedirectResponse("/", 303)
            entry.set_cookie(self._cookie, self._token.decode(), httponly=True, samesite="strict")
            return entry
        if not self._is_right(request.cookies.get(self._cookie)):
            return PlainTextResponse("Open the link that serde-chain browse has printed.\n", 403)
        return None

    def _is_right(self, token: str | None) -> bool:
        return token is not None and secrets.compare_digest(token.encode(), self._token)
