"""The offload API as an ASGI application (Starlette)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from payload_stores.base import PayloadStore, SupportsLeftovers
from payload_stores.errors import ConfigError, PayloadNotFoundError, PayloadStoreError
from payload_stores.hop.record_document import MAX_BYTES
from payload_stores.kip1159 import KipPayloadStore
from payload_stores.middleware import Translated
from payload_stores.offload_server.acls import (
    READ,
    WRITE,
    Authorizer,
    SupportsAnyTopic,
    SupportsCheck,
    SupportsRefresh,
)
from payload_stores.offload_server.authentication import HEALTH, LIVE, USER, Authentication
from payload_stores.offload_server.errors import ForbiddenError, RefusedError, TooLargeError
from payload_stores.offload_server.files import LockedFolder, SupportsReload
from payload_stores.offload_server.index import Entry, Index
from payload_stores.offload_server.metrics import METRICS, Metered, Metrics
from payload_stores.offload_server.requests import Caller, Limits, address_of, answer, content_length
from payload_stores.offload_server.tokens import TokenVerifier
from payload_stores.offload_server.transfers import Transfers
from payload_stores.scram.server import Credentials, ScramServer

_log = logging.getLogger(__name__)

# Monitors wait only some seconds.
_HEALTH_SECONDS: Final = 4.0
_UPLOAD_SUFFIX: Final = "+oversized"
# The answer to a download contains headers and key.
_MOST_BYTES: Final = MAX_BYTES - (4 << 20)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class OffloadApp:
    """The application: ``POST /topic/{topic}+oversized``, ``GET /msg/{id}``, ``GET /health``, ``/live``, ``/metrics``.

    Run it with an ASGI server that supports the lifespan protocol, whose shutdown closes the store and the index. HEAD
    is GET without the body.

    Args:
        store: The store of the payloads; closed with the application.
        folder: Folder for the index of messages, and for payloads spooled for a store that cannot stream.
        credentials: Users.
        authorizer: Their permissions.
        tokens: Checks Bearer tokens; None accepts none.
        limits: Limits of a request.
        shared_store: Whether others also write to the store's folder or prefix. If not, leftovers of a killed server's
            uploads are deleted at the next start.
        disks: Folders of the store, whose disks keep the limits' reserve, like that of ``folder``.
        tokens_over_http: Accept tokens sent from another machine without TLS, where others could copy them.

    Raises:
        ConfigError: The limits exceed those of the store or BSON, or the folder is unusable, for instance because
            another server uses it.
    """

    def __init__(
        self,
        store: PayloadStore | KipPayloadStore,
        folder: Path,
        credentials: Credentials,
        authorizer: Authorizer,
        *,
        tokens: TokenVerifier | None = None,
        limits: Limits | None = None,
        shared_store: bool = False,
        disks: Collection[Path] = (),
        tokens_over_http: bool = False,
    ) -> None:
        self._limits = limits or Limits()
        self._store = store = Translated(store)
        _check(self._limits, store)
        self._authorizer = authorizer
        self._files: tuple[object, ...] = (credentials, authorizer, tokens)
        self._shared_store = shared_store
        self._folder = LockedFolder(folder)
        try:
            self._index = Index(folder / "index.sqlite3")
        except BaseException:
            self._folder.give_back()
            raise
        self._looking: asyncio.Future[str | None] | None = None
        self._looked_at = ""
        metrics = Metrics()
        self._transfers = Transfers(store, self._index, folder, (folder, *disks), self._limits, metrics)
        routes = [
            Route(HEALTH, _Endpoint("GET", self._health)),
            Route(LIVE, _Endpoint("GET", _live)),
            Route(METRICS, _Endpoint("GET", metrics.show)),
            Route("/topic/{name}", _Endpoint("POST", self._upload)),
            Route("/msg/{id}", _Endpoint("GET", self._download)),
        ]
        router = Router(routes, redirect_slashes=False, default=_nothing_here, lifespan=self._lifespan)
        authenticated = Authentication(
            router,
            ScramServer(credentials),
            tokens,
            call=self._transfers.call,
            metrics=metrics,
            tokens_over_http=tokens_over_http,
        )
        self._app = Metered(authenticated, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI connection."""
        if scope["type"] == "http" and scope["path"].startswith("//"):
            # hop-client appends "/topic/…" to the announced URL, including its trailing slash.
            scope = {**scope, "path": "/" + scope["path"].lstrip("/")}
        await self._app(scope, receive, send)

    def reload(self) -> None:
        """Reload the files of users, tokens and permissions; unreadable ones keep their previous content."""
        for part in self._files:
            if isinstance(part, SupportsReload):
                part.reload()

    def close(self) -> None:
        """Close the store and the index; the ASGI lifespan does it too."""
        self._transfers.close()
        self._index.close()
        self._store.close()
        self._folder.give_back()

    @asynccontextmanager
    async def _lifespan(self, _app: object) -> AsyncIterator[None]:
        # Before the first upload, which would also look incomplete.
        await asyncio.get_running_loop().run_in_executor(None, self._remove_leftovers)
        try:
            yield
        finally:
            self.close()

    def _remove_leftovers(self) -> None:
        if not self._folder.was_killed or self._shared_store or not isinstance(self._store, SupportsLeftovers):
            return
        try:
            removed = self._store.remove_leftovers(0)
        except PayloadStoreError as error:
            _log.warning("the unfinished uploads of a killed server cannot be deleted from the store: %s", error)
        else:
            _log.info("the last server was killed: %d uploads that it left unfinished were deleted", removed)

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Whether the index and the source of permissions answer. The store is not checked, to save a request.

        Open to every client: concurrent requests share one check, otherwise they would take all threads for short
        calls.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        try:
            problem = await asyncio.wait_for(asyncio.shield(self._looking), _HEALTH_SECONDS)
        except TimeoutError:
            problem = self._looked_at
        if problem is None:
            await answer(scope, receive, send, status=200, text="ok")
        else:
            await answer(scope, receive, send, status=503, text=f"{problem} does not answer")

    async def _look(self) -> str | None:
        """The part that does not answer; None if all answer."""
        try:
            self._looked_at = "the index"
            await self._transfers.call(self._index.find, UUID(int=0))
            self._looked_at = "the broker"
            if isinstance(self._authorizer, SupportsCheck):
                await self._transfers.call(self._authorizer.check)
        except PayloadStoreError:
            return self._looked_at
        return None

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        topic = self._topic(scope["path_params"]["name"])
        await self._permit(scope, WRITE, topic)
        length = content_length(scope)
        if (length or 0) > self._limits.max_bytes:
            raise TooLargeError(f"the body has more than the {self._limits.max_bytes} bytes allowed")
        entry = await self._transfers.upload(topic, receive, length, _sender(scope))
        _log.info("%s uploaded %s to %s: %d bytes", scope[USER], entry.id, topic, entry.size)
        headers = [(b"content-length", b"0"), (b"location", f"/msg/{entry.id}".encode())]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _download(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = _sender(scope)
        entry = await self._transfers.call(self._readable, scope["path_params"]["id"], sender)

        async def start(size: int) -> bool:
            headers = [(b"content-type", b"application/bson"), (b"content-length", str(size).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            return str(scope["method"]) != "HEAD"

        try:
            await self._transfers.download(entry, start, send, sender)
        except PayloadNotFoundError as error:
            raise RefusedError("the message's payload is gone", status=404) from error
        _log.info("%s downloaded %s of %s: %d bytes", scope[USER], entry.id, entry.topic, entry.size)

    def _readable(self, text: str, sender: Caller) -> Entry:
        """The message with an id, if the sender may read it; called in a thread, once per request.

        A user without permission does not learn whether it exists. A user without any READ permission gets 403 for any
        id: that is a mistake in the permissions, not a missing message.
        """
        permissions = self._authorizer
        if isinstance(permissions, SupportsAnyTopic) and not self._asked(
            permissions.allows_any, sender.user, READ, sender.address
        ):
            raise ForbiddenError(f"{sender.user} has no READ on any topic")
        entry = self._index.find(UUID(text)) if _UUID.fullmatch(text) else None
        if entry is None or not self._asked(permissions.allows, sender.user, READ, entry.topic, sender.address):
            raise RefusedError(f"there is no such message, or {sender.user} has no READ on its topic", status=404)
        return entry

    def _asked(self, question: Callable[..., bool], *about: str) -> bool:
        """The authorizer's verdict; its cache is refreshed before a refusal."""
        if question(*about):
            return True
        if not isinstance(self._authorizer, SupportsRefresh):
            return False
        self._authorizer.refresh()
        return question(*about)

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
        about = (sender.user, operation, topic, sender.address)
        if not await self._transfers.call(self._asked, self._authorizer.allows, *about):
            raise ForbiddenError(f"{sender.user} has no {operation} on topic {topic}")


class _Endpoint:
    """An ASGI endpoint for one method; GET includes HEAD."""

    def __init__(self, method: str, handle: ASGIApp) -> None:
        self._methods = ("GET", "HEAD") if method == "GET" else (method,)
        self._handle = handle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in self._methods:
            await answer(scope, receive, send, status=405, text="", more={"allow": ", ".join(self._methods)})
        else:
            await self._handle(scope, receive, send)


async def _live(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that the process is alive: a restart does not fix what :meth:`OffloadApp._health` finds."""
    await answer(scope, receive, send, status=200, text="alive")


def _sender(scope: Scope) -> Caller:
    return Caller(scope[USER], address_of(scope))


async def _nothing_here(scope: Scope, _receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    raise RefusedError("nothing is served at this path", status=404)


def _check(limits: Limits, store: PayloadStore) -> None:
    if limits.max_bytes > _MOST_BYTES:
        raise ConfigError(f"bodies of {limits.max_bytes} bytes do not fit into BSON, at most {_MOST_BYTES} do")
    if limits.max_bytes > store.max_payload_bytes:
        raise ConfigError(
            f"bodies of {limits.max_bytes} bytes could not be downloaded again: {store.MAX_PAYLOAD.name} is "
            f"{store.max_payload_bytes}",
            hint="Lower the first or raise the second",
            key=store.MAX_PAYLOAD.name,
        )
