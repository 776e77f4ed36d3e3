"""Several transfers of one record, side by side."""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from payload_stores import PayloadStoreUnavailableError
from serde_chain.transfer import Transfer, TransferSlots, finish, together
from tests.interrupts import interrupted_at

SECONDS = 30


class Upload(Transfer[str]):
    """Makes an object of its own name."""

    def __init__(self, name: str, work: Callable[[], object] = lambda: None, key: Hashable | None = None) -> None:
        self.name = name
        self.size = 10
        self.key = key
        self._work = work
        self.runs = 0

    def run(self) -> str:
        self.runs += 1
        self._work()
        return self.name

    def places(self) -> tuple[str, ...]:
        return (self.name,)

    def made(self, result: str, /) -> tuple[str, ...]:
        return (result,)

    def resume(self, result: str, /) -> Any:
        return f"[{result}]"


def run(steps: list[Any], slots: TransferSlots | None = None, undo: Callable[[str], object] | None = None) -> Any:
    return finish(together(steps, tuple, slots=slots or TransferSlots(8, 1000), undo=undo))


def test_data_and_transfers_keep_their_order() -> None:
    assert run(["a", Upload("b"), "c", Upload("d")]) == ("a", "[b]", "c", "[d]")
    assert together(["a", "b"], tuple, slots=TransferSlots(1, 1)) == ("a", "b")


def test_they_run_side_by_side() -> None:
    barrier = threading.Barrier(3)
    uploads = [Upload(name, lambda: barrier.wait(SECONDS)) for name in "abc"]
    assert run(list(uploads)) == ("[a]", "[b]", "[c]")


def test_no_more_run_than_there_are_slots() -> None:
    slots = TransferSlots(2, 60_000)
    lock, running, most = threading.Lock(), 0, 0
    begun = threading.Barrier(2)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        begun.wait(SECONDS)
        with lock:
            running -= 1

    records = [together([Upload(f"{at}{name}", work) for name in "abc"], tuple, slots=slots) for at in range(2)]
    threads = [threading.Thread(target=finish, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert most == 2


def test_a_slot_is_waited_for_with_a_deadline() -> None:
    slots, begun, may_end = TransferSlots(1, 10), threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        may_end.wait(SECONDS)

    holding = threading.Thread(target=run, args=([Upload("a", hold)], slots))
    holding.start()
    assert begun.wait(SECONDS)
    late = Upload("b")
    with pytest.raises(PayloadStoreUnavailableError, match="took all of 1 slots"):
        run([late], slots)
    may_end.set()
    holding.join(SECONDS)
    assert run([Upload("c")], slots) == ("[c]",)
    assert not late.runs


def test_records_take_turns() -> None:
    """A record with many fields does not make another one wait for all of them."""
    slots, order = TransferSlots(1, 60_000), list[str]()
    begun, is_queued = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        is_queued.wait(SECONDS)

    large = [Upload("large", first), *(Upload("large", lambda: order.append("large")) for _ in range(4))]
    other = Upload("other", lambda: order.append("other"))
    threads = [threading.Thread(target=run, args=(list(uploads), slots)) for uploads in (large, [other])]
    threads[0].start()
    assert begun.wait(SECONDS)
    threads[1].start()
    deadline = time.monotonic() + SECONDS
    while not slots._waiting:
        assert time.monotonic() < deadline
    is_queued.set()
    for thread in threads:
        thread.join(SECONDS)
    assert order.index("other") == 0


def test_equal_transfers_run_once() -> None:
    one, other = Upload("a", key="k"), Upload("a", key="k")
    assert run([one, other]) == ("[a]", "[a]")
    assert one.runs + other.runs == 1


def test_it_knows_all_objects_and_sizes() -> None:
    step = together([Upload("a"), Upload("b")], tuple, slots=TransferSlots(8, 1000))
    assert isinstance(step, Transfer)
    assert (step.size, step.places(), step.key, step.within_call) == (20, ("a", "b"), None, False)
    assert step.made(step.run()) == ("a", "b")


def test_one_failure_deletes_what_the_others_made() -> None:
    done = threading.Event()

    def fail() -> None:
        assert done.wait(SECONDS)
        raise PayloadStoreUnavailableError("down")

    deleted: list[str] = []
    with pytest.raises(PayloadStoreUnavailableError, match="down"):
        run([Upload("a", done.set), Upload("b", fail)], undo=deleted.append)
    assert deleted == ["a"]


def test_what_cannot_be_deleted_is_logged_and_the_first_error_raised(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        assert done.wait(SECONDS)
        raise PayloadStoreUnavailableError("down")

    def undo(_reference: str) -> None:
        raise PayloadStoreUnavailableError("still down")

    with pytest.raises(PayloadStoreUnavailableError, match=r"^down"):
        run([Upload("a", done.set), Upload("b", fail)], undo=undo)
    assert "still down" in caplog.text


def test_after_a_failure_no_further_one_begins() -> None:
    def fail() -> None:
        raise PayloadStoreUnavailableError("down")

    uploads = [Upload("a"), Upload("b", fail), *(Upload(name) for name in "cdef")]
    deleted: list[str] = []
    with pytest.raises(PayloadStoreUnavailableError):
        run(list(uploads), TransferSlots(1, 60_000), deleted.append)
    assert [upload.name for upload in uploads if upload.runs] == ["a", "b"]
    assert deleted == ["a"]


def test_an_interrupted_wait_deletes_what_ends_later(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, deleted, all_deleted = threading.Barrier(3), threading.Event(), list[str](), threading.Event()

    def undo(reference: str) -> None:
        deleted.append(reference)
        if len(deleted) == 2:
            all_deleted.set()

    def work() -> None:
        begun.wait(SECONDS)
        may_end.wait(SECONDS)

    def interrupted(*_: object) -> None:
        begun.wait(SECONDS)
        raise KeyboardInterrupt

    monkeypatch.setattr("serde_chain.transfer.step._Part.wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run([Upload(name, work) for name in "ab"], undo=undo)
    may_end.set()
    assert all_deleted.wait(SECONDS)
    assert sorted(deleted) == ["a", "b"]


def test_a_store_that_went_away_is_waited_for_once() -> None:
    asked: list[str] = []
    done = threading.Barrier(4)

    def undo(reference: str) -> None:
        asked.append(reference)
        raise PayloadStoreUnavailableError("down")

    def fail() -> None:
        done.wait(SECONDS)
        raise PayloadStoreUnavailableError("down")

    made = [Upload(name, lambda: done.wait(SECONDS)) for name in "abc"]
    with pytest.raises(PayloadStoreUnavailableError, match="down"):
        run([*made, Upload("d", fail)], undo=undo)
    assert len(asked) == 1


def test_an_interrupted_record_loses_no_slot() -> None:
    """Also where Python's own threading is interrupted."""
    slots = TransferSlots(1, 1000 * SECONDS)
    within = ("payload_stores/threads.py", "serde_chain/transfer/step.py", threading.__file__)
    number = 0
    while True:
        try:
            with interrupted_at(number, within):
                run([Upload("a"), Upload("b")], slots)
        except KeyboardInterrupt:
            assert run([Upload("c")], slots) == ("[c]",), f"after an interrupt at point {number}"
            number += 1
        else:
            break
    assert number > 5
