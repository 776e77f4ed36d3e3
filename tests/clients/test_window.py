"""What a consumer holds between its calls."""

import itertools
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from serde_chain.clients.window import Place, Window
from tests.interrupts import interrupted_at


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


def test_nothing_is_kept_of_dropped_messages() -> None:
    """Another message may get the identity of one that is gone."""
    window = Window()
    kept, dropped = message(0, 0), message(1, 0)
    window.messages += [kept, dropped]
    tables: list[dict[int, Any]] = [window.decoded, window.under_way, window.aside]
    for noted in tables:
        noted.update({id(kept): "its note", id(dropped): "its note"})
    window.drop({("t", 1)})
    assert tables == [{id(kept): "its note"}] * 3


def test_paused_partitions_wait() -> None:
    window = Window()
    first, second = message(0, 0), message(1, 0)
    for each in (first, second):
        window.fetch(lambda _seconds, each=each: each, 0)  # type: ignore[misc]
    window.fetch(lambda _seconds: None, 0)
    window.paused = {("t", 0)}
    assert list(window.waiting()) == [second]
    assert window.front() is second
    assert window.count() == 1
    assert window.first_offsets() == {("t", 0): 0, ("t", 1): 0}
    window.given = [second]
    window.settle()
    assert window.front() is None
    window.paused = set()
    assert window.front() is first


def test_after_an_interrupt_the_client_is_asked_only_for_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window()
    record = message(0, 0)
    asked: list[float] = []
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=slept.append)
    monkeypatch.setattr("serde_chain.clients.window.time", clock)

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
    assert slept == [0.005] * 2, "not without a pause"
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


def in_hand(*messages: Any) -> Window:
    """A window that delivers messages one by one, and has one more."""
    window = Window()
    window.fetch_several(lambda _most, _seconds: [*messages, message(9, 9)], len(messages) + 1, 0)
    window.take_in_hand([*messages], [*messages])
    return window


def test_the_step_of_the_iterator_is_the_delivery() -> None:
    records = [message(0, offset) for offset in range(4)]
    window = in_hand(*records)
    assert list(window.last_given()) == []
    assert [next(window.in_hand), next(window.in_hand)] == records[:2]
    assert list(window.last_given()) == [records[1]]
    assert window.first_offsets() == {("t", 0): 2, ("t", 9): 9}
    assert next(window.in_hand) is records[2]
    assert list(window.last_given()) == [records[2]]
    window.settle()
    assert [each.offset() for each in window.waiting()] == [3, 9]
    assert list(window.in_hand) == []
    assert window.ends() == {("t", 0): 4, ("t", 9): 10}


def test_what_is_delivered_in_another_form_is_counted_likewise() -> None:
    window, record, decoded = Window(), message(0, 0), message(0, 0)
    window.fetch(lambda _seconds: record, 0)
    window.take_in_hand([record], [decoded])
    assert next(window.in_hand) is decoded
    window.settle()
    assert window.front() is None


def test_a_record_behind_those_of_a_paused_partition_may_be_delivered() -> None:
    window = Window()
    records = [message(0, 0), message(1, 0), message(1, 1)]
    window.fetch_several(lambda _most, _seconds: records, 3, 0)
    window.pause({("t", 0)})
    window.take_in_hand([records[1]], [records[1]])
    next(window.in_hand)
    assert window.first_offsets() == {("t", 0): 0, ("t", 1): 1}
    window.settle()
    assert window.messages == [records[0], records[2]]


@pytest.mark.parametrize("act", [lambda window: window.pause({("u", 0)}), lambda window: window.drop({("u", 0)})])
def test_in_hand_is_nothing_after_a_change_of_the_partitions(act: Any) -> None:
    records = [message(0, offset) for offset in range(3)]
    window = in_hand(*records)
    next(window.in_hand)
    act(window)
    assert list(window.in_hand) == []
    window.settle()
    assert [each.offset() for each in window.waiting()] == [1, 2, 9]


def test_the_last_record_of_each_partition_counts() -> None:
    records = [message(0, 0), message(1, 5), message(0, 1)]
    other = Message(topic="u", partition=0, offset=7, value=b"v")
    cases: list[tuple[set[Place], list[Any], list[Any]]] = [
        ({("t", 0), ("t", 1)}, records, [records[2], records[1]]),
        ({("t", 0), ("t", 1)}, records[:1] + records[2:], [records[2]]),
        ({("t", 0)}, records[:1] + records[2:], [records[2]]),
        ({("t", 0), ("t", 1), ("u", 0)}, [*records, other], [records[2], records[1], other]),
        (set(), [*records, other], [records[2], records[1], other]),
    ]
    for places, given, last in cases:
        window = Window()
        window.expect(places)
        window.given = given
        assert list(window.last_given()) == last


def test_a_lost_partition_counts_as_long_as_its_records_are_delivered() -> None:
    window = Window()
    window.expect({("t", 0), ("t", 1)})
    records = [message(0, 0), message(1, 5), message(0, 1)]
    window.messages += records
    window.given = records[:2]
    window.drop({("t", 1)})
    assert list(window.last_given()) == records[:2]
    window.settle()
    assert list(window.waiting()) == records[2:]
    window.drop()
    window.expect({("t", 0)})
    assert window.places == {("t", 0)}


def test_what_an_interrupted_call_has_begun_to_remove_is_not_taken_back() -> None:
    """Without the note of its decoded parts, it would be decoded twice."""
    for number in itertools.count():
        window, record = Window(), message(0, 0)
        window.fetch(lambda _seconds, record=record: record, 0)  # type: ignore[misc]
        window.decoded[id(record)] = "its parts"
        window.given = (record,)
        is_interrupted = True
        with suppress(KeyboardInterrupt), interrupted_at(number, ("serde_chain/clients/window.py",)):
            window.settle()
            is_interrupted = False
        window.take_back()
        window.settle()
        assert window.decoded or not window.messages
        if not is_interrupted:
            break


@pytest.mark.parametrize("more", ["a", "b"])
def test_an_error_behind_the_last_record_of_a_partition_does_not_count(more: str) -> None:
    window = Window()
    window.expect({("a", 0), ("a", 1), ("a", 2), (more, 2)})
    end = KafkaError(KafkaError._PARTITION_EOF)
    records: list[Any] = [Message(topic="a", partition=of, offset=at) for at, of in enumerate((0, 1, 0, 1))]
    errors: list[Any] = [Message(topic="a", partition=of, offset=9, error=end) for of in (0, 2)]
    window.messages += [*records, *errors]
    window.given = [*window.messages]
    assert [*window.last_given()] == records[2:]
    window.settle()
    assert window.taken == {"a": {0: 2, 1: 3}}
