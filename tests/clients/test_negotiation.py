"""The gate alone: what goes into a batch, and what is refused and goes again."""

import time
from typing import Any

import pytest

from serde_chain import MessageTooLargeError, RecordContext
from serde_chain.clients.client_limits import TopicLimit
from serde_chain.clients.negotiation import Negotiation, keeps_order
from serde_chain.clients.outgoing import Outgoing
from serde_chain.clients.sender import Sender
from serde_chain.stages.large_message.write import LargeMessageSerializer
from serde_chain.transfer import Transfer, finish
from tests.clients.test_sender import Client, drain


class Limits:
    """Topics whose limits are known until they are forgotten."""

    def __init__(self, **limits: int) -> None:
        self.limits = limits
        self.answered = set(limits)

    def known(self, topic: str) -> TopicLimit | None:
        return self.learn(topic) if topic in self.answered else None

    def learn(self, topic: str) -> TopicLimit:
        self.answered.add(topic)
        return TopicLimit(self.limits[topic], compacted=False)

    def forget(self, topic: str) -> None:
        self.answered.discard(topic)


@pytest.fixture
def stage() -> LargeMessageSerializer:
    stage = LargeMessageSerializer()
    stage.configure({"large.message.payload.store.class": "memory"}, False)
    return stage


def negotiation(limits: Limits, stage: LargeMessageSerializer | None = None) -> Negotiation:
    return Negotiation(limits, stage, batch_bytes=1_000_000, message_max_bytes=1_000_000)


def record(size: int, topic: str = "t") -> Outgoing:
    return Outgoing(topic, None, bytes(size), headers=[])


def refuse(gate: Negotiation, outgoing: Outgoing) -> None:
    outgoing.state.is_refused = True
    assert gate.settle(outgoing.state) == (outgoing.topic, outgoing)
    assert gate.settle(outgoing.state) == (outgoing.topic, None), "a second time it changes nothing"


def test_a_topic_whose_limit_is_not_known_is_asked_for() -> None:
    limits = Limits(t=2_000_000)
    limits.forget("t")
    gate, outgoing = negotiation(limits), record(20_000)
    assert not gate.admit_now(outgoing)
    step = gate.admit(outgoing)
    assert isinstance(step, Transfer)
    assert finish(step) == bytes(20_000)
    assert gate.admit(outgoing) is True


def test_small_records_do_not_wait_for_the_answer() -> None:
    limits = Limits(t=2_000_000)
    limits.forget("t")
    gate, third = negotiation(limits), record(8_000)
    assert gate.admit_now(record(8_000))
    assert gate.admit(record(8_000)) is True
    assert gate.admit_now(third) is False
    assert gate.admit(third) is None, "together they may be more than the topic accepts, until the answer is there"
    limits.learn("t")
    assert gate.admit(third) is True


class Unknown(Limits):
    """Topics whose limits no broker names."""

    def learn(self, topic: str) -> TopicLimit:
        self.answered.add(topic)
        return TopicLimit()


class Unanswered(Limits):
    """Topics about which a broker never answers."""

    def learn(self, topic: str) -> TopicLimit:
        self.answered.add(topic)
        return TopicLimit(unanswered=True)


def test_without_an_answer_nothing_is_behind_a_record_that_may_be_refused() -> None:
    gate = negotiation(Unanswered(t=0, u=0))
    small, more, large = record(8_000), record(8_000), record(20_000)
    assert gate.admit_now(small)
    assert gate.admit_now(more)
    assert gate.admit(record(1_000)) is False, "together they may be more than the topic accepts"
    assert gate.admit(large) is False, "it may be refused, so nothing may come after it"
    assert gate.admit_now(record(20_000, "u"))
    for outgoing in (small, more):
        gate.count_off(outgoing.state)
    assert gate.admit(large) is True
    assert gate.admit(record(1)) is False
    assert gate.admit(record(20_000)) is False
    gate.count_off(large.state)
    assert gate.admit(record(1)) is True


def test_batches_that_any_topic_accepts_need_no_bound() -> None:
    gate = Negotiation(Unanswered(t=0), None, batch_bytes=16_384, message_max_bytes=1_000_000)
    small = [record(8_000) for _ in range(10)]
    assert all(gate.admit(outgoing) is True for outgoing in small)
    large = record(20_000)
    assert gate.admit(large) is False
    for outgoing in small:
        gate.count_off(outgoing.state)
    assert gate.admit(large) is True
    assert gate.admit(record(1)) is False


def test_records_that_go_again_are_in_flight_without_later_ones() -> None:
    gate, records = negotiation(Limits(t=2_000_000)), [record(10), record(20), record(20_000)]
    for outgoing in records:
        assert gate.admit(outgoing) is True
    for outgoing in records:
        refuse(gate, outgoing)
    small, more, large = records
    for outgoing in (small, more):
        assert len(finish(gate.admit(outgoing))) in {10, 20}
        assert gate.admit(outgoing) is True
    finish(gate.admit(large))
    assert gate.admit(large) is False, "the first ones are in a batch that any topic accepts; this may be refused again"
    assert gate.admit_now(record(10)) is False, "it would precede them if they were"
    for outgoing in (small, more):
        gate.count_off(outgoing.state)
    assert gate.admit(large) is True
    assert gate.admit_now(record(10)) is False
    gate.count_off(large.state)
    assert gate.admit_now(record(10))


