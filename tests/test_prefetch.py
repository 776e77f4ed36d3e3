"""Transfers that run ahead: in parallel, equal ones once, within bounds."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

import pytest

from payload_stores import threads
from payload_stores.errors import PayloadNotFoundError, PayloadStoreUnavailableError
from serde_chain.transfer import Prefetch, Prefetched, Transfer


class Payload(bytes):
    """Tells its store when it is dropped."""

    store: "Store"

    @classmethod
    def of(cls, content: bytes, store: "Store") -> Self:
        payload = cls(content)
        payload.store = store
        return payload

    def __del__(self) -> None:
        with self.store.lock:
            self.store.held -= len(self)


class Store:
    """Counts what is asked of it, what it hands out at a time, and the bytes of what is not dropped yet."""

    def __init__(self, seconds: float = 0.002, size: int = 10) -> None:
        self.seconds = seconds
        self.size = size
        self.asked: list[str] = []
        self.running = self.most = 0
        self.held = self.most_held = 0
        self.lock = threading.RLock()

    def __call__(self, transfer: "Transfer[Any]") -> bytes:
        url = transfer.key
        assert isinstance(url, str)
        with self.lock:
            self.asked.append(url)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(self.seconds)
        with self.lock:
            self.running -= 1
            if "gone" in url:
                raise PayloadNotFoundError("the payload is gone")
            payload = Payload.of(url.encode() * (transfer.size or self.size), self)
            self.held += len(payload)
            self.most_held = max(self.most_held, self.held)
        return payload


class Fetch(Transfer[bytes]):
    def __init__(self, key: str | None, size: int | None = None) -> None:
        self.key, self.size = key, size

    def run(self) -> bytes:
        raise NotImplementedError

    def resume(self, result: bytes, /) -> bytes:
        return result


def fetches(keys: Iterable[str], size: int | None = None) -> list[Fetch]:
    return [Fetch(key, size) for key in keys]


def prefetch_of(call: Callable[["Transfer[Any]"], bytes], in_flight: int = 8, max_bytes: int | None = 1000) -> Prefetch:
    return Prefetch(call, in_flight=in_flight, max_bytes=max_bytes)


def take_each(prefetch: Prefetch, waiting: list[Prefetched]) -> list[bytes]:
    """Take what was added, in order, and let each go before the next."""
    results = []
    while waiting:
        results.append(bytes(taken(prefetch, waiting.pop(0))))
        prefetch.go_on()
    return results


def taken(prefetch: Prefetch, ahead: Prefetched) -> Any:
    assert prefetch.wait(ahead, 30)
    return ahead.take()


def until(condition: Callable[[], object]) -> None:
    """Wait for what another thread is about to do."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_equal_transfers_run_once_and_others_in_parallel() -> None:
    store = Store(0.02)
    prefetch = prefetch_of(store, in_flight=4)
    keys = "abcabcdefga"
    waiting = prefetch.add(fetches(keys))
    assert [taken(prefetch, ahead) for ahead in waiting] == [key.encode() * 10 for key in keys]
    assert sorted(store.asked) == list("abcdefg")
    assert 1 < store.most <= 4
    assert store.held == 70
    waiting.clear()
    prefetch.go_on()
    until(lambda: store.held == 0)


def test_transfers_without_a_key_are_all_different() -> None:
    runs: list[Transfer[Any]] = []

    def run(transfer: "Transfer[Any]") -> bytes:
        runs.append(transfer)
        return b"x"

    prefetch = prefetch_of(run)
    assert take_each(prefetch, prefetch.add([Fetch(None), Fetch(None)])) == [b"x", b"x"]
    assert len(runs) == 2


@pytest.mark.parametrize("size", [10, None])
def test_the_bound_of_bytes(size: int | None) -> None:
    store = Store()
    prefetch = prefetch_of(store, in_flight=8 if size else 3, max_bytes=30)
    keys = "abcdefghijklmnopqrst"
    assert take_each(prefetch, prefetch.add(fetches(keys, size))) == [key.encode() * 10 for key in keys]
    # One that was handed over is let go of by its taker only.
    assert 10 < store.most_held <= 40
    assert store.most <= 3
    assert len(store.asked) == 20
    until(lambda: store.held == 0)


