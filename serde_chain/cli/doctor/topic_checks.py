"""Checks of topics: existence, this user's permissions, sizes and cleanup."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

from payload_stores.options import Option, integer
from serde_chain.catalogue import find_format
from serde_chain.cli.doctor.base import CheckContext, TopicSettings
from serde_chain.cli.findings import Finding, Level
from serde_chain.cli.output import number
from serde_chain.cli.records import RecordUnavailableError, last
from serde_chain.cli.routed import threshold_of
from serde_chain.clients.confluent.partitions import PartitionReader
from serde_chain.clients.dead_letters import ROOM_BYTES
from serde_chain.clients.limits import MESSAGE_MAX, largest_value
from serde_chain.config import DEAD_LETTER_TOPIC
from serde_chain.stages.large_message.options import AUTO, FORMAT, ID, THRESHOLD

_BATCH_SIZE: Final = Option("batch.size", integer(1), 1_000_000)
_RECEIVE_MAX: Final = Option("receive.message.max.bytes", integer(1), 100_000_000)
# Overhead of a fetch beside the records: librdkafka's rule for fetch.max.bytes.
_FETCH_OVERHEAD: Final = 512
_SKEW_MS: Final = 60_000
# Offsets to read at the end of a partition, and of all partitions of a topic.
_TAIL: Final = 20
_LEAST: Final = 2
_MOST: Final = 400


def topics(context: CheckContext) -> Iterator[Finding]:
    """Whether the broker answers and has the topics. A broker that does not answer raises an error."""
    with context.reader() as reader:
        for topic in context.topics:
            try:
                is_there = reader.is_there(topic)
            except RecordUnavailableError as error:
                if error.transient:
                    raise  # it will not answer about the others either
                yield Finding("topic", Level.ERROR, error.message, error.hint or "Check the topic's name", topic)
                continue
            if is_there:
                yield Finding("topic", Level.OK, number(reader.count(topic), "partition"), topic=topic)
            else:
                yield Finding(
                    "topic",
                    Level.ERROR,
                    "the topic does not exist, or this user may not see it",
                    "Create it, or permit DESCRIBE",
                    topic,
                )


def permissions(context: CheckContext) -> Iterator[Finding]:
    """Whether this user has the permissions that the configuration's chains need."""
    from confluent_kafka import KafkaException, TopicCollection
    from confluent_kafka.admin import AclOperation

    wanted = [("WRITE", context.writes), ("READ", context.reads)]
    futures = context.admin.describe_topics(
        TopicCollection([*context.topics]), include_authorized_operations=True, request_timeout=context.timeout_s
    )
    for topic, future in futures.items():
        try:
            allowed = set(future.result(context.timeout_s + 1).authorized_operations or ())
        except (KafkaException, TimeoutError):
            continue  # older brokers do not report permissions
        missing = [name for name, is_wanted in wanted if is_wanted and AclOperation[name] not in allowed]
        if missing:
            change = f"Permit {' and '.join(missing)} on the topic"
            yield Finding("permissions", Level.ERROR, f"this user may not {' or '.join(missing)}", change, topic)
        else:
            yield Finding("permissions", Level.OK, "this user has the permissions that the chains need", topic=topic)


def sizes(context: CheckContext) -> Iterator[Finding]:
    """Whether the client, the topic and readers accept the largest records."""
    for topic in context.topics:
        facts = context.facts(topic)
        if facts is None:
            yield Finding(
                "limits",
                Level.WARNING,
                "this user may not read the topic's limits, so they were not compared"
                + (
                    "; if it is compacted, ids of payloads are random all the same"
                    if _chooses_ids(context, topic)
                    else ""
                ),
                "Permit DESCRIBE_CONFIGS on the topic",
                topic,
            )
            continue
        wrong = [*_threshold(context, topic, facts), *_batches(context, topic, facts), *_fetches(context, topic, facts)]
        yield from wrong or [Finding("limits", Level.OK, f"records fit into {facts.max_bytes:,} bytes", topic=topic)]


def _threshold(context: CheckContext, topic: str, facts: TopicSettings) -> Iterator[Finding]:
    config = context.large_messages_of(topic)
    if config is None or not context.writes:
        return
    stays = threshold_of(config)
    taken = largest_value(MESSAGE_MAX.read(config), None, None, facts.max_bytes)
    if isinstance(stays, int) and stays > taken:
        yield Finding(
            "threshold",
            Level.ERROR,
            f"values up to {stays:,} bytes stay in their records, but the topic accepts {taken:,} (max.message.bytes = "
            f"{facts.max_bytes}): sizes in between are refused",
            f"Set {THRESHOLD.name} to auto, or to less than {taken}; or raise the topic's max.message.bytes",
            topic,
        )


def _batches(context: CheckContext, topic: str, facts: TopicSettings) -> Iterator[Finding]:
    config = context.config.settings
    batch = min(_BATCH_SIZE.read(config), MESSAGE_MAX.read(config))
    of_large = context.large_messages_of(topic)
    negotiates = of_large is not None and threshold_of(of_large) == AUTO  # then the producer keeps batches small
    if context.writes and batch > facts.max_bytes and not negotiates:
        yield Finding(
            "batch.size",
            Level.ERROR,
            f"the client makes batches of up to {batch:,} bytes, but the topic accepts {facts.max_bytes:,}: small "
            "records are refused together",
            f"Set {_BATCH_SIZE.name} to {facts.max_bytes}",
            topic,
        )


