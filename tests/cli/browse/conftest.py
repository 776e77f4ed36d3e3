"""The pages, asked without a network, and what they are about."""

import asyncio
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.types import ASGIApp, Message

from serde_chain import Producer
from serde_chain.cli.browse.app import Pages
from serde_chain.cli.browse.guard import Guard
from serde_chain.testing.services import KafkaBroker

PORT = 8080
TOKEN = "a-token"
COOKIE = f"serde-chain-browse-{PORT}={TOKEN}"


@dataclass(frozen=True)
class Answer:
    """An answer of the application."""

    status: int
    headers: dict[str, str]
    body: bytes
    pieces: int

    @property
    def text(self) -> str:
        return self.body.decode()


def ask(app: ASGIApp, address: str, *, method: str = "GET", **headers: str) -> Answer:
    """Ask an application for a page, as a browser that has the cookie unless ``headers`` say otherwise."""
    target = urlsplit(address)
    sent = {"host": f"127.0.0.1:{PORT}", "cookie": COOKIE, **headers}
    scope = {
        "type": "http",
        "method": method,
        "path": target.path,
        "query_string": target.query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }
    got: list[Message] = []

    async def run() -> None:
        questions = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Message:
            for question in questions:
                return question
            await asyncio.Event().wait()  # the browser stays
            raise AssertionError

        async def send(message: Message) -> None:
            got.append(message)

        await asyncio.wait_for(app(scope, receive, send), 60)

    asyncio.run(run())
    told = {name.decode(): value.decode() for name, value in got[0]["headers"]}
    return Answer(got[0]["status"], told, b"".join(message.get("body", b"") for message in got[1:]), len(got) - 1)


Ask = Callable[..., Answer]
OpenPages = Callable[..., Ask]


@pytest.fixture
def config(broker: KafkaBroker, tmp_path: Path) -> dict[str, Any]:
    """Chains whose larger payloads lie in a folder."""
    return {
        **broker.client_config(),
        "key.serializer": "string",
        "key.deserializer": "string",
        "value.serializers": "json, zstd, large-message",
        "value.deserializers": "large-message, zstd, json",
        "large.message.payload.store.class": "local",
        "local.path": str(tmp_path / "payloads"),
        "large.message.threshold.bytes": 1000,
    }


@pytest.fixture
def open_pages() -> Iterator[OpenPages]:
    """Opens the guarded pages of a topic: a function by which they are asked, by their places below the topic's."""
    opened: list[Pages] = []

    def start(config: dict[str, Any], topic: str, timeout_s: float = 30.0) -> Ask:
        pages = Pages(config, timeout_s)
        opened.append(pages)
        app = Guard(pages.app, TOKEN, PORT)
        base = f"/topics/{topic}"

        def ask_below(address: str, **more: Any) -> Answer:
            return ask(app, _below(base, address), **more)

        return ask_below

    yield start
    for pages in opened:
        pages.close()


def _below(base: str, address: str) -> str:
    """An address of a topic's pages: links have it whole."""
    if address.startswith(base):
        return address
    path, mark, query = address.partition("?")
    return base + path.rstrip("/") + mark + query


def produce(config: dict[str, Any], topic: str, *records: tuple[Any, Any], **more: Any) -> None:
    """Produce some values with their keys."""
    with Producer(config) as producer:
        for key, value in records:
            producer.produce(topic, value, key, **more)
        producer.flush(30)


def png(width: int, height: int, shade: Callable[[int, int], int]) -> bytes:
    """A grey picture, as PNG has it (https://www.w3.org/TR/png-3/)."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + bytes(shade(x, y) for x in range(width)) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(lines)) + part(b"IEND", b"")
