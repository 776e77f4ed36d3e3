"""Blocking calls in daemon threads: slots, outcomes, interrupts and forks."""

import contextvars
import os
import threading
from collections.abc import Callable
from functools import partial

import pytest

from payload_stores.threads import Call, DaemonPool
from tests.interrupts import interrupted_at

SECONDS = 30


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


def _alone(_pool: DaemonPool) -> None:
    call = Call(max, 1, 2).start()
    call.wait(SECONDS)
    call.take()


@pytest.mark.parametrize("make", [_in_pool, _alone])
def test_an_interrupted_caller_loses_no_slot(make: Callable[[DaemonPool], None]) -> None:
    pool = DaemonPool(1)
    number = 0
    while True:
        try:
            with interrupted_at(number, ("payload_stores/threads.py",)):
                make(pool)
        except KeyboardInterrupt:
            assert pool.submit(max, 1, 2).result(SECONDS) == 2, f"after an interrupt at point {number}"
            number += 1
        else:
            break
    assert number > 5
