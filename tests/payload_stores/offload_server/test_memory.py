"""What an upload and a download of 100 MB take of the server's memory, measured in its own process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx2
import pytest

from payload_stores.scram import ScramAuth
from serde_chain.testing.services import OffloadServer, S3Server
from tests.memory import peak_bytes, reset_peak

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.payload_stores.offload_server.conftest import Message, NewMessage

pytestmark = pytest.mark.full

SIZE = 100_000_000
BLOCK = 1_000_000
MIB = 1 << 20


def cost(server: OffloadServer, operation: Callable[[], object]) -> int:
    """How far the server's memory rises above what it is before, in bytes."""
    log = (server.folder / "offload-server.log").read_text()
    process = re.findall(r"Started server process \[(\d+)\]", log)[-1]
    before = reset_peak(process)
    operation()
    return peak_bytes(process) - before


def upload(client: httpx2.Client, message: Message, size: int) -> None:
    """Send a message of some size, made on the way."""
    whole = message.body
    at = whole.index(b"message\0") + 8

    def body() -> Iterator[bytes]:
        yield (len(whole) + size).to_bytes(4, "little") + whole[4:at] + size.to_bytes(4, "little") + b"\0"
        for _ in range(size // BLOCK):
            yield bytes(BLOCK)
        yield whole[at + 5 :]

    assert client.post("/topic/t+oversized", content=body()).status_code == 201


def download(client: httpx2.Client, message: Message) -> None:
    with client.stream("GET", message.path) as answer:
        assert answer.status_code == 200
        assert sum(map(len, answer.iter_bytes())) > SIZE


@pytest.mark.parametrize("store", ["local", "s3"])
def test_memory_of_the_server(s3_server: S3Server, bucket: str, new_message: NewMessage, store: str) -> None:
    config = s3_server.store_config(bucket) if store == "s3" else {}
    with (
        OffloadServer(store=store, store_config=config) as server,
        httpx2.Client(base_url=server.url, auth=ScramAuth("bob", server.users["bob"]), timeout=100) as client,
    ):
        first, large = new_message(b""), new_message(b"")
        upload(client, first, BLOCK)  # what is loaded once is no cost of a message
        client.get(first.path)
        uploading = cost(server, lambda: upload(client, large, SIZE))
        downloading = cost(server, lambda: download(client, large))
    assert uploading <= 32 * MIB
    assert downloading <= 32 * MIB
