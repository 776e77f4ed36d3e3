"""Faults at a chosen point of a process: the n-th time that code of this project calls something, or is called."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final

import payload_stores
import serde_chain.testing

__all__ = ["interrupted", "kill_at", "signalled"]

_PACKAGES: Final = tuple(f"{Path(file).parent}{os.sep}" for file in (serde_chain.__file__, payload_stores.__file__))
_TESTING: Final = f"{Path(serde_chain.testing.__file__).parent}{os.sep}"
# A signal handler runs where a function begins, and after a call of one that is written in C.
_INTERRUPTIBLE: Final = frozenset({"call", "c_return"})


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith(_PACKAGES) and not name.startswith(_TESTING)


def kill_at(point: int) -> None:
    """Kill this process at a point: as SIGKILL does it, whatever its threads are doing.

    Args:
        point: Which call or return, counted over all threads from now on.
    """
    left = count(point, -1)

    def step(frame: FrameType, _event: str, _argument: object) -> None:
        if _is_ours(frame) and next(left) <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(step)
    sys.setprofile(step)


@contextmanager
def interrupted(point: int) -> Iterator[None]:
    """Raise KeyboardInterrupt in this thread at a point, as Ctrl-C does it; not at all if there are fewer.

    Args:
        point: Which of the points at which a signal handler may run.
    """
    left = point

    def step(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal left
        if event in _INTERRUPTIBLE and _is_ours(frame):
            left -= 1
            if left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    before: Callable[..., Any] | None = sys.getprofile()
    gc.disable()  # a collection may finalize clients of other tests: an interrupt in __del__ is only printed
    sys.setprofile(step)
    try:
        yield
    finally:
        sys.setprofile(before)
        gc.enable()


@contextmanager
def signalled(source: random.Random, number: signal.Signals = signal.SIGINT) -> Iterator[None]:
    """Send this process, whose main thread this is, real signals at random moments, many of them during waits.

    Their handler raises KeyboardInterrupt where the main thread is in code of this project, or in the C code of a
    client that it has called.

    Args:
        source: Randomness: some of these come every few milliseconds, some now and then.
        number: The signal.
    """
    longest = source.choice([0.02, 0.1, 0.6])

    def handle(_number: int, frame: FrameType | None) -> None:
        if frame is not None and _is_ours(frame):
            raise KeyboardInterrupt

    def send() -> None:
        while not done.wait(source.uniform(0.001, longest)):
            signal.pthread_kill(main, number)

    done = threading.Event()
    main = threading.get_ident()
    before = signal.signal(number, handle)
    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(number, before)
