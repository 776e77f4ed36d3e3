"""SCRAM over HTTP, the server's side (RFC 7804), without a server: header fields in, header fields out.

    scram = ScramServer(credentials)
    outcome = scram.answer(authorization)      # of one request
    outcome.user is None                       # not authenticated: answer 401 with outcome.headers, do nothing else
    outcome.user == "alice"                    # execute it; add outcome.headers to any answer

The ``sid`` identifies an exchange, not the connection: a client may send its second request over another one.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from payload_stores.errors import ConfigError
from payload_stores.plugins import require
from payload_stores.scram.wire import (
    HASHES,
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    decode,
    encode,
    mechanism_name,
    parse_challenges,
    write,
)

require("scramp", "hop")

from scramp import ScramException, ScramMechanism  # noqa: E402  after the check that it is there

#: The rule of thumb of RFC 7677 section 4, for new passwords.
ITERATIONS: Final = 15_000

# Longest first message, in characters: the state of an exchange is a small multiple of it.
_LONGEST_FIRST: Final = 1024
_LONGEST: Final = 2048
_SALT_BYTES: Final = 16
# Base64 of random bytes for URLs: no comma, which ends an attribute.
_RANDOM_BYTES: Final = 24
_SR_LENGTH: Final = 32
# How far a nonce-count may lag behind the highest one seen: concurrent requests overtake each other.
_WINDOW: Final = 256
_COUNT_DIGITS: Final = 10


@dataclass(frozen=True, slots=True)
class Credential:
    """The keys stored by a server for a password (RFC 5802 section 3): sufficient to check a proof, not to make one.

    Attributes:
        salt: The salt.
        iterations: The iteration count.
        stored_key: ``StoredKey``.
        server_key: ``ServerKey``.
    """

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


class Credentials(Protocol):
    """A source of credentials for the server."""

    def find(self, user: str, mechanism: str) -> Credential:
        """The user's credential for a mechanism.

        For an unknown user, an :func:`invented` one, so that answers do not reveal which users exist.
        """
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of checking a request's ``Authorization``.

    Attributes:
        user: The authenticated sender; None requires the answer 401, and no other effect.
        headers: Header fields for the answer.
        refused: Why a proof was refused, for a log; None if there was none, or it came too late.
    """

    user: str | None
    headers: Mapping[str, str]
    refused: str | None = None


@dataclass(slots=True)
class _Exchange:
    """A full exchange after its first round."""

    server: Any
    mechanism: str
    user: str
    sr: str
    until: float


@dataclass(slots=True)
class _Session:
    """An authenticated user, who may authenticate again in one round until the server nonce ends."""

    mechanism: str
    user: str
    until: float
    highest: int
    used: set[int] = field(default_factory=set)


