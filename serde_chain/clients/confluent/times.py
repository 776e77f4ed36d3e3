"""Finds the records of a time in partitions, all of them at once, with librdkafka."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from payload_stores.message_headers import headers_of
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.clients.seek import MOST_TOMBSTONES, EntryTimes, Moment, first_at
from serde_chain.config import resolve
from serde_chain.errors import ContextualError, StampError

# A search needs one record of each fetch: by default, librdkafka asks for a megabyte, then goes on with the next one,
# and waits a second before another fetch if it has enough.
_ONE_RECORD: Final[Mapping[str, Any]] = {
    "fetch.message.max.bytes": 16 << 10,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 0,
    # Retention may remove a record after the range was determined.
    "auto.offset.reset": "earliest",
}
_TICK_S: Final = 0.5


def offsets_at(
    reader: PartitionReader, topic: str, partitions: Iterable[int], time_ms: int, times: EntryTimes | None = None
) -> dict[int, int]:
    """The first offset of each partition with a record of a time or later; the end if there is none.

    Args:
        reader: A reader of the topic.
        topic: The topic.
        partitions: Its partitions.
        time_ms: The time, in ms since the epoch.
        times: The times of its records; None to follow the reader's configuration. Without frames, the broker answers.

    Raises:
        ConfigError: The first stage of the configuration's chain is unknown.
        ContextualError: The broker does not answer, or a record did not come in time.
    """
    times = times or EntryTimes.of_config(resolve(reader.config))
    answers = reader.at_time(topic, partitions, time_ms)
    if times is None:
        return answers
    with reader.another(_ONE_RECORD) as searching:
        searches = _searches(searching.all_bounds(topic, answers), answers, time_ms)
        return _run(searching, topic, searches, times)


def offsets_for_times(
    asked: Sequence[TopicPartition],
    answers: Sequence[TopicPartition],
    times: EntryTimes,
    settings: Mapping[str, Any],
    timeout_s: float,
) -> list[TopicPartition]:
    """Correct the broker's answers to a consumer by the times of frames.

    Args:
        asked: Partitions with times in ms since the epoch as offsets. Negative ones have another meaning to librdkafka,
            whose answer remains.
        answers: The broker's answers, in the same order.
        times: The times of records.
        settings: Settings of librdkafka.
        timeout_s: The longest wait, in seconds.

    Returns:
        The answers: offset -1 (``OFFSET_END``) if there is no such record.

    Raises:
        confluent_kafka.KafkaException: The broker does not answer, or a record did not come in time.
    """
    until = time.monotonic() + timeout_s
    corrected = list(answers)
    groups: dict[tuple[str, int], list[int]] = {}
    for at, (wanted, answer) in enumerate(zip(asked, answers, strict=True)):
        if wanted.offset >= 0 and answer.error is None:
            groups.setdefault((wanted.topic, wanted.offset), []).append(at)
    if not groups:
        return corrected
    isolation = {name: settings[name] for name in ("isolation.level",) if name in settings}
    own = {**_ONE_RECORD, **isolation}
    try:
        with PartitionReader(settings, "serde-chain-seek", failure=StampError, timeout_s=timeout_s, **own) as reader:
            for (topic, time_ms), places in groups.items():
                of_broker = {
                    answers[at].partition: answers[at].offset if answers[at].offset >= 0 else sys.maxsize
                    for at in places
                }
                reader.timeout_s = max(0.0, until - time.monotonic())
                bounds = reader.all_bounds(topic, of_broker)
                found = _run(reader, topic, _searches(bounds, of_broker, time_ms), times, until)
                for at in places:
                    partition = answers[at].partition
                    offset = found[partition] if found[partition] < bounds[partition][1] else OFFSET_END
                    corrected[at] = TopicPartition(topic, partition, offset)
    except StampError as error:
        cause = error.__cause__
        known = cause.args[0].code() if isinstance(cause, KafkaException) else KafkaError._TIMED_OUT  # noqa: SLF001
        raise KafkaException(KafkaError(known, str(error))) from error
    return corrected


def _searches(
    bounds: Mapping[int, tuple[int, int]], answers: Mapping[int, int], time_ms: int
) -> dict[int, Generator[tuple[int, int], list[Moment], int]]:
    return {
        partition: first_at(low, high, min(answers[partition], high), time_ms)
        for partition, (low, high) in bounds.items()
    }


def _run(
    reader: PartitionReader,
    topic: str,
    searches: Mapping[int, Generator[tuple[int, int], list[Moment], int]],
    times: EntryTimes,
    until: float = math.inf,
) -> dict[int, int]:
    """The results of searches by partition, which read a record of each at a time."""
    found: dict[int, int] = {}
    sent: dict[int, list[Moment] | None] = dict.fromkeys(searches)
    while sent:
        ranges: dict[int, tuple[int, int]] = {}
        for partition, moments in sent.items():
            try:
                search: Any = searches[partition]
                ranges[partition] = search.send(moments)
            except StopIteration as end:
                found[partition] = end.value
        sent = dict(_first_records(reader, topic, ranges, times, until)) if ranges else {}
    return found


def _first_records(
    reader: PartitionReader, topic: str, ranges: Mapping[int, tuple[int, int]], times: EntryTimes, until: float
) -> dict[int, list[Moment]]:
    """The records from the start of each range to the first one with a value."""
    seen: dict[int, list[Moment]] = {partition: [] for partition in ranges}
    waiting = set(ranges)
    reader.assign(topic, {partition: start for partition, (start, _) in ranges.items()})
    until = min(until, time.monotonic() + reader.timeout_s)
    while waiting:
        left = until - time.monotonic()
        if left <= 0:
            raise _late(reader, topic, min(waiting), ranges)
        messages, ended = reader.take(MOST_TOMBSTONES, 0)
        if not messages and not ended:
            messages, ended = reader.take(1, min(_TICK_S, left))  # the client waits for as many as it is asked for
        done = {partition for partition in waiting if ended.get(partition, -1) >= ranges[partition][1]}
        for message in messages:
            partition, offset = message.partition(), message.offset()
            start, end = ranges[partition]
            if partition not in waiting or offset < start:
                continue
            if offset < end:
                moment = times.of(offset, message.value(), headers_of(message), message.timestamp()[1])
                seen[partition].append(moment)
                if moment.is_tombstone and len(seen[partition]) < MOST_TOMBSTONES and offset < end - 1:
                    continue
            done.add(partition)
            waiting.discard(partition)
        waiting -= done
        for partition in done if waiting else ():
            reader.pause(topic, partition)
    return seen


def _late(
    reader: PartitionReader, topic: str, partition: int, ranges: Mapping[int, tuple[int, int]]
) -> ContextualError:
    return reader.failure(
        "no record came in time",
        hint="Check that the broker runs, or allow more time",
        topic=topic,
        partition=partition,
        offset=ranges[partition][0],
    )
