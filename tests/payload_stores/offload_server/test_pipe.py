"""The pipe between the event loop and a store's thread."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from payload_stores.offload_server.errors import RefusedError
from payload_stores.offload_server.pipe import Pipe, PipeClosedError

DATA = os.urandom(12 << 20)


def through(read: Callable[[Pipe], object], write: Callable[[Pipe], object]) -> object:
    """Read in a thread what is written in an event loop; returns what the reader does."""

    def reader(pipe: Pipe) -> object:
        with closing(pipe):
            return read(pipe)

    async def main() -> object:
        pipe = Pipe()
        with ThreadPoolExecutor(1) as threads:
            reading = asyncio.get_running_loop().run_in_executor(threads, reader, pipe)
            await asyncio.wait_for(write(pipe), 30)  # type: ignore[arg-type]
            return await asyncio.wait_for(reading, 30)

    return asyncio.run(main())


async def write_all(pipe: Pipe) -> None:
    for start in range(0, len(DATA), 70_000):
        await pipe.write(memoryview(DATA)[start : start + 70_000])
    pipe.end()


def test_all_comes_through_in_blocks() -> None:
    blocks = through(lambda pipe: list(iter(lambda: pipe.read(1 << 20), b"")), write_all)
    assert isinstance(blocks, list)
    assert b"".join(blocks) == DATA
    assert max(map(len, blocks)) <= 1 << 20


def test_all_at_once_and_nothing_after_it() -> None:
    assert through(lambda pipe: (pipe.read(), pipe.read(), pipe.read(5)), write_all) == (DATA, b"", b"")


def test_error_instead_of_the_end() -> None:
    async def fail(pipe: Pipe) -> None:
        await pipe.write(memoryview(b"half"))
        pipe.fail(RefusedError("not right", status=400))

    with pytest.raises(RefusedError, match="not right"):
        through(lambda pipe: pipe.read(), fail)


def test_reader_that_gives_up_stops_the_writer() -> None:
    with pytest.raises(PipeClosedError):
        through(lambda pipe: pipe.read(1), write_all)


def test_writer_waits_for_a_slow_reader() -> None:
    most = 0

    async def write(pipe: Pipe) -> None:
        nonlocal most
        for start in range(0, len(DATA), 70_000):
            await pipe.write(memoryview(DATA)[start : start + 70_000])
            most = max(most, pipe._waiting)
        pipe.end()

    def read(pipe: Pipe) -> int:
        return sum(map(len, iter(lambda: pipe.read(4096), b"")))

    assert through(read, write) == len(DATA)
    assert most < 3 << 20