@pytest.mark.parametrize("name", ["max.in.flight.requests.per.connection", "max.in.flight"])
def test_with_one_request_in_flight_nothing_is_behind_a_record_that_may_be_refused(name: str) -> None:
    assert keeps_order({name: "1"})
    assert not keeps_order({name: 5})
    gate = Negotiation(Limits(t=2_000_000), None, batch_bytes=1_000_000, message_max_bytes=1_000_000, in_order=True)
    large = record(20_000)
    assert gate.admit(large) is True
    assert gate.admit(record(1)) is False, "a limit that is lowered at this moment refuses the large one only"
    gate.count_off(large.state)
    assert gate.admit(record(1)) is True
    assert gate.admit(record(1)) is True
    assert gate.admit(record(20_000)) is False


def test_an_unknown_limit_is_presumed_once_a_batch_was_refused(stage: LargeMessageSerializer) -> None:
    gate = negotiation(Unknown(t=0), stage)
    large, small, tombstone = record(20_000), record(10), Outgoing("t", b"key", None, headers=[])
    for outgoing in (large, small, tombstone):
        assert gate.admit_now(outgoing)
    for outgoing in (large, small, tombstone):
        assert gate.may_go_again(outgoing.state)
        refuse(gate, outgoing)
    for outgoing in (large, small):
        finish(gate.admit(outgoing))
    assert gate.admit(large) is True
    assert gate.admit(small) is False, "it would be refused with the large one again"
    refuse(gate, large)
    large.step = finish(gate.admit(large))
    assert bytes(large.step).startswith(b"memory:///t/")
    assert gate.admit(large) is True
    gate.count_off(large.state)
    assert gate.admit(small) is True
    gate.count_off(small.state)
    assert finish(gate.admit(tombstone)) is None
    assert gate.admit(tombstone) is True


def test_a_large_record_that_is_refused_again_says_nothing_about_small_ones() -> None:
    limits = Unknown(t=0)
    gate, large, small = negotiation(limits), record(20_000), record(10)
    assert gate.admit_now(large)
    refuse(gate, large)
    finish(gate.admit(large))
    assert gate.admit(large) is True
    refuse(gate, large)
    limits.learn("t")
    assert gate.admit(small) is True
    assert gate.admit(record(10)) is True, "together in a batch"
    refuse(gate, small)
    gate.count_off(small.state)


def test_small_records_that_are_refused_again_go_alone() -> None:
    gate = negotiation(Unknown(t=0))
    small = record(10)
    for _ in range(2):
        assert gate.admit(small) is True
        refuse(gate, small)
        finish(gate.admit(small))
    assert gate.admit(record(10)) is True
    assert gate.admit(record(10)) is False


def test_a_limit_that_is_known_replaces_what_was_presumed() -> None:
    limits = Unknown(t=0)
    gate, small = Negotiation(limits, None, batch_bytes=10**6, message_max_bytes=10**6, in_order=True), record(10)
    for _ in range(2):
        assert gate.admit(small) is True
        refuse(gate, small)
        finish(gate.admit(small))
    gate._topics = Limits(t=5_000)
    assert gate.admit(record(1_000)) is True
    assert gate.admit(record(1_000)) is True, "together in a batch"
    assert gate.admit(record(4_000)) is False


def test_the_clients_limit_gives_way_to_the_topics() -> None:
    limits = Limits(t=5_000_000, low=2_000_000)
    gate = Negotiation(limits, None, batch_bytes=1_000_000, message_max_bytes=1_000_000, learnt_max_bytes=10**9)
    for outgoing, is_too_large in (
        (record(4_999_900), False),
        (record(5_000_000), True),
        (record(3_000_000, "low"), True),
        (record(999_964, "low"), False),
    ):
        assert gate.admit_now(outgoing)
        assert outgoing.state.is_too_large is is_too_large


def test_what_exceeds_a_limit_that_was_lowered_meanwhile_is_offloaded(stage: LargeMessageSerializer) -> None:
    """Encoded when the topic's limit was above it, and lowered before it is sent."""
    gate = Negotiation(
        Limits(t=2_000_000), stage, batch_bytes=1_000_000, message_max_bytes=1_000_000, learnt_max_bytes=10**9
    )
    outgoing = record(3_000_000)
    assert not gate.admit_now(outgoing)
    outgoing.step = finish(gate.admit(outgoing))
    assert bytes(outgoing.step).startswith(b"memory:///t/")
    assert gate.admit(outgoing) is True
    assert not outgoing.state.is_too_large


