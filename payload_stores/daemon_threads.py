"""Runs calls that may hang in daemon threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from payload_stores.errors import PayloadStoreUnavailableError

__all__ = ["run_elsewhere"]

# Inboxes of threads that have nothing to do. Starting a thread for every call would take longer than a small publish.
_idle: Final[list[SimpleQueue[Callable[[], None]]]] = []
_IDLE_SECONDS: Final = 10
# The threads are not in a forked process (multiprocessing, Spark's workers).
os.register_at_fork(after_in_child=_idle.clear)


def run_elsewhere(job: Callable[[], None]) -> None:
    """Run a job in a daemon thread that waits for one, or in a new one; never queue it behind one that may hang.

    Not a :class:`~concurrent.futures.ThreadPoolExecutor`: the interpreter joins its threads when it ends, so that a
    program whose store hangs would never end; and its jobs wait for a thread, behind those that hang.

    Raises:
        PayloadStoreUnavailableError: The system starts no more threads.

    Example:
        >>> results = SimpleQueue()
        >>> run_elsewhere(lambda: results.put("done"))
        >>> results.get(timeout=60)
        'done'
    """
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        try:
            threading.Thread(target=_work, args=(inbox,), name="payload-deadline", daemon=True).start()
        except RuntimeError as error:  # Python's own for EAGAIN
            raise PayloadStoreUnavailableError(
                "no thread can be started for the payload store's call",
                hint="Calls that hang keep their threads: check the store, and the limit (pids.max, ulimit -u)",
            ) from error
    inbox.put(job)


def _work(inbox: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        try:
            job = inbox.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                _idle.remove(inbox)
            except ValueError:  # another thread took it just now and is about to put a job in
                continue
            return
        job()
        del job  # it holds the payload
        _idle.append(inbox)
