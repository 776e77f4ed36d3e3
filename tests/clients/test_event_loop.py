"""What is encoded on an event loop, and for how long."""

import asyncio
import io
import itertools
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from serde_chain.clients.event_loop import Pace, Turns, size_of

LARGE = 1 << 18


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
