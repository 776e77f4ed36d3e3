"""Threads for parts of a transfer, which the end of the process does not wait for."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from payload_stores.middleware import run_elsewhere

__all__ = ["DaemonPool"]

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(Executor):
    """Runs calls in a bounded number of daemon threads.

    Those of :class:`~concurrent.futures.ThreadPoolExecutor` are joined when the interpreter ends, so that a program
    whose server hangs would stay until all timeouts and retries of all parts are over, long after its own deadline.

    Args:
        threads: Most calls that run at once; others wait for them.
    """

    def __init__(self, threads: int) -> None:
        self._free = threads
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_shut = False
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call as soon as a thread is free. See :meth:`concurrent.futures.Executor.submit`.

        Raises:
            RuntimeError: The pool was shut down.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if not self._free:
                return future
            self._free -= 1
        run_elsewhere(self._work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and cancel those that wait if that is asked for. What runs is left to itself.

        Args:
            wait: Ignored: this pool is for calls that may hang.
            cancel_futures: Cancel what has not begun.
        """
        with self._lock:
            self._is_shut = True
            waiting = list(self._waiting) if cancel_futures else []
        for future, _ in waiting:
            future.cancel()

    def _work(self) -> None:
        """Run calls until none waits."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._free += 1
                    return
                future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  raised again where the result is asked for
                del call
                future.set_exception(error)
            else:
                # It holds the part, whose place the next one takes as soon as this one is known to be done.
                del call
                future.set_result(result)
                del result
            del future