def _fetches(context: CheckContext, topic: str, facts: TopicSettings) -> Iterator[Finding]:
    most = _RECEIVE_MAX.read(context.config.settings)
    if context.reads and facts.max_bytes + _FETCH_OVERHEAD > most:
        yield Finding(
            "receive.message.max.bytes",
            Level.ERROR,
            f"the client receives up to {most:,} bytes at a time, but the topic's batches may have {facts.max_bytes:,}",
            f"Set {_RECEIVE_MAX.name} to at least {facts.max_bytes + _FETCH_OVERHEAD}",
            topic,
        )


def dead_letters(context: CheckContext) -> Iterator[Finding]:
    """Whether the dead-letter topic exists, with room for the largest records and the headers of letters."""
    topic = DEAD_LETTER_TOPIC.read(context.config.settings)
    if topic is None or not context.reads:
        return
    with context.reader() as reader:
        if not reader.is_there(topic):
            yield Finding(
                "dead letters",
                Level.ERROR,
                f"{DEAD_LETTER_TOPIC.name} does not exist, or this user may not see it: the first undecodable record "
                "stops the consumer",
                "Create it, or permit DESCRIBE",
                topic,
            )
            return
    facts = context.facts(topic)
    largest = max((read.max_bytes for each in context.topics if (read := context.facts(each)) is not None), default=0)
    if facts is not None and facts.max_bytes < largest + ROOM_BYTES:
        yield Finding(
            "dead letters",
            Level.WARNING,
            f"letters may have {facts.max_bytes:,} bytes, and records {largest:,}: letters of the largest records lose "
            "the text of the error, or their values",
            f"Set the topic's max.message.bytes to {largest + ROOM_BYTES}",
            topic,
        )
    else:
        yield Finding("dead letters", Level.OK, "the largest records fit into the topic", topic=topic)


def cleanup(context: CheckContext) -> Iterator[Finding]:
    """Whether the ids of payloads suit the topic's cleanup policy."""
    for topic in context.topics:
        config, facts = next(iter(context.stores_of(topic)), None), context.facts(topic)
        if config is None or facts is None or not context.writes:
            continue
        strategy = ID.read(config)
        if facts.compacted and _chooses_ids(context, topic):
            yield Finding(
                "ids",
                Level.WARNING,
                f"the topic is compacted, and {ID.name} is unset, so ids depend on the client: content ids, but random "
                "ones with kafka-python and in chains without a client, which cannot ask for the policy",
                f"Set {ID.name} = keyed or content",
                topic,
            )
        elif facts.compacted and strategy == "random":
            yield Finding(
                "ids",
                Level.WARNING,
                f"the topic is compacted, and {ID.name} = {strategy}: each new value of a key leaves a payload that "
                "listing by key does not find",
                f"Set {ID.name} = keyed, and run serde-chain sweep regularly",
                topic,
            )
        elif strategy == "keyed" and not facts.compacted:
            yield Finding(
                "ids",
                Level.WARNING,
                f"{ID.name} = keyed refuses records without a key and suits compacted topics, which this one is not",
                f"Set {ID.name} = random or content",
                topic,
            )
        else:
            yield Finding("ids", Level.OK, f"{ID.name} = {strategy} suits the topic's cleanup policy", topic=topic)


def _chooses_ids(context: CheckContext, topic: str) -> bool:
    """Whether ids depend on the topic's cleanup policy."""
    config = next(iter(context.stores_of(topic)), None)
    if config is None or not context.writes or config.get(ID.name) is not None:
        return False
    return "content" in find_format(FORMAT.read(config)).id_strategies


def clocks(context: CheckContext) -> Iterator[Finding]:
    """Whether the newest records have future timestamps: retention and payloads' ages depend on these clocks."""
    with context.reader() as reader:
        for topic in context.topics:
            latest = max((_time(message) for batch in last(reader, topic, 1) for message in batch), default=None)
            ahead = 0 if latest is None else latest - time.time() * 1000
            if ahead > _SKEW_MS:
                yield Finding(
                    "clock",
                    Level.WARNING,
                    f"the newest record's timestamp is {ahead / 1000:,.0f} s ahead of this machine's clock",
                    "Set the clocks of the broker, its producers and this machine by NTP",
                    topic,
                )
            else:
                yield Finding("clock", Level.OK, "no record has a future timestamp", topic=topic)


def newest_records(reader: PartitionReader, topic: str) -> Iterator[list[Any]]:
    """The records at the last offsets of each partition: 20, or fewer if there are many partitions.

    One would not do: partitions end with tombstones after deletions, and with markers after transactions.
    """
    return last(reader, topic, max(_LEAST, min(_TAIL, _MOST // reader.count(topic))))


def _time(message: Any) -> int:
    return int(message.timestamp()[1])
