"""uvicorn's HTTP/1.1 with limits it lacks: on header fields, and on clients that neither send nor read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

# From the connection, or the first byte after an answer, to the end of the request's header fields.
_HEADER_SECONDS: Final = 15.0
_HEADER_BYTES: Final = 32 << 10
_HEADER_FIELDS: Final = 100
# A client that reads nothing of its answer for this long is disconnected; the rest is dropped.
_STALLED_SECONDS: Final = 35.0

_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
# No request begins with this; h11 refuses it at once.
_FIRST_PRINTABLE: Final = 0x21


class BoundedHttp(H11Protocol):
    """One connection.

    Args:
        config: uvicorn's.
        server_state: uvicorn's.
        app_state: uvicorn's.
        on_lost: Called when the connection has ended; optional.
    """

    cycle: Any  # None before the first request, unlike uvicorn's annotation

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._on_lost = on_lost
        self._head = bytearray()
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """See :class:`asyncio.Protocol`."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        if self.conn.their_state is h11.IDLE:
            data = self._whole_head(data)
        if data:
            super().data_received(data)
            if self.cycle is not None and self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
                # Pipelined requests would escape the limits; no client sends them.
                self.cycle.keep_alive = False
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        super().connection_lost(exc)
        self._unwatch()
        self.resume_writing()
        if self._on_lost is not None:
            self._on_lost()

    def pause_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        super().pause_writing()
        self._stalled = self.loop.call_later(_STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See :class:`asyncio.Protocol`."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _should_upgrade(self) -> bool:
        """Never: the request is answered as plain HTTP. uvicorn would log a warning each time."""
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse anything but HTTP; called by uvicorn."""
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
            return
        # The request's body is broken, and the application answers it: tell it that the client disconnected.
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        self.transport.close()

    def _whole_head(self, data: bytes) -> bytes:
        """A request's header fields once complete, with the bytes after them; nothing before that.

        h11 limits incomplete fields, but accepts any number of complete ones, and each costs work.
        """
        searched = max(0, len(self._head) - 3)
        self._head += data
        end = min(
            (at for at in (self._head.find(b"\n\r\n", searched), self._head.find(b"\n\n", searched)) if at >= 0),
            default=-1,
        )
        size = len(self._head) if end < 0 else end
        if size > _HEADER_BYTES or self._head.count(b"\n", 0, size) > _HEADER_FIELDS:
            self._head.clear()
            self.transport.write(_TOO_LARGE)
            self.transport.close()
            return b""
        if end < 0 and self._head[0] >= _FIRST_PRINTABLE:
            self._unset_keepalive_if_required()
            return b""
        whole = bytes(self._head)
        self._head.clear()
        return whole

    def _watch(self) -> None:
        """Start the timer at the start of a request, stop it when its header fields are complete."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_HEADER_SECONDS, self._too_late)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.abort()
