"""Blocking calls in daemon threads: slots, outcomes, interrupts and forks."""

import contextvars
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NoReturn

import pytest

from payload_stores import PayloadStoreError, PayloadStoreUnavailableError, threads
from payload_stores.threads import Call, DaemonPool, run_in_daemon_thread
from tests.interrupts import interrupted_at

SECONDS = 30
OWN = "payload_stores/threads.py"


@contextmanager
def busy(pool: DaemonPool) -> Iterator[threading.Event]:
    """One slot is taken, until the event is set or the block ends."""
    begun, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(SECONDS)

    running = pool.submit(work)
    assert begun.wait(SECONDS)
    try:
        yield may_end
    finally:
        may_end.set()
        running.result(SECONDS)


def refuse_threads(_job: object) -> NoReturn:
    raise PayloadStoreUnavailableError("no thread can be started")


def test_a_call_has_its_makers_context_variables() -> None:
    trace = contextvars.ContextVar[str]("trace")
    trace.set("of the caller")
    call = Call(trace.get)
    trace.set("later")
    assert call.start().wait(SECONDS)
    assert call.take() == "of the caller"
    assert DaemonPool(1).submit(trace.get).result(SECONDS) == "later"


def test_the_end_of_a_dropped_call_is_passed_on_once() -> None:
    begun, may_end, passed = threading.Event(), threading.Event(), threading.Semaphore(0)

    def work() -> None:
        begun.set()
        may_end.wait(SECONDS)

    call = Call(work).start()
    assert begun.wait(SECONDS)
    call.drop(lambda _call: passed.release())
    assert not passed.acquire(blocking=False)
    may_end.set()
    assert passed.acquire(timeout=SECONDS)
    assert not passed.acquire(blocking=False)


def test_a_call_that_has_failed_already_is_not_made() -> None:
    call = Call(pytest.fail, "it was made")
    call.fail(KeyError("first"))
    call.fail(KeyError("second"))
    call.run()
    with pytest.raises(KeyError, match="first"):
        call.take()


def test_results_come_in_order_and_nothing_runs_after_a_failure() -> None:
    pool = DaemonPool(2)
    assert pool.all([partial(max, number, 0) for number in range(9)], ahead=3) == list(range(9))
    begun, ended = threading.Event(), threading.Event()

    def fail() -> None:
        assert begun.wait(SECONDS)
        raise KeyError

    def slow() -> None:
        begun.set()
        ended.set()

    made: list[int] = []
    calls: list[Callable[[], object]] = [fail, slow, *(partial(made.append, number) for number in range(2))]
    with pytest.raises(KeyError):
        pool.all(calls, ahead=2)
    assert ended.is_set()
    assert not pool._running


def test_a_pool_that_is_shut_down_waits_for_its_calls() -> None:
    with DaemonPool(1) as pool:
        futures = [pool.submit(max, number, 0) for number in range(5)]
    assert [future.done() for future in futures] == [True] * 5


def test_at_least_one_call_is_taken_ahead() -> None:
    assert DaemonPool(1).all([partial(max, 1, 2)] * 2, ahead=0) == [2, 2]


def test_keyword_arguments_may_have_any_name() -> None:
    names = {"work": 1, "self": 2, "fn": 3}
    assert Call(dict, **names).start().wait(SECONDS)
    assert DaemonPool(1).submit(dict, **names).result(SECONDS) == names


class Payload:
    """Something that can be observed to go."""


def _refuse(_payload: Payload) -> None:
    raise KeyError


def _submit(pool: DaemonPool, payload: Payload) -> None:
    pool.submit(_refuse, payload).result(SECONDS)


def _make_all(pool: DaemonPool, payload: Payload) -> None:
    pool.all([partial(_refuse, payload)] * 3)


def _submit_without_threads(pool: DaemonPool, payload: Payload) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "run_in_daemon_thread", refuse_threads)
        pool.submit(_refuse, payload)


