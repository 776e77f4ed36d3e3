"""Threads of transfers. They are daemons: the process does not wait for them at exit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar

from payload_stores.daemon_threads import run_in_daemon_thread
from payload_stores.errors import PayloadStoreError

__all__ = ["DaemonPool", "UnderWay", "settle"]

P = ParamSpec("P")
T = TypeVar("T")


class DaemonPool(Executor):
    """Runs calls in a bounded number of daemon threads.

    The interpreter joins the threads of a :class:`~concurrent.futures.ThreadPoolExecutor` at exit, so with a hanging
    server a program would run until all timeouts and retries of all parts are over, long after its own deadline.

    Args:
        threads: Maximum concurrent calls; further ones wait.
    """

    def __init__(self, threads: int) -> None:
        self._free = threads
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_shut = False
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call as soon as a thread is free. See :meth:`concurrent.futures.Executor.submit`.

        Raises:
            PayloadStoreError: The pool was shut down because its store was closed.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut:
                raise _closed()
            self._waiting.append((future, partial(fn, *args, **kwargs)))
            if not self._free:
                return future
            self._free -= 1
        try:
            run_in_daemon_thread(self._work)
        except BaseException:  # the system refuses to start threads, for now
            with self._lock:
                self._free += 1
            future.cancel()
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls, and optionally cancel waiting ones. Running calls continue.

        Args:
            wait: Ignored: this pool is for calls that may hang.
            cancel_futures: Whether waiting calls fail.
        """
        with self._lock:
            self._is_shut = True
            waiting: list[tuple[Future[Any], object]] = []
            if cancel_futures:
                waiting += self._waiting
                self._waiting.clear()
        for future, _ in waiting:
            if future.set_running_or_notify_cancel():
                # Not cancelled: callers waiting for a part must get an error of the store.
                future.set_exception(_closed())

    def _work(self) -> None:
        """Run calls until none is waiting."""
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
                # It holds the part, and the next part is read once this call is known to be done.
                del call
                future.set_result(result)
                del result
            del future


def _closed() -> PayloadStoreError:
    return PayloadStoreError("the store is closed")


class UnderWay:
    """Counts the transfers in flight: a single one may use resources that several must share."""

    def __init__(self) -> None:
        # Adding and discarding are atomic, so Ctrl-C in between leaves nothing behind.
        self._running: set[object] = set()

    @contextmanager
    def one_more(self) -> Iterator[int]:
        """Count a transfer during a ``with`` block, which gets the count including this one."""
        one = object()
        try:
            self._running.add(one)
            yield len(self._running)
        finally:
            self._running.discard(one)


def settle(running: Iterable[Future[Any]]) -> None:
    """Cancel calls that have not started, and wait for the rest."""
    running = list(running)
    for future in running:
        future.cancel()
    wait(running)
