"""Runs blocking calls in daemon threads: one call, or several within a number of slots.

Everything that may block runs here, so each rule is written once: a call sees the context variables of its caller; its
error is raised where its result is taken; whoever waits for it has a deadline, may be interrupted, and then drops it;
neither another call nor the end of the interpreter waits for a call that hangs.
"""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

from payload_stores import forks
from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError

__all__ = ["Call", "DaemonPool", "run_in_daemon_thread", "settle"]

P = ParamSpec("P")
T = TypeVar("T")

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
            threading.Thread(target=_work, args=(inbox,), name="blocking-call", daemon=True).start()
        except RuntimeError as error:  # how Python reports EAGAIN
            raise PayloadStoreUnavailableError(
                "no thread can be started for a blocking call",
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


class Call(Generic[T]):
    """One call in another thread, with the context variables of its maker.

    Args:
        work: The call.
        *args: Its arguments.
        **options: Its keyword arguments.

    Attributes:
        result: The result; None until the end, and once it was taken.
        error: The error, likewise.
        is_done: Whether the call has ended.

    Example:
        >>> call = Call(max, 1, 2).start()
        >>> call.wait(60), call.take()
        (True, 2)
    """

    def __init__(self, work: Callable[..., T], *args: Any, **options: Any) -> None:
        self._work: Callable[[], Any] = partial(work, *args, **options)
        self._context = contextvars.copy_context()  # so that traces continue in the other thread
        self.result: T | None = None
        self.error: BaseException | None = None
        self.is_done = False
        self._begun = threading.Lock()  # acquired once, without a wait, by who makes or fails the call
        self._waiters: list[threading.Event] = []  # mostly one or none: an event costs as much as the rest
        self._dropped: list[Callable[[Call[T]], object]] = []

    def start(self) -> Self:
        """Make the call in a thread.

        Raises:
            PayloadStoreUnavailableError: The system refuses to start another thread.
        """
        run_in_daemon_thread(self.run)
        return self

    def run(self) -> None:
        """Make the call in this thread, unless it was made or has failed."""
        if not self.begin():
            return
        work, self._work = self._work, _nothing
        try:
            self.result = self._context.run(work)
        except BaseException as error:  # noqa: BLE001  raised again where the result is taken
            # Without this frame, which holds the call, and so the error.
            self.error = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
        del work  # it holds the payload
        self._end()

    def fail(self, error: BaseException) -> None:
        """End the call with an error, unless it has begun."""
        if self.begin():
            self._work, self.error = _nothing, error
            self._end()

    @property
    def has_begun(self) -> bool:
        """Whether the call was made, or has failed without."""
        return self._begun.locked()

    def begin(self) -> bool:
        """Claim the call; returns False if it was made or has failed, or another thread has claimed it."""
        return self._begun.acquire(blocking=False)

    def ended(self) -> None:
        """Called at the end, in the thread of the call."""

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end.

        Args:
            seconds: Longest wait; None for a call with its own deadline.

        Returns:
            Whether the call has ended.
        """
        if self.is_done:
            return True
        waiter = threading.Event()
        self._waiters.append(waiter)
        return self.is_done or waiter.wait(seconds)  # type: ignore[redundant-expr]  # it may have ended meanwhile

    def take(self) -> T:
        """The result, once the call has ended; can be taken once.

        Raises:
            BaseException: The error of the call.
        """
        result, error = self.outcome()
        if error is not None:
            try:
                raise error
            finally:
                del error  # otherwise frame and traceback form a cycle that holds the payload
        return result  # type: ignore[return-value]  # without an error it is the call's

    def outcome(self) -> tuple[T | None, BaseException | None]:
        """The result and the error, instead of :meth:`take`."""
        outcome = self.result, self.error
        self.result = self.error = None
        return outcome

    def drop(self, ended: Callable[[Call[T]], object] = lambda _call: None) -> None:
        """Give up the result: the end of the call is passed on.

        Args:
            ended: Called once, at the end in the call's thread, or right now if the call has ended.
        """
        self._dropped.append(ended)
        if self.is_done:
            self._pass_on()

    def _end(self) -> None:
        self.ended()
        self.is_done = True
        for waiter in self._waiters:
            waiter.set()
        if self._dropped:
            self._pass_on()

    def _pass_on(self) -> None:
        with suppress(IndexError):  # the other thread passes it on
            self._dropped.pop()(self)
            self.outcome()


class DaemonPool(Executor):
    """Makes calls in daemon threads, as many at a time as there are slots; the others wait in their order.

    Callers only append to a queue, and threads count: a signal handler that raises in a caller loses no slot. After a
    fork, the child has all slots.

    Args:
        slots: Most calls at a time.

    Example:
        >>> DaemonPool(8).all([partial(max, 1, 2), partial(max, 3, 4)])
        [2, 4]
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._is_shut = False
        self._begin()
        forks.watch(self, DaemonPool._leave_to_parent)

    def _begin(self) -> None:
        self._waiting: deque[Call[Any]] = deque()
        self._running: set[Call[Any]] = set()
        self._lock = threading.RLock()  # signal handlers and finalizers may make calls, too
        self._is_coming = False  # whether a thread was started that has not looked at the queue yet

    def _leave_to_parent(self) -> tuple[()]:
        self._begin()
        return ()

    def start(self, calls: Sequence[Call[Any]]) -> None:
        """Make calls as soon as slots are free.

        Raises:
            PayloadStoreUnavailableError: The system refuses to start another thread; none of the calls is made.
        """
        self._waiting.extend(calls)
        try:
            self._wake()
        except PayloadStoreUnavailableError as error:
            for call in calls:
                call.fail(error)
            raise

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make a call as soon as a slot is free. See :meth:`concurrent.futures.Executor.submit`.

        Raises:
            PayloadStoreError: The pool was shut down because its store was closed.
        """
        if self._is_shut:
            raise _closed()
        call = _Promised(fn, *args, **kwargs)
        self.start([call])
        return call.future

    def all(self, calls: Iterable[Callable[[], T]], *, ahead: int | None = None) -> list[T]:
        """Make calls, and return their results in order; if this raises, none is still running.

        Args:
            calls: Taken one by one, as they are begun.
            ahead: Most calls that are taken before the first of them has ended; None for all.
        """
        running: deque[Future[T]] = deque()
        done: list[T] = []
        try:
            for call in calls:
                if len(running) == ahead:
                    done.append(running.popleft().result())
                running.append(self.submit(call))
            done.extend(future.result() for future in running)
        except BaseException:
            settle(running)
            raise
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls.

        Args:
            wait: Whether to wait for the running calls, which then must have deadlines of their own.
            cancel_futures: Whether waiting calls fail.
        """
        self._is_shut = True
        if cancel_futures:
            with self._lock:
                cancelled = [*self._waiting]
                self._waiting.clear()
            for call in cancelled:
                # Not cancelled: callers waiting for a part must get an error of the store.
                call.fail(_closed())
        if wait:
            self._wake()  # in case an interrupt came between a call and its thread
        while wait and (left := self._left()):
            left[0].wait()

    def _left(self) -> list[Call[Any]]:
        with self._lock:
            return [*self._running, *self._waiting]

    def _wake(self) -> None:
        """Start a thread if a call waits for none; it starts the next one."""
        with self._lock:
            if self._waiting and not self._is_coming and len(self._running) < self.slots:
                run_in_daemon_thread(self._work)
                self._is_coming = True  # not before: an interrupt would keep all further threads from being started

    def _work(self) -> None:
        """Make calls until none is waiting, or no slot is free."""
        call = self._next(None)
        while call is not None:
            call.run()
            call = self._next(call)

    def _next(self, ended: Call[Any] | None) -> Call[Any] | None:
        with self._lock:
            if ended is None:
                self._is_coming = False
            else:
                self._running.discard(ended)
            if not self._waiting or len(self._running) >= self.slots:
                return None
            call = self._waiting.popleft()
            self._running.add(call)
        with suppress(PayloadStoreUnavailableError):  # this thread continues
            self._wake()
        return call


class _Promised(Call[T]):
    """A call whose outcome a future gets."""

    def __init__(self, work: Callable[..., T], *args: Any, **options: Any) -> None:
        super().__init__(work, *args, **options)
        self.future: Future[T] = Future()

    def begin(self) -> bool:
        is_first = super().begin()
        if is_first and not self.future.set_running_or_notify_cancel():
            self._work = _nothing
        return is_first

    def ended(self) -> None:
        result, error = self.outcome()
        if self.future.cancelled():
            return
        if error is None:
            self.future.set_result(result)  # type: ignore[arg-type]  # without an error it is the call's
        else:
            self.future.set_exception(error)


def settle(running: Iterable[Future[Any]]) -> None:
    """Cancel calls that have not started, and wait for the rest."""
    running = list(running)
    for future in running:
        future.cancel()
    wait(running)


def _nothing() -> None:
    """In place of a call that was made, so that its arguments are not held."""


def _closed() -> PayloadStoreError:
    return PayloadStoreError("the store is closed")
