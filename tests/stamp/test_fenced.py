"""What happens between two calls of a relay: another relay takes over, a transaction fails, the clock goes back."""

import itertools
import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from serde_chain.clients.confluent.partitions import make_client
from serde_chain.errors import StampError
from serde_chain.stamp import check, offset_at, relay, stamp
from tests.conftest import NewTopic
from tests.stamp.conftest import Fill


class Interrupted:
    """A producer before one of whose calls something happens, once.

    Args:
        producer: The producer.
        call: Name of the call.
        happens: What happens; whatever it raises, the call raises.
    """

    def __init__(self, producer: Any, call: str, happens: Callable[[], None]) -> None:
        self._producer, self._call, self._happens = producer, call, happens
        self.happened = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._producer, name)
        if name != self._call:
            return method

        def interrupted(*args: Any, **options: Any) -> Any:
            if not self.happened:
                self.happened = 1
                self._happens()
            return method(*args, **options)

        return interrupted


def interrupt(monkeypatch: pytest.MonkeyPatch, call: str, happens: Callable[[], None]) -> list[Interrupted]:
    """Let something happen before a call of the relay's producer; gives the producers that are made from now on."""
    made: list[Interrupted] = []

    def make_interrupted(kind: Any, *arguments: Any) -> Any:
        client = make_client(kind, *arguments)
        if kind is not confluent_kafka.Producer:
            return client
        made.append(Interrupted(client, call, happens))
        return made[-1]

    monkeypatch.setattr("serde_chain.stamp.relay.make_client", make_interrupted)
    return made


@pytest.mark.full
@pytest.mark.parametrize(
    ("call", "tried_before"),
    [
        ("begin_transaction", False),
        ("begin_transaction", True),
        ("produce", False),
        ("flush", False),
        ("send_offsets_to_transaction", False),
        ("commit_transaction", False),
        ("commit_transaction", True),
    ],
)
def test_a_relay_that_is_fenced_says_so(
    config: dict[str, Any],
    new_topic: NewTopic,
    fill: Fill,
    call: str,
    tried_before: bool,
) -> None:
    source, target = new_topic(), new_topic()
    fill(source, [{"value": b"%d" % number} for number in range(3)])
    newer = confluent_kafka.Producer({**config, "transactional.id": f"relay-{source}"})

    def take_over() -> None:
        newer.init_transactions(60)
        if tried_before:
            abortable = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT, "late", False, False, True)
            raise confluent_kafka.KafkaException(abortable)

    def relaying() -> int:
        return stamp(config, source, target, until_end=True, transactional_id=f"relay-{source}", timeout_s=30)

    with pytest.MonkeyPatch.context() as patch:
        made = interrupt(patch, call, take_over)
        with pytest.raises(StampError, match=rf"another relay of this name has taken over.*relay-{source}"):
            relaying()
    assert [producer.happened for producer in made] == [1]
    assert relaying() == 3
    assert check(config, target).counts == {}


@pytest.mark.full
@pytest.mark.parametrize("call", ["produce", "send_offsets_to_transaction", "commit_transaction"])
def test_a_transaction_that_fails_is_done_again(
    config: dict[str, Any], new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    source, target = new_topic(), new_topic()
    fill(source, [{"value": b"%d" % number} for number in range(3)])

    def fail() -> None:
        abortable = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT, "late", False, False, True)
        raise confluent_kafka.KafkaException(abortable)

    made = interrupt(monkeypatch, call, fail)
    assert stamp(config, source, target, until_end=True) == 3
    assert [producer.happened for producer in made] == [1]
    report = check(config, target)
    assert (report.records, report.counts) == (3, {})


def test_the_time_of_frames_does_not_go_back_with_the_clock(
    config: dict[str, Any], new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = new_topic(), new_topic()
    backwards = itertools.count(1_700_000_000_000_000_000, -3_600_000_000_000)
    monkeypatch.setattr(relay, "time", SimpleNamespace(monotonic=time.monotonic, time_ns=lambda: next(backwards)))
    for _ in range(2):  # the second one knows the time of the last frame only
        fill(source, [{"value": b"%d" % number} for number in range(3)])
        assert stamp(config, source, target, until_end=True) == 3
    report = check(config, target)
    assert (report.records, report.counts) == (6, {})


def test_the_times_of_producers_do_not_matter(
    config: dict[str, Any], new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PIP-70's test plan: several producers, whose times are in no order, and a search that finds the record."""
    source, target = new_topic(), new_topic()
    chance = random.Random(70)
    producers = [confluent_kafka.Producer(config) for _ in range(3)]
    for number in range(60):
        said = 1_700_000_000_000 + chance.randrange(1_000_000)
        producer = producers[number % 3]
        producer.produce(source, b"%d" % number, timestamp=said)
        assert producer.flush(30) == 0
    clock = itertools.count(1_800_000_000_000_000_000, 1_000_000_000)
    monkeypatch.setattr(relay, "time", SimpleNamespace(monotonic=time.monotonic, time_ns=lambda: next(clock)))
    assert stamp(config, source, target, until_end=True) == 60
    for number in (0, 1, 30, 59):
        received = 1_800_000_000_000 + 1000 * number
        assert offset_at(config, target, 0, received) == number
        assert offset_at(config, target, 0, received - 999) == number
    consumer = confluent_kafka.Consumer({**config, "group.id": "by Kafka's own times"})
    place = confluent_kafka.TopicPartition(target, 0, 1_700_000_500_000)
    (found,) = consumer.offsets_for_times([place], 30)
    consumer.close()
    assert found.offset < 30, "Kafka's own search is by the producers' times, which are in no order"
