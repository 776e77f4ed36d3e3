"""The offload API as an ASGI application (Starlette)."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from payload_stores.base import PayloadStore
from payload_stores.errors import ConfigError, PayloadNotFoundError, PayloadStoreError
from payload_stores.offload_server.acls import READ, WRITE, Authorizer
from payload_stores.offload_server.authentication import HEALTH, USER, Authentication
from payload_stores.offload_server.bson import MAX_DOCUMENT
from payload_stores.offload_server.errors import ForbiddenError, RefusedError, TooLargeError
from payload_stores.offload_server.index import Index
from payload_stores.offload_server.requests import Limits, Sender, address_of, answer, content_length
from payload_stores.offload_server.tokens import TokenVerifier
from payload_stores.offload_server.transfers import Transfers
from payload_stores.scram_server import Credentials, ScramServer

__all__ = ["OffloadApp"]

_log = logging.getLogger(__name__)

_UPLOAD_SUFFIX: Final = "+oversized"
# The answer to a download repeats headers and key.
_MOST_BYTES: Final = MAX_DOCUMENT - (4 << 20)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class OffloadApp:
    """The application: ``POST /topic/{topic}+oversized``, ``GET /msg/{id}``, ``GET /health``.

    Give it to an ASGI server, which must run its lifespan: the store and the index are closed at its end.

    Args:
        store: Where payloads are kept; closed with the application.
        folder: Where the index of messages is, and room for payloads on their way into a store that takes no streams.
        credentials: Users.
        authorizer: What they may do.
        tokens: Checks Bearer tokens; None takes none.
        limits: What a request may take.

    Raises:
        ConfigError: The limits do not fit the store or BSON, or the folder cannot be used.
    """

    def __init__(
        self,
        store: PayloadStore,
        folder: Path,
        credentials: Credentials,
        authorizer: Authorizer,
        *,
        tokens: TokenVerifier | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._limits = limits or Limits()
        _check(self._limits, store)
        self._store = store
        self._authorizer = authorizer
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be made: {error.strerror}") from error
        self._index = Index(folder / "index.sqlite3")
        self._transfers = Transfers(store, self._index, folder, self._limits)
        routes = [
            Route(HEALTH, _Endpoint("GET", self._health)),
            Route("/topic/{name}", _Endpoint("POST", self._upload)),
            Route("/msg/{id}", _Endpoint("GET", self._download)),
        ]
        router = Router(routes, redirect_slashes=False, default=_nothing_here, lifespan=self._lifespan)
        self._app = Authentication(router, ScramServer(credentials), tokens, self._transfers.call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a connection, as ASGI has it."""
        if scope["type"] == "http" and scope["path"].startswith("//"):
            # hop-client pastes "/topic/…" behind what was announced, a slash at its end included.
            scope = {**scope, "path": "/" + scope["path"].lstrip("/")}
        await self._app(scope, receive, send)

    def close(self) -> None:
        """Close the store and the index; done by the ASGI lifespan as well."""
        self._transfers.close()
        self._index.close()
        self._store.close()

    @asynccontextmanager
    async def _lifespan(self, _app: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.close()

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whether the index answers. Of the store nothing is said: asking it would cost a request to it."""
        try:
            await self._transfers.call(self._index.find, UUID(int=0))
        except PayloadStoreError:
            await answer(scope, receive, send, status=503, text="the index does not answer")
        else:
            await answer(scope, receive, send, status=200, text="ok")

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        topic = self._topic(scope["path_params"]["name"])
        await self._permit(scope, WRITE, topic)
        length = content_length(scope)
        if (length or 0) > self._limits.max_bytes:
            raise TooLargeError(f"the body has more than the {self._limits.max_bytes} bytes that are taken")
        entry = await self._transfers.upload(topic, receive, length, _sender(scope))
        _log.info("%s uploaded %s to %s: %d bytes", scope[USER], entry.id, topic, entry.size)
        headers = [(b"content-length", b"0"), (b"location", f"/msg/{entry.id}".encode())]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _download(self, scope: Scope, receive: Receive, send: Send) -> None:
        text = scope["path_params"]["id"]
        entry = None
        if _UUID.fullmatch(text):
            entry = await self._transfers.call(self._index.find, UUID(text))
        if entry is None:
            raise RefusedError("there is no such message", status=404)
        await self._permit(scope, READ, entry.topic)

        async def start(size: int) -> None:
            headers = [(b"content-type", b"application/bson"), (b"content-length", str(size).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})

        try:
            await self._transfers.download(entry, start, send, _sender(scope))
        except PayloadNotFoundError as error:
            raise RefusedError("the message's payload is gone", status=404) from error
        _log.info("%s downloaded %s of %s: %d bytes", scope[USER], entry.id, entry.topic, entry.size)

    def _topic(self, name: str) -> str:
        topic = name.removesuffix(_UPLOAD_SUFFIX)
        if topic == name:
            raise RefusedError(f"uploads go to /topic/<topic>{_UPLOAD_SUFFIX}", status=404)
        try:
            return self._store.check_topic(topic)
        except PayloadStoreError as error:
            raise RefusedError(error.message, status=400) from None

    async def _permit(self, scope: Scope, operation: str, topic: str) -> None:
        sender = _sender(scope)
        if not await self._transfers.call(self._authorizer.allows, sender.user, operation, topic, sender.address):
            raise ForbiddenError(f"{sender.user} has no {operation} on topic {topic}")


class _Endpoint:
    """An ASGI endpoint for one method."""

    def __init__(self, method: str, handle: ASGIApp) -> None:
        self._method = method
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != self._method:
            await answer(scope, receive, send, status=405, text="", more={"allow": self._method})
        else:
            await self._handle(scope, receive, send)


def _sender(scope: Scope) -> Sender:
    return Sender(scope[USER], address_of(scope))


async def _nothing_here(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    raise RefusedError("there is nothing here", status=404)


def _check(limits: Limits, store: PayloadStore) -> None:
    if limits.max_bytes > _MOST_BYTES:
        raise ConfigError(f"bodies of {limits.max_bytes} bytes do not fit into BSON, at most {_MOST_BYTES} do")
    if limits.max_bytes > store.max_payload_bytes:
        raise ConfigError(
            f"bodies of {limits.max_bytes} bytes could not be downloaded again: {store.MAX_PAYLOAD.name} is "
            f"{store.max_payload_bytes}",
            hint="Lower the one or raise the other",
            key=store.MAX_PAYLOAD.name,
        )
