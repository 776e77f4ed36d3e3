"""Payloads on their way to a browser."""

import asyncio
import io
import threading

from serde_chain.cli.browse.blocking_iterators import in_steps
from serde_chain.cli.browse.payloads import blocks


class Watched(io.BytesIO):
    """A file that says when it is closed."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.is_closed = threading.Event()

    def close(self) -> None:
        super().close()
        self.is_closed.set()


def test_a_file_is_read_to_its_end_and_closed() -> None:
    file = Watched(bytes(3_000_000))

    async def read() -> list[bytes]:
        return [block async for block in in_steps(blocks(b"head", file))]

    assert list(map(len, asyncio.run(read()))) == [4, 1 << 20, 1 << 20, 3_000_000 - (2 << 20)]
    assert file.is_closed.wait(60)


def test_a_file_is_closed_when_the_rest_is_not_wanted() -> None:
    file = Watched(bytes(3_000_000))

    async def leave() -> None:
        rest = in_steps(blocks(b"head", file))
        await anext(rest)
        await anext(rest)
        await rest.aclose()  # type: ignore[attr-defined]  # it is a generator

    asyncio.run(leave())
    assert file.is_closed.wait(60)