def test_payloads_that_say_no_size_are_taken_for_as_large_as_the_largest_so_far() -> None:
    store = Store(size=30)
    prefetch = prefetch_of(store, in_flight=6, max_bytes=60)
    take_each(prefetch, prefetch.add(fetches("abcdef")))
    until(lambda: store.held == 0)
    store.most_held = 0
    take_each(prefetch, prefetch.add(fetches("ghijklmnopqrst")))
    assert 30 <= store.most_held <= 90


def test_what_was_taken_and_not_let_go_counts() -> None:
    store = Store()
    prefetch = prefetch_of(store, max_bytes=30)
    waiting = prefetch.add(fetches("abcdef", 10))
    for ahead in waiting[:3]:
        taken(prefetch, ahead)
    assert len(store.asked) == 3
    taken(prefetch, waiting[3])  # one may always be had
    assert len(store.asked) == 4
    del waiting[:4], ahead
    prefetch.go_on()
    until(lambda: len(store.asked) == 6)


def test_a_payload_above_the_bound_is_fetched_alone() -> None:
    store = Store()
    prefetch = prefetch_of(store, max_bytes=30)
    take_each(prefetch, prefetch.add(fetches("abc", 100)))
    assert store.most == 1


def test_what_is_held_for_later_makes_room_for_the_next() -> None:
    store = Store()
    prefetch = prefetch_of(store, in_flight=2, max_bytes=20)
    assert take_each(prefetch, prefetch.add(fetches("abcdabcd", 10))) == [key.encode() * 10 for key in "abcdabcd"]
    assert set(store.asked) == set("abcd")


def test_what_makes_room_is_gone_until_it_is_fetched_again() -> None:
    store, told = Store(), list[None]()
    prefetch = prefetch_of(store, max_bytes=20)
    prefetch.notify = lambda: told.append(None)
    first, second = prefetch.add(fetches("ab", 10))
    until(lambda: len(told) == 2)
    [third] = prefetch.add(fetches("c", 10))
    assert taken(prefetch, third) == b"c" * 10
    assert (first.is_done, second.is_done, second.held_bytes) == (True, False, 0)
    assert taken(prefetch, second) == b"b" * 10
    assert sorted(store.asked) == [*"abbc"]


def test_what_was_taken_makes_no_room() -> None:
    told = list[None]()
    prefetch = prefetch_of(Store(), max_bytes=20)
    prefetch.notify = lambda: told.append(None)
    first, second = prefetch.add(fetches("ab", 10))
    until(lambda: len(told) == 2)
    held = second.take()
    [third] = prefetch.add(fetches("c", 10))
    assert taken(prefetch, third) == b"c" * 10
    assert (first.is_done, second.is_done) == (False, True)
    assert second.take() is held


def test_the_end_of_one_makes_room_for_one() -> None:
    begun, may_end = ({key: threading.Event() for key in "abcd"} for _ in range(2))

    def run(transfer: "Transfer[Any]") -> bytes:
        assert isinstance(transfer.key, str)
        begun[transfer.key].set()
        may_end[transfer.key].wait(60)
        return b"x"

    prefetch = prefetch_of(run, in_flight=2, max_bytes=None)
    waiting = prefetch.add(fetches("abcd"))
    try:
        assert begun["a"].wait(30)
        assert begun["b"].wait(30)
        may_end["a"].set()
        assert begun["c"].wait(30)
        assert not begun["d"].wait(0.1)
    finally:
        for event in may_end.values():
            event.set()
    assert [taken(prefetch, ahead) for ahead in waiting] == [b"x"] * 4


def test_a_result_that_is_not_there_cannot_be_taken() -> None:
    with pytest.raises(RuntimeError, match="not done"):
        Prefetched(Fetch("a")).take()


