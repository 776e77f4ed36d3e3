"""Finding records by time on a real broker."""

from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest

from payload_stores.memory import MemoryStore
from serde_chain import Consumer, Producer
from serde_chain.clients.confluent import times as module
from serde_chain.errors import StampError
from serde_chain.stamp import offset_at, stamp
from serde_chain.testing.services import KafkaBroker
from serde_chain.wire.entry_metadata import frame, peek
from tests.conftest import NewTopic
from tests.stamp.conftest import Fill

BEGIN_MS = 1_700_000_000_000


def at(number: int) -> int:
    return BEGIN_MS + 10 * number


def plain(number: int, **more: Any) -> dict[str, Any]:
    return {"value": b"%d" % number, "partition": 0, "timestamp": at(number), **more}


def framed(number: int, **more: Any) -> dict[str, Any]:
    # Kafka's own time is that of a source, days before.
    value = frame(b"%d" % number, broker_timestamp=at(number))
    return {"value": value, "partition": 0, "timestamp": BEGIN_MS - 10**9 + number, **more}


@pytest.fixture
def kept(new_topic: NewTopic) -> Callable[..., str]:
    """Topics that keep records of any age."""
    return lambda partitions=1: new_topic(partitions, {"retention.ms": "-1"})


@pytest.mark.full
def test_a_topic_without_frames_is_searched_as_before(
    kept: Callable[..., str], config: dict[str, Any], fill: Fill
) -> None:
    topic = kept()
    numbers = [number ^ 1 for number in range(100)]  # producers' clocks are not in order
    fill(topic, [plain(number) for number in numbers])
    for wanted in (0, at(0), at(20), at(20) + 1, at(99)):
        expected = next(offset for offset, number in enumerate(numbers) if at(number) >= wanted)
        assert offset_at(config, topic, 0, wanted) == expected
    assert offset_at(config, topic, 0, at(100)) == 100
    assert offset_at(config, topic, 0, -5) == 0


@pytest.mark.parametrize("wrong", [1_700_000_000.5, 1.7e12, "1700000000000"])
def test_a_time_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"timestamp_ms is an int, of ms since the epoch, not (float|str)"):
        offset_at({"bootstrap.servers": "127.0.0.1:1"}, "topic", 0, wrong)


@pytest.mark.parametrize("more", ["-missing", ""])
def test_a_missing_partition_is_named(kept: Callable[..., str], config: dict[str, Any], more: str) -> None:
    with pytest.raises(StampError, match=r"the partition cannot be read: .*Check topic and partition"):
        offset_at(config, kept() + more, 7, BEGIN_MS)


def test_frames_that_were_switched_on_later(kept: Callable[..., str], config: dict[str, Any], fill: Fill) -> None:
    topic = kept(2)
    fill(topic, [*map(plain, range(50)), *map(framed, range(50, 100))])
    for number in (0, 20, 49, 50, 77, 99):
        assert offset_at(config, topic, 0, at(number)) == number
    assert offset_at(config, topic, 0, at(99) + 1) == 100
    assert offset_at(config, topic, 1, at(0)) == 0  # an empty partition


def test_a_malformed_frame_stops_no_search(kept: Callable[..., str], config: dict[str, Any], fill: Fill) -> None:
    topic = kept()
    fill(topic, [{**plain(number), "value": b"\x0e\x02" + b"\xff" * (number % 7)} for number in range(30)])
    assert offset_at(config, topic, 0, at(12)) == 12


def test_a_relay_that_was_late(kept: Callable[..., str], config: dict[str, Any], fill: Fill) -> None:
    source, target = kept(), kept()
    # Kafka's timestamps, of tombstones too, are those of the source.
    fill(source, [{**plain(number), **({"value": None, "key": b"k"} if number % 3 else {})} for number in range(60)])
    assert stamp(config, source, target, until_end=True) == 60
    reader = confluent_kafka.Consumer({**config, "group.id": target, "auto.offset.reset": "earliest"})
    reader.assign([confluent_kafka.TopicPartition(target, 0, 0)])
    times: dict[int, int] = {}
    while len(times) < 20:
        message: Any = reader.poll(30)
        metadata = peek(message.value()) if message.value() is not None else None
        if metadata is not None:
            times[message.offset()] = metadata.broker_timestamp or 0
    reader.close()
    assert min(times.values()) > at(60)
    for wanted in set(times.values()):
        # The tombstones before it, which have no time of entry, are earlier by their timestamps.
        assert offset_at(config, target, 0, wanted) == min(offset for offset, time in times.items() if time >= wanted)
    assert offset_at(config, target, 0, max(times.values()) + 1) > max(times)


def test_frames_around_placeholders_are_read_without_a_download(
    kept: Callable[..., str], config: dict[str, Any]
) -> None:
    topic = kept()
    chains = {
        "value.serializers": "bytes, large-message, entry-metadata",
        "value.deserializers": "entry-metadata, large-message",
        "large.message.threshold.bytes": 100,
        "large.message.payload.store.class": "memory",
    }
    MemoryStore.clear()
    with Producer({**config, **chains}) as producer:
        for number in range(20):
            producer.produce(topic, bytes(1000) if number % 2 else b"small", partition=0, timestamp=at(number))
        producer.flush(30)
    MemoryStore.clear()
    with Consumer({**config, **chains, "group.id": topic}) as consumer:
        [place] = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, at(0))], 30)
        assert place.offset == 0
        # All entered just now, years after their timestamps.
        [place] = consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, at(10**9))], 30)
        assert place.offset == 0


@pytest.mark.full
def test_transactions_and_tombstones(
    broker: KafkaBroker, kept: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, config = kept(2), {**broker.client_config(), "log_level": 0}
    producer = confluent_kafka.Producer({**config, "transactional.id": topic})
    producer.init_transactions(60)
    times: dict[int, int] = {}
    for batch in range(20):  # the marks between transactions take offsets too
        producer.begin_transaction()
        for number in range(50):
            time = at(50 * batch + number)
            value: Any = None if number == 7 else frame(bytes(100), broker_timestamp=time)

            def note(_error: Any, message: Any, entered: int = time) -> None:
                times[message.offset()] = entered

            producer.produce(topic, value, partition=1, key=b"k", timestamp=time, on_delivery=note)
        if batch % 5 == 4:
            producer.flush(30)
            producer.abort_transaction(30)  # these records are not there
            for offset in [offset for offset, entered in times.items() if entered >= at(50 * batch)]:
                del times[offset]
        else:
            producer.commit_transaction(30)
    reads = []
    read = module._first_records

    def counted(reader: Any, name: str, ranges: Any, of: Any, until: float) -> Any:
        reads.append(ranges)
        return read(reader, name, ranges, of, until)

    monkeypatch.setattr(module, "_first_records", counted)
    for wanted in (0, at(0), at(0) + 1, at(7), at(455), at(900)):
        expected = min(offset for offset, entered in times.items() if entered >= wanted)
        reads.clear()
        assert offset_at(config, topic, 1, wanted) == expected
        assert len(reads) <= 13  # of about a thousand
    assert offset_at(config, topic, 1, at(10**9)) > max(times)
    with pytest.raises(StampError):
        offset_at({**config, "bootstrap.servers": "127.0.0.1:1"}, topic, 0, 0, timeout_s=1)