def derive(password: str, mechanism: str, iterations: int = ITERATIONS) -> Credential:
    """Make the credential for a password, with a new salt.

    Args:
        password: The password.
        mechanism: One of :data:`~payload_stores.scram.wire.MECHANISMS`.
        iterations: The iteration count.

    Raises:
        ConfigError: The password has characters that SCRAM does not allow (RFC 4013), or is empty.
    """
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ConfigError(f"{iterations} iterations are not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    if not password:
        raise ConfigError("the password is empty")
    try:
        salt, stored_key, server_key, count = ScramMechanism(mechanism).make_auth_info(
            password, iteration_count=iterations, salt=secrets.token_bytes(_SALT_BYTES)
        )
    except ScramException:
        raise ConfigError("the password has characters that SCRAM does not allow") from None
    return Credential(salt, count, stored_key, server_key)


def invented(secret: bytes, user: str, mechanism: str, iterations: int = ITERATIONS) -> Credential:
    """Make the credential of a nonexistent user: always the same, matching no password.

    Args:
        secret: A permanent secret of the server: if it changed, the salts of unknown users would change too.
        user: The given name.
        mechanism: The mechanism.
        iterations: The iteration count of real users.
    """

    def digest(what: str) -> bytes:
        return hmac.digest(secret, f"{what}\0{mechanism}\0{user}".encode(), HASHES[mechanism])

    return Credential(digest("salt")[:_SALT_BYTES], iterations, digest("stored key"), digest("server key"))


class ScramServer:
    """Authenticates requests by their ``Authorization``. Thread-safe.

    - Only a proof authenticates. Each ``sid`` and each nonce is valid for one attempt, for ``exchange_seconds``, for
      the user who started with it.
    - Once authenticated, a user may authenticate again in one round, for ``session_seconds`` (RFC 7804 section 5.1;
      :class:`payload_stores.scram.ScramAuth` describes the signed text). Each nonce-count is accepted once, in any
      order. The credential is looked up each time: a new password or a deleted user takes effect at once.
    - Unknown users, wrong passwords and all other faults get the same answers after the same work.
    - The state is bounded; the oldest is dropped first. No keys are derived here, so a request costs microseconds.

    Args:
        credentials: The users.
        exchange_seconds: Maximum time between a client's two requests.
        session_seconds: How long it may then authenticate in one round; 0 disables that.
        max_exchanges: Maximum number of exchanges, and of sessions.
        clock: Monotonic seconds; for tests.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        exchange_seconds: float = 60.0,
        session_seconds: int = 600,
        max_exchanges: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._credentials = credentials
        self._exchange_seconds = exchange_seconds
        self._session_seconds = session_seconds
        self._max = max_exchanges
        self._clock = clock
        self._lock = threading.Lock()
        self._exchanges: OrderedDict[str, _Exchange] = OrderedDict()
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def claimant(self, authorization: str | None) -> str | None:
        """The user of a request's proof, before it is checked: lets a server slow down guessing.

        Args:
            authorization: The header field's value, None if there is none.

        Returns:
            The user's name; None if there is no proof that could be valid.
        """
        parsed = _parse(authorization)
        if parsed is None or not parsed[2].startswith("c="):
            return None
        _, sid, message = parsed
        with self._lock:
            known = self._exchanges.get(sid) if sid else self._sessions.get(_nonce(message)[-_SR_LENGTH:])
        return None if known is None else known.user

    def answer(self, authorization: str | None) -> Outcome:
        """Check a request's ``Authorization``; see :class:`Outcome`.

        Args:
            authorization: The header field's value, None if there is none.
        """
        parsed = _parse(authorization)
        if parsed is None:
            return self._denied()
        mechanism, sid, message = parsed
        try:
            if message.startswith("c="):
                return self._final(mechanism, sid, message) if sid else self._again(mechanism, message)
            return self._first(mechanism, message)
        except (ScramException, ValueError):
            return self._denied()

    def _first(self, mechanism: str, message: str) -> Outcome:
        if len(message) > _LONGEST_FIRST:
            return self._denied()
        server, user = self._begin(mechanism, message)
        sid, sr = secrets.token_urlsafe(_RANDOM_BYTES), secrets.token_urlsafe(_RANDOM_BYTES)
        challenge = {"sid": sid, "data": encode(server.get_server_first())}
        if self._session_seconds:
            challenge |= {"sr": sr, "ttl": str(self._session_seconds)}
        now = self._clock()
        with self._lock:
            _make_room(self._exchanges, now, self._max)
            self._exchanges[sid] = _Exchange(server, mechanism, user, sr, now + self._exchange_seconds)
        return Outcome(None, {"WWW-Authenticate": write(mechanism, challenge)})

    def _final(self, mechanism: str, sid: str, message: str) -> Outcome:
        with self._lock:
            # Always removed: an exchange is valid for one attempt.
            exchange = self._exchanges.pop(sid, None)
        now = self._clock()
        if exchange is None or exchange.until <= now or exchange.mechanism != mechanism:
            return self._denied()
        try:
            exchange.server.set_client_final(message)
        except ScramException:
            return replace(self._denied(), refused="the proof is wrong: another password, or no such user")
        if self._session_seconds:
            session = _Session(mechanism, exchange.user, now + self._session_seconds, int(exchange.server.i) - 1)
            with self._lock:
                _make_room(self._sessions, now, self._max)
                self._sessions[exchange.sr] = session
        return _authenticated(exchange.user, {"sid": sid}, exchange.server)

    def _again(self, mechanism: str, message: str) -> Outcome:
        """Authentication in one round: the nonce names the session."""
        nonce = _nonce(message)
        prefix, sr = nonce[:-_SR_LENGTH], nonce[-_SR_LENGTH:]
        with self._lock:
            session = self._sessions.get(sr)
        if session is None or session.until <= self._clock() or session.mechanism != mechanism:
            return self._denied(stale=True)
        for count in _counts(prefix, session.highest):
            client_nonce = prefix.removesuffix(str(count))
            try:
                server, _ = self._begin(mechanism, _first_message(session.user, client_nonce), f"{count}{sr}")
                server.get_server_first()
                server.set_client_final(message)
            except ScramException:
                continue  # trailing digits of the client's nonce look like a count
            if self._use(session, count):
                return _authenticated(session.user, {}, server)
        return self._denied(stale=True)

    def _begin(self, mechanism: str, message: str, server_nonce: str | None = None) -> tuple[Any, str]:
        name = ""

        def find(user: str) -> tuple[bytes, bytes, bytes, int]:
            nonlocal name
            name = user
            credential = self._credentials.find(user, mechanism)
            return credential.salt, credential.stored_key, credential.server_key, credential.iterations

        server_nonce = server_nonce or secrets.token_urlsafe(_RANDOM_BYTES)
        server = ScramMechanism(mechanism).make_server(find, s_nonce=server_nonce)
        server.set_client_first(message)
        return server, name

    def _use(self, session: _Session, count: int) -> bool:
        with self._lock:
            if count in session.used or count <= session.highest - _WINDOW:
                return False
            session.used.add(count)
            if count > session.highest:
                session.highest = count
                session.used = {used for used in session.used if used > count - _WINDOW}
            return True

    def _denied(self, *, stale: bool = False) -> Outcome:
        marks = {"stale": "true"} if stale else {}
        return Outcome(None, {"WWW-Authenticate": ", ".join(write(name, marks) for name in MECHANISMS)})


def _parse(authorization: str | None) -> tuple[str, str | None, str] | None:
    """Mechanism, ``sid`` and SCRAM message of a request; None if missing or unreadable."""
    # Base64 takes four characters for three.
    if not authorization or len(authorization) > 2 * _LONGEST:
        return None
    try:
        [(scheme, parameters)] = parse_challenges(authorization)
        message = decode(parameters.get("data", ""))
    except ValueError:
        return None
    mechanism = mechanism_name(scheme)
    if mechanism is None or len(message) > _LONGEST:
        return None
    return mechanism, parameters.get("sid"), message


def _nonce(message: str) -> str:
    return next((part[2:] for part in message.split(",") if part.startswith("r=")), "")


def _authenticated(user: str, marks: dict[str, str], server: Any) -> Outcome:
    return Outcome(user, {"Authentication-Info": write("", {**marks, "data": encode(server.get_server_final())})})


def _first_message(user: str, nonce: str) -> str:
    """A client-first-message (RFC 5802 section 5.1)."""
    return f"n,,n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"


def _counts(prefix: str, highest: int) -> Iterator[int]:
    """The possible nonce-counts at the end of the text before ``sr``."""
    for length in range(1, min(_COUNT_DIGITS, len(prefix) - 1) + 1):
        digits = prefix[-length:]
        if not (digits.isascii() and digits.isdigit()):
            return
        if digits[0] != "0" and highest - _WINDOW < int(digits) <= highest + _WINDOW:
            yield int(digits)


def _make_room(kept: OrderedDict[str, Any], now: float, most: int) -> None:
    """Drop expired entries, which are the oldest, and as many more as needed to add one."""
    while kept:
        key, oldest = next(iter(kept.items()))
        if oldest.until > now and len(kept) < most:
            return
        del kept[key]
