"""Runs calls that may hang in daemon threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

from payload_stores.errors import PayloadStoreUnavailableError

__all__ = ["run_in_daemon_thread"]

# Inboxes of idle threads. Starting a thread takes longer than a small publish.
_idle: Final[list[SimpleQueue[Callable[[], None]]]] = []
_IDLE_SECONDS: Final = 10
# Threads do not survive a fork (multiprocessing, Spark's workers).
os.register_at_fork(after_in_child=_idle.clear)


def run_in_daemon_thread(job: Callable[[], None]) -> None:
    """Run a job in an idle or new daemon thread; never queue it behind a job that may hang.

    Not a :class:`~concurrent.futures.ThreadPoolExecutor`: the interpreter joins its threads at exit, so a hanging store
    would keep the program alive; and its jobs queue behind hanging ones.

    Raises:
        PayloadStoreUnavailableError: The system refuses to start another thread.

    Example:
        >>> results = SimpleQueue()
        >>> run_in_daemon_thread(lambda: results.put("done"))
        >>> results.get(timeout=60)
        'done'
    """
    try:
        inbox = _idle.pop()
    except IndexError:
        inbox = SimpleQueue()
        try:
            threading.Thread(target=_work, args=(inbox,), name="payload-deadline", daemon=True).start()
        except RuntimeError as error:  # how Python reports EAGAIN
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
            except ValueError:  # another thread just took it and is about to add a job
                continue
            return
        job()
        del job  # the job holds the payload
        _idle.append(inbox)