def test_a_lowered_limit_counts_for_records_that_were_encoded_before(stage: LargeMessageSerializer) -> None:
    """Also below the client's limit: sent inline, it would be refused, and overtaken by those behind it."""
    gate, outgoing = negotiation(Limits(t=100_000), stage), record(150_000)
    assert not gate.admit_now(outgoing)
    outgoing.step = finish(gate.admit(outgoing))
    assert bytes(outgoing.step).startswith(b"memory:///t/")
    assert gate.admit(outgoing) is True
    gate.count_off(outgoing.state)
    assert gate.admit_now(record(100_000 - 72)), "the largest that fits"


def test_no_more_is_under_way_than_a_batch_may_have() -> None:
    gate = negotiation(Limits(t=1000, u=2_000_000))
    first, second, third = record(500), record(500), record(300)
    assert gate.admit(first) is True
    assert gate.admit(first) is True, "once more, where the client had no room"
    assert gate.admit(second) is False
    assert not gate.admit_now(second)
    assert gate.admit(third) is True
    assert gate.admit(record(900_000, "u")) is True
    gate.withdraw(third)
    assert gate.settle(first.state) == ("t", None)
    assert gate.admit(second) is True


def test_what_is_larger_than_a_batch_goes_alone() -> None:
    gate = negotiation(Limits(t=1000))
    assert gate.admit(record(5000)) is True
    assert gate.admit(record(1)) is False


def test_a_refused_record_waits_for_those_under_way(stage: LargeMessageSerializer) -> None:
    gate = negotiation(Limits(t=2_000_000), stage)
    first, second = record(10), record(20)
    assert gate.admit(first) is True
    assert gate.admit(second) is True
    refuse(gate, first)
    assert gate.admit(first) is False, "the second may be refused as well, and comes after it"
    gate.count_off(second.state)
    assert isinstance(gate.admit(first), Transfer)


def test_each_refused_record_is_made_to_fit(stage: LargeMessageSerializer) -> None:
    limits = Limits(t=2_000_000)
    gate = negotiation(limits, stage)
    records = [record(5_000), record(6_000)]
    for outgoing in records:
        assert gate.admit(outgoing) is True
    limits.limits["t"] = 1_000
    for outgoing in records:
        refuse(gate, outgoing)
    assert not limits.known("t"), "the broker is asked again"
    for outgoing in records:
        step = gate.admit(outgoing)
        assert isinstance(step, Transfer), "also where the limit is known by then"
        outgoing.step = finish(step)
        assert bytes(outgoing.step).startswith(b"memory:///t/")
        assert RecordContext("t", "value", outgoing.headers).headers
        assert gate.admit(outgoing) is True
        gate.count_off(outgoing.state)


def test_the_last_attempt_offloads_whatever_the_limit(stage: LargeMessageSerializer) -> None:
    gate, outgoing = negotiation(Limits(t=2_000_000), stage), record(5_000)
    for number in (1, 2, 3):
        step = gate.admit(outgoing)
        while isinstance(step, Transfer):
            outgoing.step = finish(step)
            step = gate.admit(outgoing)
        assert step is True
        assert outgoing.state.number == number
        assert (bytes(outgoing.step) == bytes(5_000)) == (number < 3)
        assert gate.may_go_again(outgoing.state) == (number < 3)
        if number < 3:
            refuse(gate, outgoing)


def test_what_fits_goes_again_without_a_stage_that_offloads() -> None:
    limits = Limits(t=2_000_000)
    gate, small, large = negotiation(limits), record(5), record(50_000)
    for outgoing in (small, large):
        assert gate.admit(outgoing) is True
    limits.limits["t"] = 20_000
    for outgoing in (small, large):
        assert gate.may_go_again(outgoing.state)
        refuse(gate, outgoing)
    assert finish(gate.admit(small)) == bytes(5), "the large one took it with it"
    with pytest.raises(MessageTooLargeError):
        finish(gate.admit(large))


def test_a_record_that_goes_again_holds_back_what_comes_after_it(stage: LargeMessageSerializer) -> None:
    gate, client = negotiation(Limits(t=2_000_000), stage), Client()
    sender: Any = Sender(client, gate=gate)
    first, second = record(1), record(2)
    for outgoing in (first, second):
        sender.put(outgoing)
    drain(sender)
    assert sender.enter(record(3))
    first.state.is_refused = True
    sender.settle(first.state)  # the second is under way, so the first waits
    third = record(3)
    assert not sender.enter(third), "it would overtake the first"
    sender.put(third)
    gate.count_off(second.state)
    sender.settle(second.state)
    until = time.monotonic() + 30
    while first.state.number == 1 or not first.is_gone:
        assert time.monotonic() < until
    assert [len(value) for value in client.sent["t"]] == [1, 2, 1]
    gate.count_off(first.state)
    sender.settle(first.state)
    drain(sender)
    assert [len(value) for value in client.sent["t"]] == [1, 2, 1, 3]
