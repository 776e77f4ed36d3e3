"""Authentication to the offload server: SCRAM or a bearer token, as configured for the Kafka client."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from payload_stores.errors import ConfigError, PayloadAccessDeniedError
from payload_stores.plugins import require

require("httpx2", "hop")

import httpx2  # noqa: E402  after the check that it is there

# RFC 6750 section 2.1.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MARGIN_SECONDS: Final = 30.0
_TIMEOUT_SECONDS: Final = 10.0
_OIDC: Final = "sasl.oauthbearer."


class BearerAuth(httpx2.Auth):
    """Sends a token with each request (RFC 6750).

    Args:
        token: Returns the current token.
    """

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Send the request, authenticated; called by httpx2."""
        token = self._token()
        if not _TOKEN.fullmatch(token):  # the HTTP library would also refuse it, but its error would show the token
            raise PayloadAccessDeniedError(
                "the bearer token has characters that are not allowed in a token", store="hop"
            )
        request.headers["Authorization"] = f"Bearer {token}"
        yield request


def tokens(static: str, config: Mapping[str, object]) -> Callable[[], str]:
    """Make the function that returns a token.

    Args:
        static: A fixed token (``hop.token``), or empty.
        config: The client's configuration, whose ``oauth_cb`` or OpenID Connect settings provide one otherwise.

    Raises:
        ConfigError: Neither is configured.
    """
    if static:
        return lambda: static
    callback = config.get("oauth_cb")
    if callable(callback):
        return _Kept(lambda: _from_callback(callback, str(config.get(_OIDC + "config") or "")))
    url, client = config.get(_OIDC + "token.endpoint.url"), config.get(_OIDC + "client.id")
    if url and client:
        return _Kept(lambda: _from_endpoint(str(url), config))
    raise ConfigError(
        "OAUTHBEARER needs a token for the offload server, and none is configured",
        hint=f"Set hop.token, oauth_cb, or {_OIDC}token.endpoint.url with {_OIDC}client.id and client.secret",
        key="hop.token",
    )


class _Kept:
    """Caches a token until shortly before it expires."""

    def __init__(self, fetch: Callable[[], tuple[str, float]]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0

    def __call__(self) -> str:
        with self._lock:
            if not self._token or time.time() >= self._until - _MARGIN_SECONDS:
                self._token, self._until = self._fetch()
            return self._token


def _from_callback(callback: Callable[[str], Any], setting: str) -> tuple[str, float]:
    """confluent_kafka's ``oauth_cb``: returns the token and its expiration time, in seconds since the epoch."""
    try:
        token, until, *_ = callback(setting)
        return str(token), float(until)
    except Exception as error:  # a user's function may raise anything
        raise PayloadAccessDeniedError(
            f"oauth_cb did not return a token: {type(error).__name__}", store="hop"
        ) from error


def _from_endpoint(url: str, config: Mapping[str, object]) -> tuple[str, float]:
    """OpenID Connect's client credentials (RFC 6749 section 4.4), as librdkafka's ``oidc`` method asks for a token."""
    form = {"grant_type": "client_credentials"}
    if scope := config.get(_OIDC + "scope"):
        form["scope"] = str(scope)
    auth = (str(config[_OIDC + "client.id"]), str(config.get(_OIDC + "client.secret") or ""))
    try:
        answer = httpx2.post(url, data=form, auth=auth, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        token = answer.json()
        if str(token.get("token_type", "")).lower() != "bearer":
            raise ValueError("it is not a bearer token")
        return str(token["access_token"]), time.time() + float(token.get("expires_in", 0))
    except (httpx2.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        # Without the cause, which may show the request.
        raise PayloadAccessDeniedError(
            f"the token endpoint did not return a token: {type(error).__name__}",
            hint="Check sasl.oauthbearer.*",
            store="hop",
        ) from None
