"""What several records need is asked for once."""

import threading
from collections.abc import Callable

import pytest

from serde_chain import DecodeError, SchemaRegistryError
from serde_chain.transfer import Lookups, finish


def about_record(text: str = "there is no schema 7") -> SchemaRegistryError:
    error = SchemaRegistryError(text)
    error.about_record = True
    return error


class Asked:
    """Counts questions; each raises what is put into `errors`, as long as there is something."""

    def __init__(self, *errors: BaseException) -> None:
        self.count = 0
        self.errors = list(errors)

    def __call__(self) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return f"answer {self.count}"


def in_threads(count: int, call: Callable[[], object]) -> list[object]:
    outcomes: list[object] = []

    def run() -> None:
        try:
            outcomes.append(call())
        except Exception as error:  # noqa: BLE001  compared by the test
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


def test_an_answer_is_remembered() -> None:
    lookups, ask = Lookups[int, str](), Asked()
    assert [lookups.get(7, ask), lookups.get(7, ask), lookups.get(8, ask)] == ["answer 1", "answer 1", "answer 2"]
    assert dict(lookups.known) == {7: "answer 1", 8: "answer 2"}


def test_threads_share_a_question() -> None:
    lookups, waiting, count = Lookups[int, str](), threading.Event(), 0

    def ask() -> str:
        nonlocal count
        count += 1
        assert waiting.wait(30)
        return "answer"

    first = threading.Thread(target=lambda: lookups.get(7, ask))
    first.start()
    timer = threading.Timer(0.2, waiting.set)
    timer.start()
    assert in_threads(5, lambda: lookups.get(7, ask)) == ["answer"] * 5
    first.join(30)
    assert count == 1


def test_threads_share_a_failure_and_each_has_its_own_error() -> None:
    lookups, waiting, count = Lookups[int, str](), threading.Event(), 0

    def ask() -> str:
        nonlocal count
        count += 1
        assert waiting.wait(30)
        raise SchemaRegistryError("it is down")

    timer = threading.Timer(0.2, waiting.set)
    timer.start()
    errors = in_threads(5, lambda: lookups.get(7, ask))
    assert [str(error) for error in errors] == ["it is down"] * 5
    assert len(set(map(id, errors))) == 5
    assert count == 1


def test_that_a_service_is_down_is_not_remembered() -> None:
    lookups, ask = Lookups[int, str](), Asked(SchemaRegistryError("it is down"))
    with pytest.raises(SchemaRegistryError):
        lookups.get(7, ask)
    assert lookups.get(7, ask) == "answer 2"


def test_that_there_is_no_answer_is_remembered_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    lookups, ask = Lookups[int, str](refused_s=5), Asked(about_record())
    errors = []
    for _ in range(3):
        with pytest.raises(SchemaRegistryError, match="no schema 7") as caught:
            lookups.get(7, ask)
        errors.append(caught.value)
    assert ask.count == 1
    assert len(set(map(id, errors))) == 3
    now += 6
    assert lookups.get(7, ask) == "answer 2"


def test_what_is_remembered_as_a_refusal_can_be_chosen() -> None:
    lookups, ask = (
        Lookups[int, str](is_refusal=lambda error: isinstance(error, KeyError)),
        Asked(about_record(), KeyError()),
    )
    with pytest.raises(SchemaRegistryError):
        lookups.get(7, ask)
    for _ in range(2):
        with pytest.raises(KeyError):
            lookups.get(7, ask)
    assert ask.count == 2


def test_refusals_hold_no_payload() -> None:
    lookups = Lookups[int, str]()

    def refused(payload: bytes) -> None:
        with pytest.raises(SchemaRegistryError):
            lookups.get(len(payload), Asked(about_record()))

    refused(bytes(7))
    ((_, error),) = lookups._refused.values()
    assert error.__traceback__ is None


def test_an_interrupt_leaves_the_question_to_others() -> None:
    lookups, ask = Lookups[int, str](), Asked(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        lookups.get(7, ask)
    assert lookups.get(7, ask) == "answer 2"


def test_who_waits_for_a_question_that_is_interrupted_asks() -> None:
    lookups, waiting, asked = Lookups[int, str](), threading.Event(), threading.Event()

    def interrupted() -> str:
        asked.set()
        assert waiting.wait(30)
        raise SystemExit

    def first() -> None:
        with pytest.raises(SystemExit):
            lookups.get(7, interrupted)

    thread = threading.Thread(target=first)
    thread.start()
    assert asked.wait(30)
    timer = threading.Timer(0.2, waiting.set)
    timer.start()
    assert in_threads(3, lambda: lookups.get(7, lambda: "answer")) == ["answer"] * 3
    thread.join(30)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serde_chain.transfer.answers._MOST_REFUSED", 3)
    lookups = Lookups[int, str](most=3)
    for key in range(20):
        if key < 10:
            lookups.get(key, Asked())
        else:
            with pytest.raises(SchemaRegistryError):
                lookups.get(key, Asked(about_record()))
    assert list(lookups.known) == [7, 8, 9]
    assert list(lookups._refused) == [17, 18, 19]
    assert not lookups._asked


def test_a_transfer_goes_on_with_the_record() -> None:
    lookups, ask = Lookups[int, str](), Asked()
    one, two, other = (lookups.transfer(key, ask, str.upper) for key in (7, 7, 8))
    assert (one.key == two.key, one.key == other.key, one.size, one.within_call) == (True, False, 0, True)
    assert [finish(one), finish(two), finish(other)] == ["ANSWER 1", "ANSWER 1", "ANSWER 2"]


def test_what_goes_wrong_with_the_record_is_not_the_answers_fault() -> None:
    lookups, ask = Lookups[int, str](), Asked()

    def bad(_answer: str) -> None:
        raise DecodeError("not a record of the schema")

    with pytest.raises(DecodeError):
        finish(lookups.transfer(7, ask, bad))
    assert lookups.get(7, ask) == "answer 1"
