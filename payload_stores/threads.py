"""Runs blocking calls in daemon threads: one call, or several within a number of slots.

Everything that may block runs here, so each rule is written once: a call sees the context variables of its caller; its
error is raised where its result is taken; waiters have deadlines, and drop the call when they are interrupted; a call
that hangs delays neither other calls nor the end of the interpreter.
"""

from __future__ import annotations

import _queue  # a part of queue, which loads the other kinds of queues too
import contextvars
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Executor, Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar

from payload_stores import forks
from payload_stores.errors import PayloadStoreError, PayloadStoreUnavailableError

P = ParamSpec("P")
T = TypeVar("T")
Empty = _queue.Empty
SimpleQueue = _queue.SimpleQueue

_log: Final = logging.getLogger("payload_stores")


class _Inbox(SimpleQueue[Callable[[], None]]):
    """The jobs of a thread, one at a time.

    Attributes:
        is_over: Whether the thread has looked into it for the last time, or is about to.
    """

    is_over = False


# Inboxes of idle threads. Starting a thread takes longer than a small publish.
_idle: Final[list[_Inbox]] = []
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
    if _is_taken(job):
        return
    inbox = _Inbox()
    inbox.put(job)  # before the start: an interrupt in between would leak an idle thread
    try:
        threading.Thread(target=_work, args=(inbox,), name="blocking-call", daemon=True).start()
    except RuntimeError as error:  # how Python reports EAGAIN
        raise PayloadStoreUnavailableError(
            "no thread can be started for a blocking call",
            hint="Calls that hang keep their threads: check the store, and the limit (pids.max, ulimit -u)",
        ) from error


def _is_taken(job: Callable[[], None]) -> bool:
    """Give a job to an idle thread, if there is one."""
    try:
        inbox = _idle.pop()
    except IndexError:
        return False
    inbox.put(job)
    if inbox.is_over:  # a signal handler ran for longer than the thread waits for the job
        try:
            inbox.get_nowait()
        except Empty:  # it was there at the last look
            return True
        return False
    return True


def _work(inbox: _Inbox) -> None:
    while (job := _next_job(inbox)) is not None:
        job()
        del job  # the job holds the payload
        _idle.append(inbox)


