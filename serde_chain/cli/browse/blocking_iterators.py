"""Blocking iterators on the event loop."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Generator
from typing import TypeVar

from payload_stores.threads import run_in_daemon_thread
from serde_chain.clients.event_loop import in_daemon_thread

T = TypeVar("T")


async def in_steps(steps: Generator[T, None, None], leave: Callable[[], object] = lambda: None) -> AsyncIterator[T]:
    """Iterate over a generator in threads, and close it, even if the client disconnects.

    Args:
        steps: The generator, whose steps block; none of them is None.
        leave: Called at the end, before the generator is closed, so that a step that still runs ends early.

    Yields:
        Its items.
    """
    lock = threading.Lock()  # an abandoned step ends before the generator is closed

    def step() -> T | None:
        with lock:
            return next(steps, None)

    def close() -> None:
        with lock:
            steps.close()

    try:
        while (item := await in_daemon_thread(step)) is not None:
            yield item
    finally:
        leave()
        run_in_daemon_thread(close)