@pytest.mark.parametrize("make", [_submit, _make_all, _submit_without_threads])
def test_a_failed_call_does_not_keep_its_arguments(make: Callable[[DaemonPool, Payload], None]) -> None:
    pool, payload = DaemonPool(1), Payload()
    gone = weakref.ref(payload)
    gc.disable()
    try:
        with suppress(KeyError, PayloadStoreUnavailableError):
            make(pool, payload)
        del payload
        pool.submit(int).result(SECONDS)  # so the thread is done with the call before
        assert gone() is None
    finally:
        gc.enable()


class Stop(BaseException):
    """Nothing that a future logs by itself."""


def _stop(_call: object) -> NoReturn:
    raise Stop


def _fail_in_a_callback(pool: DaemonPool) -> None:
    with busy(pool):
        pool.submit(int).add_done_callback(_stop)


def _fail_in_a_drop(pool: DaemonPool) -> None:
    with busy(pool):
        call = Call(int)
        pool.start([call])
        call.drop(_stop)


@pytest.mark.parametrize("fail", [_fail_in_a_callback, _fail_in_a_drop])
def test_a_callback_that_fails_takes_no_slot(
    fail: Callable[[DaemonPool], None], caplog: pytest.LogCaptureFixture
) -> None:
    pool = DaemonPool(1)
    fail(pool)
    assert pool.submit(max, 1, 2).result(SECONDS) == 2
    assert "a callback at the end of a call has failed" in caplog.text
    assert "Stop" in caplog.text


def test_a_call_ends_although_passing_its_outcome_on_fails() -> None:
    class Ends(Call[int]):
        def ended(self) -> None:
            raise Stop

    call, passed = Ends(int), list[object]()
    call.drop(passed.append)
    with pytest.raises(Stop):
        call.run()
    assert call.wait(0)
    assert passed == [call]


def test_a_call_that_comes_during_a_shutdown_ends() -> None:
    """At each point of ``submit``, although no slot becomes free."""
    number, is_over = 0, False

    def shut(pool: DaemonPool) -> None:
        nonlocal is_over
        is_over = False
        pool.shutdown(wait=False, cancel_futures=True)

    while not is_over:
        is_over, pool = True, DaemonPool(1)
        with busy(pool):
            future = None
            with suppress(PayloadStoreError), interrupted_at(number, (OWN,), partial(shut, pool)):
                future = pool.submit(max, 1, 2)
            if future is not None and not is_over:
                assert isinstance(future.exception(SECONDS), PayloadStoreError), f"shut down at point {number}"
        number += 1
    assert number > 5


def test_after_an_interrupted_shutdown_no_call_waits_for_ever() -> None:
    number, is_interrupted = 0, True
    while is_interrupted:
        pool = DaemonPool(1)
        with busy(pool):
            futures = [pool.submit(max, 1, 2) for _ in range(3)]
            is_interrupted = False
            try:
                with interrupted_at(number, (OWN,)):
                    pool.shutdown(wait=False, cancel_futures=True)
            except KeyboardInterrupt:
                is_interrupted = True
                pool.shutdown(wait=False, cancel_futures=True)
            for future in futures:
                assert isinstance(future.exception(SECONDS), PayloadStoreError), f"after an interrupt at {number}"
        number += 1
    assert number > 5


def test_a_shutdown_waits_for_callbacks_without_turning_in_circles() -> None:
    pool, begun, may_end, is_shut = DaemonPool(1), threading.Event(), threading.Event(), threading.Event()

    def passed(_call: object) -> None:
        begun.set()
        may_end.wait(SECONDS)

    def shut() -> None:
        pool.shutdown()
        is_shut.set()

    call = Call(int)
    call.drop(passed)
    pool.start([call])
    assert begun.wait(SECONDS)
    assert call.wait(SECONDS)
    run_in_daemon_thread(shut)
    deadline = time.monotonic() + SECONDS
    while not pool._joining:
        assert time.monotonic() < deadline
    assert not is_shut.is_set()
    may_end.set()
    assert is_shut.wait(SECONDS)


