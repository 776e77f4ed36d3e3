"""What a consumer holds between its calls."""

import pytest
from confluent_kafka import Message

from serde_chain.clients.window import Window


def message(partition: int, offset: int) -> "Message[bytes, bytes]":
    return Message(topic="t", partition=partition, offset=offset, value=b"v")


def test_what_was_handed_over_is_taken_out_and_nothing_else() -> None:
    window = Window()
    first, second, third = message(0, 0), message(1, 0), message(0, 1)
    window.fetch_several(lambda _most, _seconds: [first, second, third], 3, 0)
    window.given = [first, second]
    # As many are left as were handed over, and they are others.
    window.drop({("t", 1)})
    window.settle()
    assert list(window.waiting()) == [third]
    # An interrupt came after they were taken out, and before that was noted.
    window.given = [first]
    window.settle()
    assert list(window.waiting()) == [third]
    window.given = [third]
    window.settle()
    assert window.front() is None
    assert not window.given
    assert not window.decoded


def test_paused_partitions_wait() -> None:
    window = Window()
    first, second = message(0, 0), message(1, 0)
    for each in (first, second):
        window.fetch(lambda _seconds, each=each: each, 0)  # type: ignore[misc]
    window.fetch(lambda _seconds: None, 0)
    window.paused = {("t", 0)}
    assert list(window.waiting()) == [second]
    assert window.front() is second
    assert window.first_offsets() == {("t", 0): 0, ("t", 1): 0}
    window.given = [second]
    window.settle()
    assert window.front() is None
    window.paused = set()
    assert window.front() is first


def test_after_an_interrupt_the_client_is_asked_only_for_what_it_has() -> None:
    window = Window()
    record = message(0, 0)
    asked: list[float] = []

    def poll(seconds: float) -> object:
        asked.append(seconds)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return record if len(asked) == 4 else None

    with pytest.raises(KeyboardInterrupt):
        window.fetch(poll, 20)
    assert (window.torn, window.is_wary()) == (1, True)
    window.torn = 0  # the consumer has gone back
    window.fetch(poll, 20)
    assert window.front() is record
    assert asked == [20, 0, 0, 0]
    assert window.is_wary()


def test_without_an_interrupt_the_client_waits_by_itself() -> None:
    window = Window()
    asked: list[float] = []
    window.fetch(asked.append, 20)
    window.fetch_several(lambda most, seconds: [asked.extend((most, seconds))][:0], 5, -1)  # type: ignore[func-returns-value]
    assert asked == [20, 5, -1]
    assert not window.is_wary()


def test_time_left_is_waited_for_by_the_client_once_it_is_trusted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serde_chain.clients.window._WARY", 0.02)
    window = Window()
    asked: list[float] = []
    window.be_wary()
    window.fetch(asked.append, 20)
    assert asked[0] == 0
    assert 19 < asked[-1] < 20
    assert len(asked) > 1
    window.be_wary()
    window.fetch(asked.append, -1)
    assert asked[-1] == -1
