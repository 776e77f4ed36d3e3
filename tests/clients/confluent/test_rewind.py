"""What a call of the client had taken when it was interrupted is asked for again, whatever comes in between."""

import threading
from collections.abc import Collection
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from serde_chain import Consumer
from serde_chain.clients.confluent.rewind import Rewind
from serde_chain.clients.window import Window
from tests.chaos.points import interrupted
from tests.interrupts import interrupted_at

Messages = list["Message[bytes, bytes]"]


class Client:
    """confluent_kafka's consumer, with positions of a topic's partitions that a test has chosen."""

    def __init__(self, positions: dict[int, int], committed: int = OFFSET_INVALID, low: int = 0) -> None:
        self.positions = positions
        self.sought: dict[int, int] = {}
        self.stored, self.low = committed, low
        self.refuses: Collection[int] = ()

    def assignment(self) -> list[Place]:
        return [Place("t", partition) for partition in self.positions]

    def position(self, places: list[Place]) -> list[Place]:
        return [Place("t", place.partition, self.positions[place.partition]) for place in places]

    def seek(self, place: Place) -> None:
        if place.partition in self.refuses:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.positions[place.partition] = OFFSET_INVALID  # as librdkafka says until a record comes
        self.sought[place.partition] = place.offset

    def committed(self, places: list[Place], timeout: float) -> list[Place]:
        return [Place("t", place.partition, self.stored) for place in places]

    def get_watermark_offsets(self, _place: Place, timeout: float) -> tuple[int, int]:
        return self.low, 100


def message(partition: int, offset: int) -> "Message[bytes, bytes]":
    return Message(topic="t", partition=partition, offset=offset, value=b"v")


def torn(*messages: Any, handed: int = 0, by: int = 1) -> Window:
    """A window of messages, the first of which were handed over, after a call that was interrupted."""
    window = Window()
    window.fetch_several(lambda _most, _seconds: messages, len(messages), 0)
    window.given = messages[:handed]
    window.settle()

    def interrupt(*_: object) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        window.fetch_several(interrupt, by, 0)
    return window


def rewind(client: Client, window: Window, reset: str | None = None, *, reports_ends: bool = False) -> Rewind:
    return Rewind(client, window, reset=reset, reports_ends=reports_ends)


def test_each_partition_goes_on_behind_its_last_record_also_after_further_interrupts() -> None:
    client = Client({0: 13, 1: 21, 2: 6, 3: OFFSET_INVALID})
    # Two handed over; of partition 1, others wait. Compaction has taken what was at offset 11.
    window = torn(message(0, 10), message(1, 20), message(0, 12), message(2, 4), handed=4, by=3)
    client.positions |= {0: 15, 2: 8}
    point = 0
    while window.torn:
        try:
            with interrupted_at(point, ("serde_chain/clients/confluent/rewind",)):
                rewind(client, window).go_back()
        except KeyboardInterrupt:
            assert window.torn
            point += 1
    assert point > 20
    assert client.sought == {0: 13, 2: 5}


def test_the_way_back_has_no_more_points_for_more_records() -> None:
    points = []
    for count in (3, 300):
        client, window = Client({0: 400}), torn(*(message(0, offset) for offset in range(count)), handed=1)
        reached = 1
        while window.torn:
            try:
                with interrupted(reached):
                    rewind(client, window).go_back()
            except KeyboardInterrupt:
                reached += 1
        assert client.sought == {0: count}
        points.append(reached)
    assert points[0] == points[1] > 5


def test_records_that_wait_are_not_asked_for_again() -> None:
    client = Client({0: 15})
    window = torn(message(0, 10), message(0, 11), handed=1, by=5)
    rewind(client, window).go_back()
    assert client.sought == {0: 12}
    assert [each.offset() for each in window.waiting()] == [11]


def test_partitions_that_were_given_back_are_forgotten() -> None:
    client = Client({0: 15})
    client.refuses = {0}  # it is being given back, too
    window = torn(message(0, 10), message(1, 3), message(2, 3), handed=2)
    rewind(client, window).go_back()
    assert client.sought == {}
    assert window.front() is None
    assert window.ends() == {("t", 0): 11}
    assert not window.torn


@pytest.mark.parametrize(
    ("start", "committed", "low", "reset", "by", "found"),
    [
        (OFFSET_INVALID, OFFSET_INVALID, 0, "earliest", 1, 49),  # a single record was dropped
        (12, 30, 0, "earliest", 5, 12),
        (OFFSET_INVALID, 30, 0, "latest", 5, 30),
        (OFFSET_INVALID, OFFSET_INVALID, 7, "earliest", 5, 7),
        (OFFSET_INVALID, 3, 7, "earliest", 5, 7),  # out of range
        (OFFSET_BEGINNING, 30, 7, "latest", 5, 7),
        (OFFSET_INVALID, OFFSET_INVALID, 0, None, 5, 40),
        (OFFSET_END, 30, 0, "earliest", 5, 40),
        (OFFSET_END, 30, 45, "earliest", 5, 45),
    ],
)
def test_where_a_partition_begins_of_which_nothing_came(  # noqa: PLR0917, a table
    start: int, committed: int, low: int, reset: str | None, by: int, found: int
) -> None:
    client = Client({0: 50}, committed, low)
    back = rewind(client, torn(by=by), reset)
    back.note_start([Place("t", 0, start)])
    back.go_back()
    assert client.sought == {0: found}


