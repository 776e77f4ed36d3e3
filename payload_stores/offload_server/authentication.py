"""Authenticates requests by SCRAM or a Bearer token, before anything else."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError
from payload_stores.offload_server.errors import RefusedError
from payload_stores.offload_server.log_throttle import LogThrottle
from payload_stores.offload_server.metrics import METRICS, Metrics
from payload_stores.offload_server.refusals import Refusals
from payload_stores.offload_server.requests import GoneError, address_of, answer, header, is_loopback
from payload_stores.offload_server.tokens import TokenVerifier
from payload_stores.scram.server import Outcome, ScramServer

_log = logging.getLogger(__name__)

#: Key of the sender's name in a request's scope.
USER: Final = "offload.user"

#: Answered without authentication: they reveal nothing about users.
HEALTH: Final = "/health"
LIVE: Final = "/live"
_OPEN: Final = frozenset({HEALTH, LIVE, METRICS})

_BEARER: Final = "bearer "
_LONGEST_TOKEN: Final = 8192
# For requests with an unknown token.
_NO_NAME: Final = ""

Call = Callable[..., Awaitable[Any]]


class Authentication:
    """ASGI middleware that passes on authenticated requests only.

    Any other request gets 401 at once, and its body is not read. All other answers carry ``Authentication-Info``,
    including errors: otherwise clients treat them as forged (RFC 7804).

    Args:
        app: The inner application.
        scram: Checks SCRAM.
        tokens: Checks Bearer tokens; None accepts none.
        call: Runs a function that may block.
        metrics: Counts refused logins.
        tokens_over_http: Accept tokens sent from another machine without TLS.
    """

    def __init__(
        self,
        app: ASGIApp,
        scram: ScramServer,
        tokens: TokenVerifier | None,
        *,
        call: Call,
        metrics: Metrics,
        tokens_over_http: bool,
    ) -> None:
        self._app = app
        self._scram = scram
        self._tokens = tokens
        self._call = call
        self._refusals = Refusals()
        self._rarely = LogThrottle()
        self._metrics = metrics
        self._tokens_over_http = tokens_over_http

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http" or scope["path"] in _OPEN:
            await self._app(scope, receive, send)
            return
        started = False
        outcome = Outcome(None, {})

        async def signed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                extra = [(name.lower().encode(), value.encode()) for name, value in outcome.headers.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            outcome = await self._judge(scope)
            if outcome.user is None:
                await answer(scope, receive, signed, status=401, text="not authenticated")
                return
            scope[USER] = outcome.user
            await self._app(scope, receive, signed)
        except GoneError as error:
            self._tell(scope, logging.INFO, "gone", error)
        except Exception as error:  # noqa: BLE001  the client must get a signed answer in any case
            status, text = _meaning(error)
            if started:
                self._tell(scope, logging.ERROR, "failed after its answer had begun", error)
                return  # incomplete: the server cuts the connection
            self._tell(scope, logging.ERROR if status >= 500 else logging.INFO, str(status), error)
            more = {"retry-after": "5"} if status == 503 else {}
            await answer(scope, receive, signed, status=status, text=text, more=more)

    def _tell(self, scope: Scope, level: int, what: str, error: Exception) -> None:
        """Log the outcome of a request, once a minute per user and outcome, since users may repeat it."""
        user = scope.get(USER)
        if (omitted := self._rarely.due((user, what, type(error)))) is None:
            return
        more = f"; {omitted} more like this since the last such line" if omitted else ""
        expected = level < logging.ERROR or isinstance(error, PayloadStoreUnavailableError)
        _log.log(
            level, "%s %s %r: %s, %s%s", user, scope["method"], scope["path"], what, error, more, exc_info=not expected
        )

    async def _judge(self, scope: Scope) -> Outcome:
        authorization = header(scope, b"authorization")
        if self._tokens is not None and (authorization or "").lower().startswith(_BEARER):
            if not (self._tokens_over_http or scope["scheme"] == "https" or is_loopback(address_of(scope))):
                self._refuse(_NO_NAME, address_of(scope), "the token came over plain http, where others could copy it")
                return Outcome(None, {"WWW-Authenticate": "Bearer"})
            return await self._judge_token(self._tokens, str(authorization)[len(_BEARER) :].strip(), address_of(scope))
        outcome = await self._judge_proof(authorization, address_of(scope))
        if self._tokens is not None and outcome.user is None and not authorization:
            return Outcome(None, {"WWW-Authenticate": outcome.headers["WWW-Authenticate"] + ", Bearer"})
        return outcome

    async def _judge_proof(self, authorization: str | None, address: str) -> Outcome:
        claimant = self._scram.claimant(authorization)
        if claimant is not None and not await self._refusals.turn(claimant, address):
            self._refuse(claimant, address, "too many proofs at once")
            return self._scram.answer(None)
        outcome = self._scram.answer(authorization)
        if outcome.user is not None:
            self._refusals.accepted(outcome.user, address)
        elif claimant is not None and outcome.refused is not None:
            self._refuse(claimant, address, outcome.refused)
        return outcome

    def _refuse(self, user: str, address: str, reason: str) -> None:
        self._metrics.refused_logins.inc()
        self._refusals.refused(user, address, reason)

    async def _judge_token(self, tokens: TokenVerifier, token: str, address: str) -> Outcome:
        user = await self._call(tokens.verify, token) if 0 < len(token) <= _LONGEST_TOKEN else None
        if user is not None:
            return Outcome(user, {})
        # The user is unknown: afterwards, so that users with valid tokens do not wait.
        await self._refusals.turn(_NO_NAME, address)
        self._refuse(_NO_NAME, address, "the token is not known")
        return Outcome(None, {"WWW-Authenticate": "Bearer"})


def _meaning(error: Exception) -> tuple[int, str]:
    """Status and text for an error; the server's internals stay in its log."""
    if isinstance(error, RefusedError):
        return error.status or 400, error.message
    if isinstance(error, PayloadStoreUnavailableError):
        return 503, "the payload store or the source of permissions is not available; try again later"
    if isinstance(error, PayloadStoreError):
        return 500, "the payload store failed"
    return 500, "the server failed"
