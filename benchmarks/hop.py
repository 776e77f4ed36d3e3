"""100 MB to hop's offload API and back, against the same bytes over the same HTTP client without BSON and SCRAM.

And 1000 bytes, many times.

Both servers run in processes of their own, under the same HTTP server, over the same kind of store: a local folder
without fsync, since a disk's mood would hide the difference.
"""

from __future__ import annotations

import contextlib
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, cast

import httpx2
from rich.console import Console
from rich.table import Table

from payload_stores import StoredRecord, open_store
from payload_stores.hop import HopStore
from payload_stores.local import LocalStore
from serde_chain.testing.services import OffloadServer

PAYLOAD_BYTES: Final = 100_000_000
ROUNDS: Final = 9
WANTED: Final = 1.3
SMALL_BYTES: Final = 1000
SMALL_REQUESTS: Final = 400
CLIENTS: Final = 8
_CHUNK: Final = 256 << 10
_BLOCK: Final = 1 << 20

Times = dict[str, list[float]]


def run() -> bool:
    """Print the table; returns whether the target is reached."""
    payload = os.urandom(PAYLOAD_BYTES)
    times: Times = {name: [] for name in ("upload", "bare upload", "download", "bare download")}
    with (
        OffloadServer(store_config={"local.fsync": "false"}) as server,
        _bare_server() as address,
        httpx2.Client(base_url=address, timeout=60) as client,
        contextlib.closing(_store(server)) as store,
    ):
        for number in range(ROUNDS + 1):
            found: Times = {}
            for ours in (True, False) if number % 2 else (False, True):
                if ours:
                    _ours(store, payload, found)
                else:
                    _bare(client, payload, found)
            if number:  # the first round makes connections and loads what is loaded once
                for name, seconds in found.items():
                    times[name] += seconds
        small = _small(store)
    reached = _print(times)
    return _print_small(*small) and reached


def _print(times: Times) -> bool:
    table = Table(title=f"hop: {PAYLOAD_BYTES // 10**6} MB through the offload server", title_justify="left")
    for heading in ("", "ours, ms", "without BSON and SCRAM, ms", "ratio", "wanted"):
        table.add_column(heading, justify="right" if heading else "left")
    reached = True
    for name in ("upload", "download"):
        ours, bare = statistics.median(times[name]), statistics.median(times[f"bare {name}"])
        good = ours / bare <= WANTED
        reached &= good
        ratio = f"[{'green' if good else 'bold red'}]{ours / bare:.3f}[/]"
        table.add_row(name, f"{ours * 1e3:.0f}", f"{bare * 1e3:.0f}", ratio, f"≤ {WANTED:.2f}")
    Console().print(table)
    return reached


def _small(store: HopStore) -> tuple[float, float, float]:
    """Seconds for a download on a kept connection, the client's own part, and downloads a second of all clients."""
    reference = store.publish("benchmark", bytes(SMALL_BYTES))
    for _ in range(20):
        store.download(reference)
    began, own = time.perf_counter(), time.process_time()
    for _ in range(SMALL_REQUESTS):
        store.download(reference)
    each, own = time.perf_counter() - began, time.process_time() - own
    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(store.download, [reference] * 2 * CLIENTS))  # makes the connections
        began = time.perf_counter()
        list(threads.map(store.download, [reference] * 2 * SMALL_REQUESTS))
        rate = 2 * SMALL_REQUESTS / (time.perf_counter() - began)
    return each / SMALL_REQUESTS, own / SMALL_REQUESTS, rate


def _print_small(each: float, own: float, rate: float) -> bool:
    table = Table(title=f"hop: {SMALL_BYTES} bytes from the offload server, connections kept", title_justify="left")
    for heading in ("", "found", "wanted"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = [
        # The client's own share is the next line's.
        ("server and network, ms for each", (each - own) * 1e3, each - own <= 1e-3, "≤ 1.0"),
        ("client's processor time, ms for each", own * 1e3, own <= 1.3e-3, "≤ 1.3"),
        (f"downloads a second, {CLIENTS} clients", rate, rate >= 500, "≥ 500"),
    ]
    for name, value, good, wanted in rows:
        table.add_row(name, f"[{'green' if good else 'bold red'}]{value:.{0 if value > 100 else 2}f}[/]", wanted)
    Console().print(table)
    return all(good for _, _, good, _ in rows)


def _ours(store: HopStore, payload: bytes, found: Times) -> None:
    with _timed(found, "upload"):
        reference = store.publish_record("benchmark", StoredRecord(payload, (("a", b"1"),), b"key"))
    with _timed(found, "download"):
        record = store.download_record(reference)
    assert len(record.value) == len(payload)  # noqa: S101  a benchmark of the wrong thing is none


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
    """The bare server: stores what it is sent by the store's own streams, and nothing else."""
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