def test_a_shutdown_without_threads_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = DaemonPool(1)
    monkeypatch.setattr(threads, "run_in_daemon_thread", refuse_threads)
    with pytest.raises(PayloadStoreUnavailableError):
        pool.submit(int)
    assert not pool._waiting
    left = Call(int)
    pool._waiting.append(left)  # by a caller that was interrupted before it started a thread
    pool.shutdown()
    assert left.take() == 0


def _own_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return {thread for thread in set(threading.enumerate()) - before if thread.name == "blocking-call"}


def test_an_interrupt_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_idle", [])
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.001)
    before = set(threading.enumerate())
    number, is_interrupted = 0, True
    while is_interrupted:
        is_interrupted = False
        try:
            with interrupted_at(number, (OWN,)):
                run_in_daemon_thread(threads._nothing)
        except KeyboardInterrupt:
            is_interrupted = True
        for thread in _own_threads(before):
            thread.join(SECONDS)
            assert not thread.is_alive(), f"after an interrupt at point {number}"
        number += 1
    assert number > 3


def test_an_interrupt_before_an_idle_thread_has_its_job_leaves_no_thread_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Taken(list[object]):
        """Loses the inboxes of idle threads, as if a caller had taken them and added no job."""

        def append(self, inbox: object, /) -> None:
            pass

    monkeypatch.setattr(threads, "_idle", Taken())
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.001)
    before = set(threading.enumerate())
    run_in_daemon_thread(threads._nothing)
    for thread in _own_threads(before):
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_a_thread_does_not_keep_its_first_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_idle", [])
    payload, made = Payload(), threading.Semaphore(0)
    gone = weakref.ref(payload)
    run_in_daemon_thread(partial(lambda _payload: None, payload))
    del payload
    deadline = time.monotonic() + SECONDS
    while not threads._idle:
        assert time.monotonic() < deadline
    run_in_daemon_thread(made.release)
    assert made.acquire(timeout=SECONDS)
    assert gone() is None


def test_a_job_for_a_thread_that_has_just_ended_is_done_by_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox, done = threads._Inbox(), threading.Event()
    inbox.is_over = True
    monkeypatch.setattr(threads, "_idle", [inbox])
    run_in_daemon_thread(done.set)
    assert done.wait(SECONDS)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # that is what it is about
def test_a_forked_process_has_all_slots() -> None:
    pool, begun, may_end = DaemonPool(1), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        may_end.wait(SECONDS)

    running = pool.submit(work)
    assert begun.wait(SECONDS)
    child = os.fork()
    if not child:
        try:
            os._exit(pool.submit(max, 0, 1).result(SECONDS) != 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    may_end.set()
    running.result(SECONDS)


def _in_pool(pool: DaemonPool) -> None:
    pool.submit(max, 1, 2).result(SECONDS)


def _all(pool: DaemonPool) -> None:
    assert pool.all([partial(max, 1, 2)] * 3, ahead=2) == [2, 2, 2]


def _alone(_pool: DaemonPool) -> None:
    call = Call(max, 1, 2).start()
    call.wait(SECONDS)
    call.take()


def _started(pool: DaemonPool) -> None:
    call = Call(max, 1, 2)
    pool.start([call])
    call.wait(SECONDS)


# Without threading.py where a caller waits for a future: an interrupt there may keep the future's own lock.
@pytest.mark.parametrize(
    ("make", "within"),
    [(_in_pool, (OWN,)), *((make, (OWN, threading.__file__)) for make in (_all, _alone, _started))],
)
def test_an_interrupted_caller_loses_no_slot(make: Callable[[DaemonPool], None], within: tuple[str, ...]) -> None:
    pool = DaemonPool(1)
    number = 0
    while True:
        try:
            with interrupted_at(number, within):
                make(pool)
        except KeyboardInterrupt:
            assert pool.submit(max, 1, 2).result(SECONDS) == 2, f"after an interrupt at point {number}"
            number += 1
        else:
            break
    assert number > 5