def test_what_the_broker_is_asked_is_not_asked_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client({0: 50}, committed=30)
    asked, answers = [], threading.Event()

    def slowly(place: Place, timeout: float) -> tuple[int, int]:
        asked.append(place.partition)
        assert answers.wait(timeout)
        return 0, 100

    monkeypatch.setattr(client, "get_watermark_offsets", slowly)
    back = rewind(client, torn(by=5), "latest")

    def interrupt(_answer: Future[int], _timeout: float | None = None) -> int:
        raise KeyboardInterrupt

    for _ in range(3):
        with monkeypatch.context() as during:
            during.setattr(Future, "result", interrupt)  # a real signal may come before or after the call
            with pytest.raises(KeyboardInterrupt):
                back.go_back()
    assert client.sought == {}
    answers.set()
    back.go_back()
    assert client.sought == {0: 30}
    assert asked == [0]
    back.close()


def test_an_answer_counts_only_until_the_caller_seeks(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client({0: 50}, committed=30)
    back = rewind(client, torn(by=5), "latest")

    def interrupt(_place: Place) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(client, "seek", interrupt)
        with pytest.raises(KeyboardInterrupt):
            back.go_back()
    back.note_start([Place("t", 0, 20)])
    back.go_back()
    assert client.sought == {0: 20}


def test_a_question_that_failed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client({0: 50}, committed=30)
    failures = [KafkaException(KafkaError(KafkaError._TRANSPORT))]

    def answer(_place: Place, *, timeout: float) -> tuple[int, int]:
        assert timeout >= 0
        for failure in failures:
            failures.clear()
            raise failure
        return 0, 100

    monkeypatch.setattr("serde_chain.clients.confluent.rewind._PATIENCE", 0)
    monkeypatch.setattr(client, "get_watermark_offsets", answer)
    back = rewind(client, torn(by=5), "latest")
    with pytest.raises(KafkaException):
        back.go_back()
    back.go_back()
    assert client.sought == {0: 30}


def test_events_at_the_ends_of_partitions_come_again() -> None:
    client = Client({0: 11, 1: OFFSET_INVALID, 2: OFFSET_INVALID})
    back = rewind(client, torn(message(0, 10), handed=1), reports_ends=True)
    back.note_start([Place("t", 1, 5)])
    back.go_back()
    assert client.sought == {0: 11, 1: 5}


def test_a_consumer_at_the_end_does_not_pass_over_what_comes_meanwhile() -> None:
    client = Client({0: OFFSET_INVALID})
    back = rewind(client, torn(), reports_ends=True)
    back.note_start([Place("t", 0, OFFSET_END)])
    back.go_back()
    assert client.sought == {}


def test_what_has_gone_back_is_left_to_its_fetch_after_the_next_interrupt() -> None:
    client = Client({0: 15})
    window = torn(message(0, 10), handed=1)
    back = rewind(client, window)
    back.go_back()
    assert client.sought == {0: 11}
    client.sought.clear()
    window.torn = 1
    back.go_back()
    assert client.sought == {}
    client.positions[0] = 12  # a record came, and was dropped
    window.torn = 1
    back.go_back()
    assert client.sought == {0: 11}
    client.sought.clear()
    back.note_start([Place("t", 0, 5)])
    window.torn = 1
    back.go_back()
    assert client.sought == {0: 11}  # after a seek by the caller, nothing is known of it


def test_nothing_is_asked_where_no_call_was_interrupted() -> None:
    client = Client({0: 15})
    window = torn(message(0, 10), handed=1)
    window.torn = 0
    rewind(client, window).go_back()
    assert client.sought == {}


def test_a_new_assignment_after_an_interrupt_begins_where_it_was_set() -> None:
    """The client's position is that of the former assignment for a moment: a rewind to it would pass over records."""
    client = Client({0: 977})
    with Consumer({"bootstrap.servers": "127.0.0.1:9", "group.id": "g"}) as consumer:
        consumer._window.torn = 1
        consumer.assign([Place("t", 0, 900)])
        consumer._rewind._client = client
        consumer._rewind.go_back()
        consumer.unassign()
    assert client.sought == {}


def test_partitions_whose_callback_was_interrupted_are_noted() -> None:
    """Otherwise the last record of a batch would be that of its only known partition, and others stay uncommitted."""
    window = torn(message(0, 10), message(1, 20), handed=0)
    window.expect({("t", 0)})
    rewind(Client({0: 11, 1: 21}), window).go_back()
    assert window.places == {("t", 0), ("t", 1)}
