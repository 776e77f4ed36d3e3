"""SCRAM over HTTP, the client's side (RFC 7804), as an auth object for httpx2.

    client = httpx2.Client(auth=ScramAuth("alice", password))

The messages are scramp's (RFC 5802, RFC 7677). Like hop's clients: no realm, no channel binding (``n,,``, ``c=biws``),
and the first request already carries the client's first message, which saves a round trip.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

from payload_stores.errors import ConfigError, PayloadAccessDeniedError
from payload_stores.plugins import require
from payload_stores.scram.wire import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    MalformedHeaderError,
    decode,
    encode,
    mechanism_name,
    parse_challenges,
    parse_parameters,
    write,
)

require("httpx2", "hop")
require("scramp", "hop")

import httpx2  # noqa: E402  after the check that it is there
from scramp import ScramException  # noqa: E402

from payload_stores.scram.client import Exchange, Password  # noqa: E402

#: Request extension (``extensions={REPLAYABLE: True}``): the streamed body may be iterated again.
REPLAYABLE: Final = "replayable"
#: Response extension of an unsigned answer: nothing shows that the server knows the user.
UNSIGNED: Final = "unsigned"

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
# Statuses of a server or gateway that cannot answer now; besides these two, all from 500.
_TRANSIENT: Final = frozenset({408, 429})
_SERVER_ERROR: Final = 500
# Methods without effects, which a server may answer to any user.
_READING: Final = frozenset({"GET", "HEAD"})
# Header fields that describe a body, omitted without one.
_BODY_HEADERS: Final = ("content-length", "transfer-encoding", "content-type", "content-encoding", "expect", "trailer")
# Maximum bytes read of a discarded answer.
_MAX_THROWN_AWAY: Final = 64 << 10
# A server that offers authentication in one round but refuses it gets two rounds, after this many bodies sent twice.
_MOST_REFUSALS: Final = 2
# Maximum servers remembered; a forgotten one costs a round trip.
_MAX_SERVERS: Final = 64
_MAX_SR: Final = 256
# A server nonce is dropped this many seconds before it ends, so that no request in flight outlives it.
_MARGIN_SECONDS: Final = 10.0
_MAX_TTL: Final = 86_400

_Origin = tuple[str, str, "int | None"]


@dataclass(slots=True)
class _Session:
    """State for authentication in one round: RFC 7804's "sr", the user's salt and iterations, the next count."""

    sr: str
    salt: str
    iterations: int
    count: int
    until: float
    has_worked: bool = False


class ScramAuth(httpx2.Auth):
    """Authenticates the requests of an ``httpx2.Client`` or ``AsyncClient`` by SCRAM.

    Two rounds: an empty request with the client's first message; then, after the server's 401, the real request with
    the proof. A body is thus sent, and a generator consumed, once.

    One round where the server offers it (RFC 7804 section 5.1): if its 401 had ``sr`` and ``ttl``, later requests
    carry the proof at once, in a client-final-message with ``r=<client nonce><nonce-count><sr>``, salt and iterations
    being those remembered and the nonce-count starting at the iteration count. RFC 7804 does not define anew what a
    proof signs, so RFC 5802 section 3 applies, whose three parts follow from these values though two are not sent::

        AuthMessage := client-first-message-bare + "," + server-first-message + "," + client-final-message-without-proof

        client-first-message-bare             n=<user>,r=<client nonce>
        server-first-message                  r=<client nonce><nonce-count><sr>,s=<salt>,i=<iterations>
        client-final-message-without-proof    c=biws,r=<client nonce><nonce-count><sr>

    A server with another interpretation refuses, and gets two rounds; after two refused offers, further ones are
    ignored. The body must be repeatable: bytes, none, or one whose request has the extension :data:`REPLAYABLE`.
    Concurrent requests take counts in turn; with a server that insists on their order, they need the second round.

    Only a server that knows the user's keys can sign, so each answer to a proof must carry the right signature in
    ``Authentication-Info``, including errors like 403 and 404. Accepted without one: 401, and transient statuses (408,
    429, 500 and above), which gateways may send themselves. Redirects are refused.

    A server may answer before it authenticates the user: with an error such as 404, or, to a GET or HEAD, with public
    data. Such answers are unsigned, so they are accepted only over TLS, or on request. Any other unsigned success is
    refused: it would mean that the empty first request was executed.

    Deriving the keys from a password and a server's salt takes some milliseconds of CPU time, in the event loop for
    asynchronous clients; they are derived once per object. Objects are thread-safe, may be shared by clients, and can
    be pickled, without the remembered state.

    Args:
        username: The user's name.
        password: The password; never shown.
        mechanism: ``SCRAM-SHA-256`` or ``SCRAM-SHA-512``, as configured for the user on the server.
        public_over_http: Accept unauthenticated answers even over plain http, where any host on the path can forge
            them.

    Raises:
        ConfigError: The mechanism is not supported, or name or password cannot be prepared (RFC 4013).
        PayloadAccessDeniedError: In a request: the server could not prove who it is, or broke the protocol.
    """

    def __init__(
        self, username: str, password: str, *, mechanism: str = MECHANISMS[0], public_over_http: bool = False
    ) -> None:
        known = mechanism_name(mechanism)
        if known is None:
            raise ConfigError(f"{mechanism!r} is not supported", hint=f"Use one of {', '.join(MECHANISMS)}")
        self.username = username
        self.mechanism = known
        self._public_over_http = public_over_http
        self._lock = threading.Lock()
        self._sessions: dict[_Origin, _Session] = {}
        # Refused offers of one round, by servers that never kept one.
        self._refusals: dict[_Origin, int] = {}
        try:
            self._password = Password(password, known)
            self._exchange()
        except (ScramException, TypeError):
            # Without the cause, which may quote the password.
            raise ConfigError("the user name or the password has characters that SCRAM does not allow") from None

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request, authenticated; called by httpx2."""
        origin = (request.url.scheme, request.url.host, request.url.port)
        session = self._take(origin) if _replayable(request) else None
        if session is not None and (yield from self._one_round(request, origin, *session)):
            return
        yield from self._two_rounds(request, origin)

    def __repr__(self) -> str:
        return f"ScramAuth({self.username!r}, mechanism={self.mechanism!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _make, (self.username, self._password.text, self.mechanism, self._public_over_http)

    def _one_round(
        self, request: httpx2.Request, origin: _Origin, session: _Session, count: int
    ) -> Generator[httpx2.Request, httpx2.Response, bool]:
        exchange = self._exchange()
        exchange.first()
        nonce = f"{exchange.nonce}{count}{session.sr}"
        exchange.take(f"r={nonce},s={session.salt},i={session.iterations}")
        request.headers["Authorization"] = write(self.mechanism, {"data": encode(exchange.final())})
        good = False
        try:
            response = yield request
            _same_place(request, response)
            good = self._needs_no_user(request, response) or self._check(exchange, response)
        finally:
            # Also after a broken connection: a server that no longer knows the nonce may have cut it.
            if not good:
                self._forget(origin, session)
        if response.status_code == _UNAUTHORIZED:
            response.stream = _Bounded(response.stream)
            return False
        session.has_worked = session.has_worked or good
        return True

    def _two_rounds(self, request: httpx2.Request, origin: _Origin) -> Generator[httpx2.Request, httpx2.Response, None]:
        exchange = self._exchange()
        probe = _without_body(request)
        probe.headers["Authorization"] = write(self.mechanism, {"data": encode(exchange.first())})
        response = yield probe
        _same_place(probe, response)
        if _is_transient(response) or self._needs_no_user(request, response):
            response.extensions[UNSIGNED] = True
            return
        challenge = self._challenge(response)
        if challenge is None:
            return
        session = self._answer(exchange, challenge)
        sid = challenge.get("sid")
        proof = {"sid": sid} if sid else {}
        request.headers["Authorization"] = write(self.mechanism, {**proof, "data": encode(exchange.final())})
        response.stream = _Bounded(response.stream)
        response = yield request
        _same_place(request, response)
        if self._check(exchange, response, sid) and session is not None:
            with self._lock:
                while len(self._sessions) >= _MAX_SERVERS:
                    self._sessions.pop(next(iter(self._sessions)))
                if self._refusals.get(origin, 0) < _MOST_REFUSALS:
                    self._sessions[origin] = session

    def _needs_no_user(self, request: httpx2.Request, response: httpx2.Response) -> bool:
        """Whether the server answered before authentication, and may do so."""
        status = response.status_code
        if status == _UNAUTHORIZED or "authentication-info" in response.headers:
            return False
        if request.url.scheme != "https" and not self._public_over_http:
            return False
        return 400 <= status < _SERVER_ERROR or (200 <= status < 300 and request.method in _READING)

    def _challenge(self, response: httpx2.Response) -> dict[str, str] | None:
        """The parameters of the server's first answer; None if it does not accept this user or mechanism."""
        if response.status_code != _UNAUTHORIZED:
            # A success would mean that the empty request was executed; other answers are unsigned.
            raise _refused(response, "answered a request that was not authenticated yet")
        try:
            challenges = parse_challenges(", ".join(response.headers.get_list("www-authenticate")))
        except MalformedHeaderError as error:
            raise _refused(response, f"sent a challenge that cannot be read: {error}") from error
        for scheme, parameters in challenges:
            if mechanism_name(scheme) == self.mechanism and "data" in parameters:
                return parameters
        return None

    def _answer(self, exchange: Exchange, challenge: dict[str, str]) -> _Session | None:
        """Process the server's first message; return the state for later requests, if offered."""
        try:
            salt, iterations = exchange.take(decode(challenge["data"]))
        except (ScramException, MalformedHeaderError) as error:
            raise PayloadAccessDeniedError(
                f"the server's first SCRAM message was refused: {error}",
                hint=f"It must continue the client's nonce and ask for {MIN_ITERATIONS} iterations or more",
            ) from None
        if iterations > MAX_ITERATIONS:
            raise PayloadAccessDeniedError(
                f"the server asks for {iterations} SCRAM iterations, more than the {MAX_ITERATIONS} that this client "
                "computes"
            )
        ttl, sr = challenge.get("ttl", ""), challenge.get("sr", "")
        if not (ttl.isascii() and ttl.isdigit() and len(ttl) < 10 and 0 < len(sr) <= _MAX_SR and _is_nonce(sr)):
            return None
        until = time.monotonic() + min(int(ttl), _MAX_TTL) - _MARGIN_SECONDS
        return _Session(sr, salt, iterations, iterations, until)

    def _check(self, exchange: Exchange, response: httpx2.Response, sid: str | None = None) -> bool:
        """Check the server's signature; False for answers that need none."""
        field = ", ".join(response.headers.get_list("authentication-info"))
        if response.status_code == _UNAUTHORIZED or (_is_transient(response) and not field):
            response.extensions[UNSIGNED] = True
            return False
        if not field:
            raise _refused(response, "did not sign its answer")
        try:
            parameters = parse_parameters(field)
            if sid and parameters.get("sid", sid) != sid:
                raise MalformedHeaderError("its sid is that of another exchange")
            exchange.check(decode(parameters.get("data", "")))
        except MalformedHeaderError as error:
            raise _refused(response, f"signed its answer wrongly: {error}") from None
        return True

    def _take(self, origin: _Origin) -> tuple[_Session, int] | None:
        with self._lock:
            session = self._sessions.get(origin)
            if session is None:
                return None
            if session.until <= time.monotonic():
                del self._sessions[origin]
                return None
            session.count += 1
            return session, session.count - 1

    def _forget(self, origin: _Origin, session: _Session) -> None:
        with self._lock:
            if self._sessions.get(origin) is session:
                del self._sessions[origin]
                if session.has_worked:
                    self._refusals.pop(origin, None)  # the server has forgotten the session, as after a restart
                else:
                    while len(self._refusals) >= _MAX_SERVERS:
                        self._refusals.pop(next(iter(self._refusals)))
                    self._refusals[origin] = self._refusals.get(origin, 0) + 1

    def _exchange(self) -> Exchange:
        return Exchange(self.mechanism, self.username, self._password)


