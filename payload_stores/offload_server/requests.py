"""Bodies and answers: ASGI messages with timeouts and limits."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from payload_stores.offload_server.errors import RefusedError

# Bytes read of an unwanted body, so that a client still sending sees the answer: closing a connection with unread
# bytes may discard the answer.
_DISCARDED_BYTES: Final = 4 << 20
_DISCARDED_SECONDS: Final = 2.0


class GoneError(RefusedError):
    """The client has closed the connection."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a request.

    Attributes:
        max_bytes: Largest body of an upload.
        idle_seconds: Longest wait for the next piece of a body, or for a client to take the next piece of an answer.
        transfer_seconds: Longest time for a whole body or answer.
        store_seconds: How long the store may then take to finish, and to begin an answer.
        min_bytes_per_second: Minimum rate of a body or answer after ``idle_seconds``; 0 for none. The store's time does
            not count.
        transfers: Concurrent uploads and downloads; further ones wait for ``idle_seconds``, then get 503.
        transfers_per_user: Maximum per user.
        transfers_per_address: Maximum per IP address.
        proxies: Addresses of reverse proxies, exempt from shares since many clients are behind them.
        user_bytes_per_day: Maximum payload bytes a user may upload within 24 hours, to the hour; None for no limit.
        reserve_bytes: Disk space to keep free, in bytes.
    """

    max_bytes: int = 1 << 30
    idle_seconds: float = 30.0
    transfer_seconds: float = 900.0
    store_seconds: float = 60.0
    min_bytes_per_second: int = 8192
    transfers: int = 16
    transfers_per_user: int = 8
    transfers_per_address: int = 8
    proxies: frozenset[str] = frozenset()
    user_bytes_per_day: int | None = None
    reserve_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request.

    Attributes:
        user: The authenticated name.
        address: The IP address.
    """

    user: str
    address: str


def header(scope: Scope, name: bytes) -> str | None:
    """A header field of the request; repeated ones are joined by commas."""
    values = [value.decode("latin-1") for key, value in scope["headers"] if key == name]
    return ", ".join(values) if values else None


def address_of(scope: Scope) -> str:
    """The client's IP address."""
    return str((scope.get("client") or ("", 0))[0])


def is_loopback(address: str) -> bool:
    """Whether an IP address is of this machine; False for names."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def content_length(scope: Scope) -> int | None:
    """The declared length of the body in bytes; 0 without one, None for a chunked body."""
    if header(scope, b"transfer-encoding") is not None:
        return None
    return int(header(scope, b"content-length") or 0)  # the HTTP server has refused anything but a number


async def answer(
    scope: Scope, receive: Receive, send: Send, *, status: int, text: str = "", more: Mapping[str, str] | None = None
) -> None:
    """Answer with a line of text, and read the rest of the body, up to a limit."""
    content = (text + "\n").encode() if text else b""
    fields = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(content)), **(more or {})}
    unread = content_length(scope) != 0
    if unread:
        fields["connection"] = "close"
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": unread})
    if unread:
        await discard(receive)
        await send({"type": "http.response.body", "body": b""})


async def discard(receive: Receive) -> None:
    """Read and discard the rest of a body, within limits of bytes and time."""
    left = _DISCARDED_BYTES
    try:
        async with asyncio.timeout(_DISCARDED_SECONDS):
            while left > 0:
                message: Message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return
