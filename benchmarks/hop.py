"""100 MB to hop's offload API and back, against the same bytes over the same HTTP client without BSON and SCRAM.

And 1000 bytes, many times.

Both servers run in separate processes, with the same HTTP server and the same kind of store: a local folder
without fsync, since disk noise would hide the difference.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import httpx2

from benchmarks.harness import Row, Table
from payload_stores import StoredRecord, open_store
from payload_stores.hop import HopStore
from payload_stores.local import LocalStore
from serde_chain.testing.services import OffloadServer

PAYLOAD_BYTES: Final = 100_000_000
ROUNDS: Final = 9
SMALL_BYTES: Final = 1000
SMALL_REQUESTS: Final = 200  # per round, one after the other
CLIENTS: Final = 8
_BARE: Final = "without BSON and SCRAM"
_CHUNK: Final = 256 << 10
_BLOCK: Final = 1 << 20

Times = dict[str, list[float]]


def run(*, quick: bool) -> Iterator[Table]:
    """A large record and back, in turns; then small ones, one after the other and by several clients."""
    payload = os.urandom(PAYLOAD_BYTES)
    times: Times = {name: [] for name in ("upload", "bare upload", "download", "bare download")}
    with (
        OffloadServer(store_config={"local.fsync": "false"}) as server,
        _bare_server() as address,
        httpx2.Client(base_url=address, timeout=60) as client,
        contextlib.closing(_store(server)) as store,
    ):
        for number in range(2 if quick else ROUNDS + 1):
            found: Times = {}
            for ours in (True, False) if number % 2 else (False, True):
                if ours:
                    _ours(store, payload, found)
                else:
                    _bare(client, payload, found)
            if number:  # the first round opens connections and loads everything that is loaded once
                for name, seconds in found.items():
                    times[name] += seconds
        rows = [Row(way, _ms(times[way]), _BARE, _ms(times[f"bare {way}"])) for way in ("upload", "download")]
        yield Table("hop", f"{PAYLOAD_BYTES // 10**6} MB through the offload server", "ms", rows)
        yield from _small(store, 1 if quick else ROUNDS)


def _small(store: HopStore, rounds: int) -> Iterator[Table]:
    """Small records on kept connections."""
    reference = store.publish("benchmark", bytes(SMALL_BYTES))
    for _ in range(20):
        store.download(reference)
    others, own, rates = [], [], []
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(store.download, [reference] * 2 * CLIENTS))  # opens the connections
        for _ in range(rounds):
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(SMALL_REQUESTS):
                store.download(reference)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            others.append((wall - cpu) / SMALL_REQUESTS)
            own.append(cpu / SMALL_REQUESTS)
            began = time.perf_counter()
            list(threads.map(store.download, [reference] * 2 * SMALL_REQUESTS))
            rates.append(2 * SMALL_REQUESTS / (time.perf_counter() - began))
    title = f"{SMALL_BYTES} bytes from the offload server, connections kept"
    each = [Row("server and network", _ms(others)), Row("client's CPU", _ms(own))]
    yield Table("hop-small", title, "ms a download", each)
    yield Table("hop-clients", title, "downloads/s", [Row(f"{CLIENTS} clients", rates)])


def _ms(seconds: list[float]) -> list[float]:
    return [1e3 * each for each in seconds]


def _ours(store: HopStore, payload: bytes, found: Times) -> None:
    with _timed(found, "upload"):
        reference = store.publish_record("benchmark", StoredRecord(payload, (("a", b"1"),), b"key"))
    with _timed(found, "download"):
        record = store.download_record(reference)
    assert len(record.value) == len(payload)  # noqa: S101  a wrong result invalidates the benchmark


def _bare(client: httpx2.Client, payload: bytes, found: Times) -> None:
    view = memoryview(payload)
    chunks = (cast("bytes", view[at : at + _CHUNK]) for at in range(0, len(view), _CHUNK))
    with _timed(found, "bare upload"):
        reference = client.post("/", content=chunks, headers={"Content-Length": str(len(view))}).text
    with _timed(found, "bare download"), client.stream("GET", "/", params={"reference": reference}) as answer:
        buffer = io.BytesIO(bytes(PAYLOAD_BYTES))
        for chunk in answer.iter_raw():
            buffer.write(chunk)
        content = buffer.getvalue()
    assert len(content) == len(payload)  # noqa: S101


@contextlib.contextmanager
def _timed(found: Times, name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    found.setdefault(name, []).append(time.perf_counter() - started)


def _store(server: OffloadServer) -> HopStore:
    config = {
        "hop.offload.url": server.url,
        "hop.username": "alice",
        "hop.password": server.users["alice"],
        "hop.request.timeout.ms": 60_000,
    }
    store = open_store("hop", config)
    assert isinstance(store, HopStore)  # noqa: S101  for mypy
    return store


@contextlib.contextmanager
def _bare_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="serde-chain-benchmark-") as folder:
        command = [sys.executable, "-m", "benchmarks.hop", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None  # noqa: S101  for mypy
            try:
                yield server.stdout.readline().strip()
            finally:
                server.terminate()


def _serve(folder: Path) -> None:
    """The bare server: stores request bodies with the store's own streams, and nothing else."""
    import asyncio

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response, StreamingResponse
    from starlette.routing import Route

    from payload_stores.offload_server import serve
    from payload_stores.offload_server.pipe import Pipe

    threads = ThreadPoolExecutor(4)
    store = cast("LocalStore", open_store("local", {"local.path": str(folder), "local.fsync": "false"}))

    async def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(threads, function, *arguments)

    async def upload(request: Request) -> Response:
        pipe = Pipe()
        publishing = asyncio.ensure_future(in_thread(store.publish_stream, "benchmark", pipe))
        async for chunk in request.stream():
            await pipe.write(memoryview(chunk))
        pipe.end()
        return PlainTextResponse(await publishing)

    async def download(request: Request) -> Response:
        file = await in_thread(store.open, request.query_params["reference"])

        async def blocks() -> AsyncIterator[bytes]:
            with file:
                while block := await in_thread(file.read, _BLOCK):
                    yield block

        return StreamingResponse(blocks(), headers={"Content-Length": str(PAYLOAD_BYTES)})

    app = Starlette(routes=[Route("/", upload, methods=["POST"]), Route("/", download, methods=["GET"])])
    serve(app, ready=lambda url: print(url, flush=True))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