def test_an_error_is_that_of_everyone_who_needs_the_result() -> None:
    store = Store()
    prefetch = prefetch_of(store)
    first, *gone, last = prefetch.add(fetches(["a", "gone", "gone", "b"]))
    assert taken(prefetch, first) == b"a" * 10
    errors = []
    for ahead in gone:
        with pytest.raises(PayloadNotFoundError) as caught:
            taken(prefetch, ahead)
        errors.append(caught.value)
        assert isinstance(ahead.error, PayloadNotFoundError)
    assert errors[0] is not errors[1]
    assert taken(prefetch, last) == b"b" * 10
    assert store.asked.count("gone") == 1


def test_what_has_failed_is_tried_again_for_those_who_ask_later() -> None:
    errors = [PayloadStoreUnavailableError("down")]

    def run(_transfer: "Transfer[Any]") -> bytes:
        if errors:
            raise errors.pop()
        return b"x"

    prefetch = prefetch_of(run)
    [first] = prefetch.add(fetches("a"))
    with pytest.raises(PayloadStoreUnavailableError):
        taken(prefetch, first)
    [second] = prefetch.add(fetches("a"))
    assert taken(prefetch, second) == b"x"
    assert first.error is not None


def test_what_is_let_go_of_is_not_begun_and_what_hangs_takes_no_place() -> None:
    hangs, release = threading.Event(), threading.Event()
    asked = []

    def run(transfer: "Transfer[Any]") -> bytes:
        asked.append(transfer.key)
        if transfer.key == "hangs":
            hangs.set()
            release.wait(60)
        return b"x"

    prefetch = prefetch_of(run, in_flight=1)
    try:
        waiting = prefetch.add(fetches(["hangs", "dropped", "next"]))
        assert hangs.wait(30)
        for _ in range(200):  # each takes no time, or all of them more than a test may
            assert not prefetch.wait(waiting[0], 0)
        del waiting[:2]
        prefetch.go_on()
        assert taken(prefetch, waiting[0]) == b"x"
        assert not release.is_set()
        assert asked == ["hangs", "next"]
    finally:
        release.set()


def test_who_waits_is_served_before_those_that_hang() -> None:
    hangs, release = threading.Event(), threading.Event()

    def run(transfer: "Transfer[Any]") -> bytes:
        if transfer.key == "hangs":
            hangs.set()
            release.wait(60)
        return b"x"

    prefetch = prefetch_of(run, in_flight=1)
    try:
        waiting = prefetch.add(fetches(["hangs", "next"]))
        assert hangs.wait(30)
        assert taken(prefetch, waiting[1]) == b"x"
    finally:
        release.set()


def test_notify_is_called() -> None:
    prefetch, told = prefetch_of(Store()), threading.Event()
    prefetch.notify = told.set
    [ahead] = prefetch.add(fetches("a"))
    assert told.wait(30)
    assert ahead.is_done


def test_notify_is_called_for_an_earlier_result() -> None:
    """Two records refer to one payload, and the first still holds it: asyncio waits for the news alone."""
    told = threading.Event()
    prefetch = prefetch_of(Store())
    prefetch.notify = told.set
    first = prefetch.add(fetches(["a"]))
    assert told.wait(10)
    told.clear()
    second = prefetch.add(fetches(["a"]))
    assert told.wait(10)
    assert first[0].take() is second[0].take()


def test_where_no_thread_can_be_started_those_who_wait_learn_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_idle", [])
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        prefetch = prefetch_of(Store())
        [ahead] = prefetch.add(fetches("a"))
        with pytest.raises(PayloadStoreUnavailableError, match="no thread"):
            prefetch.wait(ahead, 30)
    assert taken(prefetch, ahead) == b"a" * 10


def test_a_thread_that_goes_on_holds_no_payload() -> None:
    store = Store(0.0)
    begun, release = threading.Event(), threading.Event()

    def run(transfer: "Transfer[Any]") -> bytes:
        if transfer.key == "long":
            begun.set()
            release.wait(60)
        return store(transfer)

    prefetch = prefetch_of(run, in_flight=1)
    try:
        waiting = prefetch.add(fetches(["a", "b", "long"]))
        for _ in range(2):
            taken(prefetch, waiting.pop(0))
            prefetch.go_on()
        assert begun.wait(30)
        until(lambda: store.held == 0)
    finally:
        release.set()