class _Bounded(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """The body of an answer that httpx2 reads and discards before the next round, up to a limit."""

    def __init__(self, stream: object) -> None:
        self._stream: Any = stream

    def __iter__(self) -> Iterator[bytes]:
        left = _MAX_THROWN_AWAY
        for block in cast("Iterator[bytes]", self._stream):
            left -= len(block)
            _not_negative(left)
            yield block

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = _MAX_THROWN_AWAY
        async for block in cast("AsyncIterator[bytes]", self._stream):
            left -= len(block)
            _not_negative(left)
            yield block

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _not_negative(left: int) -> None:
    if left < 0:
        raise PayloadAccessDeniedError(f"the server's challenge has a body of more than {_MAX_THROWN_AWAY} bytes")


def _make(username: str, password: str, mechanism: str, public_over_http: bool) -> ScramAuth:
    return ScramAuth(username, password, mechanism=mechanism, public_over_http=public_over_http)


def _replayable(request: httpx2.Request) -> bool:
    return isinstance(request.stream, httpx2.ByteStream) or request.extensions.get(REPLAYABLE) is True


def _without_body(request: httpx2.Request) -> httpx2.Request:
    headers = request.headers.copy()
    for name in _BODY_HEADERS:
        headers.pop(name, None)
    # The answer is discarded: do not decompress it.
    headers["Accept-Encoding"] = "identity"
    return httpx2.Request(request.method, request.url, headers=headers, extensions=request.extensions)


def _same_place(request: httpx2.Request, response: httpx2.Response) -> None:
    if response.request.url != request.url:
        raise PayloadAccessDeniedError(
            "the server sent an authenticated request on to another address",
            hint="Configure the address that it redirects to, if that is legitimate",
        )


def _is_transient(response: httpx2.Response) -> bool:
    return response.status_code >= _SERVER_ERROR or response.status_code in _TRANSIENT


def _is_nonce(text: str) -> bool:
    """RFC 5802 section 7: printable, without commas."""
    return all("!" <= character <= "~" and character != "," for character in text)


def _refused(response: httpx2.Response, what: str) -> PayloadAccessDeniedError:
    hint = "Check the endpoint's address, and that what answers there speaks SCRAM (RFC 7804)"
    if response.status_code == _FORBIDDEN:
        hint = f"Check user and password: some servers answer so to wrong ones. {hint}"
    return PayloadAccessDeniedError(f"the server {what} (HTTP {response.status_code})", hint=hint)