def _next_job(inbox: _Inbox) -> Callable[[], None] | None:
    for _ in range(2):
        try:
            return inbox.get(timeout=_IDLE_SECONDS)
        except Empty:
            try:
                _idle.remove(inbox)
            except ValueError:  # a caller has it: the job follows, unless the caller was interrupted
                continue
            return None
    inbox.is_over = True
    try:
        return inbox.get_nowait()
    except Empty:
        return None


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
        has_run: Whether the call was made, regardless of its outcome.

    Example:
        >>> call = Call(max, 1, 2).start()
        >>> call.wait(60), call.take()
        (True, 2)
    """

    def __init__(self, work: Callable[..., T], /, *args: Any, **options: Any) -> None:
        self._work: Callable[[], Any] = partial(work, *args, **options)
        self._context = contextvars.copy_context()  # so that traces continue in the other thread
        self.result: T | None = None
        self.error: BaseException | None = None
        self.is_done = self.has_run = False
        self._begun = threading.Lock()  # acquired once, without a wait, by who makes or fails the call
        # Mostly one or none. Not events: an interrupt within their Python code leaves their lock held for ever.
        self._waiters: list[threading.Lock] = []
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
        self.has_run = True
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
        turn = threading.Lock()
        turn.acquire()
        self._waiters.append(turn)
        longest = -1 if seconds is None else min(max(0.0, seconds), threading.TIMEOUT_MAX)
        return self.is_done or turn.acquire(timeout=longest)  # type: ignore[redundant-expr]  # it may have ended meanwhile

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
        try:
            self.ended()
        finally:
            self.is_done = True
            for turn in self._waiters:
                turn.release()
            if self._dropped:
                self._pass_on()

    def _pass_on(self) -> None:
        try:
            ended = self._dropped.pop()
        except IndexError:  # the other thread passes it on
            return
        try:
            ended(self)
        finally:
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
        self._fails = False  # whether waiting calls fail
        self._begin()
        forks.watch(self, DaemonPool._leave_to_parent)

    def _begin(self) -> None:
        self._waiting: deque[Call[Any]] = deque()
        self._running: set[Call[Any]] = set()
        self._lock = threading.RLock()  # signal handlers and finalizers may make calls, too
        self._is_coming = False  # whether a thread was started that has not looked at the queue yet
        self._joining: list[threading.Lock] = []  # of those who wait until nothing runs

    def _leave_to_parent(self) -> tuple[()]:
        self._begin()
        return ()

    def start(self, calls: Sequence[Call[Any]]) -> None:
        """Make calls as soon as slots are free.

        Raises:
            PayloadStoreUnavailableError: The system refuses to start another thread; none of the calls is made.
            PayloadStoreError: The pool was shut down because its store was closed.
        """
        with self._lock:
            if self._is_shut:
                raise _closed()
            self._waiting.extend(calls)
        try:
            self._wake()
        except PayloadStoreUnavailableError as error:
            for call in calls:
                call.fail(error)
            with self._lock:
                for call in calls:
                    with suppress(ValueError):  # a thread has taken it
                        self._waiting.remove(call)
                self._release()
            raise

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Make a call as soon as a slot is free. See :meth:`concurrent.futures.Executor.submit`.

        Raises:
            PayloadStoreError: The pool was shut down because its store was closed.
        """
        call = _Promised(fn, *args, **kwargs)
        future = call.future
        try:
            self.start([call])
            return future
        finally:
            del future  # it may hold the error that is raised here, whose traceback holds this frame

    def all(self, calls: Iterable[Callable[[], T]], *, ahead: int | None = None) -> list[T]:
        """Make calls, and return their results in order; if this raises, none is still running.

        Args:
            calls: Taken one by one, as they are begun.
            ahead: Most calls that are taken before the first of them has ended, at least one; None for all.
        """
        most = None if ahead is None else max(1, ahead)
        running: deque[Call[T]] = deque()
        done: list[T] = []

        def take() -> None:
            running[0].wait()  # in the queue: the wait may be interrupted
            done.append(running.popleft().take())

        try:
            for work in calls:
                if len(running) == most:
                    take()
                running.append(Call(work))
                self.start([running[-1]])
            while running:
                take()
        except BaseException:
            for call in running:
                call.fail(CancelledError())
            for call in running:
                call.wait()
                call.drop()
            raise
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more calls.

        Args:
            wait: Whether to wait for the running calls, which then must have deadlines of their own.
            cancel_futures: Whether waiting calls fail. Not cancelled: callers waiting for a part must get an error of
                the store. They fail in a thread, since an interrupt here must not leave one without an end.
        """
        with self._lock:
            self._is_shut = True
            self._fails = self._fails or cancel_futures
        if wait or cancel_futures:
            try:
                self._wake()  # also in case an interrupt came between a call and its thread
            except PayloadStoreUnavailableError:
                self._work()
        if wait:
            turn = threading.Lock()
            turn.acquire()
            with self._lock:
                self._joining.append(turn)
                self._release()
            turn.acquire()

    def _release(self) -> None:
        """Under the lock: release those who wait until nothing runs, if so."""
        if not self._running and not self._waiting:
            while self._joining:
                self._joining.pop().release()

    def _wake(self) -> None:
        """Start a thread if a call waits for none; it starts the next one."""
        with self._lock:
            if self._may_take() and not self._is_coming:
                run_in_daemon_thread(self._work)
                self._is_coming = True  # not before: an interrupt would keep all further threads from being started

    def _may_take(self) -> bool:
        """Whether a call waits, and a slot is free or the call only fails."""
        return bool(self._waiting) and (self._fails or len(self._running) < self.slots)

    def _work(self) -> None:
        """Make calls until none is waiting, or no slot is free."""
        call = self._next(None)
        while call is not None:
            try:
                if self._fails:
                    call.fail(_closed())
                else:
                    call.run()
            except BaseException:  # noqa: BLE001  of a callback, not of the call; the slot must become free
                _log.exception("a callback at the end of a call has failed")
            call = self._next(call)

    def _next(self, ended: Call[Any] | None) -> Call[Any] | None:
        with self._lock:
            if ended is None:
                self._is_coming = False
            else:
                self._running.discard(ended)
            if not self._may_take():
                self._release()
                return None
            call = self._waiting.popleft()
            self._running.add(call)
        if not self._fails:  # otherwise one thread is enough
            with suppress(PayloadStoreUnavailableError):  # this thread continues
                self._wake()
        return call


class _Promised(Call[T]):
    """A call whose outcome a future gets."""

    def __init__(self, work: Callable[..., T], /, *args: Any, **options: Any) -> None:
        super().__init__(work, *args, **options)
        self.future: Future[T] = Future()

    def begin(self) -> bool:
        is_first = super().begin()
        if is_first and not self.future.set_running_or_notify_cancel():
            self._work = _nothing
        return is_first

    def ended(self) -> None:
        result, error = self.outcome()
        future = self.future
        del self.future  # it gets the error, whose traceback leads to this call
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # without an error it is the call's
        else:
            future.set_exception(error)


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
