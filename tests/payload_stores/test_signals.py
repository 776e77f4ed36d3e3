"""Exceptions of signal handlers are told from those of the code that they interrupt."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

from payload_stores.signals import let_through
from serde_chain import DecodeError, DeserializerChain, EncodeError, SerializerChain


class SoftTimeLimitExceededError(Exception):
    """What a task queue's handler raises."""


def limit() -> None:
    raise SoftTimeLimitExceededError


def by_name(_number: int, _frame: FrameType | None) -> None:
    limit()


def variadic(*_arguments: Any) -> None:
    limit()


class Handler:
    def __call__(self, _number: int, frame: FrameType | None) -> Callable[[], object]:
        limit()
        return lambda: frame  # a cell


HANDLERS: dict[str, Any] = {
    "function": by_name,
    "variadic": variadic,
    "lambda": lambda *_: limit(),
    "object": Handler(),
    "partial": partial(lambda _why, _number, _frame: limit(), "late"),
}


@contextmanager
def handled_by(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)


def interrupted(_data: object, _ctx: object) -> bytes:
    signal.raise_signal(signal.SIGALRM)
    return b""


def wrapping(data: object, ctx: object) -> bytes:
    try:
        return interrupted(data, ctx)
    except Exception as error:
        raise DecodeError("damaged") from error


def hiding(data: object, ctx: object) -> bytes:
    try:
        return wrapping(data, ctx)
    except DecodeError:
        raise ValueError("damaged") from None


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise DecodeError("damaged") from error


def within(data: object, ctx: object) -> bytes:
    with translated():
        return bytes(sum(len(interrupted(data, ctx)) for _ in range(1)))


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("stage", [interrupted, wrapping, hiding, within])
def test_a_chain_raises_what_the_handler_raised(stage: Any, handler: str) -> None:
    for chain in (DeserializerChain([stage]), SerializerChain([stage])):
        with chain, handled_by(HANDLERS[handler]), pytest.raises(SoftTimeLimitExceededError) as raised:
            chain(b"data", None)
        assert raised.value.__cause__ is raised.value.__context__ is None


def test_an_error_of_a_stage_is_its_own_also_where_a_handler_has_raised_before() -> None:
    def damaged(_data: object, _ctx: object) -> bytes:
        raise ValueError("damaged")

    with handled_by(by_name):
        try:
            interrupted(b"", None)
        except SoftTimeLimitExceededError:
            for chain, kind in ((DeserializerChain([damaged]), DecodeError), (SerializerChain([damaged]), EncodeError)):
                with pytest.raises(kind) as raised:
                    chain(b"data", None)
                assert raised.value.about_record


def test_functions_that_get_other_frames_are_no_handlers() -> None:
    def fail(_number: int, _frame: object) -> None:
        limit()

    for frame in (None, 1, "frame"):
        try:
            fail(14, frame)
        except SoftTimeLimitExceededError as error:
            let_through(error)
