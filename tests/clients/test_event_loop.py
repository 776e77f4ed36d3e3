"""What is encoded on an event loop, and for how long."""

import asyncio
import gc
import io
import itertools
import threading
import weakref
from collections import UserDict
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest

from payload_stores import PayloadStoreUnavailableError, threads
from serde_chain.clients.event_loop import Call, Calls, Pace, Turns, in_daemon_thread, size_of

LARGE = 1 << 18
SECONDS = 30


@pytest.mark.parametrize(
    "value", [None, 1, 1.5, b"x" * 100, "x" * 100, memoryview(b"x" * 100), {"a": b"x" * 100}, [["x" * 100] * 10], {}]
)
def test_small_values_are_small(value: object) -> None:
    assert size_of(value) < 2000
    assert Turns().is_quick(size_of(value)) is False, "the first record may have to ask a registry"


@pytest.mark.parametrize(
    "value",
    [
        bytes(LARGE + 1),
        memoryview(bytes(LARGE + 1)),
        {"a": {"b": {"c": [{"d": bytes(LARGE)}]}}},
        UserDict(a=[bytearray(LARGE)]),
        [*range(200), "x" * LARGE],
        [1.5] * 100_000,
        [[1.5] * 10 for _ in range(10_000)],
        {"tensor": np.zeros(LARGE + 1, "u1")},
        pa.table({"a": np.zeros(LARGE)}),
        Path("file"),
        io.BytesIO(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_large_values_are_large(value: object) -> None:
    assert size_of(value) > LARGE


def test_a_value_that_holds_itself_is_large() -> None:
    value: list[Any] = []
    value.append(value)
    assert size_of(value) > LARGE


def test_the_loop_goes_on_after_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr("serde_chain.clients.event_loop._now", lambda: next(clock) / 2500)

    async def main() -> list[bool]:
        pace = Pace()
        found = [pace.is_over() for _ in range(12)]
        await asyncio.sleep(0)
        return found + [pace.is_over() for _ in range(5)]

    over = [False, False, False, True]
    assert asyncio.run(main()) == [*over, *over, *over, *over, False]


def test_a_failed_call_does_not_keep_its_arguments() -> None:
    class Payload:
        pass

    def refuse(_payload: Payload) -> None:
        raise KeyError

    async def main() -> None:
        calls = Calls()
        payload = Payload()
        gone = weakref.ref(payload)
        with suppress(KeyError):
            await calls.make(Call(refuse, payload))
        del payload
        await calls.make(Call(int))  # so the thread is done with the call before
        assert gone() is None

    gc.disable()
    try:
        asyncio.run(main())
    finally:
        gc.enable()


def test_a_call_that_is_cancelled_while_it_waits_ends_without_being_made() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        may_end.wait(SECONDS)

    async def main() -> None:
        calls = Calls()
        running, waiting = Call(hang), Call(pytest.fail, "it was made")
        first = asyncio.create_task(calls.make(running))
        assert await in_daemon_thread(begun.wait, SECONDS)
        first.cancel()
        second = asyncio.create_task(calls.make(waiting))
        with suppress(asyncio.CancelledError):
            await first
        while not calls._thread._waiting:  # noqa: ASYNC110  nothing announces it
            await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert waiting.is_done
        assert not waiting.has_run
        may_end.set()
        assert await calls.make(Call(max, 1, 2)) == 2
        assert running.has_run

    asyncio.run(main())


def test_a_call_without_a_thread_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_job: object) -> NoReturn:
        raise PayloadStoreUnavailableError("no thread can be started")

    reported: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
        with pytest.raises(PayloadStoreUnavailableError):
            await Calls().make(Call(int))
        await asyncio.sleep(0)
        gc.collect()

    monkeypatch.setattr(threads, "run_in_daemon_thread", refuse)
    asyncio.run(main())
    assert not reported
